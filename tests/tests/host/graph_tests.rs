//! The expectation and its check without a host: what must not pass does not.

use crate::gguf;
use crate::graph::{self, Attention, Batch, Experts, Graph, Product};
use rocket_tests::generate::{self, Kind, Recipe};
use serde_json::{Value, json};
use std::panic::catch_unwind;

fn header(recipe: &Recipe) -> gguf::Header {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("one.gguf");
    // The header alone is read: no need to draw all weights of a large one.
    recipe.write(&path).expect("writes");
    gguf::read(&path)
}

fn product(k: usize, n: usize, m: usize) -> Product {
    Product { k, n, m, slices: 1, kind: "F16" }
}

#[test]
fn a_batch_of_a_small_model_is_this() {
    let graph = graph::expected(&header(&generate::tiny(Kind::F16)), Batch::whole(100, 5));
    let block = |m| {
        let attention = [product(256, 256, 100), product(256, 256, 100)];
        let shared = [product(256, 128, 100), product(256, 128, 100)];
        let feed = [product(256, 704, m), product(256, 704, m), product(704, 256, m)];
        [attention.to_vec(), shared.to_vec(), feed.to_vec()].concat()
    };
    let mut products = [block(100), block(5), vec![product(256, generate::TOKENS, 5)]].concat();
    products.sort_unstable();
    assert_eq!(graph.products, products);
    let attends = Attention { key: 64, value: 64, heads: 4, kv_heads: 2, tokens: 100, kv: 256 };
    assert_eq!(graph.attention, [attends; 2]);
    assert_eq!(graph.experts, []);
}

#[test]
fn lines_of_a_host_are_read() {
    let model = header(&generate::mla(true));
    let log = "\
common_debug_cb_eval:  q-0 = (f32)  MUL_MAT(blk.0.attn_k_b.weight{128, 512, 16, 1}, q{128, 92, 16, 1}}) = {512, 92, 16, 1}
common_debug_cb_eval:  g-1 = (f32) MUL_MAT_ID(blk.1.ffn_gate_exps.weight{2048, 1408, 16, 1}, x{2048, 1, 92, 1}}) = {1408, 4, 92, 1}
common_debug_cb_eval:  a-0 = (f32) FLASH_ATTN_EXT(Q (view){576, 92, 16, 1}, k (view){576, 256, 1, 1}}) = {512, 16, 92, 1}
common_debug_cb_eval:  n-2 = (f32)  MUL_MAT(Kcur-0 (permuted){72, 729, 16, 1}, Q{72, 729, 16, 1}}) = {729, 729, 16, 1}
common_debug_cb_eval:  s-1 = (f32) SOFT_MAX(ffn_moe_logits-1{16, 1, 1, 1}, }) = {16, 1, 1, 1}
";
    let k_b = Product { k: 128, n: 512, m: 92, slices: 16, kind: "Q8_0" };
    let gate = Experts { k: 2048, n: 1408, experts: 16, used: 4, tokens: 92, kind: "Q4_K" };
    let attention = Attention { key: 576, value: 512, heads: 16, kv_heads: 1, tokens: 92, kv: 256 };
    let want = Graph { products: vec![k_b], attention: vec![attention], experts: vec![gate] };
    assert_eq!(graph::listed(log, &model), want);
}

/// A report of products that ran with a third of padding.
fn report(products: &[[u64; 4]]) -> Value {
    let ops = products.iter().map(|[k, n, m, slices]| {
        let macs = k * n * m * slices;
        json!({
            "route": "fp16", "k": k, "n": n, "m": m, "slices": slices, "macs_expected": macs,
            "engine": {"padding_macs": macs / 2, "board": {"macs": macs + macs / 2}},
        })
    });
    let ops: Vec<Value> = ops.collect();
    let total: u64 = ops.iter().filter_map(|o| o["engine"]["board"]["macs"].as_u64()).sum();
    json!({"redos": {}, "ops_dropped": 0, "ops": ops, "board": {"macs": total}, "reasons": []})
}

