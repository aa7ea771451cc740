//! The built library in a small host of every generation: `tests/c/standin.c`, which loads it as a
//! program does and computes products on the simulated NPU.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// Slots of the backend table, bytes of the properties, API version, slots of the buffer type
/// (ggml-abi 1).
type Numbers = [u32; 4];

const GENERATIONS: [(&str, Numbers); 5] = [
    ("A1/A2", [13, 40, 1, 6]),
    ("A3", [14, 40, 1, 6]),
    ("B1", [14, 56, 2, 6]),
    ("B2", [16, 56, 2, 6]),
    ("C", [16, 56, 3, 8]),
];

/// Two hooks more than any host has.
const UNKNOWN: Numbers = [18, 56, 9, 8];

fn compile(out: &Path, options: &[String]) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/c/standin.c");
    let mut c = Command::new("gcc");
    c.args(["-std=gnu11", "-O1", "-Wall", "-Wextra", "-Werror"]).args(options);
    let run = c.arg(source).arg("-o").arg(out).arg("-ldl").output();
    let run = run.unwrap_or_else(|e| panic!("gcc: {e}; install it, as scripts/test does"));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// The library cargo built along with this test.
fn plugin() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libggml_rocket.so")
}

struct Host {
    dir: tempfile::TempDir,
}

impl Host {
    fn of([slots, props, api, buft]: Numbers) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let mut options = vec!["-shared".to_owned(), "-fPIC".to_owned()];
        let numbers = [("SLOTS", slots), ("PROPS", props), ("API", api), ("BUFT", buft)];
        options.extend(numbers.map(|(name, n)| format!("-D{name}={n}")));
        compile(&dir.path().join("libggml-base.so"), &options);
        compile(&dir.path().join("standin"), &["-DPROGRAM".to_owned()]);
        Host { dir }
    }

    fn run(&self, abi: Option<&str>) -> Output {
        let mut c = Command::new(self.dir.path().join("standin"));
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("ROCKET_") {
                c.env_remove(&name);
            }
        }
        if let Some(abi) = abi {
            c.env("ROCKET_ABI", abi);
        }
        c.env("ROCKET_DEVICE", "sim").arg(self.dir.path().join("libggml-base.so")).arg(plugin());
        c.output().unwrap()
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn standin_of_every_generation_computes_products() {
    for (name, numbers) in GENERATIONS {
        let run = Host::of(numbers).run(None);
        let (out, err) = (text(&run.stdout), text(&run.stderr));
        assert!(run.status.success(), "{name}: {}\n{out}{err}", run.status);
        assert!(out.contains("three products"), "{name}: {out}");
        assert!(out.contains(&format!("interface {name}")), "{name}: {out}");
        assert!(!out.contains("log 3") && !out.contains("log 4"), "{name}: {out}");
    }
}

/// One sentence, on the host's log as an error and on stderr.
#[test]
fn standin_of_an_unknown_layout_is_refused() {
    for abi in [None, Some("adopt")] {
        let run = Host::of(UNKNOWN).run(abi);
        let (out, err) = (text(&run.stdout), text(&run.stderr));
        assert_eq!(run.status.code(), Some(3), "{out}{err}");
        let logged: Vec<_> = out.lines().collect();
        let said: Vec<_> = err.lines().collect();
        assert_eq!((logged.len(), said.len()), (1, 1), "{out}{err}");
        assert_eq!(logged[0].strip_prefix("log 4 "), Some(said[0]));
        assert!(
            said[0].contains("backend table 18 slots") && said[0].contains("update the plugin")
        );
    }
}

#[test]
fn standin_of_an_unknown_layout_is_adapted_to_on_demand() {
    let run = Host::of(UNKNOWN).run(Some("adapt"));
    let (out, err) = (text(&run.stdout), text(&run.stderr));
    assert!(run.status.success(), "{out}{err}");
    assert!(out.contains("three products"), "{out}");
    let warned = out.lines().filter(|l| l.starts_with("log 3 ")).collect::<Vec<_>>();
    assert!(matches!(warned[..], [w] if w.contains("ROCKET_ABI=adapt: ")), "{out}");
}
