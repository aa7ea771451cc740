//! The driver's calls: errors, silences, order, time and coherence (kernel-and-uapi A, B).

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use nix::errno::Errno;
use rocket_runtime::device::{Board, Deadline, DriverVersion, JobRef, Node};
use rocket_runtime::uapi::{JOB_BATCHED, Task};
use rocket_sim::{Call, Config, DriverProfile, Fault, Rule, SimBoard};
use std::time::{Duration, Instant};

const SHAPE: Shape =
    Shape { m: 16, k: 64, n: 32, wide: false, ew: None, data_reuse: false, weight_reuse: false };

/// A timeout long enough to look at a hanging job.
fn slow() -> Config {
    Config { timeout: Duration::from_millis(400), ..Config::default() }
}

fn patched() -> Config {
    Config { profile: DriverProfile::V1_1, ..quick() }
}

#[test]
fn versions() {
    let version = |c| Rig::new(c).node.version();
    assert_eq!(version(quick()), Ok(DriverVersion { major: 0, minor: 0 }));
    assert_eq!(version(patched()), Ok(DriverVersion { major: 1, minor: 1 }));
}

#[test]
fn buffers() {
    let board = SimBoard::new(quick());
    let (a, b) = (Rig::on(&board), Rig::on(&board));
    let first = a.node.create_bo(1000).unwrap();
    let second = a.node.create_bo(1).unwrap();
    assert_eq!((first.iova, second.iova), (0, 0x1000));
    assert_eq!((first.handle, second.handle), (1, 2));
    assert_ne!(first.mmap_offset, second.mmap_offset);
    assert!(first.mmap_offset >= 1 << 32);
    // Another file hands out equal addresses.
    assert_eq!(b.node.create_bo(4096).unwrap().iova, 0);
    assert_eq!(a.node.create_bo(0).err(), Some(Errno::ENOSPC));
    assert_eq!(a.node.map_bo(&first, 4097).err(), Some(Errno::EINVAL));
    assert!(a.node.map_bo(&first, 4096).is_ok());
    // Handle and address are given out again.
    a.node.close_bo(first.handle).unwrap();
    assert!(a.node.close_bo(first.handle).is_err());
    let again = a.node.create_bo(4096).unwrap();
    assert_eq!((again.handle, again.iova), (1, 0));
    assert_eq!(a.node.prep_bo(77, Deadline::POLL), Err(Errno::ENOENT));
    assert_eq!(a.node.fini_bo(77), Err(Errno::ENOENT));
}

#[test]
fn lengths_that_cannot_be_mapped() {
    let file = SimBoard::new(quick()).open_shared().unwrap();
    let bo = file.create_bo(8192).unwrap();
    let map = |len| file.memory(bo.mmap_offset, len).map(drop);
    assert_eq!(map(8192), Ok(()));
    assert_eq!(map(4097), Ok(()));
    assert_eq!(map(8193), Err(Errno::EINVAL));
    assert_eq!(map(0), Err(Errno::EINVAL));
    assert_eq!(map(u64::MAX), Err(Errno::ENOMEM));
    assert_eq!(file.memory(bo.mmap_offset + 4096, 4096).map(drop), Err(Errno::EINVAL));
}

#[test]
fn a_mapping_keeps_its_buffer() {
    let rig = Rig::new(quick());
    let a = rig.buf(4096);
    rig.node.close_bo(a.handle()).unwrap();
    assert_eq!(rig.node.create_bo(4096).unwrap().iova, 0x1000);
    drop(a);
    assert_eq!(rig.node.create_bo(4096).unwrap().iova, 0);
}

#[test]
fn the_window_is_four_gib() {
    let rig = Rig::new(quick());
    let whole = 0xffff_f000u32;
    assert_eq!(rig.node.create_bo(whole).unwrap().iova, 0);
    assert_eq!(rig.node.create_bo(4096).unwrap().iova, u64::from(whole));
    assert_eq!(rig.node.create_bo(1).err(), Some(Errno::ENOSPC));
}

