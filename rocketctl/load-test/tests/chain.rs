//! The chain in small hosts of several generations (`tests/c/loading.c`), with this suite's plugin and with plugins
//! of a few lines that fail at every step.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use serde_json::Value;
use std::os::unix::process::ExitStatusExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitStatus};

/// Slots of the backend table, bytes of the properties, API version, slots of the buffer type (ggml-abi 1).
const B1: [u32; 4] = [14, 56, 2, 6];
const B2: [u32; 4] = [16, 56, 2, 6];
const C: [u32; 4] = [16, 56, 3, 8];
const UNKNOWN: [u32; 4] = [18, 56, 2, 6];

struct Host(tempfile::TempDir);

impl Host {
    fn of([slots, props, api, buft]: [u32; 4], ops: Option<u32>) -> Host {
        let dir = tempfile::tempdir().unwrap();
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/c/loading.c");
        let numbers = [("SLOTS", slots), ("PROPS", props), ("API", api), ("BUFT", buft)];
        let mut all: Vec<String> = numbers.map(|(name, n)| format!("-D{name}={n}")).into();
        all.extend(ops.map(|n| format!("-DOPS={n}")));
        compile(&source, &dir.path().join("libggml.so"), &all);
        Host(dir)
    }

    fn load(&self, plugin: &Path) -> Chain {
        let library = self.0.path().join("libggml.so");
        let mut c = Command::new(env!("CARGO_BIN_EXE_rocket-load-test"));
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("ROCKET_") || text.starts_with("GGML_") {
                c.env_remove(&name);
            }
        }
        c.env("ROCKET_DEVICE", "sim").arg(&library).arg(&library).arg("-").arg(plugin);
        let out = c.output().unwrap();
        let text = String::from_utf8(out.stdout).unwrap();
        let lines =
            text.lines().map(|l| serde_json::from_str(l).unwrap_or_else(|e| panic!("{e}: {l}")));
        Chain {
            lines: lines.collect(),
            status: out.status,
            errors: String::from_utf8_lossy(&out.stderr).into_owned(),
        }
    }

    /// A plugin of this source, loaded.
    fn stub(&self, source: &str) -> Chain {
        let file = self.0.path().join("plugin.c");
        std::fs::write(&file, source).unwrap();
        let plugin = self.0.path().join("plugin.so");
        compile(&file, &plugin, &[]);
        self.load(&plugin)
    }
}

fn compile(source: &Path, out: &Path, options: &[String]) {
    let mut c = Command::new("gcc");
    c.args(["-std=gnu11", "-O1", "-w", "-shared", "-fPIC"])
        .args(options)
        .arg(source)
        .arg("-o")
        .arg(out);
    let run = c.arg("-ldl").output();
    let run = run.unwrap_or_else(|e| panic!("gcc: {e}; install it, as scripts/test does"));
    assert!(run.status.success(), "{}", String::from_utf8_lossy(&run.stderr));
}

/// This suite's plugin, as cargo built it along with this test.
fn ours() -> PathBuf {
    std::env::current_exe().unwrap().parent().unwrap().join("libggml_rocket.so")
}

struct Chain {
    lines: Vec<Value>,
    status: ExitStatus,
    errors: String,
}

impl Chain {
    /// What a step came to.
    fn step(&self, name: &str) -> &Value {
        let is = |l: &&Value| l["step"] == name && l["status"] != "begin";
        self.lines.iter().find(is).unwrap_or_else(|| panic!("no {name}: {:?}", self.lines))
    }

    /// The last step that was begun, and whether anything came of it.
    fn last(&self) -> (String, String) {
        let line = self.lines.iter().rfind(|l| l["step"].is_string()).unwrap();
        let word = |name: &str| line[name].as_str().unwrap().to_owned();
        (word("step"), word("status"))
    }
}

fn is(last: (&str, &str)) -> (String, String) {
    (last.0.into(), last.1.into())
}

/// A12: two hosts of the same API version are told apart, and the plugin goes with both, whatever numbers their
/// operations have.
#[test]
fn this_suites_plugin_in_hosts_that_it_knows() {
    for (numbers, ops, name) in
        [(B1, None, "B1"), (B2, None, "B2"), (C, None, "C"), (B2, Some(1), "B2"), (C, Some(3), "C")]
    {
        let chain = Host::of(numbers, ops).load(&ours());
        assert_eq!(chain.step("interface")["generation"]["name"], name, "{:?}", chain.lines);
        assert_eq!(chain.step("init")["api"], numbers[2]);
        assert_eq!(chain.step("register")["after"], serde_json::json!(["CPU", "ROCKET"]));
        let device = &chain.step("devices")["devices"][0];
        assert_eq!((&device["name"], &device["accelerator"]), (&"ROCKET".into(), &true.into()));
        assert_eq!((chain.last(), chain.status.code()), (is(("end", "ok")), Some(0)));
        assert!(
            chain.errors.contains("host: loads its own"),
            "what a host prints: {}",
            chain.errors
        );
    }
}

