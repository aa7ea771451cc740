//! The plugin in a stock llama.cpp, with a real model, on the simulated board.
//!
//! `scripts/test` names the host (`ROCKET_TEST_HOST_ROOT`), the models
//! (`ROCKET_TEST_MODEL_DIR`), the library (`ROCKET_TEST_PLUGIN`), the simulator's preload
//! library (`ROCKET_TEST_PRELOAD`) and hosts of other generations
//! (`ROCKET_TEST_WHISPER_HOSTS`, `ROCKET_TEST_SIMPLE_HOST`, and `ROCKET_TEST_SOURCE_HOST` when
//! it is there); without them these tests are left out.

mod absent;
mod attention;
mod doctor;
mod embed;
mod formats;
mod fuse;
mod generations;
mod gguf;
mod graph;
mod graph_tests;
mod kld;
mod live;
mod macs;
mod matrix;
mod models;
mod node;
mod ops;
mod server;
mod sweep;
mod vision;
mod whisper;

use std::path::{Path, PathBuf};
use std::process::{Command, Output};

/// What the tests run with.
#[derive(Debug)]
pub struct Setup {
    pub host: PathBuf,
    pub model: PathBuf,
    pub plugin: PathBuf,
    /// Seen inside the host at its own path.
    pub scratch: tempfile::TempDir,
}

/// What a variable of `scripts/test` says.
pub fn named(name: &str) -> PathBuf {
    let value = std::env::var_os(name).filter(|v| !v.is_empty());
    PathBuf::from(value.unwrap_or_else(|| panic!("{name} is not set; run scripts/test")))
}

/// The first words of the demo's prompt, in one line.
pub fn first_words(count: usize) -> String {
    let text = include_str!("../../data/prompt.txt");
    let words: Vec<&str> = text.split_whitespace().take(count).collect();
    assert_eq!(words.len(), count, "the prompt is shorter");
    words.join(" ")
}

impl Setup {
    pub fn named() -> Setup {
        Setup::in_host(named("ROCKET_TEST_HOST_ROOT"))
    }

    /// The same in another host.
    pub fn in_host(host: PathBuf) -> Setup {
        // Not below the system's temporary folder: the host gets one of its own.
        let target = Path::new(env!("CARGO_TARGET_TMPDIR"));
        Setup {
            host,
            model: named("ROCKET_TEST_MODEL_DIR").join("smollm2-f16.gguf"),
            plugin: named("ROCKET_TEST_PLUGIN"),
            scratch: tempfile::tempdir_in(target).expect("scratch folder"),
        }
    }

    /// Another file of the models' folder.
    pub fn model_named(&self, name: &str) -> PathBuf {
        self.model.with_file_name(name)
    }

    /// The same weights in F32, in the scratch folder.
    pub fn decoded(&self, model: &Path) -> PathBuf {
        let to = self.scratch.path().join("decoded.gguf");
        let mut c = self.command("llama-quantize");
        run(c.arg("--allow-requantize").arg(model).arg(&to).args(["F32", "2"]));
        to
    }

    /// A program of the host that sees the model, the plugin and the scratch folder.
    pub fn command(&self, program: &str) -> Command {
        self.command_with(program, |_| {})
    }

    /// The same with more arguments for `in-root`.
    pub fn command_with(&self, program: &str, more: impl FnOnce(&mut Command)) -> Command {
        let script = concat!(env!("CARGO_MANIFEST_DIR"), "/../scripts/lib/in-root");
        let mut c = Command::new(script);
        for dir in [&self.model, &self.plugin] {
            c.arg("--ro-bind").arg(dir.parent().expect("a file in a folder"));
        }
        c.arg("--bind").arg(self.scratch.path());
        more(&mut c);
        c.arg(&self.host).arg(program);
        // Nothing of this test's own environment may decide what is tested; and threads that
        // spin while they wait would starve the simulator.
        for (name, _) in std::env::vars_os() {
            let text = name.to_string_lossy();
            if ["ROCKET_", "GGML_", "LLAMA_", "LD_"].iter().any(|p| text.starts_with(p)) {
                c.env_remove(&name);
            }
        }
        c.env("OMP_WAIT_POLICY", "passive");
        c
    }

    /// The same with the plugin on the simulated board, and where its report goes.
    pub fn on_npu(&self, program: &str) -> (Command, PathBuf) {
        let report = self.scratch.path().join(format!("{program}.json"));
        let mut c = self.command(program);
        c.env("GGML_BACKEND_PATH", &self.plugin)
            .env("ROCKET_DEVICE", "sim")
            .env("ROCKET_REPORT", &report)
            // What runs where does not depend on how long experts take to pack, on what an earlier
            // test left on the disk or on this machine's memory.
            .env("ROCKET_MOE_WAIT", "1")
            .env("ROCKET_PACKED_DIR", "0")
            .env("ROCKET_MOE_CACHE_MB", "0");
        (c, report)
    }

    /// The demo's prompt, cut to exactly `tokens` tokens by the host's own count.
    pub fn prompt_of(&self, tokens: usize) -> PathBuf {
        let text = include_str!("../../data/prompt.txt");
        let path = self.scratch.path().join("prompt.txt");
        let count = |text: &str| {
            std::fs::write(&path, text).expect("writes");
            let mut c = self.command("llama-tokenize");
            c.arg("-m").arg(&self.model).arg("-f").arg(&path).arg("--show-count");
            let out = run(&mut c);
            let said = String::from_utf8_lossy(&out.stdout).into_owned();
            let count = said.lines().rev().find_map(|l| l.strip_prefix("Total number of tokens: "));
            count.and_then(|n| n.trim().parse::<usize>().ok()).unwrap_or_else(|| panic!("{said}"))
        };
        // Words are one token or a few: from the cut with the right count downwards.
        let ends: Vec<usize> = text.match_indices(' ').map(|(i, _)| i).collect();
        let at = ends.partition_point(|&end| end < text.len() * tokens / 600);
        let mut end = at.min(ends.len() - 1);
        for _ in 0..200 {
            match count(&text[..ends[end]]) {
                n if n == tokens => return path,
                n if n > tokens => end -= 1,
                _ => end += 1,
            }
        }
        panic!("no prefix of the prompt has {tokens} tokens");
    }
}

/// Runs to the end, which must be a good one.
pub fn run(c: &mut Command) -> Output {
    let out = c.output().unwrap_or_else(|e| panic!("{c:?}: {e}"));
    assert!(
        out.status.success(),
        "{c:?}: {}\n{}",
        out.status,
        String::from_utf8_lossy(&out.stderr)
    );
    out
}

/// The plugin's own lines in what a host printed.
pub fn lines_of_ours(out: &Output) -> Vec<String> {
    let log = String::from_utf8_lossy(&out.stderr);
    log.lines().filter(|l| l.contains("ggml-rocket: ")).map(str::to_owned).collect()
}
