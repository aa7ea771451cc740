//! `rocketctl explain`: what a name that some output printed is about: a finding, a test, a reason, a route, a
//! setting, or a patch of the kernel.

use crate::doctor::{checks, finding::wrapped};
use crate::load_test;
use crate::patch::{catalog, headers};
use crate::selftest::TESTS;
use crate::udev;
use crate::ui::{Globals, print, print_json};
use anyhow::{Result, bail};
use clap::Args;
use ggml_rocket::exec::redo::REDOS;
use ggml_rocket::knobs::{KNOBS, Knob, Status, closest};
use ggml_rocket::route::{REASONS, reference::ENTRIES};
use serde::Serialize;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    /// As any output prints it: access.node, too_few_rows, ROCKET_MIN_M, keep-attached. All names without it.
    id: Option<String>,
}

/// What one name is about.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Entry {
    pub id: String,
    /// `finding`, `test`, `reason`, `redo`, `route`, `setting`, `patch`.
    pub kind: &'static str,
    pub text: String,
}

/// Prints what a name is about.
///
/// # Errors
/// A name that means nothing, with the nearest one.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<()> {
    let all = entries()?;
    let found = match &arguments.id {
        None if globals.json => return print_json(&all),
        None => return print(&index(&all)),
        Some(id) => find(&all, id)?,
    };
    if globals.json {
        return print_json(&found);
    }
    let texts: Vec<String> = found.iter().map(|e| text(e)).collect();
    print(&texts.join("\n"))
}

/// Everything that has a name.
fn entries() -> Result<Vec<Entry>> {
    let entry = |id: &str, kind, text: String| Entry { id: id.to_owned(), kind, text };
    let mut all: Vec<Entry> = Vec::new();
    for c in checks::ALL {
        let after = match c.after {
            [] => String::new(),
            ids => format!("\n\nLooked at only where nothing is wrong with: {}", ids.join(", ")),
        };
        all.push(entry(c.id, "finding", format!("{}{after}", c.explain)));
    }
    all.extend(headers::CHECKS.iter().map(|(id, text)| entry(id, "finding", text.to_string())));
    all.extend(udev::ids().filter_map(|id| Some(entry(id, "finding", udev::explain(id)?))));
    all.extend(load_test::explained().map(|(id, text)| entry(id, "finding", text.to_owned())));
    all.extend(TESTS.iter().map(|t| entry(t.id, "test", t.explain.to_owned())));
    for r in REASONS {
        let text = format!("An operation stays on the CPU: {}", r.sentence());
        all.push(entry(r.name(), "reason", text));
    }
    for r in REDOS {
        let text = format!("What the NPU was to compute was computed by the CPU: {}", r.sentence());
        all.push(entry(r.name(), "redo", text));
    }
    for e in ENTRIES {
        let knobs: Vec<String> = e.knobs.iter().map(|k| format!("ROCKET_{k}")).collect();
        let text = format!(
            "{} on the NPU: {}. Computed: {}.\n\nSettings: {}",
            e.op,
            e.when,
            e.how,
            knobs.join(", ")
        );
        all.push(entry(e.name, "route", text));
    }
    all.extend(KNOBS.iter().map(|k| entry(k.name, "setting", of_knob(k))));
    for p in catalog::catalog()? {
        let upstream = match &p.upstream {
            Some(version) => format!(" Mainline has it from {version} on."),
            None => String::new(),
        };
        let needs = match p.needs.is_empty() {
            true => String::new(),
            false => format!(" It needs {}.", p.needs.join(", ")),
        };
        all.push(entry(&p.id, "patch", format!("{}.{upstream}{needs}", p.title)));
    }
    Ok(all)
}

fn of_knob(k: &Knob) -> String {
    let default = if k.default.is_empty() { "unset" } else { k.default };
    let later = match k.status {
        Status::Now => String::new(),
        Status::Later(what) => format!("\n\nIt has no effect yet (later: {what})."),
    };
    format!("{}\n\nvalues:  {}\ndefault: {default}{later}", k.help, k.kind.range())
}

/// All that a name may mean; a setting also by its key of the configuration file.
fn find<'a>(all: &'a [Entry], id: &str) -> Result<Vec<&'a Entry>> {
    let key = |e: &Entry| e.kind == "setting" && e.id.eq_ignore_ascii_case(&format!("ROCKET_{id}"));
    let is = |e: &&Entry| e.id.eq_ignore_ascii_case(id) || key(e);
    let found: Vec<&Entry> = all.iter().filter(is).collect();
    if !found.is_empty() {
        return Ok(found);
    }
    let short: String = id.chars().take(64).collect();
    match closest(&short, all.iter().map(|e| e.id.as_str())) {
        Some(near) => bail!("nothing is called '{short}'; did you mean {near}?"),
        None => bail!("nothing is called '{short}'; rocketctl explain lists every name"),
    }
}

fn text(e: &Entry) -> String {
    let lines: Vec<String> = e.text.lines().map(|line| wrapped(line, 80).join("\n")).collect();
    format!("{} ({})\n\n{}\n", e.id, e.kind, lines.join("\n"))
}

/// All names, by kind.
fn index(all: &[Entry]) -> String {
    let mut out = String::new();
    for kind in ["finding", "test", "reason", "redo", "route", "setting", "patch"] {
        let ids: Vec<&str> = all.iter().filter(|e| e.kind == kind).map(|e| e.id.as_str()).collect();
        out += &format!("{kind}\n");
        for line in wrapped(&ids.join(" "), 76) {
            out += &format!("    {line}\n");
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    /// Every name of every table is found, and says something.
    #[test]
    fn every_name_is_explained() {
        let all = entries().unwrap();
        let names = checks::ALL
            .iter()
            .map(|c| c.id)
            .chain(TESTS.iter().map(|t| t.id))
            .chain(REASONS.iter().map(|r| r.name()))
            .chain(REDOS.iter().map(|r| r.name()))
            .chain(KNOBS.iter().map(|k| k.name))
            .chain(["keep-attached", "attention", "experts-int8"]);
        for name in names {
            let found = find(&all, name).unwrap();
            assert!(found.iter().all(|e| e.text.len() > 5), "{name}");
            for e in found {
                assert!(text(e).lines().all(|l| l.chars().count() <= 80), "{name}");
            }
        }
    }

    /// One name may mean two things, and then both are said.
    #[test]
    fn a_route_and_a_setting_of_one_name_are_both_shown() {
        let all = entries().unwrap();
        let kinds: BTreeSet<_> = find(&all, "int8").unwrap().iter().map(|e| e.kind).collect();
        assert_eq!(kinds, BTreeSet::from(["route", "setting"]));
        assert_eq!(find(&all, "min_m").unwrap()[0].id, "ROCKET_MIN_M");
        assert!(find(&all, "rocket_min_m").unwrap()[0].text.contains("default: 32"));
    }

    #[test]
    fn a_misspelt_name_has_its_neighbour() {
        let all = entries().unwrap();
        let why = |id: &str| find(&all, id).unwrap_err().to_string();
        assert!(why("access.nod").contains("access.node"));
        assert!(why("too_few_row").contains("too_few_rows"));
        assert!(why(&"x".repeat(10_000)).len() < 200);
        assert!(index(&all).lines().all(|l| l.chars().count() <= 80));
    }
}
