//! The verdicts of rocket-minihost, in every ggml at hand, and llama-completion on boards that fail.
//!
//! `scripts/test` names the folders of hosts that run on this machine's libc
//! (`ROCKET_TEST_GGML_DIRS`, separated by colons), the library (`ROCKET_TEST_PLUGIN`), rocketctl
//! (`ROCKET_TEST_ROCKETCTL`, with the preload library beside it or in `ROCKET_TEST_PRELOAD`) and
//! the models (`ROCKET_TEST_MODEL_DIR`).

// Helpers of tests are tests.
#![allow(clippy::unwrap_used)]

mod experts;
mod experts_on_disk;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};

fn variable(name: &str) -> PathBuf {
    let value = std::env::var_os(name).filter(|v| !v.is_empty());
    PathBuf::from(value.unwrap_or_else(|| panic!("{name} is not set; run scripts/test")))
}

fn hosts() -> Vec<PathBuf> {
    let all = variable("ROCKET_TEST_GGML_DIRS");
    let all: Vec<PathBuf> =
        std::env::split_paths(&all).filter(|p| !p.as_os_str().is_empty()).collect();
    assert!(!all.is_empty(), "ROCKET_TEST_GGML_DIRS names no folder; run scripts/test");
    all
}

/// Nothing of this test's own environment may decide what is tested.
fn clean(command: &mut Command) {
    for (name, _) in std::env::vars_os() {
        let text = name.to_string_lossy();
        if ["ROCKET_", "GGML_", "LLAMA_", "LD_", "OMP_"].iter().any(|p| text.starts_with(p)) {
            command.env_remove(&name);
        }
    }
    command.stdin(Stdio::null());
}

/// The program in a host.
fn command(host: &Path, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_rocket-minihost"));
    clean(&mut command);
    command.arg("--host").arg(host).arg("--plugin").arg(variable("ROCKET_TEST_PLUGIN"));
    command.args(arguments);
    command
}

/// What it prints and logs; it must say that all is right.
fn right(mut command: Command) -> [String; 2] {
    let output = command.output().unwrap();
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    let log = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{command:?}: {}\n{text}\n{log}", output.status);
    assert!(text.ends_with("verdict: right\n"), "{text}");
    [text, log]
}

/// What it prints; it must say that all is right.
fn minihost(host: &Path, arguments: &[&str]) -> String {
    let [text, _] = right(command(host, arguments));
    println!("{}:\n{text}", host.display());
    text
}

/// The number before or after some words of the last line that has them.
fn number(text: &str, words: &str) -> usize {
    let line =
        text.lines().rfind(|l| l.contains(words)).unwrap_or_else(|| panic!("{words}: {text}"));
    let at = line.find(words).unwrap();
    let digits = |s: &str| s.trim().parse().ok();
    let after = line[at + words.len()..].split([' ', ',', ':']).find(|w| !w.is_empty());
    let before = line[..at].split([' ', ',']).rfind(|w| !w.is_empty());
    before.and_then(digits).or(after.and_then(digits)).unwrap_or_else(|| panic!("{line}"))
}

/// Products on the NPU that do not depend on how many types a host has, of the whole list and of
/// the small one.
const ON_NPU: [usize; 2] = [77, 71];
/// Types whose encoder is slow, which the small list leaves out.
const SLOW_TYPES: usize = 5;
const REDONE: [(&str, usize); 3] =
    [("activation_not_finite", 2), ("result_not_finite", 2), ("weight_not_finite", 4)];
const DECLINED: [(&str, usize); 5] = [
    ("k_too_small", 2),
    ("n_too_small", 1),
    ("not_contiguous", 1),
    ("too_few_rows", 2),
    ("weight_not_leaf", 1),
];

/// Weight types that a host encodes, by the versions that brought them (ggml-abi 2.9).
fn types_of(version: &str) -> usize {
    let mut parts = version.split(['.', '-']).map(|p| p.parse::<u32>().unwrap_or(0));
    let version = [parts.next().unwrap_or(0), parts.next().unwrap_or(0)];
    let since = |v: [u32; 2], count: usize| if version >= v { count } else { 0 };
    // MXFP4; NVFP4 and Q1_0; Q2_0.
    24 + since([0, 9], 1) + since([0, 10], 2) + since([0, 16], 1)
}