/// A malformed job, by name, and its error.
fn malformed(s: &Setup, flags_known: bool) -> Vec<(&'static str, JobRef<'static>, Errno)> {
    let t: &'static [Task] = Box::leak(Box::new([Task { regcmd: 0x1000, regcmd_count: 126 }]));
    let none: &'static [Task] = Box::leak(Box::new([Task { regcmd: 0x1000, regcmd_count: 0 }]));
    let own: &'static [u32] = Box::leak(Box::new([s.output.handle()]));
    let twice: &'static [u32] = Box::leak(Box::new([s.input.handle(); 2]));
    let job = |tasks, reads, writes, flags| JobRef { tasks, reads, writes, flags };
    let mut all = vec![
        ("task_count", job(&[], &[], own, 0), Errno::EINVAL),
        ("regcmd_count", job(none, &[], own, 0), Errno::EINVAL),
        ("in handle", job(t, &[99], own, 0), Errno::ENOENT),
        ("out handle", job(t, &[], &[99], 0), Errno::ENOENT),
        ("both lists", job(t, own, own, 0), Errno::EALREADY),
        ("one list twice", job(t, twice, own, 0), Errno::EALREADY),
        // An unknown handle is found before a double one.
        ("both faults", job(t, own, Box::leak(Box::new([own[0], 99])), 0), Errno::ENOENT),
    ];
    if flags_known {
        all.push(("flags", job(t, &[], own, 2), Errno::EINVAL));
    }
    all
}

#[test]
fn malformed_jobs_vanish_on_stock() {
    let rig = Rig::new(quick());
    let s = Setup::new(&rig, SHAPE);
    for (i, (name, job, errno)) in malformed(&s, false).into_iter().enumerate() {
        assert_eq!(rig.node.submit(&[job]), Ok(()), "{name}");
        assert_eq!(rig.node.prep_bo(s.output.handle(), Deadline::POLL), Ok(()), "{name}");
        let e = rig.last().unwrap();
        let both = errno == Errno::EALREADY;
        assert_eq!(e.rule, if both { Rule::BufferInBothLists } else { Rule::JobRejected });
        assert!(e.message.contains(&errno.to_string()), "{e}");
        let c = rig.board.counters();
        assert_eq!((c.jobs_dropped, c.jobs, c.submits), (i as u64 + 1, 0, i as u64 + 1));
    }
    assert!(s.untouched());
    // A good job after a malformed one in the same call runs; unknown flags mean nothing.
    let program = rig.words(&s.words);
    let (tasks, writes) = ([task(&program, 126)], [s.output.handle()]);
    let reads = [&s.input, &s.weights, &program].map(Buf::handle);
    let good = JobRef { tasks: &tasks, reads: &reads, writes: &writes, flags: 0xfe };
    rig.node.submit(&[malformed(&s, false)[0].1, good]).unwrap();
    rig.wait(&s.output);
    assert_eq!(s.result(), s.expected());
}

#[test]
fn malformed_jobs_are_refused_on_patched() {
    let rig = Rig::new(patched());
    let s = Setup::new(&rig, SHAPE);
    for (name, job, errno) in malformed(&s, true) {
        assert_eq!(rig.node.submit(&[job]), Err(errno), "{name}");
    }
    // Jobs before the malformed one stay queued, those after it are not looked at.
    let t = Setup::new(&rig, SHAPE);
    let (p, q) = (rig.words(&s.words), rig.words(&t.words));
    let (pt, qt) = ([task(&p, 126)], [task(&q, 126)]);
    let (so, to) = ([s.output.handle()], [t.output.handle()]);
    let before = JobRef { tasks: &pt, reads: &[], writes: &so, flags: 0 };
    let after = JobRef { tasks: &qt, reads: &[], writes: &to, flags: 0 };
    let bad = malformed(&s, false)[2].1;
    assert_eq!(rig.node.submit(&[before, bad, after]), Err(Errno::ENOENT));
    rig.wait(&s.output);
    rig.wait(&t.output);
    assert_eq!(s.result(), s.expected());
    assert!(t.untouched());
    assert_eq!(rig.board.counters().jobs, 1);
    assert_eq!(rig.node.submit(&[]), Ok(()));
}

