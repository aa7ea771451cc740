//! What is shown of two samples: expected figures by hand.

#![allow(clippy::unwrap_used)]

mod common;

use common::{host, sample};
use rocket_top::frame::Frame;
use rocket_top::output::prometheus;
use rocket_top::sample::{Host, Raw, Sample};
use std::collections::BTreeSet;

fn between(before: &Sample, now: &Sample) -> Frame {
    Frame::new(Some(before), now, None)
}

#[test]
fn figures() {
    let f = common::working();
    let shares: Vec<Option<f64>> =
        f.cores.iter().map(|c| c.utilization.value.map(f64::round)).collect();
    assert_eq!(shares, [Some(90.0), Some(50.0), Some(0.0)]);
    assert_eq!(f.cores[0].jobs.value, Some(40.0));
    let p = &f.processes[1];
    assert_eq!((p.pid, p.counts), (4242, true));
    assert_eq!((p.submits.value, p.resident.value), (Some(120.0), Some(3072.0)));
    assert_eq!(p.split["npu"].value, Some(60.0));
    // One step a second: 32 products of 512 x 4096 x 4096 and 32 of 512 x 128 x 4096, two operations each.
    let gops = 2.0 * 32.0 * 512.0 * 4096.0 * (4096.0 + 128.0) / 1e9;
    assert!((p.gops.value.unwrap() - gops).abs() < 1e-9);
    let other = &f.processes[0];
    assert_eq!((other.pid, other.counts, other.gops.value), (77, false, None));
    assert_eq!((f.interval_ms, f.clock_at_boot), (Some(1000), false));
    let sum = |place: &[&str]| {
        f.routing.iter().filter(|l| place.contains(&&*l.place)).map(|l| l.share).sum::<f64>()
    };
    assert!(
        (sum(&["npu", "redone"]) - 100.0).abs() < 1e-9 && (sum(&["declined"]) - 100.0).abs() < 1e-9
    );
}

#[test]
fn a_clock_that_stays_at_the_boots() {
    let mut slow = sample(101, 2, [0; 3]);
    slow.clock_hz = Raw::Value(200_000_000);
    assert!(between(&sample(100, 1, [0; 3]), &slow).clock_at_boot);
    slow.cores.iter_mut().for_each(|c| c.status = Raw::Value("suspended".into()));
    assert!(!between(&sample(100, 1, [0; 3]), &slow).clock_at_boot, "parked");
}

/// The same PID in another namespace, or used again: told apart by the file's random id.
#[test]
fn processes_with_one_pid() {
    let other = Host { id: "bb".into(), ..host(1000) };
    let mut before = sample(100, 1, [0; 3]);
    let mut now = sample(101, 2, [0; 3]);
    before.hosts = vec![host(5)];
    now.hosts = vec![other.clone()];
    let f = between(&before, &now);
    let p = f.processes.iter().find(|p| p.counts).unwrap();
    assert_eq!((p.submits.value, p.submits.why.as_deref()), (None, Some("its first sample")));
    now.hosts = vec![host(6), other];
    let f = between(&before, &now);
    let rates: Vec<_> = f.processes.iter().filter(|p| p.counts).map(|p| p.submits.value).collect();
    assert_eq!(rates, [Some(120.0), None]);
}

/// Killed: shown as ended for a moment, and gone within two ticks of its last figures being old.
#[test]
fn a_process_that_dies() {
    let dead = |updated_ns| Host { alive: Some(false), updated_ns, ..host(2) };
    let mut now = sample(101, 2, [0; 3]);
    now.clients = Raw::Value(vec![]);
    now.hosts = vec![dead(100_500_000_000)];
    let f = between(&sample(100, 1, [0; 3]), &now);
    assert_eq!(f.processes.len(), 1);
    assert_eq!(
        (f.processes[0].alive, f.processes[0].gops.why.as_deref()),
        (Some(false), Some("it has ended"))
    );
    assert_eq!(f.gops.value, None);
    now.hosts = vec![dead(98_900_000_000)];
    assert!(between(&sample(100, 1, [0; 3]), &now).processes.is_empty());
}

/// Few rows and many are lines of their own.
#[test]
fn classes_of_rows() {
    let mut h = host(1);
    let mut small = h.rows[0].clone();
    small.rows = [32, 127];
    h.rows.push(small);
    let mut now = sample(101, 2, [0; 3]);
    now.hosts = vec![h];
    let f = between(&sample(100, 1, [0; 3]), &now);
    let rows: BTreeSet<[u32; 2]> =
        f.routing.iter().filter(|l| l.outcome == "int8").map(|l| l.rows).collect();
    assert_eq!(rows, BTreeSet::from([[32, 127], [512, 512]]));
}

