//! The man page and shell completions for packages, made from the definition of the command line.

use crate::Arguments;
use anyhow::Result;
use clap::{Arg, CommandFactory, FromArgMatches, ValueEnum, value_parser};
use clap_complete::Shell;

const OPTION: &str = "generate";

/// What is made.
#[derive(Debug, Clone, Copy, ValueEnum)]
pub enum What {
    /// The man page.
    Man,
    /// Completions of this shell.
    Bash,
    /// Completions of this shell.
    Zsh,
    /// Completions of this shell.
    Fish,
}

/// The command line, and what it asks for with an option that neither the page nor the completions have.
pub fn parse() -> Result<(Arguments, Option<What>), clap::Error> {
    let option = Arg::new(OPTION).long(OPTION).hide(true).value_parser(value_parser!(What));
    let matches = Arguments::command().arg(option).try_get_matches()?;
    Ok((Arguments::from_arg_matches(&matches)?, matches.get_one(OPTION).copied()))
}

/// Its text.
///
/// # Errors
/// Never of itself: the page is written to memory.
pub fn text(what: What) -> Result<String> {
    let mut command = Arguments::command();
    let mut out = Vec::new();
    match what {
        What::Man => clap_mangen::Man::new(command).render(&mut out)?,
        What::Bash => complete(Shell::Bash, &mut command, &mut out),
        What::Zsh => complete(Shell::Zsh, &mut command, &mut out),
        What::Fish => complete(Shell::Fish, &mut command, &mut out),
    }
    Ok(String::from_utf8(out)?)
}

fn complete(shell: Shell, command: &mut clap::Command, out: &mut Vec<u8>) {
    clap_complete::generate(shell, command, "rocket-top", out);
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Each names every option that --help shows, and none that it hides.
    #[test]
    fn every_option_is_in_each() {
        let help = Arguments::command().render_long_help().to_string();
        let words = help
            .lines()
            .filter_map(|l| l.trim_start().split([' ', ',']).find(|w| w.starts_with("--")));
        let shown: Vec<&str> = words.map(|w| w.trim_start_matches("--")).collect();
        assert!(shown.len() > 10 && shown.contains(&"prometheus"), "{shown:?}");
        for what in [What::Man, What::Bash, What::Zsh, What::Fish] {
            let text = text(what).unwrap();
            let text = text.replace("\\-", "-");
            for option in shown.iter().filter(|o| **o != "help" && **o != "version") {
                assert!(text.contains(option), "{what:?} has no --{option}");
            }
            assert!(!text.contains("-generate"), "{what:?} shows the hidden option");
        }
        let page = text(What::Man).unwrap();
        assert!(page.contains(".TH rocket-top 1") && page.contains(".SH SYNOPSIS"), "{page}");
    }
}
