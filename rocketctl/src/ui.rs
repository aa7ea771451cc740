//! What every subcommand shares: the options before it, and how it prints.

use clap::{Args, ValueEnum};
use std::io::{ErrorKind, IsTerminal, Write};
use std::path::PathBuf;

/// Options of every subcommand.
#[derive(Debug, Clone, Args)]
pub struct Globals {
    /// Look at a tree or a report in place of this machine.
    #[arg(long, global = true, value_name = "DIR", default_value = "/")]
    pub root: PathBuf,
    /// Print JSON, whose names are stable within a schema number (docs/rocketctl.md).
    #[arg(long, global = true)]
    pub json: bool,
    /// Print what needs action, and the verdict, alone.
    #[arg(long, short, global = true)]
    pub quiet: bool,
    /// Colour the words of text output. NO_COLOR is heeded by `auto`.
    #[arg(long, global = true, value_enum, default_value_t = Color::Auto, value_name = "WHEN")]
    pub color: Color,
}

/// When text has colour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Color {
    /// On a terminal that has it.
    Auto,
    /// Always.
    Always,
    /// Never.
    Never,
}

impl Globals {
    /// Whether text on standard output gets colour.
    pub fn colored(&self) -> bool {
        let set = |name| std::env::var_os(name).is_some_and(|v| !v.is_empty());
        let dumb = std::env::var_os("TERM").is_none_or(|t| t == "dumb");
        match self.color {
            Color::Always => true,
            Color::Never => false,
            Color::Auto => !set("NO_COLOR") && !dumb && std::io::stdout().is_terminal(),
        }
    }
}

/// To standard output. A reader that has seen enough ends the program in silence.
pub fn print(text: &str) -> anyhow::Result<()> {
    match std::io::stdout().lock().write_all(text.as_bytes()) {
        Err(e) if e.kind() == ErrorKind::BrokenPipe => Ok(()),
        done => Ok(done?),
    }
}

/// A value as indented JSON.
pub fn print_json(value: &impl serde::Serialize) -> anyhow::Result<()> {
    print(&(serde_json::to_string_pretty(value)? + "\n"))
}
