//! Injected faults, as the calls meet them: the n-th call, every call, a node that goes, drivers
//! and jobs that fail.

use crate::rig::*;
use rocket_runtime::device::Board;
use rocket_runtime::uapi::{self, BoRange, DrmVersion, FiniBoRanges, Job, PrepBoRanges};
use rocket_sim::{Alive, Call, Config, Fault, SimBoard, fail_each};
use std::time::{Duration, Instant};

/// A call of that kind that succeeds when nothing is injected.
fn make(r: &mut Rig, call: Call, bo: &uapi::CreateBo) -> Result<(), Errno> {
    match call {
        Call::Open => r.board.open_shared().map(drop),
        Call::Version => r.call(uapi::IOCTL_VERSION, &mut DrmVersion::default()).map(drop),
        Call::CreateBo => r.create(4096).map(drop),
        Call::Map => r.file.memory(bo.offset, 4096).map(drop),
        Call::Submit => {
            let job = r.job(0, &[], &[bo.handle]);
            r.submit(&[job], 48).map(drop)
        }
        Call::PrepBo => r.prep(bo.handle, 0).map(drop),
        Call::FiniBo => r.fini(bo.handle).map(drop),
        Call::CloseBo => {
            // The handle that CREATE_BO gave last is not the one that is needed on.
            r.close(2).map(drop)
        }
    }
}

/// A file with handle 1, in use, and handle 2, to close.
fn prepared(profile: DriverProfile) -> (Rig, uapi::CreateBo) {
    let mut r = Rig::new(profile);
    let bo = r.create(4096).unwrap();
    r.bo(4096);
    (r, bo)
}

#[test]
fn the_nth_call_of_a_kind_fails_and_does_nothing() {
    for profile in DriverProfile::ALL {
        for call in Call::ALL {
            let (mut r, bo) = prepared(profile);
            // Counted over the whole board and from its start.
            let n = match call {
                Call::Open => 1,
                Call::CreateBo => 2,
                _ => 0,
            };
            r.board.inject(Fault::Fail { call, n, errno: Errno::EIO });
            let (alive, before) = (r.board.alive(), r.board.counters());
            assert_eq!(make(&mut r, call, &bo), Err(Errno::EIO), "{profile}: {call:?}");
            assert_eq!(r.board.alive(), alive, "{profile}: {call:?}");
            let d = r.board.counters() - before;
            assert_eq!((d.faults, d.jobs, d.cpu_sync), (1, 0, 0), "{profile}: {call:?}");
            // The next is as ever; others of the file too.
            for other in Call::ALL {
                let said = make(&mut r, other, &bo);
                // A job is queued by now.
                r.settle();
                assert_eq!(said, Ok(()), "{profile}: {other:?} after {call:?}");
                if other == Call::CloseBo {
                    assert_eq!(r.bo(4096), 2, "{profile}");
                }
            }
        }
    }
}

#[test]
fn every_call_of_a_kind_is_refused() {
    for profile in DriverProfile::ALL {
        for call in Call::ALL {
            let (mut r, bo) = prepared(profile);
            r.board.inject(Fault::Refuse { call, errno: Errno::EPERM });
            for _ in 0..3 {
                for other in Call::ALL.into_iter().filter(|c| *c != Call::CloseBo) {
                    let want = if other == call { Err(Errno::EPERM) } else { Ok(()) };
                    let said = make(&mut r, other, &bo);
                    r.settle();
                    assert_eq!(said, want, "{profile}: {other:?} with {call:?} refused");
                }
            }
            r.board.clear_faults();
            assert_eq!(make(&mut r, call, &bo), Ok(()), "{profile}: {call:?}");
        }
    }
}

/// The ranged calls count as the plain ones.
#[test]
fn ranged_calls_are_of_the_same_kind() {
    for profile in [V1_5, V1_6, Full] {
        let (mut r, bo) = prepared(profile);
        r.user.map(JOBS, bytemuck::bytes_of(&BoRange { offset: 0, size: 64 }));
        r.board.inject(Fault::Fail { call: Call::PrepBo, n: 1, errno: Errno::EIO });
        r.board.inject(Fault::Fail { call: Call::FiniBo, n: 1, errno: Errno::EIO });
        assert_eq!((r.prep(bo.handle, 0), r.fini(bo.handle)), (Ok(0), Ok(0)));
        let a = PrepBoRanges {
            handle: bo.handle,
            range_count: 1,
            ranges: JOBS,
            ..PrepBoRanges::default()
        };
        let prep = |r: &mut Rig| r.call(uapi::IOCTL_PREP_BO_RANGES, &mut { a });
        assert_eq!([prep(&mut r), prep(&mut r)], [Err(Errno::EIO), Ok(0)], "{profile}");
        let a = FiniBoRanges { handle: bo.handle, range_count: 1, ranges: JOBS, reserved: 0 };
        let fini = |r: &mut Rig| r.call(uapi::IOCTL_FINI_BO_RANGES, &mut { a });
        assert_eq!([fini(&mut r), fini(&mut r)], [Err(Errno::EIO), Ok(0)], "{profile}");
    }
}

