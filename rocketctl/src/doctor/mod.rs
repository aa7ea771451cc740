//! `rocketctl doctor`: what is wrong with this board, and the command that mends it.
//!
//! A check is a pure function from a [`Case`] to a [`Finding`], in a file of its own below `checks`. What one
//! depends on comes before it; where that is not right it is skipped, so that one root has one finding.

pub mod checks;
pub mod finding;
mod host;
mod model;
mod named;
mod plugin;
pub mod remedy;
#[cfg(test)]
pub mod tests;

use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result, bail};
use clap::Args;
pub use finding::{Finding, Report, SCHEMA, Status, wrapped};
pub use named::{Named, Options};
use rocket_runtime::board::{Facts, Reading, Root};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
#[cfg(test)]
pub use tests::{Board, well_formed};

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
    /// `--as-service`.
    Service,
    /// `--plugin`, or GGML_BACKEND_PATH.
    Plugin,
    /// ROCKET_* variables.
    Knobs,
    /// `--host`.
    Host,
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
    /// What was named with it.
    pub named: Named,
}

impl Case {
    /// Reads it all, once.
    ///
    /// # Errors
    /// What was named cannot be.
    pub fn read(root: &Root, options: &Options) -> Result<Case> {
        let facts = Facts::read(root);
        let environment = root.environment();
        let named = Named::read(root, options, &facts, &environment)?;
        Ok(Case { facts, environment, named })
    }

    /// Whether a check has something to look at: nothing is said of a host or a model that nobody named.
    fn concerns(&self, check: &Check) -> bool {
        match check.about {
            About::Machine => true,
            About::Service => self.named.service.is_some(),
            About::Plugin => self.named.plugin.is_some(),
            About::Knobs => self.named.knobs.is_some(),
            About::Host => self.named.host.is_some(),
            About::Model => self.named.model.is_some(),
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
    #[command(flatten)]
    named: Options,
    /// Print what bears on the machine's safety only.
    #[arg(long, conflicts_with = "only")]
    security: bool,
    /// Also write what was read to FILE (.tar.gz), without names, serials, and addresses; --root reads it.
    #[arg(long, value_name = "FILE")]
    bundle: Option<PathBuf>,
}

/// What `--security` prints.
const SECURITY: [&str; 2] = ["kernel.security", "access.node"];

/// Looks at a machine.
///
/// # Errors
/// An unknown check, or a root that is not there.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    for id in arguments.only.iter().chain(&arguments.skip) {
        known(id)?;
    }
    let only = match arguments.security {
        true => SECURITY.map(str::to_owned).to_vec(),
        false => arguments.only.clone(),
    };
    let root = match arguments.bundle {
        Some(_) => opened(&globals.root)?.keeping(),
        None => opened(&globals.root)?,
    };
    let report = chosen(look(&root, &arguments.named)?, &only, &arguments.skip);
    if let [id, ..] = only.as_slice()
        && report.findings.is_empty()
    {
        bail!("{id} is of something that was not named; see 'rocketctl doctor --help'");
    }
    match globals.json {
        true => print_json(&report)?,
        false => print(&report.text(globals.quiet, globals.colored()))?,
    }
    if let Some(file) = &arguments.bundle {
        eprint!("{}", crate::report::write(&root, file)?.text());
    }
    Ok(ExitCode::from(report.exit))
}

/// Whether the driver came after its rail was switched off (kernel.late-probe).
pub fn is_late(facts: &Facts) -> bool {
    checks::is_late(facts)
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

/// The machine, or a tree.
///
/// # Errors
/// There is no such folder.
pub fn opened(path: &Path) -> Result<Root> {
    Root::open(path).with_context(|| format!("{}", path.display()))
}

/// All findings for the machine below a root path.
///
/// # Errors
/// A root that is not there.
pub fn examine(path: &Path) -> Result<Report> {
    look(&opened(path)?, &Options::default())
}

/// All findings for the machine, and for what was named with it.
///
/// # Errors
/// What was named cannot be: a host that is not there, a service's name that is none.
pub fn look(root: &Root, options: &Options) -> Result<Report> {
    Ok(findings(&Case::read(root, options)?))
}

/// What all checks that have something to look at say.
pub fn findings(case: &Case) -> Report {
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
            None => (check.run)(case),
        });
    }
    Report::new(findings, &required())
}
