use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;

fn sample(seconds: f64, times: &[(TimeSource, Raw<u64>)]) -> Sample {
    let time: BTreeMap<_, _> = times.iter().cloned().collect();
    let ns = (seconds * 1e9) as u64;
    Sample {
        boot: "b".into(),
        boottime_ns: ns,
        monotonic_ns: ns,
        cores: vec![Core { name: "fdab0000.npu".into(), time, ..Core::default() }],
        ..Sample::default()
    }
}

fn sysfs(seconds: f64, busy_ms: u64) -> Sample {
    sample(seconds, &[(TimeSource::Sysfs, Raw::Value(busy_ms * 1_000_000))])
}

fn of(before: &Sample, now: &Sample) -> Figure {
    utilization(Some(before), now, "fdab0000.npu")
}

/// What may happen between two samples, and what is then shown.
#[test]
fn oddities() {
    let start = sysfs(10.0, 5_000);
    let boot = |mut s: Sample| {
        s.boot = "c".into();
        s
    };
    let gone = |mut s: Sample| {
        s.cores.clear();
        s
    };
    let wall_back = |mut s: Sample| {
        s.wall_ms = 0;
        s
    };
    let unread = sample(11.0, &[(TimeSource::Sysfs, Raw::Why("no file".into()))]);
    let table: [(&str, Sample, Result<f64, &str>); 12] = [
        ("half", sysfs(11.0, 5_500), Ok(50.0)),
        ("idle", sysfs(11.0, 5_000), Ok(0.0)),
        ("a little more than passed", sysfs(11.0, 6_050), Ok(100.0)),
        (
            "far more than passed",
            sysfs(11.0, 9_000),
            Err("sysfs npu_busy_ns: more time than passed"),
        ),
        ("module loaded again", sysfs(11.0, 3), Err("sysfs npu_busy_ns: its counter began anew")),
        ("same moment", sysfs(10.0, 5_001), Err("no time has passed")),
        ("out of order", sysfs(9.0, 5_001), Err("the samples are not in order")),
        ("booted again", boot(sysfs(11.0, 5_500)), Err("the machine was started anew")),
        ("a file that vanished", unread, Err("sysfs npu_busy_ns: no file")),
        ("a core that vanished", gone(sysfs(11.0, 5_500)), Err("the core is gone")),
        ("wall clock set back", wall_back(sysfs(11.0, 5_500)), Ok(50.0)),
        ("nine samples missing", sysfs(20.0, 7_500), Ok(25.0)),
    ];
    for (name, now, want) in table {
        let f = of(&start, &now);
        assert_eq!(f.value.ok_or(f.why.as_deref().unwrap_or("?")), want, "{name}");
        assert_eq!(f.value.is_some(), f.why.is_none(), "{name}");
    }
    let first = utilization(None, &start, "fdab0000.npu");
    assert_eq!((first.value, first.why.as_deref()), (None, Some("the first sample")));
    let back = of(&sample(9.0, &[]), &start);
    assert_eq!(back.why.as_deref(), Some("sysfs npu_busy_ns: its first sample"));
}

/// A machine that slept from 10 s to 3610 s of CLOCK_BOOTTIME.
#[test]
fn a_machine_that_slept() {
    let before = sysfs(10.0, 0);
    let mut now = sysfs(3611.0, 500);
    now.monotonic_ns = 11_000_000_000;
    assert_eq!(slept_ns(&before, &now), 3_600_000_000_000);
    let f = of(&before, &now);
    assert!(f.value.is_some_and(|v| v > 0.0 && v < 0.1), "{f:?}");
}

#[test]
fn the_best_source_that_both_samples_have() {
    use TimeSource::{Fdinfo, Power, Sysfs, Trace};
    let no = || Raw::Why("not here".to_owned());
    let at = |t: f64, a: Raw<u64>, b: Raw<u64>, c: Raw<u64>| {
        sample(t, &[(Sysfs, a), (Fdinfo, b), (Trace, no()), (Power, c)])
    };
    let ms = |n: u64| Raw::Value(n * 1_000_000);
    let before = at(1.0, no(), ms(0), ms(0));
    let f = of(&before, &at(2.0, ms(900), ms(100), ms(1000)));
    assert_eq!((f.value, &*f.source), (Some(10.0), "fdinfo usage stats"), "sysfs is new");
    let f = of(&before, &at(2.0, no(), no(), ms(1000)));
    assert_eq!((f.value, &*f.source), (Some(100.0), "runtime PM: powered, not busy"));
    let f = of(&before, &at(2.0, no(), no(), no()));
    assert_eq!(f.why.as_deref(), Some("sysfs npu_busy_ns: not here"));
}

#[test]
fn counters() {
    let top = u64::from(u32::MAX);
    assert_eq!(counted(5, 9, 32), Ok(4));
    assert_eq!(counted(top - 1, 3, 32), Ok(5));
    assert_eq!(counted(u64::MAX, 0, 64), Ok(1));
    assert!(counted(top / 2, 3, 32).is_err() && counted(9, 5, 64).is_err());
    assert!(counted(top + 5, 3, 32).is_err(), "no 32-bit counter was there");
}

proptest! {
    /// Whatever the samples hold.
    #[test]
    fn never_negative_never_above_all(a in any::<u64>(), b in any::<u64>(), t in any::<u64>(), u in any::<u64>()) {
        let at = |ns: u64, v: u64| Sample { boottime_ns: ns, ..sample(0.0, &[(TimeSource::Sysfs, Raw::Value(v))]) };
        let f = of(&at(t, a), &at(u, b));
        prop_assert!(f.value.is_none_or(|v| (0.0..=100.0).contains(&v)), "{f:?}");
        prop_assert_eq!(f.value.is_none(), f.why.is_some());
    }

    /// A counter of any width that goes on by less than a quarter of its range is followed through its top.
    #[test]
    fn counters_wrap(bits in 8u32..=64, start in any::<u64>(), step in any::<u64>()) {
        let top = u64::MAX >> (64 - bits);
        let (start, step) = (start & top, step & (top / 4 - 1));
        let now = start.wrapping_add(step) & top;
        prop_assert_eq!(counted(start, now, bits), Ok(step));
    }
}