#[test]
fn a_node_that_vanishes() {
    for profile in DriverProfile::ALL {
        let (mut r, bo) = prepared(profile);
        let job = r.job(0, &[], &[bo.handle]);
        r.submit(&[job], 48).unwrap();
        // An open, two CREATE_BO, a SUBMIT so far; two more calls go through.
        r.board.inject(Fault::Vanish(6));
        assert_eq!(r.fini(bo.handle), Ok(0), "{profile}");
        assert!(r.busy(bo.handle), "{profile}");
        for call in Call::ALL {
            let want = if call == Call::Open { Errno::ENOENT } else { Errno::ENODEV };
            assert_eq!(make(&mut r, call, &bo), Err(want), "{profile}: {call:?}");
        }
        // Jobs in flight end, and their fences signal.
        assert!(r.board.step() && !r.board.step(), "{profile}");
        let c = r.board.counters();
        assert_eq!((c.fences, c.jobs_timed_out), (1, 0), "{profile}");
        r.board.clear_faults();
        assert!(!r.busy(bo.handle), "{profile}");
        let board = r.board.clone();
        drop(r);
        assert_eq!(board.alive(), Alive::default(), "{profile}");
    }
}

/// A core that hangs when the node goes does not hang on until the timeout.
#[test]
fn a_hanging_job_ends_with_its_node() {
    let timeout = Duration::from_secs(3600);
    let board = SimBoard::new(Config { timeout, ..Config::default() });
    board.inject(Fault::HangJob(0));
    let mut r = Rig::on(&board);
    let output = r.bo(4096);
    let jobs = [r.job(0, &[], &[output]), r.job(1, &[], &[output])];
    r.submit(&jobs, 48).unwrap();
    let start = Instant::now();
    while board.explanation_count() == 0 {
        assert!(start.elapsed() < Duration::from_secs(20));
        std::thread::sleep(Duration::from_millis(1));
    }
    // The core has said why it hangs; by now it does.
    std::thread::sleep(Duration::from_millis(50));
    board.inject(Fault::Vanish(0));
    assert_eq!(r.fini(output), Err(Errno::ENODEV));
    while board.alive().jobs > 0 {
        assert!(start.elapsed() < Duration::from_secs(20), "{:?}", board.alive());
        std::thread::sleep(Duration::from_millis(1));
    }
    assert_eq!(board.counters().fences, 2);
}

/// A.5: a driver built with a longer struct that cannot take shorter ones.
#[test]
fn a_driver_whose_struct_grew() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let output = r.bo(4096);
        r.board.inject(Fault::StructSkew);
        let job = r.job(0, &[], &[output]);
        for (stride, want) in [(40, Err(Errno::EINVAL)), (47, Err(Errno::EINVAL)), (48, Ok(0))] {
            assert_eq!(r.submit(&[job], stride), want, "{profile}: {stride}");
        }
        assert_eq!(r.submit(&[], 40), Ok(0), "{profile}: no jobs, no check");
        assert_eq!(r.board.counters().jobs, 1, "{profile}");
    }
}

/// Which of many calls and jobs a seed makes fail.
fn picked(seed: u64, one_in: u32) -> (Vec<Option<Errno>>, u64) {
    let board = SimBoard::new(Config { stepped: true, ..Config::default() });
    let mut r = Rig::on(&board);
    let bo = r.create(4096).unwrap();
    board.inject(Fault::Seeded { seed, one_in });
    let calls = (0..240).map(|i| {
        let call = [Call::Version, Call::PrepBo, Call::FiniBo, Call::Submit][i % 4];
        let said = make(&mut r, call, &bo);
        while board.step() {}
        said.err()
    });
    (calls.collect(), board.counters().faults)
}

#[test]
fn seeded_faults() {
    let (one, faults) = picked(1, 8);
    assert_eq!(picked(1, 8), (one.clone(), faults), "the same seed picks the same");
    assert_ne!(picked(2, 8).0, one, "another picks others");
    let hit = one.iter().flatten().count();
    // 30 are expected of 240; five standard deviations.
    assert!((4..=56).contains(&hit), "{hit}");
    assert!(faults > hit as u64, "some of the faults are of jobs");
    // Each with an errno of its kind.
    for (i, errno) in one.iter().enumerate().filter_map(|(i, e)| Some((i, (*e)?))) {
        let usual: &[Errno] = match i % 4 {
            0 => &[Errno::ENODEV],
            1 => &[Errno::EINTR, Errno::EBUSY],
            2 => &[Errno::EINTR],
            _ => &[Errno::ENOMEM, Errno::EINVAL],
        };
        assert!(usual.contains(&errno), "call {i}: {errno}");
    }
    assert_eq!(picked(1, 1).0.iter().flatten().count(), 240, "one in one is every one");
}

/// A workload in bytes under a failure of each of its calls: it meets each once, and leaves
/// nothing.
#[test]
fn every_place_of_failure() {
    for (call, places) in [
        (Call::Open, 1),
        (Call::CreateBo, 2),
        (Call::Submit, 1),
        (Call::PrepBo, 2),
        (Call::FiniBo, 1),
        (Call::CloseBo, 2),
        (Call::Map, 0),
    ] {
        let config = Config { stepped: true, ..Config::default() };
        let met = fail_each(
            &config,
            |n| Fault::Fail { call, n, errno: Errno::ENOMEM },
            |board| {
                let Ok(file) = board.open_file() else { return };
                let mut r = Rig { board: board.clone(), file, user: crate::user::User::default() };
                let made = [r.create(4096), r.create(4096)].map(|b| b.map_or(0, |b| b.handle));
                r.fini(1).ok();
                let job = r.job(0, &[], &[1]);
                r.submit(&[Job { ..job }], 48).ok();
                r.settle();
                r.prep(made[0], 0).ok();
                r.prep(made[1], 0).ok();
                r.close(made[0]).ok();
                r.close(made[1]).ok();
                drop(r);
                assert_eq!(board.alive(), Alive::default());
            },
        );
        assert_eq!(met, places, "{call:?}");
    }
    let board = stepped(Stock);
    board.inject(Fault::Refuse { call: Call::Open, errno: Errno::EACCES });
    assert_eq!(board.open_file().err(), Some(Errno::EACCES));
    assert!(board.open().is_err());
}
