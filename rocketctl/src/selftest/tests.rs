//! The command on simulated boards, right ones and such on which something goes wrong.

use super::findings::product;
use super::*;
use rocket_sim::{Config, Fault, SimBoard};

fn on(faults: &[&str], deadline: u64) -> Report {
    let faults: Vec<Fault> = faults.iter().map(|f| f.parse().unwrap()).collect();
    let timeout = Duration::from_millis(40);
    let board = SimBoard::new(Config { faults, timeout, patient: true, ..Config::default() });
    examine(Device::Sim(board), Duration::from_secs(deadline))
}

fn status(report: &Report, id: &str) -> Status {
    report.findings.iter().find(|f| f.id == id).unwrap().status
}

/// Every test has its line, in the order of the table, and text of at most 80 columns.
fn well_formed(report: &Report) {
    let ids: Vec<&str> = report.findings.iter().map(|f| f.id).collect();
    let tests: Vec<&str> = TESTS.iter().map(|t| t.id).collect();
    assert_eq!(ids, tests);
    let text = report.text(false, false);
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
}

#[test]
fn a_good_board_passes_every_test() {
    let report = on(&[], 300);
    well_formed(&report);
    let text = report.text(false, false);
    assert!(report.findings[1..].iter().all(|f| f.status == Status::Ok), "{text}");
    assert_eq!(report.exit, 0);
    assert!(report.verdict.contains("simulated"), "{}", report.verdict);
    // Each line of a product names its control.
    assert_eq!(report.findings.iter().filter(|f| f.title.contains("wrong operand")).count(), 13);
}

#[test]
fn a_board_that_does_not_open_is_one_finding() {
    let report = on(&["refuse:open:EACCES"], 60);
    well_formed(&report);
    assert_eq!(status(&report, BOARD), Status::Fail);
    assert!(report.findings[1..].iter().all(|f| f.because == Some(BOARD)));
    assert_eq!(report.exit, 1);
}

/// A job that is lost once is run again; that it was must not pass in silence.
#[test]
fn a_lost_job_is_told() {
    let report = on(&["drop-job:0"], 300);
    well_formed(&report);
    assert_eq!(status(&report, "selftest.fp16"), Status::Warn, "{}", report.text(false, false));
    assert_eq!(report.exit, 1);
}

/// A task that says it is done and stored a part only: no error from anybody, and a wrong result.
#[test]
fn a_wrong_result_is_seen() {
    let report = on(&["short-task:2:0:1"], 300);
    well_formed(&report);
    let fp16 = report.findings.iter().find(|f| f.id == "selftest.fp16").unwrap();
    assert!(fp16.status == Status::Fail && fp16.cause.contains("wrong"), "{fp16:?}");
    assert_eq!(status(&report, "selftest.int8"), Status::Ok);
}

/// The node goes away: what fails first is the finding, and the rest follows from it.
#[test]
fn a_board_that_goes_away_is_one_finding() {
    let report = on(&["vanish:40"], 300);
    well_formed(&report);
    let bad: Vec<_> = report.findings.iter().filter(|f| f.status == Status::Fail).collect();
    assert_eq!(bad.len(), 1, "{}", report.text(false, false));
    assert_eq!(report.findings.last().unwrap().because, Some(bad[0].id));
}

/// Lost for good: the outputs keep what was there before.
#[test]
fn jobs_that_never_run_fail() {
    let faults: Vec<String> = (0..200).map(|n| format!("drop-job:{n}")).collect();
    let report = on(&faults.iter().map(String::as_str).collect::<Vec<_>>(), 300);
    well_formed(&report);
    assert_eq!(status(&report, "selftest.fp16"), Status::Fail);
    assert!(report.verdict.contains("failed"), "{}", report.verdict);
}

/// A board without threads runs nothing, so nothing ends: the report comes all the same.
#[test]
fn what_never_ends_is_given_up() {
    let board = SimBoard::new(Config { stepped: true, patient: true, ..Config::default() });
    let report = examine(Device::Sim(board), Duration::from_secs(1));
    well_formed(&report);
    let bad: Vec<_> = report.findings.iter().filter(|f| f.status == Status::Fail).collect();
    assert_eq!(bad.len(), 1, "{}", report.text(false, false));
    assert!(bad[0].cause.contains("1 s"), "{bad:?}");
}

#[test]
fn a_single_core_is_no_fault_of_the_others() {
    let board = SimBoard::new(Config { cores: 1, patient: true, ..Config::default() });
    let report = examine(Device::Sim(board), Duration::from_secs(300));
    well_formed(&report);
    assert_eq!(status(&report, "selftest.core0"), Status::Ok);
    assert_eq!(status(&report, "selftest.core2"), Status::Note);
    assert_eq!(report.exit, 0);
}

#[test]
fn no_board_names_the_way_on() {
    let report = no_board(&Error::NoNode { looked: "there is no /dev/accel/accel* node".into() });
    well_formed(&report);
    let text = report.text(true, false);
    assert!(text.contains("selftest --sim") && text.contains("rocketctl doctor"), "{text}");
    assert_eq!(report.exit, 1);
}

/// What is wrong fails, and what would not have been seen is no pass.
#[test]
fn wrong_results_and_blunt_tests_do_not_pass() {
    let test = &TESTS[1];
    let done = |of_bound, control| {
        let judged = judge::Judged::Float { of_bound, control, elements: 4, unwritten: 0 };
        product(test, Ok(Done { judged, retries: 0 })).status
    };
    assert_eq!(done(0.5, 100.0), Status::Ok);
    assert_eq!(done(1.5, 100.0), Status::Fail);
    assert_eq!(done(f64::NAN, 100.0), Status::Fail);
    assert_eq!(done(0.5, 2.0), Status::Unknown);
}
