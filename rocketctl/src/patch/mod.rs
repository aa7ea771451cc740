//! `rocketctl patch`: the series for the kernel's driver: what the running module or a source has of it, and bringing
//! it there.

pub mod catalog;
pub mod diff;
pub mod headers;
pub mod module;
mod running;
mod source;
mod status;
#[cfg(test)]
mod tests;
mod tree;

use crate::change::{self, How, Options};
use crate::doctor::finding::{Report, Status::Fail, wrapped};
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result, bail};
use catalog::catalog;
use clap::{Args, Subcommand};
use rocket_runtime::board::{Facts, Root};
use status::{Line, line, status, table};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tree::{Series, Tree};

/// The names of changes in the journal: of a source's, and of the system's.
const SOURCE_PLAN: &str = "patch-source";
const MODULE_PLAN: &str = "patch-module";

/// See [`Command`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Print the patches, what each gives and how much it matters.
    List,
    /// Tell which patches the running module has, or a driver's source, by what it says and not by who said it.
    ///
    /// Exit status: 0 when it has all that are required, 1 when it has not, 2 for an error, 3 when nobody knows.
    Status {
        /// A kernel tree, or a folder with the driver's files. Without it the running module.
        dir: Option<PathBuf>,
    },
    /// Put what is missing into a driver's source: all of it, or nothing where a part conflicts.
    Apply {
        /// A kernel tree, or a folder with the driver's files.
        dir: PathBuf,
        #[command(flatten)]
        patches: Patches,
        #[command(flatten)]
        how: How,
    },
    /// Tell whether a module can be built here.
    ///
    /// Exit status: 0 good, 1 something is missing, 2 an error, 3 too little can be seen.
    Check(Kernel),
    /// Build the driver as a module, in a temporary folder.
    Build {
        /// A kernel tree, or a folder with the driver's files.
        dir: PathBuf,
        /// Where the module goes.
        #[arg(long, short, value_name = "FILE", default_value = "rocket.ko")]
        out: PathBuf,
        #[command(flatten)]
        patches: Patches,
        #[command(flatten)]
        kernel: Kernel,
        /// Show what would be done, and do nothing.
        #[arg(long)]
        dry_run: bool,
    },
    /// Install a module so that the kernel takes it before its own.
    Install {
        /// What `build` made.
        file: PathBuf,
        #[command(flatten)]
        kernel: Kernel,
        #[command(flatten)]
        how: How,
    },
    /// Take back what `install` did to the system, or `apply` to a source.
    Revert {
        /// A source that `apply` changed. Without it the installed module.
        dir: Option<PathBuf>,
        #[command(flatten)]
        how: How,
        /// Also over what somebody changed since.
        #[arg(long)]
        force: bool,
    },
}

impl Arguments {
    /// Whether a system or a source is to be changed.
    pub fn changes(&self) -> bool {
        match &self.command {
            Command::Apply { how, .. }
            | Command::Install { how, .. }
            | Command::Revert { how, .. } => how.changes(None),
            Command::List | Command::Status { .. } | Command::Check(_) | Command::Build { .. } => {
                false
            }
        }
    }
}

/// Where the patches are, as files.
#[derive(Debug, Args)]
struct Patches {
    /// The folder kernel-patches. Without this the installed one, or the one in this folder.
    #[arg(long, value_name = "DIR")]
    patches: Option<PathBuf>,
}

/// Which kernel.
#[derive(Debug, Args)]
struct Kernel {
    /// Its release, as uname -r prints it. Without this the running one.
    #[arg(long, value_name = "RELEASE")]
    release: Option<String>,
}

