//! Products that share an activation run together: the same numbers in fewer calls.

use crate::{Setup, gguf, macs, run};
use serde_json::Value;

/// A prefill of 256 tokens with one setting: what the host printed and the plugin's report.
fn prefill(s: &Setup, no_fuse: &str) -> (String, Value) {
    let (mut c, report) = s.on_npu("llama-completion");
    c.env("ROCKET_NO_FUSE", no_fuse).arg("-m").arg(&s.model).arg("-f").arg(s.prompt_of(256));
    c.args(["-n", "8", "--temp", "0", "-no-cnv", "--no-warmup", "-t", "2", "-nr"]);
    let out = run(&mut c);
    (String::from_utf8_lossy(&out.stdout).into_owned(), macs::read(&report))
}

#[test]
fn host_products_of_one_activation_run_together() {
    let s = Setup::named();
    let (text, together) = prefill(&s, "0");
    let (same, singly) = prefill(&s, "1");
    assert_eq!(text, same, "the same numbers, so the same words");
    let expected = macs::expected(&gguf::read(&s.model), 256, 1);
    let shares = [&together, &singly].map(|r| macs::share(r, &expected));
    assert_eq!(shares, [1.0; 2]);
    let count = |r: &Value, what: &str| r["board"][what].as_u64().expect("a count");
    let submits = [&together, &singly].map(|r| count(r, "submits"));
    // V and K, gate and up: 5 of 7 products of a layer are left.
    let ratio = submits[0] as f64 / submits[1] as f64;
    println!("{} SUBMITs together, {} singly", submits[0], submits[1]);
    assert!(ratio <= 0.75, "{ratio}");
    assert_eq!(count(&together, "macs"), count(&singly, "macs"));
    assert!(count(&together, "tasks") <= count(&singly, "tasks"));
}
