//! A program's command with the board's library in front of it, through an emulator where it is for another machine.

use super::library;
use super::target::{self, Target, Unreachable};
use anyhow::bail;
use std::ffi::{OsStr, OsString};
use std::path::{Path, PathBuf};
use std::process::Command;

/// A command that cannot be run, as an error with an exit status of its own.
#[derive(Debug)]
pub struct Failure(pub Unreachable);

impl std::fmt::Display for Failure {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.0.fmt(f)
    }
}

impl std::error::Error for Failure {}

/// A command with its environment, and what is known of its program.
pub struct Prepared {
    pub command: Command,
    pub inspected: Target,
}

pub fn prepare(name: &OsStr, rest: &[OsString], root: &Path) -> anyhow::Result<Prepared> {
    if let Some(machine) = emulated_machine(name) {
        let mut command = Command::new(name);
        command.args(rest);
        emulate(&mut command, machine, root)?;
        return Ok(Prepared { command, inspected: Target { program: name.into(), machine } });
    }
    let inspected = target::inspect(name).map_err(Failure)?;
    let mut command;
    if inspected.machine == std::env::consts::ARCH {
        command = Command::new(name);
        preload(&mut command, &find(inspected.machine)?);
        command.env(rocket_sim_wire::ROOT_VARIABLE, root);
    } else {
        let emulators =
            [format!("qemu-{}", inspected.machine), format!("qemu-{}-static", inspected.machine)];
        let Some(emulator) = emulators.iter().find(|e| on_path(e)) else {
            bail!(
                "{} is a program for {}, and {} is not installed (apt-get install qemu-user-static)",
                inspected.program.display(),
                inspected.machine,
                emulators[0]
            );
        };
        command = Command::new(emulator);
        let libraries = PathBuf::from(format!("/usr/{}-linux-gnu", inspected.machine));
        if std::env::var_os("QEMU_LD_PREFIX").is_none() && libraries.is_dir() {
            command.arg("-L").arg(libraries);
        }
        command.arg(&inspected.program);
        emulate(&mut command, inspected.machine, root)?;
    }
    command.args(rest);
    Ok(Prepared { command, inspected })
}

fn find(machine: &str) -> anyhow::Result<PathBuf> {
    library::find(machine).map_err(anyhow::Error::msg)
}

fn on_path(name: &str) -> bool {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&folders).any(|dir| dir.join(name).is_file())
}

/// Puts the library in front of those that are preloaded already.
fn preload(command: &mut Command, library: &Path) {
    let mut list = library.as_os_str().to_owned();
    if let Some(others) = std::env::var_os("LD_PRELOAD").filter(|o| !o.is_empty()) {
        list.push(":");
        list.push(others);
    }
    command.env("LD_PRELOAD", list);
}

/// The machine that a qemu-user command emulates.
fn emulated_machine(name: &OsStr) -> Option<&'static str> {
    let name = Path::new(name).file_name()?.to_str()?;
    let machine = name.strip_prefix("qemu-")?;
    let machine = machine.strip_suffix("-static").unwrap_or(machine);
    ["aarch64", "x86_64"].into_iter().find(|m| *m == machine)
}

/// The library is for the program inside the emulator, not for the emulator.
fn emulate(command: &mut Command, machine: &str, root: &Path) -> anyhow::Result<()> {
    let library = find(machine)?;
    let mut set = OsString::from("LD_PRELOAD=");
    set.push(library);
    if let Some(others) = std::env::var_os("QEMU_SET_ENV").filter(|o| !o.is_empty()) {
        set.push(",");
        set.push(others);
    }
    command.env("QEMU_SET_ENV", set);
    command.env(rocket_sim_wire::ROOT_VARIABLE, root);
    Ok(())
}
