//! `rocketctl patch status`: which patches a source or the running module has, by what it says.

use super::catalog::{Patch, Tier};
use super::paragraph;
use super::running::Running;
use super::source::Source;
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result};
use rocket_runtime::board::{Facts, Root};
use serde::Serialize;
use std::path::Path;
use std::process::ExitCode;

/// Version of the JSON's shape.
const SCHEMA: u32 = 1;

/// What a source or a module shows of a patch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum State {
    /// It has what the patch gives, in whatever words.
    Applied,
    /// Mainline gave it.
    Upstream,
    /// It has none of it.
    Missing,
    /// It has a part: worse than either, as nobody has tested it.
    Conflicts,
    /// A function that tells is not there, or cannot be read; or the module does not say.
    Unknown,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Applied => "applied",
            State::Upstream => "upstream",
            State::Missing => "missing",
            State::Conflicts => "CONFLICTS",
            State::Unknown => "unknown",
        }
    }
}

#[derive(Debug, Serialize)]
pub struct Line<'a> {
    id: &'a str,
    alias: Option<&'a str>,
    tier: Tier,
    title: &'a str,
    #[serde(skip_serializing_if = "Option::is_none")]
    state: Option<State>,
    needs: &'a [String],
    tunables: &'a [String],
    upstream: Option<&'a str>,
    in_series: bool,
}

#[derive(Debug, Serialize)]
struct Status<'a> {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    exit: u8,
    /// What was looked at.
    source: &'a str,
    patches: &'a [Line<'a>],
}

pub fn status(all: &[Patch], dir: Option<&Path>, globals: &Globals) -> Result<ExitCode> {
    let (source, states): (String, Vec<State>) = match dir {
        Some(dir) => {
            let source = Source::open(dir)?;
            let states = all.iter().map(|p| state(p, &source)).collect();
            (source.dir.display().to_string(), states)
        }
        None => {
            let root =
                Root::open(&globals.root).with_context(|| globals.root.display().to_string())?;
            let running = Running::read(&root, &Facts::read(&root));
            let states = all.iter().map(|p| running.state(p)).collect();
            (running.source, states)
        }
    };
    let lines: Vec<Line<'_>> = all.iter().zip(states).map(|(p, s)| line(p, Some(s))).collect();
    let required = |want: &[State]| -> Vec<&str> {
        let is = |l: &&Line<'_>| l.state.is_some_and(|s| want.contains(&s));
        let lines = lines.iter().filter(|l| l.tier == Tier::Required);
        lines.filter(is).map(|l| l.id).collect()
    };
    let lacking = required(&[State::Missing, State::Conflicts]);
    let unknown = required(&[State::Unknown]);
    let exit = if !lacking.is_empty() {
        1
    } else if !unknown.is_empty() {
        3
    } else {
        0
    };
    if globals.json {
        let (tool, version) = ("rocketctl", env!("CARGO_PKG_VERSION"));
        print_json(&Status {
            schema: SCHEMA,
            tool,
            version,
            exit,
            source: &source,
            patches: &lines,
        })?;
        return Ok(ExitCode::from(exit));
    }
    let mut out = format!("{source}\n{}", table(&lines));
    for (words, ids) in [("and not there", &lacking), ("and not known", &unknown)] {
        if !ids.is_empty() {
            out += &format!("\n{}", paragraph(&format!("required, {words}: "), &ids.join(", ")));
        }
    }
    if !lacking.is_empty() {
        out += "kernel-patches/README.md says how to install the series\n";
    }
    print(&out)?;
    Ok(ExitCode::from(exit))
}

pub fn line(patch: &Patch, state: Option<State>) -> Line<'_> {
    Line {
        id: &patch.id,
        alias: patch.alias.as_deref(),
        tier: patch.tier,
        title: &patch.title,
        state,
        needs: &patch.needs,
        tunables: &patch.tunables,
        upstream: patch.upstream.as_deref(),
        in_series: patch.in_series(),
    }
}

pub fn state(patch: &Patch, source: &Source) -> State {
    let mut held = Vec::new();
    for condition in &patch.probe {
        match source.text(&condition.place) {
            Some(text) => held.push(condition.holds(&text)),
            None => return State::Unknown,
        }
    }
    match held.iter().filter(|h| **h).count() {
        n if n == held.len() && patch.in_series() => State::Applied,
        n if n == held.len() => State::Upstream,
        0 => State::Missing,
        _ => State::Conflicts,
    }
}

pub fn table(lines: &[Line<'_>]) -> String {
    let mut out = String::new();
    for l in lines {
        let tier = match l.tier {
            Tier::Required => "required",
            Tier::Recommended => "recommended",
            Tier::Optional => "optional",
        };
        let state = l.state.map(|s| format!("{:<10}", s.word())).unwrap_or_default();
        let alias = l.alias.unwrap_or("");
        let head = format!("{state}{:<20} {alias:<3} {tier:<12} ", l.id);
        out += &paragraph(&head, l.title);
    }
    out
}
