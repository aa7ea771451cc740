//! Each job of an attention is lost once, and each call of the driver fails once: the result is
//! right, or an error says so in words, and the next attention is right.

use crate::case::{Case, Numbers, Sees, Wrong};
use crate::{PLAIN, deviation, run};
use rocket_runtime::matmul::{Npu, Options};
use rocket_runtime::ops::attention::{Scratch, Shape};
use rocket_sim::{Call, Config, DriverProfile, Errno, Fault};
use rocket_tests::TestBoard;
use std::time::Duration;

/// Two KV heads, several parts.
fn numbers() -> Numbers {
    let shape =
        Shape { tokens: 10, n_kv: 40, heads: 4, kv_heads: 2, key: 32, value: 32, streams: 1 };
    Case { shape, sees: Sees::Causal, ..PLAIN }.numbers(8)
}

fn board(profile: DriverProfile) -> TestBoard {
    TestBoard::new(Config { profile, timeout: Duration::from_millis(20), ..Config::default() })
}

fn open(board: &TestBoard) -> rocket_runtime::Result<Npu> {
    let options = Options { workers: 2, drain_on_signals: false, ..Options::default() };
    Npu::open(board, options)
}

/// Whether it ran; that it is right if it did.
fn attempt(npu: &Npu, numbers: &Numbers) -> rocket_runtime::Result<u64> {
    let (out, outcome) = run(npu, numbers, &Scratch::default())?;
    let (_, units) = deviation(numbers, &out, Wrong::Nothing);
    assert!(units <= 1.0 && outcome.trouble.is_none(), "wrong numbers: {units} of the bound");
    assert!(deviation(numbers, &out, Wrong::Mask).1 > 5.0, "the control");
    Ok(outcome.stats.retries)
}

#[test]
fn any_call_may_fail() {
    let numbers = numbers();
    let (mut right, mut errors) = (0, 0);
    for profile in [DriverProfile::Stock, DriverProfile::Full] {
        for call in Call::ALL {
            for n in 0.. {
                let board = board(profile);
                board.inject(Fault::Fail { call, n, errno: Errno::ENOMEM });
                let npu = open(&board);
                match npu
                    .as_ref()
                    .map_err(ToString::to_string)
                    .and_then(|npu| attempt(npu, &numbers).map_err(|e| e.to_string()))
                {
                    Ok(_) => right += 1,
                    Err(words) => {
                        assert!(words.contains(' '), "{call:?} {n}: {words:?}");
                        errors += 1;
                    }
                }
                let met = board.counters().faults;
                board.clear_faults();
                let npu = npu.or_else(|_| open(&board)).expect("opens");
                attempt(&npu, &numbers).expect("goes on");
                drop(npu);
                let left = board.alive();
                assert_eq!((left.files, left.buffers, left.jobs), (0, 0, 0), "{call:?} {n}");
                if met == 0 {
                    break;
                }
            }
        }
    }
    println!("{right} right, {errors} refused in words, none wrong");
    assert!(right > 10 && errors > 40);
}

#[test]
fn any_job_may_be_lost() {
    let numbers = numbers();
    let jobs = {
        let board = board(DriverProfile::Stock);
        attempt(&open(&board).expect("opens"), &numbers).expect("runs");
        board.counters().jobs
    };
    assert!(jobs >= 4, "{jobs}");
    let mut retried = 0;
    for kind in [Fault::DropJob, Fault::HangJob, Fault::RejectJob] {
        for n in 0..jobs {
            let board = board(DriverProfile::Stock);
            board.inject(kind(n));
            match attempt(&open(&board).expect("opens"), &numbers) {
                Ok(retries) => retried += retries,
                Err(e) => panic!("{:?} was not repaired: {e}", kind(n)),
            }
        }
    }
    println!("{jobs} jobs, {retried} retries, none wrong");
    assert!(retried >= 2 * jobs);
}
