//! How much of a prefill runs on the NPU. The expectation comes from the model's header and the
//! ubatch split, and is checked against the host's own list of operations; what ran comes from
//! the registers the simulated board executed. The plugin's counts are in neither.

use crate::gguf::{self, Header};
use crate::{Setup, run};
use serde_json::Value;
use std::collections::BTreeMap;

/// One product: K, N, rows.
pub type Product = (usize, usize, usize);

/// The weight products of one ubatch: every matrix of every block over all tokens, except that
/// the last block's feed-forward part and the head see only the rows whose logits are wanted.
pub fn expected(model: &Header, tokens: usize, wanted: usize) -> Vec<Product> {
    let matrices = model.tensors.iter().filter(|t| t.shape.len() == 2);
    let last = format!("blk.{}.ffn_", model.blocks - 1);
    let mut products: Vec<Product> = matrices
        .map(|t| {
            let cut = t.name.starts_with(&last) || t.name.starts_with("token_embd");
            (t.shape[0], t.shape[1], if cut { wanted } else { tokens })
        })
        .collect();
    // The embedding is looked up, and multiplied with once more as the head (they are tied).
    assert!(!model.tensors.iter().any(|t| t.name.starts_with("output.")));
    products.sort_unstable();
    products
}

/// The host's own list: `MUL_MAT(x.weight{K, N, 1, 1}, y{K, M, ...})`.
fn listed(log: &str) -> Vec<Product> {
    let mut products: Vec<Product> = log
        .lines()
        .filter_map(|l| l.split_once(" MUL_MAT("))
        .filter_map(|(_, rest)| {
            let mut braces = rest.split('{').skip(1);
            let dims = |s: &str| -> Option<Vec<usize>> {
                s.split('}').next()?.split(", ").map(|n| n.trim().parse().ok()).collect()
            };
            let name = rest.split('{').next()?;
            let (w, a) = (dims(braces.next()?)?, dims(braces.next()?)?);
            name.ends_with(".weight").then(|| (w[0], w[1], a[1..].iter().product()))
        })
        .collect();
    products.sort_unstable();
    products
}

fn macs(products: &[Product]) -> u64 {
    products.iter().map(|&(k, n, m)| (k * n * m) as u64).sum()
}

/// The plugin's report.
pub fn read(path: &std::path::Path) -> Value {
    serde_json::from_slice(&std::fs::read(path).expect("the plugin wrote a report")).expect("JSON")
}

/// The board's part of the products of 32 rows or more, by the registers that it executed, after
/// checking that the CPU redid nothing.
pub fn share(report: &Value, expected: &[Product]) -> f64 {
    let number = |v: &Value| v.as_u64().unwrap_or_else(|| panic!("{v} is not a count"));
    assert!(number(&report["routes"]["fp16"]) > 0, "routes: {}", report["routes"]);
    assert!(report["redos"].as_object().is_some_and(|r| r.is_empty()), "{}", report["redos"]);
    assert_eq!(number(&report["ops_dropped"]), 0);
    let ops = report["ops"].as_array().expect("ops").iter().map(|op| &op["engine"]);
    let useful: u64 = ops.map(|e| number(&e["board"]["macs"]) - number(&e["padding_macs"])).sum();
    let wanted: Vec<Product> = expected.iter().filter(|p| p.2 >= 32).copied().collect();
    useful as f64 / macs(&wanted) as f64
}

/// Every product of 32 rows or more ran on the board, and executed exactly its own
/// multiply-accumulates beside the padding that the plan states. Returns the board's share.
fn check(report: &Value, expected: &[Product]) -> f64 {
    let number = |v: &Value| v.as_u64().unwrap_or_else(|| panic!("{v} is not a count"));
    let mut ran: BTreeMap<Product, usize> = BTreeMap::new();
    let mut on_board = 0;
    for op in report["ops"].as_array().expect("ops") {
        let product = ["k", "n", "m"].map(|d| number(&op[d]) as usize);
        let executed = number(&op["engine"]["board"]["macs"]);
        let useful = executed - number(&op["engine"]["padding_macs"]);
        let [k, n, m] = product;
        assert_eq!(useful, (k * n * m) as u64, "{op}");
        on_board += useful;
        *ran.entry((k, n, m)).or_default() += 1;
    }
    let mut wanted: BTreeMap<Product, usize> = BTreeMap::new();
    for product in expected.iter().filter(|p| p.2 >= 32) {
        *wanted.entry(*product).or_default() += 1;
    }
    assert_eq!(ran, wanted, "products that ran and products that were to run");
    // The board's total holds nothing that no op accounts for.
    let padding: u64 = report["ops"]
        .as_array()
        .expect("ops")
        .iter()
        .map(|op| number(&op["engine"]["padding_macs"]))
        .sum();
    assert_eq!(number(&report["board"]["macs"]), on_board + padding);
    on_board as f64 / macs(expected) as f64
}

#[test]
fn host_prefill_macs_are_on_the_npu_and_decode_submits_nothing() {
    let s = Setup::named();
    let model = gguf::read(&s.model);
    let prompt = s.prompt_of(512);
    let expected = expected(&model, 512, 1);

    let mut c = s.command("llama-eval-callback");
    let out = run(c.arg("-m").arg(&s.model).arg("-f").arg(&prompt).args(["-n", "1", "-b", "512"]));
    let log = [out.stdout, out.stderr].map(|b| String::from_utf8_lossy(&b).into_owned()).concat();
    assert_eq!(listed(&log), expected, "header and host disagree");

    let submits = [1, 16].map(|decoded| {
        let (mut c, report) = s.on_npu("llama-completion");
        c.arg("-m").arg(&s.model).arg("-f").arg(&prompt);
        run(c.args(["-n", &decoded.to_string(), "--temp", "0", "-no-cnv", "--no-warmup"]));
        let report = read(&report);
        let share = check(&report, &expected);
        println!(
            "{decoded} tokens decoded: {:.3} % of {} prefill MACs on the NPU",
            share * 100.0,
            macs(&expected)
        );
        assert!(share >= 0.99);
        report["board"]["submits"].as_u64().expect("a count")
    });
    assert_eq!(submits[0], submits[1], "decoding submitted work");
}

#[test]
fn host_perplexity_macs_are_on_the_npu_with_the_head() {
    let s = Setup::named();
    let model = gguf::read(&s.model);
    let text = s.scratch.path().join("text.txt");
    std::fs::write(&text, include_str!("../../data/text.txt")).expect("writes");
    // One chunk a batch: its second half is scored, so 256 rows reach the head.
    let expected = [expected(&model, 512, 256), expected(&model, 512, 256)].concat();
    let (mut c, report) = s.on_npu("llama-perplexity");
    c.arg("-m").arg(&s.model).arg("-f").arg(&text);
    run(c.args(["-c", "512", "-b", "512", "--chunks", "2", "--no-warmup"]));
    let share = check(&read(&report), &expected);
    println!("perplexity: {:.3} % of {} MACs on the NPU", share * 100.0, macs(&expected));
    assert!(share >= 0.99);
}