#[test]
fn deadlines() {
    let rig = Rig::new(Config { timeout: Duration::from_millis(400), ..quick() });
    let s = Setup::new(&rig, SHAPE);
    rig.board.inject(Fault::HangJob(0));
    let program = rig.words(&s.words);
    rig.submit(&[task(&program, 126)], &[&s.input, &s.weights, &program], &[&s.output]).unwrap();
    let out = s.output.handle();
    assert_eq!(rig.node.prep_bo(out, Deadline::POLL), Err(Errno::EBUSY));
    assert_eq!(rig.node.prep_bo(out, Deadline(Deadline::now().0 - 1)), Err(Errno::EBUSY));
    assert_eq!(rig.node.prep_bo(out, Deadline(-5)), Err(Errno::EBUSY));
    assert_eq!(rig.node.prep_bo(out, Deadline::after_ms(10)), Err(Errno::ETIMEDOUT));
    // What a job only reads has no fence.
    assert_eq!(rig.node.prep_bo(s.input.handle(), Deadline::POLL), Ok(()));
    // The timeout signals the fence, and nobody says that the job failed.
    assert_eq!(rig.node.prep_bo(out, Deadline::after_ms(5000)), Ok(()));
    assert!(s.untouched());
    assert_eq!(rig.board.counters().jobs_timed_out, 1);
    // The next job runs.
    s.run();
    assert_eq!(s.result(), s.expected());
}

/// Thousands of tasks take this machine longer than two milliseconds, whatever silicon's time is.
#[test]
fn a_patient_board_lets_computing_jobs_end_but_not_hanging_ones() {
    for (patient, want) in [(true, Ok(())), (false, Err(Errno::ETIMEDOUT))] {
        let timeout = Duration::from_millis(400);
        let job_limit = Duration::from_secs(100);
        let rig = Rig::new(Config { patient, timeout, job_limit, ..Config::default() });
        let s = Setup::new(&rig, SHAPE);
        let p = rig.words(&s.words);
        let tasks = vec![task(&p, 126); 20_000];
        rig.submit(&tasks, &[&s.input, &s.weights, &p], &[&s.output]).unwrap();
        // On a busy machine a near deadline can have passed before the call looks at it.
        let prep = || rig.node.prep_bo(s.output.handle(), Deadline::after_ms(2));
        let waited = std::iter::repeat_with(prep).find(|w| *w != Err(Errno::EBUSY));
        assert_eq!(waited, Some(want), "patient: {patient}");
        rig.wait(&s.output);
        assert_eq!(s.result(), s.expected());
        rig.board.inject(Fault::HangJob(1));
        rig.submit(&[task(&p, 126)], &[&s.input, &s.weights, &p], &[&s.output]).unwrap();
        let out = s.output.handle();
        assert_eq!(rig.node.prep_bo(out, Deadline::after_ms(60)), Err(Errno::ETIMEDOUT));
    }
}

#[test]
fn a_hang_occupies_its_core_until_the_timeout() {
    let timeout = Duration::from_millis(80);
    let rig = Rig::new(Config { timeout, ..quick() });
    let (s, t) = (Setup::new(&rig, SHAPE), Setup::new(&rig, SHAPE));
    let (p, q) = (rig.words(&s.words), rig.words(&t.words));
    rig.board.inject(Fault::HangTask { job: 0, task: 1 });
    let start = Instant::now();
    let tasks = [task(&p, 126), task(&q, 126), task(&p, 126)];
    let reads = [&s.input, &s.weights, &t.input, &t.weights, &p, &q];
    rig.submit(&tasks, &reads, &[&s.output, &t.output]).unwrap();
    let u = Setup::new(&rig, SHAPE);
    let r = rig.words(&u.words);
    rig.submit(&[task(&r, 126)], &[&u.input, &u.weights, &r], &[&u.output]).unwrap();
    rig.wait(&u.output);
    assert!(start.elapsed() >= timeout);
    rig.wait(&s.output);
    rig.wait(&t.output);
    assert_eq!((s.result(), u.result()), (s.expected(), u.expected()));
    assert!(t.untouched());
    let c = rig.board.counters();
    assert_eq!((c.tasks, c.jobs, c.jobs_timed_out), (2, 2, 1));
    let e = rig.last().unwrap();
    assert_eq!((e.rule, e.job, e.task), (Rule::Injected, Some(0), Some(1)));
}

