//! An overlay as text, which dtc compiles to the file that [`super::dtbo`] makes.

use super::board::{Overlay, Reference, Value};
use std::fmt::Write as _;

/// The label that a fragment has which gives the rail its number.
pub const LABEL: &str = "rail";

/// The text.
pub fn text(overlay: &Overlay) -> String {
    let mut out = String::from("/dts-v1/;\n/plugin/;\n\n/ {\n");
    let _ = writeln!(out, "\tcompatible = \"{}\";", overlay.compatible);
    let rail = match &overlay.rail {
        Some(Reference::Label(label)) => format!("<&{label}>"),
        Some(Reference::Number(number)) => format!("<{number:#x}>"),
        Some(Reference::Fragment(_)) | None => format!("<&{LABEL}>"),
    };
    for (at, fragment) in overlay.fragments.iter().enumerate() {
        let label = match overlay.rail == Some(Reference::Fragment(at)) {
            true => format!("{LABEL}: "),
            false => String::new(),
        };
        let _ = writeln!(out, "\n\tfragment@{at} {{");
        let _ = writeln!(out, "\t\ttarget-path = \"{}\";", fragment.path);
        let _ = writeln!(out, "\t\t{label}__overlay__ {{");
        for (name, value) in &fragment.properties {
            let _ = match value {
                Value::Okay => writeln!(out, "\t\t\t{name} = \"okay\";"),
                Value::Flag => writeln!(out, "\t\t\t{name};"),
                Value::Rail => writeln!(out, "\t\t\t{name} = {rail};"),
            };
        }
        out.push_str("\t\t};\n\t};\n");
    }
    out.push_str("};\n");
    out
}
