//! The host's own operator tests, with our backend against its CPU.

use crate::{Setup, run};

/// Cases that a host of this version has within our rules. Another version's list is another one.
const SUPPORTED: (&str, u32) = ("ggml 0.27.0", 554);

/// Every MUL_MAT that `test-backend-ops` knows and we accept, down to 8 rows.
#[test]
fn host_operator_tests_pass_on_the_npu() {
    let s = Setup::named();
    let (mut c, report) = s.on_npu("test-backend-ops");
    c.env("ROCKET_MIN_M", "8").env("ROCKET_MIN_M_QUANT", "8");
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
    assert!(passed == all && all > 0, "{verdict}");
    let report: serde_json::Value =
        serde_json::from_slice(&std::fs::read(report).expect("report")).expect("JSON");
    let host = report["host"].as_str().unwrap_or_default();
    match host.starts_with(SUPPORTED.0) {
        true => assert_eq!(all, SUPPORTED.1, "{host}"),
        false => println!("{host}: {all} supported; {} has {}", SUPPORTED.0, SUPPORTED.1),
    }
    // They passed on the board, and not because the CPU redid them.
    let on_npu = report["routes"]["fp16"].as_u64().unwrap_or_default();
    assert!(on_npu >= u64::from(all), "{}", report["routes"]);
    assert!(report["redos"].as_object().is_none_or(|r| r.is_empty()), "{}", report["redos"]);
}