/// Runs a subcommand.
///
/// # Errors
/// What cannot be read, with its name; a change that failed.
pub fn run(arguments: Arguments, globals: &Globals) -> Result<ExitCode> {
    let all = catalog()?;
    match arguments.command {
        Command::List => {
            let lines: Vec<Line<'_>> = all.iter().map(|p| line(p, None)).collect();
            match globals.json {
                true => print_json(&lines)?,
                false => print(&table(&lines))?,
            }
            Ok(ExitCode::SUCCESS)
        }
        Command::Status { dir } => status(&all, dir.as_deref(), globals),
        Command::Apply { dir, patches, how } => {
            let (tree, series) = (Tree::open(&dir)?, Series::read(&patches.dir()?)?);
            let planned = tree::plan(&tree, &series, &all)?;
            let mut out = how.said(globals);
            if let Some(variant) = &planned.variant {
                writeln!(out, "first {variant}: this source is older than the series")?;
            }
            write!(out, "{}", paragraph("to apply: ", &words(&planned.applied)))?;
            writeln!(out, "{}", paragraph("there already: ", &words(&planned.skipped)))?;
            let options = Options { dry_run: how.dry_run, yes: how.yes, emit: None };
            let plan = tree::changes(&tree, &planned);
            change::carry_out(&tree.dir, &plan, &options, &mut out)?.ended(globals)
        }
        Command::Check(kernel) => {
            let report = checked(&kernel, globals)?;
            match globals.json {
                true => print_json(&report)?,
                false => print(&report.text(globals.quiet, globals.colored()))?,
            }
            Ok(ExitCode::from(report.exit))
        }
        Command::Build { dir, out, patches, kernel, dry_run } => {
            let report = checked(&kernel, globals)?;
            if report.exit == 1 && report.findings.iter().any(|f| f.status == Fail) {
                print(&report.text(true, globals.colored()))?;
                bail!("nothing was built");
            }
            let release = release(&kernel, globals)?;
            let headers = globals.root.join(format!("lib/modules/{release}/build"));
            let build = module::Build { dir, patches: patches.dir()?, headers, out };
            let command = build.command(Path::new("TEMPORARY")).join(" ");
            let to = build.out.display();
            print(&format!("builds in a temporary folder, and writes {to}:\n    {command}\n"))?;
            if dry_run {
                return Ok(ExitCode::SUCCESS);
            }
            build.run()?;
            print(&format!(
                "built; next:\n    sudo rocketctl patch install {}\n",
                build.out.display()
            ))?;
            Ok(ExitCode::SUCCESS)
        }
        Command::Install { file, kernel, how } => {
            let root =
                Root::open(&globals.root).with_context(|| globals.root.display().to_string())?;
            let machine = Facts::read(&root).machine.map_err(|e| anyhow::anyhow!("{e}"))?;
            let plan = module::install(&file, &release(&kernel, globals)?, &machine)?;
            let options = Options { dry_run: how.dry_run, yes: how.yes, emit: None };
            let mut out = how.said(globals);
            let outcome = change::carry_out(&globals.root, &plan, &options, &mut out)?;
            writeln!(
                out,
                "The loaded driver stays until: sudo modprobe -r rocket && sudo modprobe rocket"
            )?;
            outcome.ended(globals)
        }
        Command::Revert { dir, how, force } => {
            let (root, plan) = match dir {
                Some(dir) => (Tree::open(&dir)?.dir, SOURCE_PLAN),
                None => (globals.root.clone(), MODULE_PLAN),
            };
            change::undo(&root, &how.undo(plan, force), &mut how.said(globals))?.ended(globals)
        }
    }
}

fn words(ids: &[String]) -> String {
    if ids.is_empty() { "nothing".to_owned() } else { ids.join(", ") }
}

impl Patches {
    /// As asked for, as packages have it, or as the repository has it.
    fn dir(&self) -> Result<PathBuf> {
        if let Some(dir) = &self.patches {
            return Ok(dir.clone());
        }
        let places = ["/usr/share/rocket-npu/kernel-patches", "kernel-patches"].map(PathBuf::from);
        let found = places.iter().find(|p| p.join("series/series").is_file());
        found
            .cloned()
            .context("the patches are not here: name the folder kernel-patches with --patches")
    }
}

/// The kernel that is meant: a name in /lib/modules, and nothing else.
fn release(kernel: &Kernel, globals: &Globals) -> Result<String> {
    let release = match &kernel.release {
        Some(release) => release.clone(),
        None => {
            let root =
                Root::open(&globals.root).with_context(|| globals.root.display().to_string())?;
            let read = root.text("proc/sys/kernel/osrelease");
            read.map_err(|e| anyhow::anyhow!("the kernel's release is not known ({e}): --release"))?
        }
    };
    match release.is_empty() || release.contains('/') || release.starts_with('.') {
        true => bail!("'{release}' is no kernel's release: see uname -r"),
        false => Ok(release),
    }
}

fn checked(kernel: &Kernel, globals: &Globals) -> Result<Report> {
    let root = Root::open(&globals.root).with_context(|| globals.root.display().to_string())?;
    let release = release(kernel, globals)?;
    let machine = Facts::read(&root).machine.unwrap_or_else(|_| "aarch64".into());
    let free = root.is_live().then(|| nix::sys::statvfs::statvfs(&std::env::temp_dir()).ok());
    let free = free.flatten().map(|s| s.blocks_available().saturating_mul(s.fragment_size()));
    let report = Report::new(headers::check(&root, &release, &machine, free), headers::REQUIRED);
    let verdict = match report.exit {
        0 => format!("a module can be built for {release}"),
        3 => format!("whether a module can be built for {release} is not known"),
        _ if report.findings.iter().any(|f| f.status == Fail) => {
            format!("no module can be built for {release} as it is")
        }
        _ => format!("a module can perhaps be built for {release}"),
    };
    Ok(Report { verdict, ..report })
}

/// A head and words beside it, in lines of 80.
fn paragraph(head: &str, words: &str) -> String {
    let lines = wrapped(words, 80 - head.len());
    let line = |(i, l): (usize, &String)| match i {
        0 => format!("{head}{l}\n"),
        _ => format!("{:w$}{l}\n", "", w = head.len()),
    };
    lines.iter().enumerate().map(line).collect()
}
