//! SUBMIT: the table of malformed jobs in A.5, struct sizes (A.2, A.5) and flags (A.6).

use crate::rig::*;
use rocket_runtime::uapi::{Job, Submit};
use rocket_sim::Rule;

type Spoil = fn(&mut Rig, &mut Job);

/// A.5: what is malformed, and the errno of a driver that reports it. A stock one says 0.
const MALFORMED: &[(&str, Spoil, Errno)] = &[
    ("task_struct_size 4", |_, j| j.task_struct_size = 4, Errno::EINVAL),
    ("task_struct_size 0", |_, j| j.task_struct_size = 0, Errno::EINVAL),
    ("unreadable task pointer", |_, j| j.tasks = NOWHERE, Errno::EFAULT),
    ("a task beyond the mapping", |_, j| j.task_count = 2, Errno::EFAULT),
    ("regcmd_count 0", |r, j| assert!(r.user.poke(j.tasks + 4, &[0])), Errno::EINVAL),
    ("bad in handle", |r, j| assert!(r.user.poke(j.in_bo_handles, &[77])), Errno::ENOENT),
    ("bad out handle", |r, j| assert!(r.user.poke(j.out_bo_handles, &[77])), Errno::ENOENT),
    ("handle 0", |r, j| assert!(r.user.poke(j.in_bo_handles, &[0])), Errno::ENOENT),
    ("unreadable in handles", |_, j| j.in_bo_handles = NOWHERE, Errno::EFAULT),
    ("unreadable out handles", |_, j| j.out_bo_handles = NOWHERE, Errno::EFAULT),
    ("same BO in both lists", |_, j| j.in_bo_handles = j.out_bo_handles, Errno::EALREADY),
    ("task_count 0", |_, j| j.task_count = 0, Errno::EINVAL),
    // B.6 U9: the allocator gives up.
    ("2^27 tasks and more", |_, j| j.task_count = u32::MAX, Errno::ENOMEM),
];

#[test]
fn malformed_jobs() {
    for profile in DriverProfile::ALL {
        for (what, spoil, errno) in MALFORMED {
            let mut r = Rig::new(profile);
            let (input, output) = (r.bo(4096), r.bo(4096));
            let mut job = r.job(0, &[input], &[output]);
            spoil(&mut r, &mut job);
            let want = if matches!(profile, Stock618 | Stock) { Ok(0) } else { Err(*errno) };
            assert_eq!(r.submit(&[job], 48), want, "{profile}: {what}");
            // It is dropped either way: nothing waits for it, nothing runs.
            assert!(!r.busy(output) && !r.board.step(), "{profile}: {what}");
            let c = r.board.counters();
            assert_eq!((c.jobs, c.jobs_dropped, c.submits), (0, 1, 1), "{profile}: {what}");
            let e = r.board.explanations().pop().unwrap();
            let both = *errno == Errno::EALREADY;
            assert_eq!(e.rule, if both { Rule::BufferInBothLists } else { Rule::JobRejected });
            // The same job as it was is taken.
            let good = r.job(0, &[input], &[output]);
            assert_eq!(r.submit(&[good], 48), Ok(0), "{profile}: {what}");
            assert!(r.busy(output));
            r.settle();
            assert!(!r.busy(output));
        }
    }
}

#[test]
fn a_job_without_buffers_is_taken() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let job = r.job(0, &[], &[]);
        let job = Job { in_bo_handles: NOWHERE, out_bo_handles: NOWHERE, ..job };
        assert_eq!(r.submit(&[job], 48), Ok(0), "{profile}");
        assert_eq!(r.board.counters().jobs, 1);
    }
}

/// Struct sizes: those a caller may declare, and what a non-zero byte in each part does.
#[test]
fn struct_sizes() {
    for profile in DriverProfile::ALL {
        let stock = matches!(profile, Stock618 | Stock);
        for (stride, tail_at, reporting) in [
            (40, None, Ok(0)),
            (44, None, Ok(0)),
            (48, None, Ok(0)),
            (64, None, Ok(0)),
            (4096, None, Ok(0)),
            // Behind every struct that a driver knows.
            (56, Some(48), Err(Errno::E2BIG)),
            (56, Some(55), Err(Errno::E2BIG)),
            (49, Some(48), Err(Errno::E2BIG)),
            (4096, Some(4095), Err(Errno::E2BIG)),
        ] {
            let mut r = Rig::new(profile);
            let output = r.bo(4096);
            let job = r.job(0, &[], &[output]);
            let mut bytes = bytemuck::bytes_of(&job).to_vec();
            bytes.resize(stride, 0);
            if let Some(at) = tail_at {
                bytes[at] = 1;
            }
            let want = if stock { Ok(0) } else { reporting };
            let said = r.submit_bytes(bytes, 1, stride as u32);
            assert_eq!(said, want, "{profile}: {stride} bytes, tail at {tail_at:?}");
            // Stock ignores the tail: the job runs.
            assert_eq!(r.busy(output), want.is_ok(), "{profile}: {stride}, {tail_at:?}");
        }
        // Two jobs as far apart as declared.
        let mut r = Rig::new(profile);
        let (a, b) = (r.bo(4096), r.bo(4096));
        let jobs = [r.job(0, &[], &[a]), r.job(1, &[], &[b])];
        assert_eq!(r.submit(&jobs, 72), Ok(0), "{profile}");
        assert!(r.busy(a) && r.busy(b), "{profile}");
    }
}