#[test]
fn injected_faults() {
    let rig = Rig::new(quick());
    let s = Setup::new(&rig, SHAPE);
    let size = s.shape.out_bytes() as usize;
    let stored = |s: &Setup| s.bytes().iter().filter(|b| **b != SENTINEL).count();
    let again = |fault| {
        s.output.put(0, &vec![SENTINEL; size]);
        rig.node.fini_bo(s.output.handle()).unwrap();
        rig.board.clear_faults();
        rig.board.inject(fault);
        let before = rig.board.counters();
        s.run();
        rig.board.counters() - before
    };
    let n = || rig.board.next_job();
    let d = again(Fault::DropJob(n()));
    assert!(s.untouched());
    assert_eq!((d.jobs, d.jobs_dropped, d.tasks, d.jobs_timed_out), (1, 1, 0, 0));
    let d = again(Fault::RejectJob(n()));
    assert!(s.untouched());
    assert_eq!((d.jobs, d.jobs_dropped), (0, 1));
    let d = again(Fault::LoseInterrupt(n()));
    assert_eq!(s.result(), s.expected());
    assert_eq!((d.tasks, d.jobs_timed_out), (1, 1));
    let d = again(Fault::PartialTask { job: n(), task: 0, surfaces: 1 });
    assert_eq!((d.dma_write, d.tasks, d.jobs_timed_out), (256, 0, 1));
    assert!(stored(&s) > 200 && s.bytes()[256..].iter().all(|b| *b == SENTINEL));
    let d = again(Fault::ShortTask { job: n(), task: 0, surfaces: 3 });
    assert_eq!((d.dma_write, d.tasks, d.jobs_timed_out), (768, 1, 0));
    assert!(s.bytes()[768..].iter().all(|b| *b == SENTINEL));
    rig.board.inject(Fault::Refuse { call: Call::Open, errno: Errno::EPERM });
    assert!(rig.board.open().is_err());
    rig.board.clear_faults();
    assert!(rig.board.open().is_ok());

    let rig = Rig::new(Config {
        faults: vec![
            Fault::Fail { call: Call::CreateBo, n: 1, errno: Errno::ENOMEM },
            Fault::Fail { call: Call::Submit, n: 0, errno: Errno::ENOMEM },
        ],
        ..quick()
    });
    assert!(rig.node.create_bo(1).is_ok());
    assert_eq!(rig.node.create_bo(1).err(), Some(Errno::ENOMEM));
    assert!(rig.node.create_bo(1).is_ok());
    assert_eq!(rig.node.submit(&[]), Err(Errno::ENOMEM));
    assert_eq!(rig.node.submit(&[]), Ok(()));

    let rig = Rig::new(Config { faults: vec![Fault::RejectJob(0)], ..patched() });
    let s = Setup::new(&rig, SHAPE);
    let program = rig.words(&s.words);
    let refused = rig.submit(&[task(&program, 126)], &[], &[&s.output]);
    assert_eq!(refused, Err(Errno::EINVAL));
}

#[test]
fn coherence() {
    let rig = Rig::new(slow());
    let s = Setup::new(&rig, SHAPE);
    // Without FINI the device computes with what it had.
    s.input.put(0, &[0; 2048]);
    s.run();
    assert_eq!(s.result(), s.expected());
    // With it, zeros.
    rig.node.fini_bo(s.input.handle()).unwrap();
    let program = rig.words(&s.words);
    rig.submit(&[task(&program, 126)], &[&s.input, &s.weights, &program], &[&s.output]).unwrap();
    let scratch = rig.buf(4096);
    let flush = task(&program, 126);
    // In order on this file, so a job that ends later proves that the first has ended.
    let writes = [&scratch];
    rig.submit(&[flush], &[&s.input, &s.weights, &program], &writes).unwrap();
    rig.wait(&scratch);
    // Without PREP the CPU still sees the old result.
    assert_eq!(s.result(), s.expected());
    rig.wait(&s.output);
    assert!(s.result().iter().all(|x| *x == 0.0));
    // PREP copies even when its wait fails.
    let t = Setup::new(&rig, SHAPE);
    t.output.put(0, &[1; 16]);
    rig.board.inject(Fault::HangJob(rig.board.next_job()));
    rig.submit(&[task(&program, 126)], &[], &[&t.output]).unwrap();
    assert_eq!(rig.node.prep_bo(t.output.handle(), Deadline::POLL), Err(Errno::EBUSY));
    assert!(t.untouched());
    let before = rig.board.counters();
    rig.wait(&t.output);
    rig.node.fini_bo(t.output.handle()).unwrap();
    assert_eq!((rig.board.counters() - before).cpu_sync, 2 * 4096);
}

#[test]
fn closing_early_is_noticed_and_survived() {
    let profile = DriverProfile::V1_1;
    for (config, closed) in [(slow(), 1), (Config { profile, ..slow() }, 0)] {
        let board = SimBoard::new(config);
        let rig = Rig::on(&board);
        let s = Setup::new(&rig, SHAPE);
        board.inject(Fault::HangJob(0));
        let program = rig.words(&s.words);
        rig.submit(&[task(&program, 126)], &[&s.input], &[&s.output]).unwrap();
        drop((rig, s));
        assert_eq!(board.counters().closed_with_jobs_in_flight, closed);
        let noticed = board.explanations().iter().any(|e| e.rule == Rule::ClosedInFlight);
        assert_eq!(noticed, closed == 1);
        let rig = Rig::on(&board);
        let s = Setup::new(&rig, SHAPE);
        s.run();
        assert_eq!(s.result(), s.expected());
    }
}