/// A table is of those that live; when none does, of the last one.
#[test]
fn whose_table() {
    let ended = |id: &str, steps, updated_ns| Host {
        id: id.into(),
        alive: Some(false),
        updated_ns,
        ..host(steps)
    };
    let calls = |hosts: Vec<Host>| {
        let mut now = sample(101, 2, [0; 3]);
        now.hosts = hosts;
        let f = between(&sample(100, 1, [0; 3]), &now);
        f.routing.iter().find(|l| l.outcome == "int8").map(|l| l.calls)
    };
    assert_eq!(calls(vec![ended("x", 7, 9), host(1)]), Some(32));
    assert_eq!(calls(vec![ended("x", 7, 9), ended("y", 2, 10)]), Some(64));
    assert_eq!(calls(vec![host(1), Host { id: "z".into(), ..host(2) }]), Some(96));
    assert_eq!(calls(vec![]), None);
}

#[test]
fn a_process_that_hangs_is_stale_and_not_gone() {
    let mut now = sample(200, 1, [0; 3]);
    now.hosts = vec![host(1)];
    let f = between(&sample(199, 1, [0; 3]), &now);
    let p = f.processes.iter().find(|p| p.counts).unwrap();
    assert!(p.stale && p.alive == Some(true));
    assert_eq!(p.submits.value, Some(0.0), "it is known to do nothing");
    assert!(p.submits.age_ms > 5000);
}

/// Every number that is null has a reason, every other one none (case A22).
#[test]
fn json_says_why() {
    fn walk(value: &serde_json::Value, seen: &mut usize) {
        if let Some(map) = value.as_object() {
            if map.contains_key("unit") && map.contains_key("value") {
                assert_eq!(map["value"].is_null(), map["why"].is_string(), "{map:?}");
                assert!(!map["unit"].as_str().unwrap().is_empty());
                *seen += 1;
            }
            map.values().for_each(|v| walk(v, seen));
        }
        value.as_array().into_iter().flatten().for_each(|v| walk(v, seen));
    }
    for frame in [common::working(), common::bare(), Frame::new(None, &sample(1, 1, [0; 3]), None)]
    {
        let mut seen = 0;
        walk(&serde_json::to_value(&frame).unwrap(), &mut seen);
        assert!(seen >= 6, "{seen}");
    }
}

/// Read back by another rule: each sample after its own TYPE line, names once, labels quoted.
#[test]
fn prometheus_text() {
    let mut frame = common::working();
    frame.processes[1].name = Raw::Value("a\"b\\c\nd".into());
    let text = prometheus(&frame);
    let mut current = "";
    let mut types = std::collections::BTreeSet::new();
    for line in text.lines() {
        if let Some(rest) = line.strip_prefix("# TYPE ") {
            current = rest.split(' ').next().unwrap();
            assert!(types.insert(current), "{current} twice");
        } else if !line.starts_with('#') {
            assert!(line.starts_with(current), "{line}");
            let value = line.rsplit(' ').next().unwrap().parse::<f64>().unwrap();
            assert!(value.is_finite());
        }
    }
    assert!(text.contains("rocket_core_utilization_ratio{core=\"fdab0000.npu\""));
    assert!(text.contains("program=\"a\\\"b\\\\c\\nd\""));
    assert!(!prometheus(&common::bare()).contains("clock"), "what is unknown has no sample");
}

#[test]
fn recordings() {
    use rocket_top::record::{Recorder, Replay};
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("r.jsonl");
    let all = [sample(100, 1, [0; 3]), sample(101, 2, [900, 0, 0])];
    let mut recorder = Recorder::create(&path).unwrap();
    all.iter().for_each(|s| recorder.write(s).unwrap());
    assert!(Recorder::create(&path).is_err(), "never written over");
    let mut replay = Replay::open(&path).unwrap();
    let read: Vec<Sample> = std::iter::from_fn(|| replay.sample().unwrap()).collect();
    assert_eq!(read, all);
    // Cut in the middle of the last line, as by a full disk.
    let bytes = std::fs::read(&path).unwrap();
    std::fs::write(&path, &bytes[..bytes.len() - 9]).unwrap();
    let mut replay = Replay::open(&path).unwrap();
    assert_eq!(std::iter::from_fn(|| replay.sample().unwrap()).count(), 1);
    std::fs::write(&path, "{}\n").unwrap();
    let e = Replay::open(&path).unwrap().sample().unwrap_err();
    assert!(e.to_string().contains("line 1"), "{e}");
}
