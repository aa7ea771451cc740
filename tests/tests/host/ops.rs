//! The host's own operator tests, with our backend against its CPU.

use crate::{Setup, run};

/// Every MUL_MAT that `test-backend-ops` knows and we accept, down to 8 rows.
#[test]
fn host_operator_tests_pass_on_the_npu() {
    let s = Setup::named();
    let (mut c, report) = s.on_npu("test-backend-ops");
    c.env("ROCKET_MIN_M", "8");
    let out = run(c.args(["test", "-o", "MUL_MAT", "-b", "ROCKET"]));
    let said = String::from_utf8_lossy(&out.stdout);
    let verdict = said.lines().find(|l| l.contains("tests passed")).unwrap_or_default();
    println!("{}", verdict.trim());
    let (passed, all) = verdict
        .trim()
        .split_once(' ')
        .and_then(|(counts, _)| counts.split_once('/'))
        .and_then(|(a, b)| Some((a.parse::<u32>().ok()?, b.parse::<u32>().ok()?)))
        .unwrap_or_else(|| panic!("no verdict in {said}"));
    assert!(passed == all && all >= 20, "{verdict}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).expect("report")).expect("JSON");
    // They passed on the board, and not because the CPU redid them.
    let on_npu = report["routes"]["fp16"].as_u64().unwrap_or_default();
    assert!(on_npu >= u64::from(all), "{}", report["routes"]);
    assert!(report["redos"].as_object().is_none_or(|r| r.is_empty()), "{}", report["redos"]);
}