#[test]
fn a_board_goes_away_with_a_hanging_job() {
    let board = SimBoard::new(Config { timeout: Duration::from_secs(3600), ..quick() });
    let rig = Rig::on(&board);
    let s = Setup::new(&rig, SHAPE);
    board.inject(Fault::HangJob(0));
    let program = rig.words(&s.words);
    rig.submit(&[task(&program, 126)], &[&s.input], &[&s.output]).unwrap();
    let start = Instant::now();
    drop((rig, s, program, board));
    assert!(start.elapsed() < Duration::from_secs(60));
}

#[test]
fn three_files_on_three_cores() {
    let board = SimBoard::new(quick());
    let setups: Vec<Setup> = (0..3).map(|_| Setup::new(&Rig::on(&board), SHAPE)).collect();
    for _ in 0..4 {
        std::thread::scope(|scope| {
            setups.iter().for_each(|s| drop(scope.spawn(|| s.run())));
        });
    }
    for s in &setups {
        assert_eq!(s.result(), s.expected());
    }
    let c = board.counters();
    assert_eq!(c.jobs_by_core, [4, 4, 4]);
    assert!(c.modelled_ns[0] > 0 && c.modelled_ns == [c.modelled_ns[0]; 3]);
    // The jobs of one file all run on one core.
    let board = SimBoard::new(quick());
    let s = Setup::new(&Rig::on(&board), SHAPE);
    (0..4).for_each(|_| s.run());
    assert_eq!(board.counters().jobs_by_core, [4, 0, 0]);
}

#[test]
fn cores_hang_apart_from_each_other() {
    let board = SimBoard::new(Config { timeout: Duration::from_secs(3600), ..quick() });
    let (a, b) = (Rig::on(&board), Rig::on(&board));
    let (s, t) = (Setup::new(&a, SHAPE), Setup::new(&b, SHAPE));
    board.inject(Fault::HangJob(0));
    let program = a.words(&s.words);
    a.submit(&[task(&program, 126)], &[&s.input], &[&s.output]).unwrap();
    t.run();
    assert_eq!(t.result(), t.expected());
}

#[test]
fn a_batched_flag_needs_a_driver_that_knows_it() {
    // Two complete programs without links: batched they hang, task by task they run.
    for (config, hangs) in [(quick(), 0), (patched(), 1)] {
        let rig = Rig::new(config);
        let (s, t) = (Setup::new(&rig, SHAPE), Setup::new(&rig, SHAPE));
        let (p, q) = (rig.words(&s.words), rig.words(&t.words));
        let tasks = [task(&p, 126), task(&q, 126)];
        let writes = [s.output.handle(), t.output.handle()];
        let job = JobRef { tasks: &tasks, reads: &[], writes: &writes, flags: JOB_BATCHED };
        rig.node.submit(&[job]).unwrap();
        rig.wait(&t.output);
        assert_eq!(rig.board.counters().jobs_timed_out, hangs);
        // One task is never batched.
        let job = JobRef { tasks: &tasks[1..], ..job };
        rig.node.submit(&[job]).unwrap();
        rig.wait(&t.output);
        assert_eq!(t.result(), t.expected());
    }
}

#[test]
fn counts_are_exact() {
    let rig = Rig::new(quick());
    let s = Setup::new(&rig, Shape { ew: Some(EW_ADD), ..SHAPE });
    let before = rig.board.counters();
    s.run();
    let d = rig.board.counters() - before;
    assert_eq!(d.macs, 16 * 64 * 32);
    assert_eq!((d.dma_read_feature, d.dma_read_weight), (16 * 64 * 2, 32 * 64 * 2));
    assert_eq!((d.dma_read_operand, d.dma_write), (16 * 32 * 2, 16 * 32 * 2));
    assert_eq!((d.dma_read_regcmd, d.tasks, d.kicks, d.jobs, d.submits), (1008, 1, 1, 1, 1));
    assert_eq!(d.jobs_by_core, [1, 0, 0]);
    let node: &dyn Node = &*rig.node;
    assert!(node.version().is_ok());
}
