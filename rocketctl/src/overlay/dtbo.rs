//! An overlay as the file that a boot loader applies: the same that dtc makes of [`super::dts`].

use super::board::{Overlay, Reference, Value};
use anyhow::Result;
use vm_fdt::FdtWriter;

/// The number of the fragment that gives the rail one; the boot loader moves it out of the way of the tree's.
const LOCAL: u32 = 1;
/// In place of a number that the boot loader looks up.
const LATER: u32 = 0xffff_ffff;

/// The file.
///
/// # Errors
/// A path or a label of the tree holds a character that the format does not allow.
pub fn bytes(overlay: &Overlay) -> Result<Vec<u8>> {
    let mut out = FdtWriter::new()?;
    let root = out.begin_node("")?;
    out.property_string("compatible", overlay.compatible)?;
    let number = match &overlay.rail {
        Some(Reference::Number(number)) => *number,
        Some(Reference::Label(_)) => LATER,
        Some(Reference::Fragment(_)) | None => LOCAL,
    };
    for (at, fragment) in overlay.fragments.iter().enumerate() {
        let node = out.begin_node(&format!("fragment@{at}"))?;
        out.property_string("target-path", &fragment.path)?;
        let inner = out.begin_node("__overlay__")?;
        for (name, value) in &fragment.properties {
            match value {
                Value::Okay => out.property_string(name, "okay")?,
                Value::Flag => out.property_null(name)?,
                Value::Rail => out.property_u32(name, number)?,
            }
        }
        if overlay.rail == Some(Reference::Fragment(at)) {
            out.property_u32("phandle", LOCAL)?;
        }
        out.end_node(inner)?;
        out.end_node(node)?;
    }
    match &overlay.rail {
        Some(Reference::Label(label)) => by_label(&mut out, overlay, label)?,
        Some(Reference::Fragment(_)) => by_number(&mut out, overlay)?,
        Some(Reference::Number(_)) | None => {}
    }
    out.end_node(root)?;
    Ok(out.finish()?)
}

/// Fragments with the names of their properties that refer to the rail.
fn references(overlay: &Overlay) -> Vec<(usize, Vec<&'static str>)> {
    let names = |properties: &[(&'static str, Value)]| {
        let rail = properties.iter().filter(|(_, v)| *v == Value::Rail);
        rail.map(|(name, _)| *name).collect::<Vec<_>>()
    };
    let all = overlay.fragments.iter().enumerate().map(|(at, f)| (at, names(&f.properties)));
    all.filter(|(_, names)| !names.is_empty()).collect()
}

/// `__fixups__`: for a label, the places that want its number.
fn by_label(out: &mut FdtWriter, overlay: &Overlay, label: &str) -> Result<()> {
    let place = |at: &usize, name: &&str| format!("/fragment@{at}/__overlay__:{name}:0");
    let all = references(overlay);
    let places =
        all.iter().flat_map(|(at, names)| names.iter().map(move |n| place(at, n))).collect();
    let node = out.begin_node("__fixups__")?;
    out.property_string_list(label, places)?;
    Ok(out.end_node(node)?)
}

/// `__local_fixups__`: where in the properties numbers of the overlay's own are.
fn by_number(out: &mut FdtWriter, overlay: &Overlay) -> Result<()> {
    let node = out.begin_node("__local_fixups__")?;
    for (at, names) in references(overlay) {
        let fragment = out.begin_node(&format!("fragment@{at}"))?;
        let inner = out.begin_node("__overlay__")?;
        for name in names {
            out.property_u32(name, 0)?;
        }
        out.end_node(inner)?;
        out.end_node(fragment)?;
    }
    Ok(out.end_node(node)?)
}