/// The whole list in the first host, the small one in the others: some encoders take seconds.
#[test]
fn host_ops() {
    for (i, host) in hosts().iter().enumerate() {
        let whole = i == 0;
        let text = minihost(host, if whole { &["ops"] } else { &["ops", "--small"] });
        let version = text.lines().find_map(|l| l.strip_prefix("host: ggml ")).unwrap();
        let types = types_of(version);
        assert_eq!(number(&text, " weight types"), types, "{text}");
        let on_npu = if whole { ON_NPU[0] + 2 * types } else { ON_NPU[1] + types - SLOW_TYPES };
        assert_eq!(number(&text, "on the NPU: "), on_npu, "{text}");
        for (why, count) in REDONE {
            assert_eq!(number(&text, &format!("redone: {why}")), count, "{text}");
        }
        for (why, count) in DECLINED {
            assert_eq!(number(&text, &format!("declined: {why}")), count, "{text}");
        }
    }
}

#[test]
fn host_models_come_and_go() {
    for host in hosts() {
        let text = minihost(&host, &["memory"]);
        assert!(text.contains("20 rounds") && text.contains("10 rounds"), "{text}");
        assert_eq!(text.matches("18 results of models at 1 address").count(), 2, "{text}");
    }
}

#[test]
fn host_threads() {
    for host in hosts() {
        let text = minihost(&host, &["threads"]);
        assert_eq!(number(&text, " graphs compared"), 4 * 6 * 2);
        // Both went on while the others computed.
        assert!(number(&text, " questions") >= 1000, "{text}");
        assert!(number(&text, " contexts made and freed") >= 10, "{text}");
    }
}

#[test]
fn host_supports_op() {
    for host in hosts() {
        let text = minihost(&host, &["supports-op"]);
        // 22 layers of 3 products and 4 views; sums and norms stay on the CPU.
        assert_eq!(number(&text, "products: "), 66);
        assert!(text.contains("220 nodes, 154 accepted"), "{text}");
    }
}

/// The loop of faults; what it prints.
fn faults(more: &[&str]) -> String {
    let host = &hosts()[0];
    let rocketctl = variable("ROCKET_TEST_ROCKETCTL");
    let rocketctl = rocketctl.to_str().unwrap();
    let mut arguments = vec!["faults", "--rocketctl", rocketctl];
    let preload = std::env::var("ROCKET_TEST_PRELOAD").ok().filter(|p| !p.is_empty());
    if let Some(preload) = &preload {
        arguments.extend(["--preload", preload]);
    }
    arguments.extend(more);
    minihost(host, &arguments)
}

/// Every call and every job of a small graph fails once.
#[test]
fn host_faults() {
    let text = faults(&[]);
    // 16 kinds; without a fault there are 38 buffers, 20 jobs, 64 waits.
    assert!(number(&text, " met a fault") >= 300, "{text}");
    assert!(number(&text, " runs: ") >= 300, "{text}");
}

