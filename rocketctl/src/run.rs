//! `rocketctl run`: a host with the environment that the plugin needs.

use crate::doctor::{self, finding::Report, finding::Status};
use crate::knobs;
use crate::sim::RUN_FAILED as OURS;
use crate::ui::Globals;
use anyhow::{Context, Result, bail};
use clap::Args;
use rocket_runtime::board::Root;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::sync::mpsc::channel;
use std::time::Duration;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    /// The plugin. Without this the one that GGML_BACKEND_PATH names, the one beside this program, or the
    /// installed one.
    #[arg(long, value_name = "FILE")]
    plugin: Option<PathBuf>,
    /// A profile of the configuration file (docs/knobs.md).
    #[arg(long, value_name = "NAME")]
    profile: Option<String>,
    /// Run on a simulated board.
    #[arg(long)]
    sim: bool,
    /// The host and its arguments.
    #[arg(required = true, trailing_var_arg = true, value_name = "CMD")]
    command: Vec<OsString>,
}

/// What names the plugin to hosts.
const VARIABLE: &str = "GGML_BACKEND_PATH";
/// What the plugin's file is called.
const NAME: &str = "libggml-rocket.so";
/// Where packages put it.
const INSTALLED: &str = "/usr/lib/ggml-rocket/libggml-rocket.so";
/// What the pre-flight may take: the host is what was asked for.
const PREFLIGHT: Duration = Duration::from_secs(3);

/// Becomes the host. Returns only where that failed: 125 for an error of ours, 126 where it cannot be started and
/// 127 where it is not there, as `env` has them.
pub fn run(arguments: &Arguments, globals: &Globals) -> ExitCode {
    let (error, status) = match prepare(arguments, globals) {
        Ok(mut command) => {
            let e = command.exec();
            let status = match e.kind() {
                io::ErrorKind::NotFound => 127,
                _ => 126,
            };
            let name = arguments.command.first().map(|n| n.to_string_lossy().into_owned());
            (format!("cannot start {}: {e}", name.unwrap_or_default()), status)
        }
        Err(e) => (format!("{e:#}"), OURS),
    };
    eprintln!("rocketctl: {error}");
    ExitCode::from(status)
}

/// The command with its environment, once whatever there is to say was said.
fn prepare(arguments: &Arguments, globals: &Globals) -> Result<Command> {
    if globals.root != Path::new("/") {
        bail!("--root {} holds files of a machine; nothing can run there", globals.root.display());
    }
    let named = std::env::var_os(VARIABLE).filter(|v| !v.is_empty());
    let plugin = plugin(arguments.plugin.as_deref(), named.as_deref(), &beside())?;
    let more: Vec<(&str, &str)> =
        arguments.profile.iter().map(|name| ("ROCKET_PROFILE", name.as_str())).collect();
    for warning in settings(&more, &arguments.command, arguments.profile.as_deref())? {
        say(globals, &warning);
    }
    if !arguments.sim {
        for line in preflight() {
            say(globals, &line);
        }
    }
    let (name, rest) = arguments.command.split_first().context("no command given")?;
    let mut command = match arguments.sim {
        false => Command::new(name),
        true => {
            let me = std::env::current_exe().context("cannot find this program")?;
            let mut command = Command::new(me);
            command.args(["sim", "run"]).args(globals.quiet.then_some("--quiet"));
            command.arg("--").arg(name);
            command
        }
    };
    command.args(rest).env(VARIABLE, plugin);
    command.envs(more);
    Ok(command)
}

/// On stderr: the host's output is its own.
fn say(globals: &Globals, line: &str) {
    if !globals.quiet {
        eprintln!("rocketctl: {line}");
    }
}

/// Where the plugin lies when nobody says so.
fn beside() -> Vec<PathBuf> {
    let me = std::env::current_exe().ok();
    let here = me.and_then(|m| Some(m.parent()?.to_owned()));
    let built = here.iter().map(|dir| dir.join("libggml_rocket.so"));
    here.iter().map(|dir| dir.join(NAME)).chain(built).chain([INSTALLED.into()]).collect()
}

/// The plugin as hosts need it: a file, by an absolute path. They take a folder or a path with blanks for nothing.
fn plugin(asked: Option<&Path>, named: Option<&OsStr>, places: &[PathBuf]) -> Result<PathBuf> {
    let (path, by) = match (asked, named) {
        (Some(path), _) => (path, "--plugin"),
        (None, Some(path)) => (Path::new(path), VARIABLE),
        (None, None) => match places.iter().find(|p| p.is_file()) {
            Some(path) => (path.as_path(), "this program"),
            None => {
                let looked: Vec<String> = places.iter().map(|p| p.display().to_string()).collect();
                bail!(
                    "the plugin is not installed (looked for {}); name it with --plugin",
                    looked.join(", ")
                )
            }
        },
    };
    let found = path.canonicalize();
    let found =
        found.with_context(|| format!("{by} names {}, which is not there", path.display()))?;
    if found.is_dir() {
        let inside = found.join(NAME);
        let hint =
            if inside.is_file() { format!("; name {}", inside.display()) } else { String::new() };
        bail!("{by} names the folder {}, and hosts want the file{hint}", found.display());
    }
    if !found.is_file() {
        bail!("{by} names {}, which is no file", found.display());
    }
    Ok(found)
}