/// A12: a host that announces an API version which is known, and has other tables or no MUL_MAT, is refused by the
/// plugin with a line, and nothing crashes.
#[test]
fn this_suites_plugin_refuses_what_it_does_not_know() {
    for (numbers, ops, words) in
        [(UNKNOWN, None, "backend table 18 slots"), (B2, Some(99), "no op named MUL_MAT")]
    {
        let chain = Host::of(numbers, ops).load(&ours());
        let init = chain.step("init");
        assert_eq!((&init["status"], &init["null"]), (&"fail".into(), &true.into()), "{init}");
        assert!(chain.errors.contains(words), "{words}: {}", chain.errors);
        assert!(chain.status.success());
        let interface = chain.step("interface");
        assert_eq!(interface["supported"], serde_json::json!(["A1/A2", "C"]));
        assert_eq!(interface["generation"].is_null(), numbers == UNKNOWN, "{interface}");
    }
}

/// Each step can be the last one.
#[test]
fn plugins_that_fail_at_each_step() {
    let host = Host::of(B2, None);
    let missing = host.load(Path::new("/no/such/plugin.so"));
    assert_eq!(missing.last(), is(("open", "fail")));
    assert!(missing.step("open")["why"].as_str().unwrap().contains("/no/such/plugin.so"));
    let undefined =
        host.stub("void gone(void); void *ggml_backend_init(void) { gone(); return 0; }");
    assert!(undefined.step("open")["why"].as_str().unwrap().contains("undefined symbol: gone"));
    let zero = host.stub("int ggml_backend_score(void) { return 0; } void *ggml_backend_init(void) { __builtin_trap(); }");
    assert_eq!((zero.last(), zero.status.code()), (is(("score", "fail")), Some(0)));
    let none = host.stub("int ggml_backend_score(void) { return 7; }");
    assert_eq!((none.last(), &none.step("score")["score"]), (is(("init", "fail")), &7.into()));
    let null = host.stub("void *ggml_backend_init(void) { return 0; }");
    assert_eq!(
        (&null.step("init")["null"], &null.step("score")["score"]),
        (&true.into(), &Value::Null)
    );
    let other = host.stub("int reg[64] = {9}; void *ggml_backend_init(void) { return reg; }");
    let init = other.step("init");
    assert_eq!(
        (&init["api"], &init["null"], &init["status"]),
        (&9.into(), &false.into(), &"fail".into())
    );
    assert!(
        other.lines.iter().any(|l| l["log"] == "the backend has another API version"),
        "{:?}",
        other.lines
    );
    assert_eq!(other.step("interface")["host_api"], 2);
    let bare = "
        struct { int api; const char *(*name)(void *); unsigned long (*count)(void *); void *more[8]; } reg;
        const char *name(void *r) { return \"BARE\"; }
        unsigned long count(void *r) { return 0; }
        void *ggml_backend_init(void) { reg.api = 2; reg.name = name; reg.count = count; return &reg; }
    ";
    let bare = host.stub(bare);
    assert_eq!(
        (bare.last(), &bare.step("init")["name"]),
        (is(("devices", "fail")), &"BARE".into())
    );
}

/// Whoever reads the lines knows where the process ended.
#[test]
fn plugins_that_end_the_process() {
    const SIGILL: i32 = 4;
    const SIGABRT: i32 = 6;
    const SIGSEGV: i32 = 11;
    let host = Host::of(C, None);
    for (source, step, signal) in [
        ("__attribute__((constructor)) void f(void) { abort(); }", "open", Some(SIGABRT)),
        ("int ggml_backend_score(void) { __builtin_trap(); }", "score", Some(SIGILL)),
        (
            "void *ggml_backend_init(void) { *(volatile int *)8 = 1; return 0; }",
            "init",
            Some(SIGSEGV),
        ),
        ("void *ggml_backend_init(void) { _exit(3); }", "init", None),
    ] {
        let chain = host.stub(&format!("#include <stdlib.h>\n#include <unistd.h>\n{source}"));
        assert_eq!(chain.last(), is((step, "begin")), "{source}");
        // A trap is SIGTRAP on some machines.
        if step != "score" {
            assert_eq!(chain.status.signal(), signal, "{source}");
        }
        assert!(!chain.status.success(), "{source}");
    }
}

#[test]
fn usage() {
    let out = Command::new(env!("CARGO_BIN_EXE_rocket-load-test")).arg("x").output().unwrap();
    assert_eq!((out.status.code(), out.stdout.is_empty()), (Some(2), true));
}
