//! PREP_BO: deadlines, interruption, and what is synchronised (A.4, B.6 F6).

use crate::rig::*;
use rocket_runtime::device::Deadline;
use rocket_sim::{Config, Fault, SimBoard};
use std::time::{Duration, Instant};

/// A buffer that a queued job writes, and one that it reads.
fn in_flight(profile: DriverProfile) -> (Rig, u32, u32) {
    let mut r = Rig::new(profile);
    let (input, output) = (r.bo(4096), r.bo(8192));
    let job = r.job(0, &[input], &[output]);
    r.submit(&[job], 48).unwrap();
    (r, input, output)
}

fn soon() -> i64 {
    Deadline::now().0 + 3_000_000
}

#[test]
fn deadlines() {
    for profile in DriverProfile::ALL {
        let (mut r, _, output) = in_flight(profile);
        // A poll, and what is at or before now: at once, without waiting.
        for past in [0, -1, i64::MIN, 1, Deadline::now().0] {
            assert_eq!(r.prep(output, past), Err(Errno::EBUSY), "{profile}: {past}");
            assert_eq!(r.user.waits, 0, "{profile}: {past}");
        }
        // A real one that expires.
        let (start, until) = (Instant::now(), soon());
        assert_eq!(r.prep(output, until), Err(Errno::ETIMEDOUT), "{profile}");
        assert!(Deadline::now().0 >= until && start.elapsed() < Duration::from_secs(30));
        assert_eq!(r.user.waits, 1, "{profile}");
        assert_eq!(r.board.counters().waits, 1, "{profile}");
        // One that cannot expire.
        r.waits_step();
        assert!(r.prep(output, i64::MAX).unwrap() >= 0, "{profile}");
        assert_eq!(r.user.waits, 2, "{profile}");
        // Once signalled, no deadline matters.
        for any in [0, -1, 1, i64::MAX] {
            assert!(r.prep(output, any).unwrap() >= 0, "{profile}: {any}");
        }
        assert_eq!(r.user.waits, 2, "{profile}");
    }
}

#[test]
fn a_signal_interrupts_the_wait() {
    for profile in DriverProfile::ALL {
        let (mut r, _, output) = in_flight(profile);
        let mut deadlines = Vec::new();
        let until = Deadline::now().0 + 3_600_000_000_000;
        r.user.waiter = Some(Box::new(move |fence, deadline| {
            deadlines.push(deadline.0);
            assert!(!fence.signalled() && deadlines.iter().all(|d| *d == until));
            Err(Errno::EINTR)
        }));
        // Retried with the same absolute deadline, it is interrupted again.
        for _ in 0..2 {
            assert_eq!(r.prep(output, until), Err(Errno::EINTR), "{profile}");
        }
        r.waits_step();
        assert!(r.prep(output, until).is_ok(), "{profile}");
    }
}

#[test]
fn the_cache_is_synchronised_even_when_the_wait_fails() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let bo = r.create(4096).unwrap();
        r.put(&bo, 0x11);
        r.fini(bo.handle).unwrap();
        let job = r.job(0, &[], &[bo.handle]);
        r.submit(&[job], 48).unwrap();
        let how: [(i64, Errno); 3] = [
            (0, Errno::EBUSY),
            (Deadline::now().0 + 1_000_000, Errno::ETIMEDOUT),
            (i64::MAX, Errno::EINTR),
        ];
        for (deadline, errno) in how {
            if errno == Errno::EINTR {
                r.user.waiter = Some(Box::new(|_, _| Err(Errno::EINTR)));
            }
            r.put(&bo, 0x77);
            let before = r.board.counters();
            assert_eq!(r.prep(bo.handle, deadline), Err(errno), "{profile}");
            assert_eq!((r.board.counters() - before).cpu_sync, 4096, "{profile}: {errno}");
            assert_eq!(r.take(&bo), [0x11; 4096], "{profile}: {errno}");
        }
    }
}

#[test]
fn what_a_job_only_reads_has_no_fence() {
    for profile in DriverProfile::ALL {
        let (mut r, input, output) = in_flight(profile);
        r.user.waiter = Some(Box::new(|_, _| panic!("there is nothing to wait for")));
        assert!(r.prep(input, i64::MAX).unwrap() >= 0, "{profile}");
        assert_eq!(r.prep(output, 0), Err(Errno::EBUSY), "{profile}");
    }
}

/// 6.18 and 6.19 return the jiffies that were left: more, the farther the deadline.
#[test]
fn positive_results() {
    for profile in DriverProfile::ALL {
        let mut left = Vec::new();
        for seconds in [1, 1000] {
            let (mut r, _, output) = in_flight(profile);
            r.waits_step();
            left.push(r.prep(output, Deadline::now().0 + seconds * 1_000_000_000).unwrap());
        }
        if profile == Stock618 {
            assert!(0 < left[0] && left[0] < left[1], "{left:?}");
        } else {
            assert_eq!(left, [0, 0], "{profile}");
        }
        // So it is without a wait.
        let mut r = Rig::new(profile);
        let idle = r.bo(4096);
        for deadline in [0, -1, i64::MAX] {
            let value = r.prep(idle, deadline).unwrap();
            assert_eq!(value > 0, profile == Stock618, "{profile}: {deadline}");
        }
        // Errors are errors everywhere.
        let (mut r, _, output) = in_flight(profile);
        assert_eq!(r.prep(output, 0), Err(Errno::EBUSY), "{profile}");
    }
}

/// A job that hangs signals as any other, and PREP_BO does not tell (A.4); 500 ms is the
/// driver's timeout (B.5).
#[test]
fn a_failed_job_is_not_reported() {
    for profile in [Stock618, Stock, V1_0, Full] {
        let timeout = Duration::from_millis(60);
        let board = SimBoard::new(Config { profile, timeout, ..Config::default() });
        board.inject(Fault::HangJob(0));
        let mut r = Rig::on(&board);
        let output = r.bo(4096);
        let job = r.job(0, &[], &[output]);
        let start = Instant::now();
        r.submit(&[job], 48).unwrap();
        assert!(r.prep(output, i64::MAX).unwrap() >= 0, "{profile}");
        assert!(start.elapsed() >= timeout, "{profile}");
        assert_eq!(board.counters().jobs_timed_out, 1, "{profile}");
    }
    assert_eq!(Config::default().timeout, Duration::from_millis(500));
}

/// The fence of a buffer is that of its last writer.
#[test]
fn the_last_writer_counts() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let output = r.bo(4096);
        let jobs = [r.job(0, &[], &[output]), r.job(1, &[], &[output])];
        r.submit(&jobs, 48).unwrap();
        assert!(r.board.step() && r.busy(output), "{profile}");
        assert!(r.board.step() && !r.busy(output), "{profile}");
    }
}
