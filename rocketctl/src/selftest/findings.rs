//! What each test comes to.

use super::judge::Done;
use super::{CORES, Run, TESTS, Test, cores};
use crate::doctor::finding::Finding;
use crate::npu::{BOARD, Npu as Device};
use rocket_runtime::Result as NpuResult;
use rocket_runtime::matmul::Npu;
use std::sync::mpsc::RecvTimeoutError;
use std::time::Duration;

/// The cores' findings are several.
pub fn skipped(test: &Test, because: &'static str) -> Vec<Finding> {
    match test.id == CORES[0] {
        true => CORES.map(|id| Finding::skipped(id, because)).into(),
        false => vec![Finding::skipped(test.id, because)],
    }
}

pub fn never_ended(test: &Test, why: RecvTimeoutError, deadline: Duration) -> Finding {
    let cause = match why {
        RecvTimeoutError::Timeout => format!("It did not end within {} s.", deadline.as_secs()),
        RecvTimeoutError::Disconnected => "It ended early: a defect of this program.".to_owned(),
    };
    failed(test, &cause)
}

fn failed(test: &Test, cause: &str) -> Finding {
    Finding::fail(test.id, test.title).cause(cause).fix(
        "rocketctl doctor",
        "rocketctl selftest",
        "nothing was changed",
    )
}

/// What one test finds; the cores' are several.
pub fn findings(test: &Test, device: &Device, npu: &NpuResult<Npu>) -> Vec<Finding> {
    let npu = match npu {
        Ok(npu) => npu,
        Err(e) if test.id == BOARD => return vec![failed(test, &e.to_string())],
        Err(_) => return skipped(test, BOARD),
    };
    match test.run {
        Run::Open => vec![opened(test, device, npu)],
        Run::Product(run) => vec![product(test, run(npu))],
        Run::InFlight => vec![in_flight(test, cores::in_flight(device))],
        Run::Cores => each_core(device, cores::rounds(device)),
        Run::Rules => vec![rules(test, device)],
    }
}

fn opened(test: &Test, device: &Device, npu: &Npu) -> Finding {
    match device.sim() {
        None => Finding::ok(test.id, npu.board()),
        Some(_) => Finding::note(test.id, npu.board())
            .cause("Simulated: what follows says nothing of the hardware of this machine."),
    }
}

/// An answer in words: right, right at the second try, wrong, or a test that could not have failed.
fn judged(test: &Test, done: &Done, more: &str) -> Finding {
    let (judged, words) = (&done.judged, done.judged.words());
    match (judged.is_right(), judged.tells(), done.retries) {
        (true, true, 0) => Finding::ok(test.id, format!("{}: {words}{more}", test.title)),
        (true, true, n) => {
            Finding::warn(test.id, format!("{}: right, but not at once", test.title))
                .cause(format!(
                    "{} lost and run again: the NPU hangs, or its interrupts get lost.",
                    jobs(n)
                ))
                .fix(
                    "rocketctl doctor --only kernel.log",
                    "rocketctl selftest",
                    "nothing was changed",
                )
        }
        (true, false, _) => Finding::unknown(
            test.id,
            test.title,
            format!("the control is not far off, so the test proves nothing ({words})"),
        ),
        (false, _, _) => failed(test, &format!("The result is wrong: {words}.")),
    }
}

pub fn product(test: &Test, done: NpuResult<Done>) -> Finding {
    match done {
        Ok(done) => judged(test, &done, ""),
        Err(e) => failed(test, &format!("{e}.")),
    }
}

fn in_flight(test: &Test, done: NpuResult<cores::InFlight>) -> Finding {
    match done {
        Ok(f) if f.done.judged.is_right() && f.jobs < 2 => {
            Finding::unknown(test.id, test.title, "the product was cut into one job only")
        }
        Ok(f) => judged(test, &f.done, &format!("; {} jobs, SUBMITs: {}", f.jobs, f.submits)),
        Err(e) => failed(test, &format!("{e}.")),
    }
}

/// A finding for each core that a board may have.
fn each_core(device: &Device, done: NpuResult<cores::Rounds>) -> Vec<Finding> {
    let expected = device.sim().map_or(device.board().profile().cores, |s| s.config().cores);
    let tests = TESTS.iter().filter(|t| CORES.contains(&t.id));
    let each = |(i, test): (usize, &Test)| {
        let rounds = match &done {
            Ok(rounds) => rounds,
            Err(e) => return failed(test, &format!("{e}.")),
        };
        if !rounds.done.judged.passed() || rounds.done.retries > 0 {
            return judged(test, &rounds.done, "");
        }
        let cores = match &rounds.cores {
            Ok(cores) => cores,
            Err(why) => return Finding::unknown(test.id, test.title, why.as_str()),
        };
        match cores.get(i) {
            _ if i >= expected => Finding::note(test.id, "this board has no such core"),
            None => {
                failed(test, "The driver does not have this core: rocketctl explain kernel.probe")
            }
            Some(c) if c.jobs == 0 => Finding::unknown(
                test.id,
                format!("{} took no job", c.name),
                "the driver gave it none in all rounds",
            ),
            Some(c) => Finding::ok(
                test.id,
                format!("{}: took {}, all results right", c.name, jobs(c.jobs)),
            ),
        }
    };
    tests.enumerate().map(each).collect()
}

fn jobs(n: u64) -> String {
    if n == 1 { "1 job".to_owned() } else { format!("{n} jobs") }
}

fn rules(test: &Test, device: &Device) -> Finding {
    let Some(sim) = device.sim() else {
        return Finding::note(test.id, "a real board does not tell which rule was broken");
    };
    let told = sim.explanations();
    let broken: Vec<String> = told
        .iter()
        .filter(|e| e.rule.class() != rocket_sim::Class::Note)
        .map(|e| e.to_string())
        .collect();
    match broken.first() {
        None => Finding::ok(test.id, "no rule of the hardware or the driver was broken"),
        Some(first) => failed(test, &format!("{} broken rules; the first: {first}", broken.len())),
    }
}
