//! Building the driver as a module of its own, and putting it where the kernel finds it first.

use super::source::Source;
use crate::change::{PATIENCE, Plan, Step, run_program};
use anyhow::{Context, Result, bail};
use goblin::elf::Elf;
use goblin::elf::header::{EM_AARCH64, EM_X86_64};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

/// What a build is made of.
#[derive(Debug)]
pub struct Build {
    /// The driver's source.
    pub dir: PathBuf,
    /// Kbuild and what older kernels lack (kernel-and-uapi D.10).
    pub patches: PathBuf,
    /// The kernel's headers.
    pub headers: PathBuf,
    pub out: PathBuf,
}

/// A folder of our own that goes when it is no longer needed.
#[derive(Debug)]
struct Temporary(PathBuf);

impl Temporary {
    fn new() -> Result<Temporary> {
        let mut bytes = [0u8; 8];
        rustix::rand::getrandom(&mut bytes, rustix::rand::GetRandomFlags::empty())?;
        let name = format!("rocketctl-build-{:016x}", u64::from_le_bytes(bytes));
        let path = std::env::temp_dir().join(name);
        // Fails where there is one: nobody else's is built in.
        rustix::fs::mkdir(&path, rustix::fs::Mode::RWXU)
            .with_context(|| format!("cannot make {}", path.display()))?;
        Ok(Temporary(path))
    }
}

