//! Programs that know nothing of simulators, on a simulated board: `rocketctl sim run`, the
//! preload library and the board's server, with C, C++, Rust and Python programs.
//!
//! The programs' sources are in `tests/c`; gcc, g++ and libdrm-dev are needed. rocketctl and the
//! library are built first, so that no test meets old ones.

mod aarch64;
mod boards;
mod job;
mod node;
mod programs;
mod run;
mod wait;

use std::ffi::OsStr;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::OnceLock;

/// rocketctl, and folders of this test's own.
#[derive(Debug)]
pub struct Sim {
    rocketctl: PathBuf,
    scratch: tempfile::TempDir,
}

impl Sim {
    pub fn ready() -> Sim {
        Sim { rocketctl: built().to_owned(), scratch: tempfile::tempdir().expect("a folder") }
    }

    pub fn scratch(&self) -> &Path {
        self.scratch.path()
    }

    /// rocketctl; nothing of this test's own environment may decide what is tested.
    pub fn rocketctl(&self) -> Command {
        let mut c = Command::new(&self.rocketctl);
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["ROCKET_", "LD_", "QEMU_"].iter().any(|p| text.starts_with(p)) {
                c.env_remove(&name);
            }
        }
        c.env("XDG_RUNTIME_DIR", self.scratch());
        c
    }

    /// `sim run` with `options`, and the program's name and arguments.
    pub fn run<S: AsRef<OsStr>>(&self, options: &[&str], command: &[S]) -> Command {
        let mut c = self.rocketctl();
        c.args(["sim", "run"]).args(options).arg("--").args(command);
        c
    }

    /// Where a board of that name has its folder.
    pub fn place(&self, board: &str) -> rocket_sim::serve::Place {
        rocket_sim::serve::Place::at(&self.scratch().join("rocket-sim").join(board))
    }
}

/// rocketctl, beside which the library lies; both are as their sources are now.
fn built() -> &'static Path {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    BUILT.get_or_init(|| {
        let me = std::env::current_exe().expect("this test's path");
        let folder = me.ancestors().nth(2).expect("cargo's folder");
        let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
        cargo.args(["build", "--quiet", "--locked", "-p", "rocketctl", "-p", "rocket-sim-preload"]);
        // The folder has the profile's name, but for the first of them.
        let profile = folder.file_name().filter(|name| *name != "debug");
        cargo.arg("--profile").arg(profile.unwrap_or("dev".as_ref()));
        cargo.arg("--target-dir").arg(folder.parent().expect("the target folder"));
        succeed(cargo.current_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/..")));
        folder.join("rocketctl")
    })
}

/// Runs to the end, which must be a good one.
pub fn succeed(c: &mut Command) -> Output {
    let out = c.output().unwrap_or_else(|e| panic!("{c:?}: {e}"));
    let [said, told] = [&out.stdout, &out.stderr].map(|t| String::from_utf8_lossy(t));
    assert!(out.status.success(), "{c:?}: {}\n{said}\n{told}", out.status);
    out
}

pub fn stdout_of(out: &Output) -> String {
    String::from_utf8_lossy(&out.stdout).into_owned()
}

pub fn stderr_of(out: &Output) -> String {
    String::from_utf8_lossy(&out.stderr).into_owned()
}

/// Compiles `tests/c/SOURCE`, once for all tests that want the same.
pub fn compiled(compiler: &str, source: &str, arguments: &[&str]) -> PathBuf {
    let sources = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/c"));
    let mut key = DefaultHasher::new();
    for name in [source, "rocket_uapi.h"] {
        std::fs::read(sources.join(name)).expect("the source").hash(&mut key);
    }
    (compiler, arguments).hash(&mut key);
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join("preload");
    std::fs::create_dir_all(&folder).expect("a folder");
    let program = folder.join(format!("{source}-{:016x}", key.finish()));
    if !program.exists() {
        let new = tempfile::Builder::new().tempfile_in(&folder).expect("a file").into_temp_path();
        let mut c = Command::new(compiler);
        c.args(["-O1", "-g", "-Wall", "-Wextra", "-Werror", "-pthread", "-o"]).arg(&new);
        c.arg(sources.join(source)).args(arguments);
        let out = c.output().unwrap_or_else(|e| {
            panic!("{compiler}: {e}; install gcc, g++ and libdrm-dev, as scripts/test does")
        });
        assert!(
            out.status.success(),
            "{c:?} failed; are gcc, g++ and libdrm-dev installed, as scripts/test does?\n{}",
            stderr_of(&out)
        );
        std::fs::rename(&new, &program).expect("renames");
    }
    program
}

/// `tests/c/node.c` for this machine.
pub fn node_program() -> PathBuf {
    compiled("gcc", "node.c", &["-std=gnu11", "-I/usr/include/libdrm", "-ldrm"])
}