#[test]
fn a_report_holds_all_that_it_must_and_nothing_else() {
    let quantized = Product { kind: "Q4_K", ..product(256, 512, 127) };
    let graph = Graph {
        products: vec![
            product(256, 128, 32),
            product(256, 128, 32),
            Product { slices: 4, ..product(64, 64, 100) },
            Product { m: 128, ..quantized },
            // These stay on the CPU: too few rows, K or columns.
            product(256, 128, 31),
            quantized,
            product(32, 128, 100),
            product(128, 63, 100),
        ],
        attention: vec![],
        experts: vec![],
    };
    let ran = [[256, 128, 32, 1], [256, 128, 32, 1], [64, 64, 100, 4], [256, 512, 128, 1]];
    println!("{}", graph.check(&report(&ran)));

    let refused = |what: &str, report: Value| {
        let passed = catch_unwind(|| graph.check(&report)).is_ok();
        assert!(!passed, "{what} passes");
    };
    refused("one that is missing", report(&ran[1..]));
    refused("one too many", report(&[&ran[..], &[[256, 128, 31, 1]]].concat()));
    refused("none", report(&[]));
    // Of the same number of multiplications.
    refused("another shape", report(&[&ran[..3], &[[512, 256, 128, 1]]].concat()));
    refused("other slices", report(&[[256, 128, 32, 1]; 4]));
    let with = |change: &dyn Fn(&mut Value)| {
        let mut r = report(&ran);
        change(&mut r);
        r
    };
    refused("a redo", with(&|r| r["redos"] = json!({"job_failed": 1})));
    refused("ops that are not listed", with(&|r| r["ops_dropped"] = json!(1)));
    refused("the CPU's", with(&|r| r["ops"][0]["route"] = json!("cpu")));
    refused("a route without an operation", with(&|r| r["ops"][0]["route"] = json!("int8")));
    refused("less than was asked", with(&|r| r["ops"][0]["engine"]["padding_macs"] = json!(1)));
    refused("work of no operation", with(&|r| r["board"]["macs"] = json!(1)));
}

/// Experts count by what their tokens use, whoever gets how many; and only where they are to run.
#[test]
fn experts_run_all_or_not_at_all() {
    let stack = |tokens| Experts { k: 2048, n: 1408, experts: 16, used: 4, tokens, kind: "Q4_K" };
    let graph = Graph {
        products: vec![],
        attention: vec![],
        // Too few tokens; not quantized; too few rows an expert; too little work.
        experts: vec![
            stack(512),
            stack(511),
            Experts { kind: "F16", ..stack(512) },
            Experts { experts: 64, ..stack(512) },
            Experts { n: 1024, ..stack(512) },
        ],
    };
    let ran = |route: &str, macs: &[u64]| {
        let ops = macs.iter().map(|macs| {
            json!({
                "route": route, "macs_expected": macs,
                "engine": {"padding_macs": 7, "board": {"macs": macs + 7}},
            })
        });
        let ops: Vec<Value> = ops.collect();
        let total: u64 = macs.iter().map(|m| m + 7).sum();
        json!({"redos": {}, "ops_dropped": 0, "ops": ops, "board": {"macs": total}, "reasons": []})
    };
    let used = 2048 * 1408 * 4 * 512;
    for route in ["experts-int8", "experts-fp16"] {
        println!("{}", graph.check(&ran(route, &[used])));
    }
    let refused = |what: &str, graph: &Graph, report: Value| {
        let passed = catch_unwind(|| graph.check(&report)).is_ok();
        assert!(!passed, "{what} passes");
    };
    refused("none", &graph, ran("experts-int8", &[]));
    refused("a row less", &graph, ran("experts-int8", &[used - 2048 * 1408]));
    refused("one too many", &graph, ran("experts-int8", &[used, used]));
    refused("another operation", &graph, ran("attention", &[used]));
    let without = graph.clone().without_experts();
    println!("{}", without.check(&ran("experts-int8", &[])));
    refused("one that is off", &without, ran("experts-int8", &[used]));
}