/// Tasks grow in the same way.
#[test]
fn task_struct_sizes() {
    for profile in DriverProfile::ALL {
        let stock = matches!(profile, Stock618 | Stock);
        for (tail, reporting) in [(0u64, Ok(0)), (1 << 63, Err(Errno::E2BIG))] {
            let mut r = Rig::new(profile);
            let output = r.bo(4096);
            let mut job = r.job(0, &[], &[output]);
            // regcmd 0, two words; then what no driver knows; twice.
            let tasks = [2 << 32, 0u64, 2 << 32, tail];
            r.user.map(job.tasks, bytemuck::cast_slice(&tasks));
            (job.task_count, job.task_struct_size) = (2, 16);
            let want = if stock { Ok(0) } else { reporting };
            assert_eq!(r.submit(&[job], 48), want, "{profile}: tail {tail}");
            assert_eq!(r.busy(output), want.is_ok(), "{profile}: tail {tail}");
        }
    }
}

/// A.1, A.6: what each driver says of flag bits 0 to 3, and of job.reserved.
#[test]
fn flags() {
    const OK: Result<i32, Errno> = Ok(0);
    const NO: Result<i32, Errno> = Err(Errno::EINVAL);
    // A driver whose struct ends before the flags.
    const BIG: Result<i32, Errno> = Err(Errno::E2BIG);
    let table = [
        (Stock618, [OK, OK, OK, OK], OK),
        (Stock, [OK, OK, OK, OK], OK),
        (V1_0, [BIG, BIG, BIG, BIG], BIG),
        (V1_1, [OK, NO, NO, NO], NO),
        (V1_2, [OK, OK, NO, NO], NO),
        (V1_3, [OK, OK, OK, NO], NO),
        (V1_4, [OK, OK, OK, NO], NO),
        (V1_5, [OK, OK, OK, NO], NO),
        (V1_6, [OK, OK, OK, NO], NO),
        (Full, [OK, OK, OK, NO], NO),
    ];
    assert_eq!(table.map(|row| row.0), DriverProfile::ALL);
    for (profile, bits, reserved) in table {
        let mut r = Rig::new(profile);
        let output = r.bo(4096);
        for (bit, want) in bits.into_iter().enumerate() {
            let job = Job { flags: 1 << bit, ..r.job(0, &[], &[output]) };
            assert_eq!(r.submit(&[job], 48), want, "{profile}: bit {bit}");
            // Cut off before the flags, the same job has none.
            assert_eq!(r.submit(&[job], 40), OK, "{profile}: bit {bit}");
        }
        let job = Job { reserved: 1, ..r.job(0, &[], &[output]) };
        assert_eq!(r.submit(&[job], 48), reserved, "{profile}");
        assert_eq!(r.submit(&[job], 44), OK, "{profile}");
    }
}

/// The checks of the call itself, which a stock driver reports too, each with all later ones
/// broken as well: the first one decides.
#[test]
fn order_of_the_calls_checks() {
    const MANY: u32 = 1 << 27;
    for profile in DriverProfile::ALL {
        for (what, n, stride, reserved, jobs, want) in [
            ("no jobs", 0, 0, 1, NOWHERE, Ok(0)),
            ("struct of 39 bytes", MANY, 39, 1, NOWHERE, Err(Errno::EINVAL)),
            ("struct of no bytes", MANY, 0, 0, NOWHERE, Err(Errno::EINVAL)),
            ("reserved", MANY, 48, 1, NOWHERE, Err(Errno::EINVAL)),
            ("reserved, high half", 1, 48, 1 << 63, NOWHERE, Err(Errno::EINVAL)),
            ("allocation", MANY, 48, 0, NOWHERE, Err(Errno::ENOMEM)),
            ("copy", 1, 48, 0, NOWHERE, Err(Errno::EFAULT)),
            ("null", 1, 48, 0, 0, Err(Errno::EFAULT)),
            ("the second job is not mapped", 2, 48, 0, JOBS, Err(Errno::EFAULT)),
            ("one job", 1, 48, 0, JOBS, Ok(0)),
        ] {
            let mut r = Rig::new(profile);
            let output = r.bo(4096);
            let job = r.job(0, &[], &[output]);
            r.user.map(JOBS, bytemuck::bytes_of(&job));
            let a = Submit { jobs, job_count: n, job_struct_size: stride, reserved };
            assert_eq!(r.submit_as(&a), want, "{profile}: {what}");
            let c = r.board.counters();
            assert_eq!((c.jobs, c.jobs_dropped), (u64::from(what == "one job"), 0), "{what}");
        }
    }
}