/// A stock program on boards that fail at some call: the text is the same.
#[test]
fn host_source_faults_in_llama_completion() {
    let host = hosts().into_iter().find(|h| h.join("llama-completion").exists());
    let host = host.expect("no folder of ROCKET_TEST_GGML_DIRS has llama-completion");
    let model = variable("ROCKET_TEST_MODEL_DIR").join("smollm2-f16.gguf");
    let (rocketctl, plugin) = (variable("ROCKET_TEST_ROCKETCTL"), variable("ROCKET_TEST_PLUGIN"));
    let preload = std::env::var_os("ROCKET_TEST_PRELOAD").filter(|p| !p.is_empty());
    let scratch = tempfile::tempdir().unwrap();
    let complete = |fault: Option<&str>| {
        let status = scratch.path().join(fault.unwrap_or("none"));
        let mut c = Command::new(&rocketctl);
        clean(&mut c);
        c.args(["sim", "run", "--status"]).arg(&status);
        if let Some(fault) = fault {
            c.args(["--fault", fault]);
        }
        if let Some(preload) = &preload {
            c.env("ROCKET_SIM_PRELOAD", preload);
        }
        // Measuring the crossover belongs to boards that have a speed.
        c.env("GGML_BACKEND_PATH", &plugin).env("ROCKET_STATS", "1").env("ROCKET_CALIBRATE", "0");
        c.env("ROCKET_MIN_M", "8").env("ROCKET_MIN_M_QUANT", "8").env("OMP_WAIT_POLICY", "passive");
        c.arg("--").arg(host.join("llama-completion")).arg("-m").arg(&model);
        c.args(["-p", "The capital of France is Paris, and the capital of Germany is"]);
        c.args(["-n", "2", "-t", "1", "--seed", "1", "--temp", "0", "-no-cnv", "--no-warmup"]);
        let output = c.output().unwrap();
        let text = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        let log = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(output.status.success(), "{fault:?}: {}\n{text}\n{log}", output.status);
        let status: serde_json::Value =
            serde_json::from_slice(&std::fs::read(status).unwrap()).unwrap();
        (text, log, status)
    };
    let (right, log, healthy) = complete(None);
    assert!(right.ends_with("Germany is Berlin."), "{right}");
    assert!(log.contains("207 ops computed: fp16 207"), "{log}");
    // The first call, and some on the way to the last: how many there are is the library's matter,
    // and with each fault they are as many up to it.
    let places = |n: u64, parts: &[u64]| {
        assert!(n >= 4, "{healthy}");
        let at: BTreeSet<u64> = parts.iter().map(|p| n * p / 100).collect();
        at.into_iter().map(|n| n.to_string()).collect::<Vec<_>>()
    };
    let calls = |kind: &str| healthy["calls"][kind].as_u64().unwrap();
    let (jobs, all) = (
        healthy["counters"]["jobs"].as_u64().unwrap(),
        healthy["calls"].as_object().unwrap().values().map(|n| n.as_u64().unwrap()).sum::<u64>(),
    );
    let mut faults = Vec::new();
    for (kind, errno, parts) in [
        ("open", "EMFILE", &[0u64, 25, 75][..]),
        ("create-bo", "ENOMEM", &[0, 3, 30, 80]),
        ("mmap", "ENOMEM", &[0, 40]),
        ("submit", "EINVAL", &[0, 2, 40, 80]),
        ("prep-bo", "EBUSY", &[0, 5, 70]),
        ("fini-bo", "EINVAL", &[0, 50]),
    ] {
        let at = places(calls(kind), parts);
        faults.extend(at.iter().map(|n| format!("fail:{kind}:{n}:{errno}")));
    }
    faults.extend(places(all, &[0, 5, 70]).iter().map(|n| format!("vanish:{n}")));
    for kind in ["lose-interrupt", "hang-job"] {
        faults.extend(places(jobs, &[1, 80]).iter().map(|n| format!("{kind}:{n}")));
    }
    assert_eq!(faults.len(), 25, "{faults:?}");
    let (next, met) = (AtomicUsize::new(0), AtomicUsize::new(0));
    std::thread::scope(|scope| {
        for _ in 0..2 {
            scope.spawn(|| {
                while let Some(fault) = faults.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let (text, log, status) = complete(Some(fault));
                    assert_eq!(text, right, "{fault}\n{log}");
                    let count = status["counters"]["faults"].as_u64().unwrap();
                    if count == 0 {
                        println!("not met: {fault}");
                    }
                    met.fetch_add(usize::from(count > 0), Ordering::Relaxed);
                }
            });
        }
    });
    assert_eq!(met.into_inner(), faults.len(), "{faults:?}");
}

/// Flash attention in every form, of every cache type a host has: more types in newer hosts.
#[test]
fn host_attention() {
    for host in hosts() {
        let text = minihost(&host, &["attention"]);
        let version = text.lines().find_map(|l| l.strip_prefix("host: ggml ")).unwrap();
        let all = number(&text, " attentions");
        let types = types_of(version) - SLOW_TYPES;
        // Ten forms and two with mixed types; two more where hosts know sinks (ggml-abi 2.6).
        let forms = all - types - 2;
        assert!(forms == 12 || forms == 14, "{text}");
        assert!(text.contains(&format!("{:4} attention\n", all - 2)), "{text}");
        assert_eq!(number(&text, "redone: cache_not_finite"), 1, "{text}");
        assert_eq!(number(&text, "declined: attention_unmasked"), 1, "{text}");
        assert!(number(&text, "weakest negative control: ") >= 10, "{text}");
    }
}
