//! A plan in words, and the question before it.

use super::command::quoted;
use super::outcome::Outcome;
use super::{Change, Plan, State};
use crate::doctor::wrapped;
use anyhow::{Result, bail};
use std::io::{self, BufRead, IsTerminal, Write};
use std::path::Path;

/// The plan, a step with its reason and its changes after the other.
pub fn plan(plan: &Plan, outcome: &Outcome, out: &mut dyn Write) -> Result<()> {
    writeln!(out, "{}\n", plan.title)?;
    for (step, found) in plan.steps.iter().zip(&outcome.steps) {
        let word = match (&found.was, found.optional) {
            (State::Done, _) => "done",
            (State::ToDo, _) => "to do",
            (State::Cannot(_), true) => "left out",
            (State::Cannot(_), false) => "cannot",
        };
        lines(out, &format!("  {word:<9}{:<15} ", step.id), 27, &step.title)?;
        match &found.was {
            State::Done => {}
            State::Cannot(why) => lines(out, "", 11, why)?,
            State::ToDo => {
                lines(out, "", 11, &step.why)?;
                for change in &found.changes {
                    writeln!(out, "             {change}")?;
                }
            }
        }
    }
    Ok(writeln!(out)?)
}

/// Text of at most 80 columns, the first line after `head`.
fn lines(out: &mut dyn Write, head: &str, indent: usize, text: &str) -> Result<()> {
    let mut head = head.to_owned();
    for line in wrapped(text, 80 - indent) {
        writeln!(out, "{head:<indent$}{line}")?;
        head.clear();
    }
    Ok(())
}

/// A change in a line; nothing where it is for the way back alone.
pub fn change(change: &Change, live: bool) -> Option<String> {
    Some(match change {
        Change::Write { path, bytes, mode } => {
            format!("write {path} ({} bytes, mode {mode:o})", bytes.len())
        }
        Change::Edit { path, .. } => format!("edit {path}"),
        Change::Folder { path, .. } => format!("make folder {path}"),
        Change::Remove { path } => format!("remove {path}"),
        Change::Set { path, value } => format!("set {path} to {value}"),
        Change::Run { argv, .. } if argv.is_empty() => return None,
        Change::Run { argv, .. } if live => format!("run {}", quoted(argv)),
        Change::Run { argv, .. } => format!("later: {}", quoted(argv)),
    })
}

/// Asks once, unless told not to; on standard error, so that the question is seen wherever the plan went.
pub fn confirmed(yes: bool, question: &str) -> Result<bool> {
    if yes {
        return Ok(true);
    }
    let input = io::stdin();
    if !input.is_terminal() {
        bail!("no terminal to ask on: --yes goes on, --dry-run shows alone");
    }
    let mut out = io::stderr().lock();
    write!(out, "{question} [y/N] ")?;
    out.flush()?;
    let mut answer = String::new();
    input.lock().read_line(&mut answer)?;
    Ok(matches!(answer.trim(), "y" | "Y" | "yes"))
}

/// That who changes the live system is root; said before anything is looked at.
pub fn needs_root(root: &Path) -> Result<()> {
    if root.canonicalize()? == Path::new("/") && !nix::unistd::geteuid().is_root() {
        let words = ["sudo", "rocketctl"].map(str::to_owned).into_iter();
        let argv: Vec<String> = words.chain(std::env::args().skip(1)).collect();
        bail!("this needs root: {}", quoted(&argv));
    }
    Ok(())
}
