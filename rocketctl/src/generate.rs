//! Man pages and shell completions, made from the definition of the command line.

use crate::ui::print;
use anyhow::{Context, Result};
use clap::{Args, Command};
use clap_complete::Shell;
use std::path::{Path, PathBuf};

/// See [`man`].
#[derive(Debug, Args)]
pub struct Man {
    /// A folder that is there.
    dir: PathBuf,
}

/// See [`completions`].
#[derive(Debug, Args)]
pub struct Completions {
    shell: Shell,
}

/// Writes a page for the program and for each subcommand, at every depth.
///
/// # Errors
/// A page that cannot be written, with its name.
pub fn man(arguments: &Man, command: Command) -> Result<()> {
    let pages = pages(command)?;
    for (name, page) in &pages {
        let path = arguments.dir.join(name);
        std::fs::write(&path, page).with_context(|| format!("cannot write {}", path.display()))?;
    }
    print(&format!("{} pages in {}\n", pages.len(), shown(&arguments.dir)))
}

fn shown(dir: &Path) -> String {
    dir.display().to_string()
}

/// File names and pages.
fn pages(command: Command) -> Result<Vec<(String, Vec<u8>)>> {
    // The hidden help subcommand has nothing to say that --help has not.
    let mut command = command.disable_help_subcommand(true);
    command.build();
    let mut pages = Vec::new();
    collect(&command, command.get_name(), &mut pages)?;
    Ok(pages)
}

fn collect(command: &Command, title: &str, pages: &mut Vec<(String, Vec<u8>)>) -> Result<()> {
    let mut page = Vec::new();
    clap_mangen::Man::new(command.clone()).title(title).render(&mut page)?;
    pages.push((format!("{title}.1"), page));
    for sub in command.get_subcommands().filter(|s| s.get_name() != "help") {
        collect(sub, &format!("{title}-{}", sub.get_name()), pages)?;
    }
    Ok(())
}

/// Prints a shell's completions.
///
/// # Errors
/// Standard output is closed.
pub fn completions(arguments: &Completions, mut command: Command) -> Result<()> {
    let name = command.get_name().to_owned();
    let mut script = Vec::new();
    clap_complete::generate(arguments.shell, &mut command, name, &mut script);
    print(&String::from_utf8_lossy(&script))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command_line;
    use clap::ValueEnum;
    use std::io::Write;
    use std::process::{Command as Process, Stdio};

    /// What a tool says of a text, or nothing where there is no such tool.
    fn complaints(tool: &str, arguments: &[&str], text: &[u8]) -> Option<String> {
        let started = Process::new(tool)
            .args(arguments)
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn();
        let mut child = started.ok()?;
        child.stdin.take().unwrap().write_all(text).unwrap();
        let done = child.wait_with_output().unwrap();
        let failed = if done.status.success() { "" } else { "failed: " };
        Some(format!("{failed}{}", String::from_utf8_lossy(&done.stderr)))
    }

    fn names(command: &Command, title: &str) -> Vec<String> {
        let subs = command.get_subcommands().filter(|s| s.get_name() != "help");
        let below = subs.flat_map(|s| names(s, &format!("{title}-{}", s.get_name())));
        std::iter::once(title.to_owned()).chain(below).collect()
    }

    /// Each subcommand has a page, which names its options and which groff takes without a word.
    #[test]
    fn a_page_for_each_subcommand() {
        let pages = pages(command_line()).unwrap();
        let mut command = command_line().disable_help_subcommand(true);
        command.build();
        let wanted = names(&command, "rocketctl");
        let found: Vec<&str> = pages.iter().map(|(n, _)| n.trim_end_matches(".1")).collect();
        assert_eq!(found, wanted);
        assert!(found.len() > 12 && found.contains(&"rocketctl-sim-run"), "{found:?}");
        let mut looked = 0;
        for (name, page) in &pages {
            let text = String::from_utf8(page.clone()).unwrap();
            assert!(text.contains(".SH NAME") && text.contains(".SH SYNOPSIS"), "{name}");
            if let Some(said) = complaints("groff", &["-man", "-ww", "-Tutf8"], page) {
                looked += 1;
                assert!(said.is_empty(), "{name}: {said}");
            }
        }
        eprintln!("{looked} of {} pages were read by groff", pages.len());
        let doctor = pages.iter().find(|(n, _)| n == "rocketctl-doctor.1").unwrap();
        assert!(String::from_utf8_lossy(&doctor.1).contains("\\-\\-only"));
    }

    /// Each script names every subcommand, and its shell parses it where there is one.
    #[test]
    fn completions_parse() {
        for shell in Shell::value_variants() {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut command_line(), "rocketctl", &mut script);
            let text = String::from_utf8(script).unwrap();
            for sub in command_line().get_subcommands() {
                assert!(text.contains(sub.get_name()), "{shell}: {}", sub.get_name());
            }
            let (tool, arguments): (_, &[&str]) = match shell {
                Shell::Bash => ("bash", &["-n"]),
                Shell::Zsh => ("zsh", &["-n"]),
                Shell::Fish => ("fish", &["--no-execute"]),
                _ => continue,
            };
            match complaints(tool, arguments, text.as_bytes()) {
                Some(said) => assert!(said.is_empty(), "{shell}: {said}"),
                None => eprintln!("there is no {tool} to parse its script"),
            }
        }
        // The judge is worth something.
        let broken = complaints("bash", &["-n"], b"if then").unwrap();
        assert!(broken.contains("failed"), "{broken}");
    }
}
