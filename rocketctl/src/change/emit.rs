//! A plan as files in a folder, for systems whose own cannot be written: read-only roots, images, NixOS, Talos.

use super::command::quoted;
use super::disk::Disk;
use super::effect::{Effect, effect};
use super::place::Place;
use super::{Change, Plan, State, Step};
use crate::doctor::wrapped;
use anyhow::{Context, Result, bail};
use std::fmt::Write as _;
use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

/// Writes the files of all steps that are to do, and a README with the rest. The folder must be new or empty.
pub fn files(
    disk: &mut dyn Disk,
    place: &Place,
    plan: &Plan,
    dir: &Path,
    out: &mut dyn Write,
) -> Result<()> {
    let shown = dir.display();
    fs::create_dir_all(dir).with_context(|| shown.to_string())?;
    if fs::read_dir(dir)?.next().is_some() {
        bail!("{shown} is not empty; name a new folder");
    }
    let mut readme = format!(
        "{}\n\nThe files below files/ belong at the same paths of the system, owned by root,\n\
         with the modes named here. Commands are run on that system, as root, in this\n\
         order.\n",
        plan.title
    );
    for step in &plan.steps {
        match step.state(disk, place) {
            State::Done => {}
            State::Cannot(why) => {
                let why = format!("{} is left out: {why}", step.title);
                write!(readme, "\n{}\n", wrapped(&why, 80).join("\n"))?;
            }
            State::ToDo => {
                write!(readme, "\n{}\n", step.title)?;
                for line in wrapped(&step.why, 78) {
                    writeln!(readme, "  {line}")?;
                }
                step_files(disk, place, step, dir, &mut readme)?;
            }
        }
    }
    fs::write(dir.join("README"), readme)?;
    Ok(writeln!(out, "The files and a README are in {shown}.")?)
}

fn step_files(
    disk: &mut dyn Disk,
    place: &Place,
    step: &Step,
    dir: &Path,
    readme: &mut String,
) -> Result<()> {
    for change in &step.changes {
        match effect(disk, place, change)? {
            Some(Effect::File { path, new: Some(new), .. }) => {
                let target = dir.join("files").join(path.trim_start_matches('/'));
                fs::create_dir_all(target.parent().unwrap_or(dir))?;
                fs::write(&target, &new.bytes)?;
                fs::set_permissions(&target, fs::Permissions::from_mode(new.mode))?;
                let edited = match change {
                    Change::Edit { .. } => ", with what this system's has",
                    _ => "",
                };
                writeln!(readme, "    file {path} (mode {:o}{edited})", new.mode)?;
            }
            Some(Effect::File { path, new: None, .. }) => writeln!(readme, "    rm {path}")?,
            Some(Effect::Folder { path, mode }) => {
                writeln!(readme, "    mkdir -m {mode:o} {path}")?
            }
            Some(Effect::Set { path, new, .. }) => writeln!(readme, "    echo {new} > {path}")?,
            Some(Effect::Run { argv, .. }) if !argv.is_empty() => {
                writeln!(readme, "    {}", quoted(&argv))?;
            }
            Some(Effect::Run { .. }) | None => {}
        }
    }
    Ok(())
}
