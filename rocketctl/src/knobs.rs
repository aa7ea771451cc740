//! `rocketctl knobs`: every setting of the plugin, its value in effect, and where that comes from.

use crate::doctor::finding::wrapped;
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result};
use clap::Args;
use ggml_rocket::knobs::{Group, InEffect, Listing, Status, listing};
use rocket_runtime::board::{Absent, Root, Why};
use serde::Serialize;
use std::ffi::OsString;
use std::io;
use std::path::Path;
use std::process::ExitCode;

/// Version of the JSON's shape.
const SCHEMA: u32 = 1;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    /// Show settings whose name has this in it.
    #[arg(value_name = "WORD")]
    word: Option<String>,
    /// Show settings that differ from their default, and what could not be taken.
    #[arg(long)]
    changed: bool,
    /// The host's command line, for profiles that apply by the model's name.
    #[arg(last = true, value_name = "CMD")]
    command: Vec<OsString>,
}

#[derive(Debug, Serialize)]
struct Line<'a> {
    name: &'static str,
    key: String,
    group: &'static str,
    values: String,
    default: Option<&'static str>,
    effect: &'static str,
    value: Option<&'a str>,
    source: &'a str,
    /// What was written and not taken.
    refused: Option<&'a str>,
    /// Why setting it has no effect yet.
    later: Option<&'static str>,
}

#[derive(Debug, Serialize)]
struct Output<'a> {
    schema: u32,
    tool: &'static str,
    version: &'static str,
    exit: u8,
    settings: Vec<Line<'a>>,
    warnings: &'a [String],
    notes: &'a [String],
}

/// Prints the settings.
///
/// # Errors
/// A root that is not there, or whose environment cannot be read.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let root = Root::open(&globals.root).with_context(|| globals.root.display().to_string())?;
    let words: Vec<OsString> = arguments.command.clone();
    let found = read(&root, &[], &words)?;
    let exit = u8::from(!found.warnings.is_empty());
    let shown = |k: &&InEffect| {
        let named = |w: &String| k.knob.name.contains(&w.to_ascii_uppercase());
        let changed = k.origin != "default" || k.refused.is_some();
        arguments.word.as_ref().is_none_or(named) && (!arguments.changed || changed)
    };
    let knobs: Vec<&InEffect> = found.knobs.iter().filter(shown).collect();
    match globals.json {
        true => print_json(&Output {
            schema: SCHEMA,
            tool: "rocketctl",
            version: env!("CARGO_PKG_VERSION"),
            exit,
            settings: knobs.into_iter().map(line).collect(),
            warnings: &found.warnings,
            notes: &found.notes,
        })?,
        false => print(&text(&knobs, &found, globals.quiet))?,
    }
    Ok(ExitCode::from(exit))
}

/// The settings of a machine's environment with more variables over it, below a root path.
pub fn read(root: &Root, more: &[(&str, &str)], words: &[OsString]) -> Result<Listing> {
    let environment = root.environment();
    // A tree without one is a machine without variables; anything else is unknown, and not empty.
    let environment = match environment {
        Err(Absent { why: Why::Missing, .. }) if !root.is_live() => Default::default(),
        other => {
            other.map_err(|absent| anyhow::anyhow!("the environment is not known: {absent}"))?
        }
    };
    let mut variables: Vec<(OsString, OsString)> =
        environment.into_iter().map(|(n, v)| (n.into(), v.into())).collect();
    variables.extend(more.iter().map(|(n, v)| (n.into(), v.into())));
    Ok(listing(&variables, words, &|path| below(root, path)))
}

/// A file below the root, as the plugin reads it: none is no error.
fn below(root: &Root, path: &Path) -> io::Result<Option<Vec<u8>>> {
    match root.bytes(&path.to_string_lossy()) {
        Ok(bytes) if bytes.len() > 1 << 20 => Err(io::Error::other("larger than 1 MiB")),
        Ok(bytes) => Ok(Some(bytes)),
        Err(Absent { why: Why::Missing, .. }) => Ok(None),
        Err(Absent { why: Why::Denied, .. }) => Err(io::ErrorKind::PermissionDenied.into()),
        Err(absent) => Err(io::Error::other(absent.to_string())),
    }
}

fn line(k: &InEffect) -> Line<'_> {
    Line {
        name: k.knob.name,
        key: k.knob.key(),
        group: k.knob.group.title(),
        values: k.knob.kind.range(),
        default: (!k.knob.default.is_empty()).then_some(k.knob.default),
        effect: k.knob.help,
        value: k.value.as_deref(),
        source: &k.origin,
        refused: k.refused.as_deref(),
        later: match k.knob.status {
            Status::Now => None,
            Status::Later(what) => Some(what),
        },
    }
}

