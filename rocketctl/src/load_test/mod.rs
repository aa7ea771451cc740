//! `rocketctl load-test`: a plugin loaded as a host's loader would, in a process of its own, and the whole chain of
//! reasons. What the files say (the doctor's checks) comes first; what was seen wins.

mod chain;
mod fixes;
mod lines;
mod place;
mod run;
mod steps;
#[cfg(test)]
mod tests;

pub use lines::lines;
pub use steps::explained;

use crate::doctor::finding::{Finding, Report, Status};
use crate::doctor::{Case, Options, findings};
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result, bail};
use clap::Args;
use rocket_runtime::board::Root;
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    /// The plugin's file.
    #[arg(value_name = "PLUGIN")]
    plugin: String,
    /// The host: a program, or a folder of ggml's libraries. One in a root of its own is run inside that.
    #[arg(long, value_name = "PATH")]
    host: String,
    /// Seconds until a load counts as hung.
    #[arg(long, value_name = "SECONDS", default_value_t = 20, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// Checks of the doctor that say why a plugin is not loaded.
const STATIC: [&str; 6] = [
    "plugin.path",
    "plugin.elf",
    "plugin.glibc",
    "plugin.symbols",
    "host.dynamic",
    "host.loads-backends",
];

/// Loads a plugin and says what came of it.
///
/// # Errors
/// A host that is not there, a tree in place of the machine, or no program to load with.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let root = Root::open(&globals.root).with_context(|| format!("{}", globals.root.display()))?;
    if !root.is_live() {
        bail!(
            "load-test runs files of this machine; name a system of its own with --host, not with --root"
        );
    }
    let program = place::find().map_err(anyhow::Error::msg)?;
    let limit = Duration::from_secs(arguments.timeout);
    let report = examine(&root, &arguments.plugin, &arguments.host, &program, limit)?;
    match globals.json {
        true => print_json(&report)?,
        false => print(&report.text(globals.quiet, globals.colored()))?,
    }
    Ok(ExitCode::from(report.exit))
}

/// The chain for one plugin in one host.
fn examine(
    root: &Root,
    plugin: &str,
    host_named: &str,
    program: &std::path::Path,
    limit: Duration,
) -> Result<Report> {
    let (host_path, plugin_path) = (Some(host_named.to_owned()), Some(plugin.to_owned()));
    let options = Options { host: host_path, plugin: plugin_path, ..Options::default() };
    let case = Case::read(root, &options)?;
    let told = findings(&case).findings.into_iter().filter(|f| STATIC.contains(&f.id));
    let mut told: Vec<Finding> = told.filter(Finding::needs_action).collect();
    let stops =
        |f: &&Finding| ["plugin.path", "host.dynamic"].contains(&f.id) && f.status == Status::Fail;
    let named = &case.named;
    let libraries = named.host.as_ref().and_then(|h| Some((h, h.base()?, h.ggml()?)));
    let (Some((host, base, ggml)), Some(path)) =
        (libraries, named.plugin.as_ref().and_then(|p| p.path()))
    else {
        let because = told.iter().find(stops).map(|f| f.id);
        told.extend(chain::unrun(because));
        return Ok(report(told, plugin, host_named));
    };
    let machine = host.machine().map(crate::elf::machine_name);
    if let Some(other) = machine.filter(|m| m != std::env::consts::ARCH) {
        let why =
            format!("the host is for {other}, and this machine is {}", std::env::consts::ARCH);
        told.push(Finding::unknown(steps::OPEN, "whether the plugin loads", why));
        return Ok(report(told, plugin, host_named));
    }
    let modules = host.cpu().find(|o| host.modules.iter().any(|m| m.path == o.path));
    let job = run::Job {
        program: program.to_path_buf(),
        base: base.path.clone(),
        ggml: ggml.path.clone(),
        modules: modules.and_then(|o| o.path.rsplit_once('/')).map(|(dir, _)| dir.to_owned()),
        plugin: PathBuf::from(path),
        own_root: host.own_root.as_ref().map(|r| r.path().to_path_buf()),
        limit,
    };
    let ended = run::run(&job)?;
    Ok(report(chain::merged(told, chain::findings(&ended)), plugin, host_named))
}

/// The findings as a report, whose last line is about the plugin.
fn report(findings: Vec<Finding>, plugin: &str, host: &str) -> Report {
    let findings = findings.into_iter().map(|f| fixes::mended(f, plugin, host)).collect();
    let mut report = Report::new(findings, &[steps::OPEN, steps::DEVICES]);
    let broken = report.findings.iter().find(|f| f.status == Status::Fail);
    report.verdict = match (report.exit, broken) {
        (1, Some(f)) if f.id.starts_with("host.") => {
            format!("this host does not use {plugin} as it is ({})", f.id)
        }
        (1, Some(f)) if f.id == steps::DEVICES && f.title == steps::NO_DEVICE => {
            format!("{plugin} loads in this host, and finds no NPU")
        }
        (1, Some(f)) => format!("{plugin} does not load in this host ({})", f.id),
        (1, None) => format!("{plugin} loads in this host; something could be better"),
        (3, _) => format!("it is not known whether {plugin} loads in this host"),
        _ => format!("{plugin} loads in this host"),
    };
    report
}