impl Drop for Temporary {
    fn drop(&mut self) {
        // What stays lies among temporary files.
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

impl Build {
    /// The command, in a folder.
    pub fn command(&self, work: &Path) -> Vec<String> {
        let headers = self.headers.display().to_string();
        vec!["make".into(), "-C".into(), headers, format!("M={}", work.display()), "modules".into()]
    }

    /// Builds in a temporary folder; the source stays as it is.
    ///
    /// # Errors
    /// What is missing, or the end of what `make` said.
    pub fn run(&self) -> Result<()> {
        let work = Temporary::new()?;
        self.prepare(&work.0)?;
        let command = self.command(&work.0);
        run_program(&command, PATIENCE).context("the module does not build")?;
        let built = work.0.join("rocket.ko");
        let bytes = std::fs::read(&built).context("make ended well and left no rocket.ko")?;
        std::fs::write(&self.out, bytes)
            .with_context(|| format!("cannot write {}", self.out.display()))
    }

    /// Copies the driver, its header and its makefile.
    fn prepare(&self, work: &Path) -> Result<()> {
        let source = Source::open(&self.dir)?;
        let mut objects = Vec::new();
        let entries =
            std::fs::read_dir(&source.dir).with_context(|| source.dir.display().to_string())?;
        for entry in entries.flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            if name.ends_with(".c") || name.ends_with(".h") {
                copy(&entry.path(), &work.join(&name))?;
            }
            // What make itself writes beside the sources.
            if let Some(stem) = name.strip_suffix(".c").filter(|s| !s.ends_with(".mod")) {
                objects.push(format!("{stem}.o"));
            }
        }
        objects.sort();
        let header = source.header().context("the driver's header rocket_accel.h is not there")?;
        std::fs::create_dir_all(work.join("uapi/drm"))?;
        copy(&header, &work.join("uapi/drm/rocket_accel.h"))?;
        let from = self.patches.join("dkms");
        copy(&from.join("rocket_compat.h"), &work.join("rocket_compat.h"))?;
        let kbuild = from.join("Kbuild");
        let text =
            std::fs::read_to_string(&kbuild).with_context(|| kbuild.display().to_string())?;
        std::fs::write(work.join("Kbuild"), with_objects(&text, &objects))?;
        Ok(())
    }
}

fn copy(from: &Path, to: &Path) -> Result<()> {
    std::fs::copy(from, to).with_context(|| from.display().to_string())?;
    Ok(())
}

/// Every source is an object of the module, whichever patches the source has.
fn with_objects(kbuild: &str, objects: &[String]) -> String {
    let line = |l: &str| match l.starts_with("rocket-y") {
        true => format!("rocket-y := {}\n", objects.join(" ")),
        false => format!("{l}\n"),
    };
    kbuild.lines().map(line).collect()
}

/// What a module says of itself, by key; of a key that is there several times the first.
///
/// # Errors
/// Why these bytes are no module.
pub fn modinfo(bytes: &[u8]) -> Result<BTreeMap<String, String>, String> {
    let elf = Elf::parse(bytes).map_err(|e| format!("it is no module: {e}"))?;
    let machine = match elf.header.e_machine {
        EM_AARCH64 => "aarch64",
        EM_X86_64 => "x86_64",
        _ => "another",
    };
    let named =
        |s: &&goblin::elf::SectionHeader| elf.shdr_strtab.get_at(s.sh_name) == Some(".modinfo");
    let section = elf.section_headers.iter().find(named).ok_or("it is no module: no .modinfo")?;
    let range = section.file_range().ok_or("its .modinfo has no bytes")?;
    let data = bytes.get(range).ok_or("it is cut off")?;
    let mut info = BTreeMap::from([("machine".to_owned(), machine.to_owned())]);
    for entry in data.split(|b| *b == 0) {
        if let Some((key, value)) = String::from_utf8_lossy(entry).split_once('=') {
            info.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
    }
    Ok(info)
}

/// Putting a module where depmod finds it before the kernel's own (kernel-and-uapi D.10).
///
/// # Errors
/// A file that is no module for this kernel and machine.
pub fn install(file: &Path, release: &str, machine: &str) -> Result<Plan> {
    let bytes = std::fs::read(file).with_context(|| file.display().to_string())?;
    let info = modinfo(&bytes).map_err(|e| anyhow::anyhow!("{}: {e}", file.display()))?;
    let get = |key: &str| info.get(key).map(String::as_str).unwrap_or_default();
    let shown = file.display();
    if get("name") != "rocket" {
        bail!("{shown} is the module '{}', and not rocket", get("name"));
    }
    if get("machine") != machine {
        bail!("{shown} is for {}, and this is {machine}", get("machine"));
    }
    let built = get("vermagic").split(' ').next().unwrap_or_default();
    if built != release {
        bail!("{shown} was built for the kernel {built}, and not for {release}; build it anew");
    }
    let path = format!("/lib/modules/{release}/updates/rocket.ko");
    let depmod = ["depmod", "-a", release];
    let step =
        Step::new("patch.module", "The patched driver", "The kernel takes it before its own.")
            .write(&path, bytes, 0o644)
            .run(&depmod, Some(&depmod));
    let title = format!("the rocket module for {release}");
    Ok(Plan::new(super::MODULE_PLAN, title, "sudo rocketctl patch revert").step(step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::change::{Options, UndoOptions, carry_out, undo};
    use std::process::Command;

    fn put(dir: &Path, path: &str, text: &str) {
        let path = dir.join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, text).unwrap();
    }

    /// A module as the compiler makes it, of this machine.
    fn module(dir: &Path, name: &str, vermagic: &str) -> PathBuf {
        let text = format!(
            "const char a[] __attribute__((section(\".modinfo\"))) = \"name={name}\\0vermagic={vermagic} SMP mod_unload\\0name=other\";"
        );
        put(dir, "m.c", &text);
        let done = Command::new("gcc").args(["-c", "m.c", "-o", "m.ko"]).current_dir(dir).status();
        assert!(done.unwrap().success());
        dir.join("m.ko")
    }

    #[test]
    fn modules_that_do_not_fit_are_refused_with_the_reason() {
        let dir = tempfile::tempdir().unwrap();
        let here = std::env::consts::ARCH;
        let error = |file: &Path, release: &str, machine: &str| {
            install(file, release, machine).unwrap_err().to_string()
        };
        let file = module(dir.path(), "rocket", "7.3.4-arm64");
        assert!(install(&file, "7.3.4-arm64", here).is_ok());
        assert!(error(&file, "7.3.5-arm64", here).contains("7.3.4-arm64"));
        assert!(error(&file, "7.3.4-arm64", "riscv64").contains("riscv64"));
        let other = module(dir.path(), "panfrost", "7.3.4-arm64");
        assert!(error(&other, "7.3.4-arm64", here).contains("panfrost"));
        put(dir.path(), "text.ko", "no module");
        assert!(error(&dir.path().join("text.ko"), "x", here).contains("no module"));
        assert!(error(&dir.path().join("absent.ko"), "x", here).contains("absent.ko"));
    }

    /// Below a root: the file is put where depmod prefers it, and taken away again; the command is listed.
    #[test]
    fn a_module_goes_in_and_out() {
        let dir = tempfile::tempdir().unwrap();
        let root = dir.path().join("root");
        std::fs::create_dir_all(root.join("lib/modules/7.3.4")).unwrap();
        let file = module(dir.path(), "rocket", "7.3.4");
        let plan = install(&file, "7.3.4", std::env::consts::ARCH).unwrap();
        let options = Options { yes: true, ..Options::default() };
        let outcome = carry_out(&root, &plan, &options, &mut std::io::sink()).unwrap();
        let placed = root.join("lib/modules/7.3.4/updates/rocket.ko");
        assert_eq!(std::fs::read(&placed).unwrap(), std::fs::read(&file).unwrap());
        assert!(outcome.commands.iter().any(|c| c.contains("depmod -a 7.3.4")), "{outcome:?}");
        let options = UndoOptions {
            plan: Some(super::super::MODULE_PLAN.into()),
            yes: true,
            ..UndoOptions::default()
        };
        undo(&root, &options, &mut std::io::sink()).unwrap();
        assert!(!placed.exists());
    }

    /// Headers whose makefile stands for the kernel's: what it finds is what a build would have.
    fn build(dir: &Path, makefile: &str) -> Result<()> {
        put(dir, "src/rocket_job.c", "int job;\n");
        put(dir, "src/rocket_extra.c", "int extra;\n");
        put(dir, "src/uapi/drm/rocket_accel.h", "/* header */\n");
        put(dir, "patches/dkms/Kbuild", "obj-m := rocket.o\nrocket-y := old.o\nccflags-y += x\n");
        put(dir, "patches/dkms/rocket_compat.h", "");
        put(dir, "headers/Makefile", makefile);
        let [src, patches, headers] = ["src", "patches", "headers"].map(|n| dir.join(n));
        Build { dir: src, patches, headers, out: dir.join("out.ko") }.run()
    }

    #[test]
    fn a_build_leaves_the_source_alone() {
        let dir = tempfile::tempdir().unwrap();
        build(dir.path(), "modules:\n\tcat $(M)/Kbuild $(M)/uapi/drm/rocket_accel.h $(M)/rocket_compat.h > $(M)/rocket.ko\n").unwrap();
        let out = std::fs::read_to_string(dir.path().join("out.ko")).unwrap();
        assert!(
            out.contains("rocket-y := rocket_extra.o rocket_job.o\n") && out.contains("header"),
            "{out}"
        );
        assert!(out.contains("ccflags-y += x") && !out.contains("old.o"), "{out}");
        let left: Vec<_> = std::fs::read_dir(dir.path().join("src")).unwrap().collect();
        assert_eq!(left.len(), 3);
    }

    #[test]
    fn what_make_says_is_said() {
        let dir = tempfile::tempdir().unwrap();
        let error = build(dir.path(), "modules:\n\t@echo the reason >&2; exit 3\n").unwrap_err();
        assert!(format!("{error:#}").contains("the reason"), "{error:#}");
        let error = build(dir.path(), "modules:\n\ttrue\n").unwrap_err();
        assert!(format!("{error:#}").contains("no rocket.ko"), "{error:#}");
        assert!(!dir.path().join("out.ko").exists());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let _ = modinfo(&bytes);
        }
    }
}
