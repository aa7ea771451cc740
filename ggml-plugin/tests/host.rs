//! The built library inside real hosts.
//!
//! `scripts/test` sets `ROCKET_TEST_HOST_ROOT` (an unpacked Debian root with llama.cpp, entered
//! with bubblewrap), perhaps `ROCKET_TEST_HOST_BIN` (the programs of a host built from source) and
//! `ROCKET_TEST_MODEL_DIR`, and turns on the feature `test-engine`; a plain `cargo nextest run`
//! leaves these tests out.

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// The library cargo built along with this test.
fn library() -> PathBuf {
    let exe = std::env::current_exe().unwrap();
    let deps = exe.parent().unwrap();
    deps.join("libggml_rocket.so")
}

#[derive(Debug)]
enum Host {
    Root(PathBuf),
    Bin(PathBuf),
}

/// The hosts at hand and the model.
fn hosts() -> Vec<(Host, PathBuf)> {
    let var = |name| std::env::var_os(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let model = var("ROCKET_TEST_MODEL_DIR").expect("ROCKET_TEST_MODEL_DIR; run scripts/test");
    let hosts: Vec<_> =
        [var("ROCKET_TEST_HOST_ROOT").map(Host::Root), var("ROCKET_TEST_HOST_BIN").map(Host::Bin)]
            .into_iter()
            .flatten()
            .map(|h| (h, model.join("smollm2-f16.gguf")))
            .collect();
    assert!(!hosts.is_empty(), "ROCKET_TEST_HOST_ROOT or _BIN; run scripts/test");
    hosts
}

impl Host {
    /// A program of the host that sees the directories in `visible`.
    fn command(&self, program: &str, visible: &[&Path]) -> Command {
        let mut c = match self {
            Host::Bin(dir) => Command::new(dir.join(program)),
            Host::Root(root) => {
                let mut c = Command::new("bwrap");
                for dir in ["usr", "etc"] {
                    c.arg("--ro-bind").arg(root.join(dir)).arg(Path::new("/").join(dir));
                }
                for dir in ["bin", "lib", "lib64"] {
                    c.arg("--symlink").arg(format!("usr/{dir}")).arg(format!("/{dir}"));
                }
                c.args(["--tmpfs", "/tmp", "--proc", "/proc", "--dev", "/dev"]);
                for dir in visible {
                    c.arg("--bind").arg(dir).arg(dir);
                }
                c.arg(program);
                c
            }
        };
        // Nothing of the environment of this test may decide what is tested.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if text.starts_with("ROCKET_") || text.starts_with("GGML_") || text.starts_with("LD_") {
                c.env_remove(&name);
            }
        }
        c
    }
}

struct Run {
    text: String,
    log: String,
    report: Option<serde_json::Value>,
}

/// Greedy text for a prompt. One thread, so that a busy machine is only slow and not spinning.
fn complete(host: &Host, model: &Path, prompt: &str, env: &[(&str, &str)]) -> Run {
    let dir = tempfile::tempdir().unwrap();
    let so = dir.path().join("libggml-rocket.so");
    std::fs::copy(library(), &so).unwrap();
    let report = dir.path().join("report.json");
    let mut c = host.command("llama-completion", &[model.parent().unwrap(), dir.path()]);
    c.arg("-m").arg(model).args(["-p", prompt, "-n", "8", "--temp", "0", "-no-cnv", "-t", "1"]);
    // CPUs with AMX keep weights to themselves otherwise.
    c.arg("-nr");
    for (name, value) in env {
        match *name {
            "GGML_BACKEND_PATH" => c.env(name, &so),
            "ROCKET_REPORT" => c.env(name, &report),
            // The value is the file's text.
            "ROCKET_CONFIG" => {
                let file = dir.path().join("config.yaml");
                std::fs::write(&file, value).unwrap();
                c.env(name, file)
            }
            _ => c.env(name, value),
        };
    }
    let Output { status, stdout, stderr } = c.output().unwrap();
    let log = String::from_utf8_lossy(&stderr).into_owned();
    assert!(status.success(), "{host:?}: {status}\n{log}");
    let json = std::fs::read(report).ok().map(|b| serde_json::from_slice(&b).unwrap());
    Run { text: String::from_utf8_lossy(&stdout).into_owned(), log, report: json }
}

const PLUGIN: (&str, &str) = ("GGML_BACKEND_PATH", "");

fn lines_of_ours(log: &str) -> Vec<&str> {
    log.lines().filter(|l| l.contains("ggml-rocket: ")).collect()
}

#[test]
fn exports_are_the_two_entry_points() {
    let out = Command::new("nm").args(["-D", "--defined-only"]).arg(library()).output().unwrap();
    assert!(out.status.success());
    let text = String::from_utf8(out.stdout).unwrap();
    let mut names: Vec<_> = text.lines().filter_map(|l| l.split_whitespace().last()).collect();
    names.sort_unstable();
    assert_eq!(names, ["ggml_backend_init", "ggml_backend_score"]);
}

