//! Flash attention of a real model on the board: what it does to the logits, and that it ran.

use crate::kld::{OPTIONS, divergence};
use crate::{Setup, gguf, macs, run};
use std::path::Path;

/// Mean KL divergence from the CPU without flash attention, which keeps logits and softmax in F32.
const GATE: f64 = 5e-4;
/// How far the control must lie above what is measured.
const CONTROL: f64 = 10.0;

#[test]
fn host_flash_attention_of_a_model_is_on_the_npu() {
    let s = Setup::named();
    let (text, base) = (s.scratch.path().join("text.txt"), s.scratch.path().join("base.kld"));
    std::fs::write(&text, include_str!("../../data/text.txt")).expect("writes");
    let perplexity = |mut c: std::process::Command, model: &Path, fa: &str| {
        c.arg("-m").arg(model).arg("-f").arg(&text).args(OPTIONS).args(["-fa", fa]);
        c.arg("--kl-divergence-base").arg(&base);
        c
    };
    let cpu = || s.command("llama-perplexity");
    let npu = |least: &str| {
        let (mut c, report) = s.on_npu("llama-perplexity");
        c.env("ROCKET_FLASH_ATTN_MIN_KV", least);
        (c, report)
    };
    run(&mut perplexity(cpu(), &s.model, "off"));
    let own = divergence(perplexity(cpu(), &s.model, "on"));
    let control = divergence(perplexity(cpu(), &s.model_named("smollm2-q8_0.gguf"), "on"));
    let (c, report) = npu("256");
    let ours = divergence(perplexity(c, &s.model, "on"));
    let with = macs::read(&report);
    // The same with attention on the CPU: what the products alone do.
    let (c, report) = npu("1024");
    let products = divergence(perplexity(c, &s.model, "on"));
    let without = macs::read(&report);
    println!(
        "mean KLD from the CPU without flash attention: NPU {:.6}, same top {:.2} %; products on \
         the NPU, attention on the CPU {:.6}; the CPU's flash attention {:.6}; Q8_0 as control {:.6}",
        ours.mean, ours.same_top, products.mean, own.mean, control.mean
    );
    assert!(ours.mean <= GATE, "{ours:?} is beyond {GATE}");
    assert!(control.mean >= CONTROL * ours.mean, "{control:?} {ours:?}");

    // One attention a block over the whole chunk; heads times head size is the width of Q's matrix.
    let model = gguf::read(&s.model);
    let q = model.tensors.iter().find(|t| t.name == "blk.0.attn_q.weight").expect("a matrix for Q");
    let expected = 512 * 512 * 2 * q.shape[1] as u64;
    let number = |v: &serde_json::Value| v.as_u64().unwrap_or(0);
    let ops = with["ops"].as_array().expect("ops");
    let attentions: Vec<_> = ops.iter().filter(|o| o["route"] == "attention").collect();
    assert_eq!(attentions.len(), model.blocks, "{}", with["reasons"]);
    assert!(with["redos"].as_object().is_some_and(|r| r.is_empty()), "{}", with["redos"]);
    let mut skipped = 0;
    for op in attentions {
        let engine = &op["engine"];
        let useful = number(&engine["board"]["macs"]) - number(&engine["padding_macs"]);
        assert_eq!(useful + number(&engine["skipped_macs"]), expected, "{op}");
        skipped += number(&engine["skipped_macs"]);
    }
    let share = skipped as f64 / (expected * model.blocks as u64) as f64;
    println!("{:.1} % of the attentions' work was void by the mask and left out", share * 100.0);
    // Short contexts stay on the CPU by default.
    assert_eq!(without["routes"]["attention"], serde_json::Value::Null);
    let reasons = without["reasons"].as_array().expect("reasons");
    assert!(reasons.iter().any(|r| r["reason"] == "attention_short_context"), "{reasons:?}");
}
