//! The table as text for people: `docs/knobs.md`.

use super::entries::KNOBS;
use super::table::{Group, Knob, Status};
use std::fmt::Write;

/// The command that prints [`markdown`].
pub const COMMAND: &str = "cargo run -p ggml-rocket --example knobs";

/// The cells of one row: name, values, default, effect.
pub fn cells(knob: &Knob) -> [String; 4] {
    let values = knob.kind.range();
    let default = if knob.name == "ROCKET_DEVICE" { "the board's own" } else { knob.default };
    let help = match knob.status {
        Status::Now => knob.help.to_owned(),
        Status::Later(what) => format!("*later ({what}):* {}", knob.help),
    };
    [format!("`{}`", knob.name), values, default.to_owned(), help]
}

/// One row of a table.
pub fn row(knob: &Knob) -> String {
    format!("| {} |", cells(knob).join(" | "))
}

/// The whole reference.
pub fn markdown() -> String {
    let mut out = String::from(INTRODUCTION);
    for group in Group::ALL {
        let _ = write!(out, "\n## {}\n\n", group.title());
        out.push_str("| variable | values | default | effect |\n|---|---|---|---|\n");
        for knob in KNOBS.iter().filter(|k| k.group == group) {
            let _ = writeln!(out, "{}", row(knob));
        }
    }
    out
}

const INTRODUCTION: &str = "\
# Settings

<!-- Printed by `cargo run -p ggml-rocket --example knobs`; a test compares. -->

Every setting is an environment variable, or a key of the configuration file: the same name
without `ROCKET_`, in lower case. A variable that is empty counts as unset, except for those
whose values are \"set or not\". Text that is no value leaves the default, a number beyond the range
becomes the nearest in it, and either is said in one line. What is marked *later* keeps its name and
meaning for a part that is not there yet; setting it has no effect and is answered by a line.
`sudo` drops variables; `sudo -E` keeps them.

The configuration file is the one that `ROCKET_CONFIG` names, else
`$XDG_CONFIG_HOME/ggml-rocket/config.yaml` (`~/.config/...` while that is unset), else
`/etc/ggml-rocket/config.yaml`:

    settings:
      min_m: 32
      cpu_affinity: 4-7
    profiles:
      - name: small-quantized
        model: \"*Q4_K*.gguf\"
        settings:
          quant_resident: 512

A profile applies when `ROCKET_PROFILE` names it, or when its `model` (`*`, `?` and `[...]`, in either
case) matches the file name of a model on the host's command line. The environment wins over a
profile, a profile over `settings`, the named profile over those that match, a later one over an
earlier one.
";
