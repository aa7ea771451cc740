//! Which driver there is to be: the one that runs, the patched one that is installed, or the package's.

use crate::change::{State, Step};
use rocket_runtime::board::{Facts, Root};
use std::path::{Path, PathBuf};

/// What decides it.
#[derive(Debug, Clone, Default)]
pub struct Seen {
    /// The running driver names the series' parts.
    pub patched: bool,
    /// A driver is loaded or built in.
    pub loaded: bool,
    /// `modules.dep` has a driver.
    pub installed: bool,
    /// `modules.dep` has one that DKMS built.
    pub built: bool,
    /// Programs have it open.
    pub in_use: bool,
    /// The running kernel's release.
    pub release: String,
    /// Its headers are there.
    pub headers: bool,
    /// It has CONFIG_DRM_ACCEL; none where its configuration cannot be seen.
    pub accel: Option<bool>,
    /// The package with the patched driver.
    pub package: Option<PathBuf>,
}

/// What is to be done.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Decision {
    Suffices,
    /// The installed one is loaded in place of the one that runs.
    Reload,
    Load,
    Install(PathBuf),
    Cannot(String),
}

impl Seen {
    pub fn read(root: &Root, facts: &Facts, package: Option<PathBuf>) -> Seen {
        let release = facts.release.clone().unwrap_or_default();
        let files = facts.installed.clone().unwrap_or_default();
        let config = root.text(&format!("boot/config-{release}")).ok();
        let has = |c: String| c.lines().any(|l| l.trim() == "CONFIG_DRM_ACCEL=y");
        Seen {
            patched: facts.features.is_ok(),
            loaded: facts.loaded == Ok(true),
            installed: !files.is_empty(),
            built: files.iter().any(|l| l.starts_with("updates/") || l.contains("/updates/")),
            in_use: root.number::<u64>("sys/module/rocket/refcnt").is_ok_and(|n| n > 0),
            headers: root.exists(&format!("lib/modules/{release}/build/include")) == Ok(true),
            accel: config.map(has),
            release,
            package,
        }
    }

    /// What the DKMS package needs and is for, kernel-patches/README.md.
    pub fn decide(&self) -> Decision {
        let cannot = |why: String| Decision::Cannot(why);
        let release = &self.release;
        match () {
            () if self.patched => Decision::Suffices,
            () if self.built && self.loaded && self.in_use => cannot(
                "the patched driver is installed and the stock one in use: end the programs that use the NPU, or \
                 restart the board"
                    .into(),
            ),
            () if self.built && self.loaded => Decision::Reload,
            () if self.built => Decision::Load,
            () if self.package.is_none() && self.installed && !self.loaded => Decision::Load,
            () if !is_for(release) => cannot(format!(
                "the patched driver is for kernels 6.18, 6.19 and 7.1 to 7.3; this is {}",
                if release.is_empty() { "not known" } else { release }
            )),
            () if self.accel == Some(false) => cannot(
                "this kernel was built without CONFIG_DRM_ACCEL, for which no module can help".into(),
            ),
            () if self.package.is_none() => cannot(
                "no rocket-npu-dkms_*_all.deb is beside rocketctl; make it with scripts/package-dkms on any Debian \
                 machine and name it with --driver FILE"
                    .into(),
            ),
            () if !self.headers => cannot(format!(
                "building it needs the kernel's headers: sudo apt install linux-headers-{release}"
            )),
            () => self.package.clone().map_or_else(|| cannot(String::new()), Decision::Install),
        }
    }
}

/// As `BUILD_EXCLUSIVE_KERNEL` of kernel-patches/dkms has it.
fn is_for(release: &str) -> bool {
    let bases = ["6.18", "6.19", "7.1", "7.2", "7.3"];
    bases.iter().any(|b| release.strip_prefix(b).is_some_and(|r| r.starts_with(['.', '+', '-'])))
}

const REMOVE: &[&str] = &["apt-get", "remove", "-y", "rocket-npu-dkms"];
const UNLOAD: &[&str] = &["modprobe", "-r", "rocket"];
const LOAD: &[&str] = &["modprobe", "rocket"];

/// The step, and whether it will leave a driver that takes a rate.
pub fn step(seen: &Seen) -> (Step, bool) {
    let title = "The driver";
    let new = |why: &str| Step::new("driver", title, why);
    let patched = "The patched driver raises the clock, keeps the IOMMU attached between jobs and tells a program \
                   that its job failed.";
    match seen.decide() {
        Decision::Suffices => {
            (Step::new("driver", "The running driver has the patches", "").given(State::Done), true)
        }
        Decision::Reload => (new(patched).run(UNLOAD, None).run(LOAD, None), true),
        Decision::Load => {
            let step = new("The kernel has it and did not load it.").run(LOAD, Some(UNLOAD));
            (step, seen.built)
        }
        Decision::Install(package) => {
            let package = package.to_string_lossy();
            let mut step = new(&format!("{patched} It is built here, which takes some minutes."))
                .run(&["apt-get", "install", "-y", &package], Some(REMOVE));
            if seen.loaded && !seen.in_use {
                step = step.run(UNLOAD, None);
            }
            if !(seen.loaded && seen.in_use) {
                step = step.run(LOAD, None);
            }
            (step, true)
        }
        Decision::Cannot(why) if seen.loaded || seen.installed => {
            let why = format!("{why}. The driver that is there works, at the boot's 200 MHz");
            (new("").given(State::Cannot(why)).optional(), false)
        }
        Decision::Cannot(why) => (new("").given(State::Cannot(why)), false),
    }
}

/// The package, as named or beside this program.
pub fn package(named: Option<&Path>) -> std::io::Result<Option<PathBuf>> {
    if let Some(path) = named {
        return path.canonicalize().map(Some);
    }
    let me = std::env::current_exe()?;
    let Some(folder) = me.parent() else { return Ok(None) };
    let ours = |name: &str| name.starts_with("rocket-npu-dkms_") && name.ends_with("_all.deb");
    let mut found: Vec<PathBuf> = std::fs::read_dir(folder)?
        .flatten()
        .filter(|e| e.file_name().to_str().is_some_and(ours))
        .map(|e| e.path())
        .collect();
    found.sort();
    Ok(found.pop())
}
