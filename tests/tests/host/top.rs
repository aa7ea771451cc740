//! rocket-top beside a stock host on a simulated board: by its JSON, and by what stands on a terminal.

use crate::{Setup, named};
use serde_json::Value;
use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

/// A served board, ended when this is dropped.
struct Served {
    server: Child,
    name: String,
    root: PathBuf,
}

impl Served {
    fn start(what: &str) -> Served {
        let name = format!("top-{what}-{}", std::process::id());
        let mut c = Command::new(named("ROCKET_TEST_ROCKETCTL"));
        c.args(["sim", "serve", "--driver", "full", "--board", &name]).stdout(Stdio::piped());
        let mut server = c.spawn().expect("starts");
        let mut line = String::new();
        BufReader::new(server.stdout.as_mut().expect("a pipe"))
            .read_line(&mut line)
            .expect("reads");
        let root = line.trim().split(" is at ").nth(1).unwrap_or_else(|| panic!("{line}")).into();
        Served { server, name, root }
    }

    /// A host on it that reads a prompt; its counters are in the scratch folder.
    fn bench(&self, s: &Setup) -> Command {
        let host = s.command_with("llama-bench", |c| {
            c.arg("--bind").arg(self.root.parent().expect("a folder"));
            for library in ["ROCKET_TEST_PRELOAD", "ROCKET_TEST_ROCKETCTL"] {
                c.arg("--ro-bind").arg(named(library).parent().expect("a folder"));
            }
        });
        let mut c = Command::new(named("ROCKET_TEST_ROCKETCTL"));
        c.args(["sim", "run", "--board", &self.name, "--"])
            .arg(host.get_program())
            .args(host.get_args());
        for (name, value) in host.get_envs() {
            match value {
                Some(value) => c.env(name, value),
                None => c.env_remove(name),
            };
        }
        c.arg("-m").arg(&s.model).args(["-p", "256", "-n", "4", "-r", "2", "-t", "1", "-ngl", "0"]);
        c.env("GGML_BACKEND_PATH", &s.plugin).env("ROCKET_COUNTERS", s.scratch.path());
        c.stdout(Stdio::null()).stderr(Stdio::null());
        c
    }

    fn top(&self, s: &Setup) -> Command {
        let mut c = Command::new(named("ROCKET_TEST_ROCKET_TOP"));
        c.arg("--sim").arg(&self.root).arg("--counters").arg(s.scratch.path());
        c
    }
}

impl Drop for Served {
    fn drop(&mut self) {
        let _ = self.server.kill();
        let _ = self.server.wait();
        let _ = std::fs::remove_dir_all(self.root.parent().expect("a folder"));
    }
}

fn calls(frame: &Value, place: &str) -> u64 {
    let lines = frame["routing"].as_array().expect("lines").iter();
    lines.filter(|l| l["place"] == place).filter_map(|l| l["calls"].as_u64()).sum()
}

