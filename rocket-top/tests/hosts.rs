//! Hosts that come, are killed, share a number, and whose files somebody spoils: no crash, no wrong number.

#![allow(clippy::unwrap_used)]

use rocket_runtime::telemetry::{Directory, Place, RowKey, TotalKind, Writer};
use rocket_top::frame::Frame;
use rocket_top::sample::Sample;
use rocket_top::source::{Collector, Places};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const FOLDER: &str = "ROCKET_TOP_TEST_FOLDER";
/// Whatever a writer counts is a multiple of this: another number is of somebody else's bytes.
const UNIT: u64 = 7_919;

/// No test but a process of these tests: a host that counts until it is killed.
#[test]
fn writer() {
    let Some(folder) = std::env::var_os(FOLDER) else { return };
    let w =
        Writer::create(&[Directory::existing(folder)], &[("program", "host"), ("simulated", "1")])
            .unwrap();
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_secs(60) {
        w.update(|image| {
            let slot = image.total("npu.submits", "1", TotalKind::Counter);
            image.add(slot, UNIT);
            let key = RowKey {
                place: Place::Npu,
                op: "MUL_MAT",
                weight: "f16",
                outcome: "fp16",
                k: 64,
                n: 64,
                rows: 64,
            };
            image.count(&key, 1, UNIT, 1);
        });
        w.publish();
        std::thread::sleep(Duration::from_millis(5));
    }
}

struct Host(Child);

impl Host {
    fn start(folder: &Path, through: &[&str]) -> Host {
        let me = std::env::current_exe().unwrap();
        let mut command: Vec<std::ffi::OsString> = through.iter().map(Into::into).collect();
        command.extend([me.into(), "writer".into(), "--exact".into()]);
        let mut c = Command::new(&command[0]);
        c.args(&command[1..]).env(FOLDER, folder).stdout(Stdio::null()).stderr(Stdio::null());
        Host(c.spawn().unwrap())
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

struct Watch {
    collector: Collector,
    before: Option<Sample>,
}

impl Watch {
    /// A root without processes: only the folder's files are seen.
    fn new(root: &Path, folder: &Path) -> Watch {
        let places = Places {
            root: root.into(),
            processes: root.into(),
            counters: vec![folder.into()],
            trace: false,
        };
        Watch { collector: Collector::new(&places).unwrap(), before: None }
    }

    fn tick(&mut self) -> Frame {
        std::thread::sleep(Duration::from_millis(50));
        let now = self.collector.sample();
        for h in &now.hosts {
            assert!(h.totals.values().all(|v| v % UNIT == 0), "{:?}", h.totals);
            assert!(h.rows.iter().all(|r| r.macs % UNIT == 0), "{:?}", h.rows);
        }
        let frame = Frame::new(self.before.as_ref(), &now, None);
        for p in &frame.processes {
            assert!(
                p.submits.value.is_none_or(|v| v >= 0.0) && p.gops.value.is_none_or(|v| v >= 0.0),
                "{p:?}"
            );
        }
        self.before = Some(now);
        frame
    }

    fn until(&mut self, what: &str, is: impl Fn(&Frame) -> bool) -> Frame {
        let begun = Instant::now();
        loop {
            let frame = self.tick();
            if is(&frame) {
                return frame;
            }
            assert!(
                begun.elapsed() < Duration::from_secs(20),
                "never {what}: {:?}",
                frame.processes
            );
        }
    }
}

fn living(f: &Frame) -> usize {
    f.processes.iter().filter(|p| p.alive == Some(true)).count()
}

#[test]
fn three_hosts_and_what_becomes_of_them() {
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut watch = Watch::new(root.path(), folder.path());
    assert!(watch.tick().processes.is_empty());
    let mut hosts: Vec<Host> = (0..3).map(|_| Host::start(folder.path(), &[])).collect();
    let working =
        |f: &Frame| f.processes.iter().filter(|p| p.submits.value > Some(0.0)).count() == 3;
    watch.until("three that work", working);
    // One is killed.
    let pid = hosts[0].0.id();
    hosts.remove(0);
    watch.until("seen as ended", |f| {
        f.processes.iter().any(|p| p.pid == pid && p.alive == Some(false))
    });
    assert_eq!(living(&watch.tick()), 2);
    watch.until("gone", |f| f.processes.iter().all(|p| p.pid != pid));
    // Another one's file is cut, filled with noise, and replaced by a link.
    let pid = hosts[0].0.id();
    let name = std::fs::read_dir(folder.path()).unwrap().flatten().map(|e| e.path());
    let file =
        name.into_iter().find(|p| p.to_string_lossy().contains(&format!("-{pid}-"))).unwrap();
    for round in 0..20u32 {
        match round % 3 {
            0 => std::fs::OpenOptions::new()
                .write(true)
                .open(&file)
                .unwrap()
                .set_len(100 * u64::from(round))
                .unwrap(),
            1 => {
                use std::os::unix::fs::FileExt;
                let noise: Vec<u8> = (0..4096u32)
                    .map(|i| (i.wrapping_mul(2_654_435_761) >> (round % 24)) as u8)
                    .collect();
                std::fs::OpenOptions::new()
                    .write(true)
                    .open(&file)
                    .unwrap()
                    .write_all_at(&noise, u64::from(round) * 512)
                    .unwrap();
            }
            _ => {}
        }
        watch.tick();
    }
    watch.until("mended by its writer", |f| {
        f.processes.iter().filter(|p| p.submits.value > Some(0.0)).count() == 2
    });
    std::fs::remove_file(&file).unwrap();
    std::os::unix::fs::symlink("/etc/passwd", &file).unwrap();
    let frame = watch.until("one, and a refusal", |f| living(f) == 1 && !f.refused.is_empty());
    assert!(frame.refused[0].1.contains("symbolic link"), "{:?}", frame.refused);
}

/// Two containers in which the host has the same number, and one that is started anew with it.
#[test]
fn hosts_with_one_pid() {
    let unshare = ["unshare", "--user", "--map-root-user", "--pid", "--fork", "--kill-child"];
    let able = Command::new(unshare[0])
        .args(&unshare[1..])
        .arg("true")
        .output()
        .is_ok_and(|o| o.status.success());
    if !able {
        eprintln!(
            "left out: this machine lets nobody make PID namespaces (frames.rs has the same of figures)"
        );
        return;
    }
    let (root, folder) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
    let mut watch = Watch::new(root.path(), folder.path());
    let first = Host::start(folder.path(), &unshare);
    let _second = Host::start(folder.path(), &unshare);
    let both = |f: &Frame| {
        f.processes.iter().filter(|p| p.pid == 1 && p.submits.value > Some(0.0)).count() == 2
    };
    watch.until("two of PID 1", both);
    drop(first);
    watch.until("one of PID 1", |f| living(f) == 1);
    let _third = Host::start(folder.path(), &unshare);
    watch.until("two of PID 1 again", |f| living(f) == 2 && both(f));
}