/// A group after another: name and value, what is not the default with its source, and what it does.
fn text(knobs: &[&InEffect], found: &Listing, quiet: bool) -> String {
    let mut out = String::new();
    for group in Group::ALL {
        let of: Vec<_> = knobs.iter().filter(|k| k.knob.group == group && !quiet).collect();
        if !of.is_empty() {
            out += &format!("{}\n", group.title());
        }
        for k in of {
            let value = plain(k.value.as_deref().unwrap_or("unset"));
            let source = match (k.origin.as_str(), &k.refused) {
                (_, Some(text)) => format!("  (not \"{}\")", plain(text)),
                ("default", None) => String::new(),
                (origin, None) => format!("  (from {})", plain(origin)),
            };
            for (i, part) in wrapped(&format!("{value}{source}"), 45).iter().enumerate() {
                let name = if i == 0 { k.knob.name } else { "" };
                out += &format!("  {name:<32} {part}\n");
            }
            let later = match k.knob.status {
                Status::Now => "",
                Status::Later(_) => "no effect yet: ",
            };
            let words = format!("{later}{} [{}]", k.knob.help, k.knob.kind.range());
            for part in wrapped(&words, 74) {
                out += &format!("      {part}\n");
            }
        }
    }
    for note in &found.notes {
        out += &paragraph("i note    ", note);
    }
    for warning in &found.warnings {
        out += &paragraph("! warn    ", warning);
    }
    out += match found.warnings.is_empty() {
        true => "every setting is understood\n",
        false => "some settings do not do what was written; rocketctl explain NAME says more\n",
    };
    out
}

fn paragraph(head: &str, words: &str) -> String {
    let lines = wrapped(&plain(words), 80 - head.len());
    let line = |(i, l): (usize, &String)| match i {
        0 => format!("{head}{l}\n"),
        _ => format!("{:w$}{l}\n", "", w = head.len()),
    };
    lines.iter().enumerate().map(line).collect()
}

/// Without what would move a cursor.
fn plain(text: &str) -> String {
    text.chars().map(|c| if c.is_control() { '\u{fffd}' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tree(env: &str, file: Option<&str>) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        let put = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        put("cmd/env.txt", env);
        if let Some(text) = file {
            put("etc/ggml-rocket/config.yaml", text);
        }
        dir
    }

    fn of(dir: &tempfile::TempDir) -> Listing {
        read(&Root::open(dir.path()).unwrap(), &[], &[]).unwrap()
    }

    /// A tree's environment and file are looked at, and this process's are not.
    #[test]
    fn below_a_root() {
        let dir = tree("ROCKET_MIN_M=40\nPATH=/bin\n", Some("settings: {n_threads: 2}\n"));
        let found = of(&dir);
        let value = |name: &str| {
            let k = found.knobs.iter().find(|k| k.knob.name == name).unwrap();
            (k.value.clone().unwrap(), k.origin.clone())
        };
        assert_eq!(value("ROCKET_MIN_M"), ("40".into(), "environment".into()));
        let file = "/etc/ggml-rocket/config.yaml".to_owned();
        assert_eq!(value("ROCKET_N_THREADS"), ("2".into(), file));
        assert!(found.warnings.is_empty(), "{:?}", found.warnings);
    }

    #[test]
    fn what_is_unknown_or_malformed_has_a_line_and_the_nearest_name() {
        let dir = tree("ROCKET_N_THREAD=4\nROCKET_INT8=perhaps\nROCKET_WAIT_MS=900\n", None);
        let found = of(&dir);
        let text = text(&found.knobs.iter().collect::<Vec<_>>(), &found, true);
        assert!(text.contains("did you mean ROCKET_N_THREADS?"), "{text}");
        assert!(text.contains("perhaps") && text.contains("no effect yet"), "{text}");
        assert_eq!(text.matches("! warn").count(), 3, "{text}");
    }

    /// Names, texts and files of others move no cursor and leave no line.
    #[test]
    fn text_stays_in_its_lines() {
        let dir =
            tree("ROCKET_REPORT=/a\u{1b}[2Jb\nROCKET_X\u{7}Y=1\n", Some("settings: {min_m: 1}"));
        let found = of(&dir);
        for quiet in [true, false] {
            let text = text(&found.knobs.iter().collect::<Vec<_>>(), &found, quiet);
            assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
            assert!(!text.contains('\u{1b}') && !text.contains('\u{7}'), "{text}");
        }
    }

    #[test]
    fn a_broken_file_is_said() {
        for file in ["settings: [", "{]", "\0\u{1}", "profiles: {}"] {
            let found = of(&tree("", Some(file)));
            assert_eq!(found.warnings.len(), 1, "{file:?}: {:?}", found.warnings);
        }
    }
}
