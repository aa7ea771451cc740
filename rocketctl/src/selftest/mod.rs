//! `rocketctl selftest`: does the NPU compute rightly? Every number format and kind of call, against sums made
//! here, with a control beside each that shows the test can fail.

mod attention;
mod cases;
pub mod cores;
pub mod draw;
mod findings;
mod judge;
#[cfg(test)]
mod tests;

use crate::doctor::finding::{Finding, Report, Status};
use crate::npu::{BOARD, Choice, Npu as Device, missing};
use crate::ui::{Globals, print, print_json};
use anyhow::Result;
use clap::Args;
use findings::{findings, never_ended, skipped};
use judge::Done;
use rocket_runtime::matmul::{Npu, Options};
use rocket_runtime::{Error, Result as NpuResult};
use std::process::ExitCode;
use std::sync::Arc;
use std::sync::mpsc::channel;
use std::time::Duration;

/// See [`run`].
#[derive(Debug, Args)]
pub struct Arguments {
    #[command(flatten)]
    choice: Choice,
    /// Seconds that one test may take.
    #[arg(long, value_name = "SECONDS", default_value_t = 120,
          value_parser = clap::value_parser!(u64).range(1..=86_400))]
    deadline: u64,
}

/// One test.
#[derive(Debug)]
pub struct Test {
    /// Stable, dotted.
    pub id: &'static str,
    title: &'static str,
    /// For `rocketctl explain`.
    pub explain: &'static str,
    run: Run,
}

#[derive(Debug, Clone, Copy)]
enum Run {
    /// The board was opened before.
    Open,
    Product(fn(&Npu) -> NpuResult<Done>),
    InFlight,
    /// One finding a core, of which this test's id is the first's.
    Cores,
    /// A simulated board's own rules.
    Rules,
}

/// A core's finding; the RK3588 has three.
const CORES: [&str; 3] = ["selftest.core0", "selftest.core1", "selftest.core2"];
const RULES: &str = "selftest.rules";

const CORE: &str = "As many files as there are cores submit at the same time until each core took a job: the driver \
                    chooses the core. Which took one is read from the interrupt counts; where these tell nothing it is \
                    unknown.";

macro_rules! product {
    ($id:literal, $title:literal, $run:expr, $explain:literal) => {
        Test { id: $id, title: $title, explain: $explain, run: Run::Product($run) }
    };
}

/// Every test, in the order of running.
#[rustfmt::skip]
pub const TESTS: &[Test] = &[
    Test { id: BOARD, title: "the board", run: Run::Open,
        explain: "Whether there is an NPU that this user can open, and which." },
    product!("selftest.fp16", "fp16, sums by the host", cases::fp16,
        "A product in fp16 with resident weights; each K step is delivered in fp32 and added up by the host."),
    product!("selftest.fp16-chip", "fp16, sums on chip", cases::fp16_on_chip,
        "The same with K steps added up on the NPU, where each sum is rounded to fp16: the bound is wider."),
    product!("selftest.fp16-streamed", "fp16, weights packed for the call", cases::fp16_streamed,
        "The same with weights that are packed for this call alone, as those that have no room are."),
    product!("selftest.fp16-together", "fp16, two weights, one activation", cases::fp16_together,
        "Two products of one activation in one submission, as Q, K and V of a model run."),
    product!("selftest.bf16", "bf16", cases::bfloat16,
        "A product in bf16, whose range is that of fp32."),
    product!("selftest.tf32", "tf32", cases::tf32,
        "A product in tf32: fp32 operands of which ten bits behind the point are multiplied."),
    product!("selftest.int8", "int8", cases::int8,
        "A product of 8-bit integers, which must be equal to the sum in 64-bit integers."),
    product!("selftest.int8-scaled", "int8, a scale for each group of channels", cases::int8_scaled,
        "The same with a scale for each 128 channels of either operand, as quantized models have them."),
    product!("selftest.int4", "int4", cases::int4,
        "A product of 4-bit integers, which must be equal."),
    product!("selftest.int4-scaled", "int4, a scale for each group of channels", cases::int4_scaled,
        "The same with a scale for each 128 channels of either operand."),
    product!("selftest.int16", "16-bit integers, by bytes", cases::int16,
        "A product of 16-bit integers, made of four 8-bit ones, which must be equal."),
    product!("selftest.attention", "attention", attention::run,
        "Flash attention with a causal mask and heads that share K and V; the controls are a mask left out, another \
         scale and another head's K and V."),
    Test { id: "selftest.in-flight", title: "jobs in flight together", run: Run::InFlight,
        explain: "Several jobs of one file in one submission, and jobs of two files at the same time: each must have \
                  its own results." },
    Test { id: CORES[0], title: "NPU core 0", run: Run::Cores, explain: CORE },
    Test { id: CORES[1], title: "NPU core 1", run: Run::Cores, explain: CORE },
    Test { id: CORES[2], title: "NPU core 2", run: Run::Cores, explain: CORE },
    Test { id: RULES, title: "rules of the hardware", run: Run::Rules,
        explain: "Whether a program or a call broke a rule that the simulated board knows. A real one does not tell." },
];

