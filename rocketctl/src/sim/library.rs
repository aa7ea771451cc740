//! Where the preload library is.

use std::path::{Path, PathBuf};

/// What the library is called, for each architecture in a folder of its own or beside this program.
const NAME: &str = "librocket_sim_preload.so";

/// Overrides the search.
const VARIABLE: &str = "ROCKET_SIM_PRELOAD";

/// The library for programs of this machine type, as the ELF header names it (x86_64, aarch64).
pub fn find(machine: &str) -> Result<PathBuf, String> {
    if let Some(path) = std::env::var_os(VARIABLE).filter(|p| !p.is_empty()) {
        let path = PathBuf::from(path);
        return match path.canonicalize() {
            Ok(path) => Ok(path),
            Err(e) => Err(format!("{VARIABLE} names {}: {e}", path.display())),
        };
    }
    let me = std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
    let looked = candidates(&me, machine);
    looked.iter().find(|p| p.is_file()).cloned().ok_or_else(|| {
        let list: Vec<String> = looked.iter().map(|p| p.display().to_string()).collect();
        format!(
            "{NAME} for {machine} is not installed: build it with \
             `cargo build --release -p rocket-sim-preload` or name it with {VARIABLE} (looked for {})",
            list.join(", ")
        )
    })
}

/// Beside the program as cargo builds them, and where packages put it.
fn candidates(me: &Path, machine: &str) -> Vec<PathBuf> {
    let here = me.parent().unwrap_or(Path::new("/"));
    let mut list = Vec::new();
    if machine == std::env::consts::ARCH {
        list.push(here.join(NAME));
        list.push(here.join("deps").join(NAME));
    }
    // cargo's folder of a cross build: target/TRIPLE/PROFILE, or below a64 as scripts/build-aarch64
    // has it.
    if let (Some(profile), Some(target)) = (here.file_name(), here.parent()) {
        for base in [Some(target), target.parent()].into_iter().flatten() {
            let triple = base.join(format!("{machine}-unknown-linux-gnu"));
            list.push(triple.join(profile).join(NAME));
            list.push(triple.join("release").join(NAME));
            let apart = base.join("a64").join(format!("{machine}-unknown-linux-gnu"));
            list.push(apart.join("release").join(NAME));
        }
        list.push(target.join(format!("lib/{machine}-linux-gnu/rocket")).join(NAME));
    }
    list
}
