//! The plugin's counters while a stock program runs and after it, read from outside as tools do, and
//! its summary in a program that drops every line of a backend's log.

use crate::macs::read;
use crate::{Setup, lines_of_ours};
use rocket_runtime::telemetry::{Life, Place, Snapshot, scan};
use std::process::{Output, Stdio};
use std::time::{Duration, Instant};

/// Folder of the counters, inside the scratch folder.
fn folder(s: &Setup) -> std::path::PathBuf {
    let dir = s.scratch.path().join("counters");
    std::fs::create_dir_all(&dir).expect("a folder");
    dir
}

fn look(s: &Setup) -> Option<Snapshot> {
    let mut found = scan(&[folder(s)]);
    assert!(found.len() <= 1, "{found:?}");
    found.pop().map(|f| f.figures.expect("figures"))
}

/// llama-bench mutes what a backend logs. Returns its output and the snapshots that were seen alive.
fn bench(s: &Setup, env: &[(&str, &str)]) -> (Output, Vec<Snapshot>, serde_json::Value) {
    let (mut c, report) = s.on_npu("llama-bench");
    c.arg("-m").arg(&s.model).args(["-p", "64", "-n", "0", "-r", "1", "-t", "1", "-ngl", "0"]);
    c.env("ROCKET_COUNTERS", folder(s)).envs(env.iter().copied());
    let child = c.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("starts");
    let mut child = Child(child);
    let begun = Instant::now();
    let mut alive = Vec::new();
    while child.0.try_wait().expect("waits").is_none() {
        assert!(begun.elapsed() < Duration::from_secs(300), "it hangs");
        alive.extend(look(s).filter(|s| s.life == Life::Alive));
        std::thread::sleep(Duration::from_millis(20));
    }
    let out = child.finish();
    assert!(out.status.success(), "{out:?}");
    (out, alive, read(&report))
}

/// A child that does not outlive a failed test.
struct Child(std::process::Child);

impl Child {
    fn finish(&mut self) -> Output {
        let mut all = [Vec::new(), Vec::new()];
        use std::io::Read;
        let status = self.0.wait().expect("ends");
        let pipe = "a pipe";
        self.0.stdout.take().expect(pipe).read_to_end(&mut all[0]).expect("reads");
        self.0.stderr.take().expect(pipe).read_to_end(&mut all[1]).expect("reads");
        let [stdout, stderr] = all;
        Output { status, stdout, stderr }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.0.kill();
    }
}

#[test]
fn host_live_counters_are_what_the_board_did() {
    let s = Setup::named();
    let (out, alive, report) = bench(&s, &[("ROCKET_STATS", "1")]);
    // The numbers grow while it runs, and are never of two moments.
    let seen: Vec<u64> = alive.iter().map(|s| s.total("ops.fp16").unwrap_or(0)).collect();
    assert!(seen.is_sorted() && seen.iter().any(|&n| n > 0), "{seen:?}");
    let s = look(&s).expect("it stays for a look");
    assert_eq!(s.life, Life::Dead);
    let number = |v: &serde_json::Value| v.as_u64().expect("a count");
    let (board, ops) = (&report["board"], number(&report["routes"]["fp16"]));
    assert_eq!(s.total("ops.fp16"), Some(ops));
    assert_eq!((s.total("ops.cpu"), s.fact("simulated")), (None, Some("1")));
    // By the registers that the board executed.
    for (name, counted) in [
        ("npu.macs", "macs"),
        ("npu.submits", "submits"),
        ("npu.jobs", "jobs"),
        ("npu.tasks", "tasks"),
        ("bytes.dma", "dma_bytes"),
    ] {
        assert_eq!(s.total(name), Some(number(&board[counted])), "{name}");
    }
    let on_npu = || s.rows.iter().filter(|r| r.place == Place::Npu);
    assert_eq!(on_npu().map(|r| r.calls).sum::<u64>(), ops);
    let useful = number(&board["macs"]) - s.total("npu.padding_macs").expect("known");
    assert_eq!(on_npu().map(|r| r.macs).sum::<u64>(), useful);
    for row in on_npu() {
        let what = (row.op.as_str(), row.weight.as_str(), row.outcome.as_str(), row.rows);
        assert_eq!(what, ("MUL_MAT", "f16", "fp16", [32, 127]));
    }
    assert_eq!(s.fact("models"), Some("smollm2-f16.gguf"));
    assert_eq!(s.fact("program"), Some("llama-bench"));
    for name in ["time.pack", "time.convert", "time.npu", "time.results", "bytes.packed", "workers"]
    {
        assert!(s.total(name).is_some_and(|n| n > 0), "{name}");
    }

    // Muted altogether but for what was asked for.
    let lines = lines_of_ours(&out);
    let with = |text: &str| lines.iter().filter(|l| l.contains(text)).count();
    assert_eq!(with(&format!("{ops} ops computed: fp16 {ops}")), 1, "{lines:?}");
    assert_eq!(with("time, summed over threads: pack "), 1, "{lines:?}");
    let gmac = number(&board["macs"]) as f64 / 1e9;
    assert_eq!(with(&format!("work: {gmac:.3} GMAC")), 1, "{lines:?}");
    let moved = number(&board["dma_bytes"]) as f64 / f64::from(1 << 20);
    assert_eq!(with(&format!("{moved:.1} MB moved")), 1, "{lines:?}");
    println!("{ops} ops, {} looks while it ran\n{}", alive.len(), lines.join("\n"));
}

/// The control: without being asked it says nothing, and leaves nothing.
#[test]
fn host_no_counters_when_told_so() {
    let s = Setup::named();
    let (out, alive, report) = bench(&s, &[("ROCKET_COUNTERS", "0")]);
    assert!(report["routes"]["fp16"].as_u64() > Some(0));
    assert!(alive.is_empty() && look(&s).is_none());
    // The one line from before llama-bench mutes the log.
    let lines = lines_of_ours(&out);
    assert!(lines.len() == 1 && lines[0].contains("NPU (simulated)"), "{lines:?}");
}