/// Runs the tests.
///
/// # Errors
/// Options that do not belong together.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let report = match arguments.choice.open(globals)? {
        Ok(device) => examine(device, Duration::from_secs(arguments.deadline)),
        Err(why) => no_board(&why),
    };
    match globals.json {
        true => print_json(&report)?,
        false => print(&report.text(globals.quiet, globals.colored()))?,
    }
    Ok(ExitCode::from(report.exit))
}

/// There is nothing to test.
fn no_board(why: &Error) -> Report {
    let missing = missing(why, "selftest");
    let skip = |t: &Test| Finding::skipped(t.id, BOARD);
    let findings = missing.findings.iter().cloned().chain(TESTS[1..].iter().map(skip)).collect();
    Report { verdict: "nothing was tested".into(), ..Report::new(findings, &[BOARD]) }
}

/// All tests, each within the time.
fn examine(device: Device, deadline: Duration) -> Report {
    let described = device.board().describe();
    let device = Arc::new(device);
    let (send, receive) = channel::<Vec<Finding>>();
    let tested = Arc::clone(&device);
    // Not joined: a call that never returns must not keep the report.
    let started = std::thread::Builder::new()
        .name("selftest".into())
        .spawn(move || each(&tested, |found| send.send(found).is_ok()));
    let mut findings: Vec<Finding> = Vec::new();
    if let Err(e) = started {
        findings.push(Finding::unknown(
            BOARD,
            "the tests",
            format!("no thread can be started: {e}"),
        ));
    }
    while findings.len() < TESTS.len() {
        match receive.recv_timeout(deadline) {
            Ok(more) => findings.extend(more),
            Err(e) => {
                let test = &TESTS[findings.len()];
                findings.push(never_ended(test, e, deadline));
                let rest = &TESTS[findings.len()..];
                findings.extend(rest.iter().map(|t| Finding::skipped(t.id, test.id)));
            }
        }
    }
    let bad = findings.iter().filter(|f| f.needs_action()).count();
    let report = Report::new(findings, &[BOARD]);
    let verdict = match (bad, report.exit) {
        (0, 0) => format!("every test passed ({described})"),
        (0, _) => format!("not everything could be tested ({described})"),
        (n, _) => format!("{n} of {} tests failed ({described})", TESTS.len()),
    };
    Report { verdict, ..report }
}

/// Runs the tests one after another, until nobody takes their findings.
fn each(device: &Device, mut tell: impl FnMut(Vec<Finding>) -> bool) {
    let npu = Npu::open(device.board(), Options::default());
    let mut gone: Option<&'static str> = None;
    for test in TESTS.iter().filter(|t| t.id != CORES[1] && t.id != CORES[2]) {
        let found = match gone {
            Some(root) => skipped(test, root),
            None => findings(test, device, &npu),
        };
        // A node that went away fails every test after: that is one cause.
        let failed = found.iter().find(|f| f.status == Status::Fail).map(|f| f.id);
        if gone.is_none() && npu.is_ok() && failed.is_some() && device.board().open().is_err() {
            gone = failed;
        }
        if !tell(found) {
            return;
        }
    }
}