#[test]
fn without_an_npu_the_host_runs_as_before() {
    for (host, model) in hosts() {
        let prompt = "The capital of France is";
        let alone = complete(&host, &model, prompt, &[]);
        let with = complete(&host, &model, prompt, &[PLUGIN]);
        assert!(alone.text.contains("Paris"), "{}", alone.text);
        assert_eq!(alone.text, with.text, "{host:?}");
        let lines = lines_of_ours(&with.log);
        assert_eq!(lines.len(), 1, "{host:?}: {lines:?}");
        assert!(lines[0].contains("no NPU") && lines[0].contains("stays on the CPU"));
        assert_eq!(lines_of_ours(&alone.log).len(), 0);
        assert!(with.report.is_none());

        let none = complete(&host, &model, prompt, &[PLUGIN, ("ROCKET_DEVICE", "none")]);
        assert_eq!((none.text.as_str(), lines_of_ours(&none.log).len()), (&*alone.text, 0));
        let typo = complete(&host, &model, prompt, &[PLUGIN, ("ROCKET_DEVICE", "gpu")]);
        let lines = lines_of_ours(&typo.log);
        assert_eq!((typo.text.as_str(), lines.len()), (&*alone.text, 1), "{lines:?}");
        assert!(lines[0].contains("ROCKET_DEVICE=\"gpu\""), "{lines:?}");
    }
}

/// A file's profile applies by the model that the host was started with; what is wrong in it is
/// said; and stderr gets the lines that the host drops as well.
#[test]
fn a_profile_applies_by_the_hosts_model() {
    let file = "
settings: {minm: 7, log_stderr: 1}
profiles:
  - {name: other, model: 'gemma*', settings: {device: sim}}
  - {name: this, model: 'SMOLLM2*.gguf', settings: {device: none}}
";
    for (host, model) in hosts() {
        let run = complete(&host, &model, "The capital of", &[PLUGIN, ("ROCKET_CONFIG", file)]);
        let lines = lines_of_ours(&run.log);
        let with = |text: &str| lines.iter().filter(|l| l.contains(text)).count();
        // Once through the host's log, which drops what is no warning, and once on stderr.
        assert_eq!(with("minm is not known; did you mean min_m?"), 2, "{host:?}: {lines:?}");
        assert_eq!(with("config.yaml, profile this (for smollm2-f16.gguf)"), 1, "{lines:?}");
        assert_eq!(with("ROCKET_DEVICE=none: everything stays on the CPU"), 1, "{lines:?}");
        assert_eq!(lines.len(), 4, "{lines:?}");
        // The environment wins.
        let env = [PLUGIN, ("ROCKET_CONFIG", file), ("ROCKET_LOG_STDERR", "0")];
        let run = complete(&host, &model, "The capital of", &env);
        assert_eq!(lines_of_ours(&run.log).len(), 1, "{host:?}: {}", run.log);
    }
}

#[cfg(feature = "test-engine")]
mod with_test_engine {
    use super::*;

    fn long_prompt() -> String {
        let line =
            "The quick brown fox jumps over the lazy dog and walks home by the river, number";
        (0..10).map(|i| format!("{line} {i}. ")).collect()
    }

    /// Products of the prompt's pass, from the model's architecture (30 layers of 7 weights, and
    /// the last layer's rows cut to the one that is needed after attention): Q, K and V in every
    /// layer, the other four in all but the last.
    const EXPECTED: usize = 30 * 3 + 29 * 4;

    #[test]
    fn products_go_through_the_plugin_and_the_text_stays() {
        for (host, model) in hosts() {
            let prompt = long_prompt();
            let alone = complete(&host, &model, &prompt, &[]);
            let env = [
                PLUGIN,
                ("ROCKET_TEST_ENGINE", "cpu"),
                ("ROCKET_STATS", "1"),
                ("ROCKET_REPORT", "1"),
            ];
            let with = complete(&host, &model, &prompt, &env);
            assert_eq!(alone.text, with.text, "{host:?}");
            let report = with.report.unwrap();
            let ops = report["ops"].as_array().unwrap();
            assert!(ops.len() >= EXPECTED, "{host:?}: {} ops", ops.len());
            assert_eq!(report["routes"]["fp16"].as_u64().unwrap() as usize, ops.len());
            assert!(ops.iter().all(|o| o["m"].as_u64().unwrap() > 200), "{host:?}");
            assert!(ops.iter().all(|o| o["macs_expected"] == o["engine"]["macs"]));
            // Control: results that are wrong do change the text, so these ops do matter.
            let env = [PLUGIN, ("ROCKET_TEST_ENGINE", "wrong")];
            assert_ne!(alone.text, complete(&host, &model, &prompt, &env).text, "{host:?}");
            let summary = lines_of_ours(&with.log);
            assert!(summary.iter().any(|l| l.contains(&format!("fp16 {}", ops.len()))));
        }
    }

    /// The engine's output is garbage, or there is none, and the text is the CPU's all the same,
    /// because every op was redone.
    #[test]
    fn a_broken_engine_changes_nothing() {
        for (host, model) in hosts() {
            let prompt = long_prompt();
            let alone = complete(&host, &model, &prompt, &[]);
            for (engine, redo) in
                [("fail", "engine_error"), ("panic", "engine_panic"), ("nan", "result_not_finite")]
            {
                let env = [PLUGIN, ("ROCKET_TEST_ENGINE", engine), ("ROCKET_REPORT", "1")];
                let with = complete(&host, &model, &prompt, &env);
                assert_eq!(alone.text, with.text, "{host:?} {engine}");
                let report = with.report.unwrap();
                assert!(report["redos"][redo].as_u64().unwrap() as usize >= EXPECTED);
                assert!(report["routes"]["fp16"].is_null());
            }
        }
    }
}
