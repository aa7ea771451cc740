//! Stock driver, five and more K steps: whatever happens to any one job, the numbers are right
//! or there is an error.

use crate::Case;
use rocket_runtime::device::Board;
use rocket_runtime::matmul::Summation;
use rocket_runtime::matmul::{Npu, Options};
use rocket_runtime::plan::{Request, Sequence, Shape};
use rocket_sim::{Call, Config, DriverProfile, Fault};
use rocket_tests::TestBoard;
use std::time::Duration;

/// Several tiles a K step, several steps a job at the time below.
const SHAPE: Shape = Shape { m: 300, k: 2560, n: 272 };
/// Short, so that a product is many jobs.
const JOB_TIME: Duration = Duration::from_millis(1);

/// An Npu of short jobs.
fn open(board: &TestBoard, workers: usize) -> Npu {
    let options =
        Options { workers, drain_on_signals: false, job_time: JOB_TIME, ..Options::default() };
    Npu::open(board, options).expect("the simulated board opens")
}

fn board() -> TestBoard {
    TestBoard::new(Config { timeout: Duration::from_millis(20), ..Config::default() })
}

/// Tasks of each job.
fn jobs_of(summation: Summation) -> Vec<usize> {
    let job_ns = JOB_TIME.as_nanos() as u64;
    tasks_of(Request { streamed: true, job_ns, ..Request::new(summation.dtype(), SHAPE) })
}

fn tasks_of(request: Request) -> Vec<usize> {
    Sequence::new(request).expect("plans").jobs().map(|j| j.tiles.len()).collect()
}

/// Runs once with `fault` at each job in turn, and once with it at two jobs, so that the retry
/// is hit as well.
fn each_job(summation: Summation, fault: impl Fn(u64) -> Fault) -> (usize, usize) {
    each_job_and_task(summation, |job, _| fault(job))
}

/// As [`each_job`]; the fault is told how many tasks its job has.
fn each_job_and_task(summation: Summation, fault: impl Fn(u64, usize) -> Fault) -> (usize, usize) {
    let case = Case::integers(SHAPE, 3);
    let want = case.expected();
    let tasks = jobs_of(summation);
    let jobs = tasks.len() as u64;
    let fault = |n: u64| fault(n, tasks[(n % jobs) as usize]);
    let (mut right, mut errors) = (0, 0);
    for n in 0..jobs {
        for again in [None, Some(n + jobs), Some(2 * jobs - 1)] {
            let board = board();
            let npu = open(&board, 1);
            board.inject(fault(n));
            if let Some(second) = again {
                board.inject(fault(second));
            }
            match case.run(&npu, false, summation) {
                Ok((c, stats)) => {
                    assert!(
                        c.iter().zip(&want).all(|(ours, want)| f64::from(*ours) == *want),
                        "wrong numbers after {:?}",
                        fault(n)
                    );
                    assert!(stats.retries > 0, "{:?} was not even noticed", fault(n));
                    right += 1;
                }
                Err(e) => {
                    assert!(e.to_string().contains("job"), "{e}");
                    errors += 1;
                }
            }
            drop(npu);
            let after = board.counters();
            assert_eq!((after.files_closed, after.closed_with_jobs_in_flight), (1, 0));
        }
    }
    println!(
        "{jobs} jobs: {right} runs right after a retry, {errors} refused in words, none wrong"
    );
    (right, errors)
}

#[test]
fn the_gemm_has_enough_steps_to_hide_a_lost_one() {
    assert!(jobs_of(Summation::OnChip).len() >= 5);
    assert!(jobs_of(Summation::Host).len() >= 5);
}

#[test]
fn dropped_jobs_never_give_wrong_numbers() {
    let (right, errors) = each_job(Summation::OnChip, Fault::DropJob);
    assert!(right > 0 && errors > 0);
    each_job(Summation::Host, Fault::DropJob);
}

#[test]
fn rejected_jobs_never_give_wrong_numbers() {
    let (right, errors) = each_job(Summation::OnChip, Fault::RejectJob);
    assert!(right > 0 && errors > 0);
    each_job(Summation::Host, Fault::RejectJob);
}

#[test]
fn timed_out_jobs_never_give_wrong_numbers() {
    let (right, errors) = each_job(Summation::OnChip, Fault::HangJob);
    assert!(right > 0 && errors > 0);
    each_job(Summation::Host, Fault::HangJob);
}

#[test]
fn jobs_that_stop_half_way_never_give_wrong_numbers() {
    for task in [0, 1, 2] {
        each_job_and_task(Summation::OnChip, |job, tasks| Fault::HangTask {
            job,
            task: task.min(tasks - 1),
        });
    }
    // In the last task, at every surface: 2 a group of 16 columns.
    for surfaces in 0..2 {
        each_job_and_task(Summation::OnChip, |job, tasks| Fault::PartialTask {
            job,
            task: tasks - 1,
            surfaces,
        });
    }
}

/// Dropping everything while jobs run must wait for them first (kernel-and-uapi B.6 U1), also
/// when a submit failed on the way.
#[test]
fn files_are_closed_only_when_their_jobs_are_done() {
    let board = board();
    let npu = open(&board, 3);
    board.inject(Fault::Fail { call: Call::Submit, n: 1, errno: nix::errno::Errno::ENOMEM });
    board.inject(Fault::HangJob(2));
    let failed = Case::integers(SHAPE, 4).run(&npu, false, Summation::OnChip);
    assert!(failed.is_err(), "a submit that fails is an error");
    drop(npu);
    let after = board.counters();
    assert_eq!((after.files_closed, after.closed_with_jobs_in_flight), (3, 0));

    // A driver that refuses a job in the middle of a call has queued those before it.
    let profile = DriverProfile::V1_1;
    let board = TestBoard::new(Config { profile, ..board.config().clone() });
    let npu = open(&board, 1);
    board.inject(Fault::HangJob(1));
    board.inject(Fault::RejectJob(3));
    let failed = Case::integers(SHAPE, 4).run(&npu, false, Summation::OnChip);
    assert!(failed.is_err(), "a job that is refused is an error");
    drop(npu);
    let c = board.counters();
    assert_eq!((c.files_closed, c.closed_with_jobs_in_flight), (1, 0));
    let job_ns = JOB_TIME.as_nanos() as u64;
    let fp16 = Request::new(Summation::OnChip.dtype(), SHAPE);
    let tasks = tasks_of(Request { streamed: true, chained: true, job_ns, ..fp16 });
    let ran = (tasks[0] + tasks[2]) as u64;
    assert_eq!((c.jobs, c.tasks, c.jobs_timed_out), (3, ran, 1), "jobs outlived their file");
}

/// After faults, the same Npu goes on with right numbers.
#[test]
fn an_npu_survives_lost_jobs() {
    let board = board();
    let npu = open(&board, 2);
    let case = Case::integers(SHAPE, 5);
    for _ in 0..3 {
        board.inject(Fault::HangJob(board.next_job() + 1));
        let _ = case.run(&npu, false, Summation::OnChip);
        board.clear_faults();
        let (c, _) = case.run(&npu, false, Summation::OnChip).expect("runs");
        assert!(c.iter().zip(case.expected()).all(|(a, b)| f64::from(*a) == b));
    }
}

#[test]
fn a_board_that_cannot_be_opened_says_so() {
    let board = board();
    board.inject(Fault::Refuse { call: Call::Open, errno: nix::errno::Errno::EPERM });
    let words = Npu::open(&board as &dyn Board, Default::default()).unwrap_err().to_string();
    assert!(words.contains("open"), "{words}");
}
