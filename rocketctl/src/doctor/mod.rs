//! `rocketctl doctor`: what is wrong with this board, and the command that mends it.
//!
//! A check is a pure function from [`Facts`] to a [`Finding`], in a file of its own below `checks`. What one
//! depends on comes before it; where that is not right it is skipped, so that one root has one finding.

mod checks;
pub mod finding;
mod model;
#[cfg(test)]
mod tests;

use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result, bail};
use clap::Args;
use finding::{Finding, Report, Status};
use rocket_runtime::board::{Facts, Reading, Root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

/// One question about a machine.
#[derive(Debug)]
pub struct Check {
    /// Stable, dotted.
    pub id: &'static str,
    /// What it is about and why it matters, for `rocketctl explain`.
    pub explain: &'static str,
    /// Checks that must not have failed before, nor be unknown where they are required.
    pub after: &'static [&'static str],
    /// What it looks at.
    pub about: About,
    /// Whether nothing can be said of the machine without it.
    pub required: bool,
    /// The answer.
    pub run: fn(&Case) -> Finding,
}

/// What a check looks at. All but the machine must have been named on the command line.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum About {
    Machine,
    /// `--model`.
    Model,
}

/// What is looked at: the machine, and what was named on the command line.
#[derive(Debug)]
pub struct Case {
    /// The machine's.
    pub facts: Facts,
    /// Variables of the environment in which it is asked: `cmd/env.txt` of a tree.
    pub environment: Reading<BTreeMap<String, String>>,
    /// `--model`.
    pub model: Option<model::Model>,
}

impl Case {
    /// Reads it all, once.
    fn read(root: &Root) -> Case {
        Case { facts: Facts::read(root), environment: root.environment(), model: None }
    }

    /// Whether a check has something to look at: nothing is said of a host or a model that nobody named.
    fn concerns(&self, check: &Check) -> bool {
        match check.about {
            About::Machine => true,
            About::Model => self.model.is_some(),
        }
    }
}

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    /// Print these checks only, and what keeps them from an answer.
    #[arg(long, value_name = "ID")]
    only: Vec<String>,
    /// Leave these checks out.
    #[arg(long, value_name = "ID")]
    skip: Vec<String>,
    /// Look at this model as well: a GGUF, any part of a split one, or a whisper.cpp model.
    #[arg(long, value_name = "FILE")]
    model: Option<PathBuf>,
}

/// Looks at a machine.
///
/// # Errors
/// An unknown check, or a root that is not there.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    for id in arguments.only.iter().chain(&arguments.skip) {
        known(id)?;
    }
    let report = chosen(
        examine(&globals.root, arguments.model.as_deref())?,
        &arguments.only,
        &arguments.skip,
    );
    match globals.json {
        true => print_json(&report)?,
        false => print(&report.text(globals.quiet, globals.colored()))?,
    }
    Ok(ExitCode::from(report.exit))
}

/// Says what a check is about.
///
/// # Errors
/// An unknown check, with the nearest one.
pub fn explain(id: &str) -> Result<()> {
    let check = known(id)?;
    let after = match check.after {
        [] => String::new(),
        ids => format!("\nLooked at only where nothing is wrong with: {}\n", ids.join(", ")),
    };
    let lines = check.explain.lines().map(|line| finding::wrapped(line, 80).join("\n"));
    print(&format!("{id}\n\n{}\n{after}", lines.collect::<Vec<String>>().join("\n")))
}

/// The findings that were asked for, with those that keep them from an answer: a check that was skipped says nothing
/// good of the board.
fn chosen(report: Report, only: &[String], skip: &[String]) -> Report {
    let named = |ids: &[String], id: &str| ids.iter().any(|i| i == id);
    let asked = |f: &Finding| (only.is_empty() || named(only, f.id)) && !named(skip, f.id);
    let roots: Vec<&str> =
        report.findings.iter().filter(|f| asked(f)).filter_map(|f| f.because).collect();
    let wanted = |f: &Finding| asked(f) || roots.contains(&f.id);
    let findings = report.findings.iter().filter(|f| wanted(f)).cloned().collect();
    Report::new(findings, &required())
}

fn required() -> Vec<&'static str> {
    checks::ALL.iter().filter(|c| c.required).map(|c| c.id).collect()
}

fn known(id: &str) -> Result<&'static Check> {
    if let Some(check) = checks::ALL.iter().find(|c| c.id == id) {
        return Ok(check);
    }
    let all: Vec<&str> = checks::ALL.iter().map(|c| c.id).collect();
    bail!("there is no check '{id}'; there are {}", all.join(", "))
}

/// All findings for the machine below a root path, and for a model.
fn examine(root: &Path, model: Option<&Path>) -> Result<Report> {
    let root = Root::open(root).with_context(|| format!("{}", root.display()))?;
    let mut case = Case::read(&root);
    case.model = model.map(|path| model::Model::read(&root, &case.facts, &case.environment, path));
    let mut findings: Vec<Finding> = Vec::new();
    for check in checks::ALL.iter().filter(|c| case.concerns(c)) {
        // The root of it all, and not the link between.
        let broken = check.after.iter().find_map(|id| {
            let f = findings.iter().find(|f| f.id == *id)?;
            match f.status {
                Status::Fail => Some(f.id),
                Status::Unknown if required().contains(&f.id) => Some(f.id),
                Status::Skipped => f.because,
                _ => None,
            }
        });
        findings.push(match broken {
            Some(because) => Finding::skipped(check.id, because),
            None => (check.run)(&case),
        });
    }
    Ok(Report::new(findings, &required()))
}
