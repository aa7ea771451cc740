//! SUBMIT: the order of a job's checks, and what becomes of the jobs around a malformed one (A.5).

use crate::rig::*;
use rocket_runtime::uapi::{Job, Submit};

/// Each check with all later ones broken as well.
#[test]
fn order_of_a_jobs_checks() {
    type Spoil = fn(&mut Rig, &mut Job);
    let ladder: &[(&str, Spoil, Errno)] = &[
        ("both lists", |_, j| j.in_bo_handles = j.out_bo_handles, Errno::EALREADY),
        ("handle", |r, j| assert!(r.user.poke(j.in_bo_handles + 4, &[77])), Errno::ENOENT),
        ("regcmd_count", |r, j| assert!(r.user.poke(j.tasks + 4, &[0])), Errno::EINVAL),
        ("task pointer", |_, j| j.tasks = NOWHERE, Errno::EFAULT),
        ("task_struct_size", |_, j| j.task_struct_size = 7, Errno::EINVAL),
    ];
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let (a, b) = (r.bo(4096), r.bo(4096));
        // Both lists are of two, so that one can stand for the other.
        let mut job = r.job(0, &[b, a], &[a, b]);
        for (what, spoil, errno) in ladder {
            spoil(&mut r, &mut job);
            let want = if matches!(profile, Stock618 | Stock) { Ok(0) } else { Err(*errno) };
            assert_eq!(r.submit(&[job], 48), want, "{profile}: {what}");
            assert_eq!(r.board.counters().jobs, 0, "{profile}: {what}");
        }
    }
}

#[test]
fn jobs_around_a_malformed_one() {
    for profile in DriverProfile::ALL {
        let stock = matches!(profile, Stock618 | Stock);
        let mut r = Rig::new(profile);
        let outputs = [r.bo(4096), r.bo(4096), r.bo(4096)];
        let mut jobs = [0, 1, 2].map(|n| r.job(n as u64, &[], &[outputs[n]]));
        jobs[1].task_count = 0;
        let want = if stock { Ok(0) } else { Err(Errno::EINVAL) };
        assert_eq!(r.submit(&jobs, 48), want, "{profile}");
        // The one before stays queued and runs; the one after is only looked at by stock.
        assert_eq!(outputs.map(|o| r.busy(o)), [true, false, stock], "{profile}");
        let c = r.board.counters();
        assert_eq!((c.jobs, c.jobs_dropped), (1 + u64::from(stock), 1), "{profile}");
        assert_eq!(r.board.next_job(), 2 + u64::from(stock), "{profile}");
        r.settle();
        assert_eq!(outputs.map(|o| r.busy(o)), [false; 3], "{profile}");
        assert_eq!(r.board.counters().fences, 1 + u64::from(stock), "{profile}");
    }
}

/// The array is copied whole before the first job is looked at: an unreadable end stops all.
#[test]
fn the_array_of_jobs_is_copied_first() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let output = r.bo(4096);
        let job = r.job(0, &[], &[output]);
        r.user.map(JOBS, [bytemuck::bytes_of(&job), &[0; 47]].concat());
        let a = Submit { jobs: JOBS, job_count: 2, job_struct_size: 48, reserved: 0 };
        assert_eq!(r.submit_as(&a), Err(Errno::EFAULT), "{profile}");
        assert!(!r.busy(output), "{profile}");
    }
}

/// A tail is the job's own fault: those before it run (A.5).
#[test]
fn an_unknown_tail_stops_only_from_its_job_on() {
    for profile in DriverProfile::ALL {
        let stock = matches!(profile, Stock618 | Stock);
        let mut r = Rig::new(profile);
        let outputs = [r.bo(4096), r.bo(4096)];
        let jobs = [0, 1].map(|n| r.job(n as u64, &[], &[outputs[n]]));
        let mut bytes = Vec::new();
        for (job, tail) in jobs.iter().zip([0, 1]) {
            bytes.extend_from_slice(bytemuck::bytes_of(job));
            bytes.push(tail);
        }
        let want = if stock { Ok(0) } else { Err(Errno::E2BIG) };
        assert_eq!(r.submit_bytes(bytes, 2, 49), want, "{profile}");
        assert_eq!(outputs.map(|o| r.busy(o)), [true, stock], "{profile}");
    }
}