#[test]
fn host_rocket_top_sees_a_host_come_work_and_go() {
    let s = Setup::named();
    let board = Served::start("json");
    let mut watch = board
        .top(&s)
        .args(["--json", "--interval", "100"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("starts");
    let lines = BufReader::new(watch.stdout.take().expect("a pipe")).lines();
    let mut frames =
        lines.map(|l| serde_json::from_str::<Value>(&l.expect("a line")).expect("JSON"));
    let first = frames.next().expect("a frame");
    assert_eq!(first["processes"].as_array().map(Vec::len), Some(0));
    assert_eq!(first["cores"].as_array().map(Vec::len), Some(3));
    let mut host = board.bench(&s).spawn().expect("starts");
    let begun = Instant::now();
    let (mut seen, mut ended) = (Vec::new(), None);
    for frame in frames.by_ref() {
        assert!(begun.elapsed() < Duration::from_secs(200), "it hangs");
        let gone = frame["processes"].as_array().is_some_and(Vec::is_empty);
        seen.push(frame);
        if ended.is_none() && host.try_wait().expect("waits").is_some_and(|status| status.success())
        {
            ended = Some(Instant::now());
        }
        if ended.is_some() && gone {
            break;
        }
    }
    let left = ended.expect("it ended").elapsed();
    let _ = watch.kill();
    let _ = watch.wait();
    assert!(left < Duration::from_secs(5), "a dead process stood there for {left:?}");
    // What was counted rises, and agrees with what the board's own driver counted.
    // Before it came, the table may be of a host that ended here a while ago.
    let came = |f: &&Value| f["processes"].as_array().is_some_and(|p| !p.is_empty());
    let from = seen.iter().position(|f| came(&f)).expect("it was seen");
    let npu: Vec<u64> = seen[from..].iter().map(|f| calls(f, "npu")).collect();
    assert!(npu.is_sorted() && npu.last() > Some(&0), "{npu:?}");
    let working = |f: &&Value| {
        f["processes"]
            .as_array()
            .is_some_and(|p| p.iter().any(|p| p["gops"]["value"].as_f64() > Some(0.0)))
    };
    let busiest = seen
        .iter()
        .filter(working)
        .flat_map(|f| f["cores"].as_array().cloned().unwrap_or_default());
    let busy: Vec<f64> = busiest.filter_map(|c| c["utilization"]["value"].as_f64()).collect();
    assert!(
        busy.iter().any(|b| *b > 0.0) && busy.iter().all(|b| (0.0..=100.0).contains(b)),
        "{busy:?}"
    );
    let sources = seen.iter().flat_map(|f| f["cores"].as_array().cloned().unwrap_or_default());
    let known = sources.filter(|c| !c["utilization"]["value"].is_null());
    assert!(known.map(|c| c["utilization"]["source"].clone()).all(|s| s == "sysfs npu_busy_ns"));
    let last = seen.last().expect("frames");
    let reasons: Vec<&str> = last["routing"]
        .as_array()
        .expect("lines")
        .iter()
        .filter(|l| l["place"] == "declined")
        .filter_map(|l| l["outcome"].as_str())
        .collect();
    assert!(reasons.contains(&"too_few_rows"), "decode stays on the CPU: {reasons:?}");
    println!(
        "{} frames, {} of them with work; {} products on the NPU",
        seen.len(),
        seen.iter().filter(working).count(),
        npu[npu.len() - 1]
    );
}

/// What a terminal of 100 x 30 shows, by tmux.
fn screen(session: &str) -> String {
    let out =
        Command::new("tmux").args(["capture-pane", "-p", "-t", session]).output().expect("tmux");
    String::from_utf8_lossy(&out.stdout).into_owned()
}

#[test]
fn host_rocket_top_on_a_terminal() {
    let s = Setup::named();
    let board = Served::start("tmux");
    let top = board.top(&s);
    let session = format!("rocket-top-{}", std::process::id());
    let mut c = Command::new("tmux");
    c.args(["new-session", "-d", "-s", &session, "-x", "100", "-y", "30"])
        .arg(top.get_program())
        .args(top.get_args());
    c.args(["--interval", "100"]);
    assert!(c.status().expect("tmux: install it").success());
    let until = |what: &dyn Fn(&str) -> bool, seconds: u64| {
        let begun = Instant::now();
        loop {
            let text = screen(&session);
            if what(&text) {
                return text;
            }
            assert!(begun.elapsed() < Duration::from_secs(seconds), "never there; last:\n{text}");
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    until(&|t| t.contains("no process with counters"), 10);
    let mut host = board.bench(&s).spawn().expect("starts");
    let working = until(&|t| t.contains("llama-bench") && t.contains("NPU fp16"), 120);
    assert!(
        working.contains("smollm2-f16.gguf") && working.contains("[sysfs npu_busy_ns]"),
        "{working}"
    );
    let status = host.wait().expect("ends");
    assert!(status.success(), "{status}");
    let after = until(&|t| t.contains("no process with counters"), 10);
    assert!(after.contains("too_few_rows"), "{after}");
    let send = |keys: &str| {
        assert!(
            Command::new("tmux")
                .args(["send-keys", "-t", &session, keys])
                .status()
                .expect("tmux")
                .success()
        )
    };
    send("?");
    until(&|t| t.contains("sort the routing table"), 5);
    send("q");
    let begun = Instant::now();
    while Command::new("tmux")
        .args(["has-session", "-t", &session])
        .stderr(Stdio::null())
        .status()
        .expect("tmux")
        .success()
    {
        assert!(begun.elapsed() < Duration::from_secs(5), "q does not end it");
        std::thread::sleep(Duration::from_millis(50));
    }
    println!("{working}");
}