/// What the plugin will say of its settings. A profile that was asked for and is not there ends it: the host would
/// run with other settings than were asked for.
fn settings(
    more: &[(&str, &str)],
    command: &[OsString],
    profile: Option<&str>,
) -> Result<Vec<String>> {
    let root = Root::open(Path::new("/")).context("/")?;
    let found = knobs::read(&root, more, command)?;
    let missing = found.warnings.iter().find(|w| w.starts_with("ROCKET_PROFILE="));
    match (profile, missing) {
        (Some(_), Some(why)) => bail!("{why}"),
        _ => Ok(found.warnings),
    }
}

/// What is wrong with the machine, a line each. Never in the way: a host runs on the CPU as well.
fn preflight() -> Vec<String> {
    let (send, receive) = channel();
    let look = move || {
        // Nobody waits for it any more.
        let _ = send.send(doctor::examine(Path::new("/")));
    };
    if std::thread::Builder::new().name("preflight".into()).spawn(look).is_err() {
        return vec!["the pre-flight could not be started; rocketctl doctor".into()];
    }
    match receive.recv_timeout(PREFLIGHT) {
        Ok(Ok(report)) => told(&report),
        Ok(Err(e)) => vec![format!("the pre-flight failed: {e:#}")],
        Err(_) => {
            vec![format!("the pre-flight took over {} s; rocketctl doctor", PREFLIGHT.as_secs())]
        }
    }
}

/// Failing findings, and what they mean for the host.
fn told(report: &Report) -> Vec<String> {
    let failed: Vec<_> = report.findings.iter().filter(|f| f.status == Status::Fail).collect();
    let mut lines: Vec<String> = failed
        .iter()
        .map(|f| format!("fail {}: {} (rocketctl explain {})", f.id, f.title, f.id))
        .collect();
    if !failed.is_empty() {
        lines.push(
            "the NPU is not usable as it is: the host runs on the CPU; rocketctl doctor".into(),
        );
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::finding::Finding;

    #[test]
    fn the_plugin_is_a_file_by_an_absolute_path() {
        let dir = tempfile::tempdir().unwrap();
        let file = dir.path().join(NAME);
        let places = [file.clone()];
        let error = plugin(None, None, &places).unwrap_err().to_string();
        assert!(error.contains("--plugin") && error.contains(NAME), "{error}");
        std::fs::write(&file, "x").unwrap();
        let real = file.canonicalize().unwrap();
        assert_eq!(plugin(None, None, &places).unwrap(), real);
        // What was asked for wins over the environment, that over what is installed.
        let other = dir.path().join("other.so");
        std::fs::write(&other, "x").unwrap();
        let round = dir.path().join("../").join(dir.path().file_name().unwrap()).join("other.so");
        assert_eq!(
            plugin(Some(&round), Some(file.as_os_str()), &places).unwrap(),
            other.canonicalize().unwrap()
        );
        assert_eq!(
            plugin(None, Some(other.as_os_str()), &places).unwrap(),
            other.canonicalize().unwrap()
        );
        let error = plugin(Some(dir.path()), None, &places).unwrap_err().to_string();
        assert!(error.contains("folder") && error.contains(&real.display().to_string()), "{error}");
        assert!(plugin(None, Some(OsStr::new("/nowhere/x.so")), &places).is_err());
        assert!(plugin(Some(Path::new("/dev/null")), None, &places).is_err());
    }

    /// Warnings are for the doctor; a host that will not see the NPU is worth a line.
    #[test]
    fn failing_findings_are_a_line_each() {
        let fail = Finding::fail("access.node", "you may not open the node").cause("x");
        let warn = Finding::warn("speed.clock", "slow").cause("x");
        let lines = told(&Report::new(vec![warn.clone(), fail], &[]));
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].contains("rocketctl explain access.node") && lines[1].contains("CPU"));
        assert!(told(&Report::new(vec![warn], &[])).is_empty());
    }

    #[test]
    fn a_profile_that_is_not_there_ends_it() {
        let profile = |name| {
            settings(&[("ROCKET_CONFIG", "none"), ("ROCKET_PROFILE", name)], &[], Some(name))
        };
        assert!(profile("no-such").unwrap_err().to_string().contains("no-such"));
        assert!(settings(&[("ROCKET_CONFIG", "none")], &[], None).is_ok());
    }
}
