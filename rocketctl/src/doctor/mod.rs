//! `rocketctl doctor`: what is wrong with this board, and the command that mends it.
//!
//! A check is a pure function from [`Facts`] to a [`Finding`], in a file of its own below `checks`. What one
//! depends on comes before it; where that is not right it is skipped, so that one root has one finding.

mod checks;
mod finding;
#[cfg(test)]
mod tests;

use crate::print;
use anyhow::{Context, Result, bail};
use clap::Args;
use finding::{Finding, Report, Status};
use rocket_runtime::board::{Facts, Root};
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
    /// Whether nothing can be said of the machine without it.
    pub required: bool,
    /// The answer.
    pub run: fn(&Facts) -> Finding,
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
    /// The answer as JSON (docs/doctor.md).
    #[arg(long)]
    json: bool,
    /// Look at a tree, as tests/boards has them, in place of this machine.
    #[arg(long, value_name = "DIR", default_value = "/")]
    root: PathBuf,
}

/// Looks at a machine.
///
/// # Errors
/// An unknown check, or a root that is not there.
pub fn run(arguments: &Arguments) -> Result<ExitCode> {
    for id in arguments.only.iter().chain(&arguments.skip) {
        known(id)?;
    }
    let report = chosen(examine(&arguments.root)?, &arguments.only, &arguments.skip);
    let out = match arguments.json {
        true => serde_json::to_string_pretty(&report)? + "\n",
        false => report.text(),
    };
    print(&out)?;
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

/// All findings for the machine below a root path.
fn examine(root: &Path) -> Result<Report> {
    let root = Root::open(root).with_context(|| format!("{}", root.display()))?;
    let facts = Facts::read(&root);
    let mut findings: Vec<Finding> = Vec::new();
    for check in checks::ALL {
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
            None => (check.run)(&facts),
        });
    }
    Ok(Report::new(findings, &required()))
}
