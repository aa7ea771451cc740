use super::super::finding::Finding;
use super::super::{About, Case, Check};
use crate::forecast::Place;
use std::collections::BTreeMap;

const ID: &str = "model.shapes";

pub const CHECK: Check = Check {
    id: ID,
    explain: "The NPU multiplies on a grid: 32 along K, 16 along N. Other sizes are padded with zeros, which changes no \
              result and costs what the padding is of the whole. Below 64 in either, or beyond 2^30 elements, a \
              product is the CPU's.",
    after: &["model.format"],
    about: About::Model,
    required: false,
    run,
};

/// Part of the work, in per cent, from which shapes are worth a word.
const WORTH: f64 = 5.0;

fn run(case: &Case) -> Finding {
    let Some((model, header)) = case.named.headed() else {
        return Finding::unknown(ID, "the model's shapes", "its header is not known");
    };
    let forecast = model.plain(header);
    let [all, _] = forecast.totals();
    let mut declined: BTreeMap<&str, u64> = BTreeMap::new();
    let (mut padded, mut products) = (Vec::new(), 0);
    for (shape, work) in forecast.prefill.iter().filter(|(s, _)| s.stored) {
        products += work.ops;
        let sizes = [
            "k_too_small",
            "n_too_small",
            "too_large",
            "shape_mismatch",
            "not_contiguous",
            "empty",
        ];
        if sizes.contains(&shape.outcome) {
            *declined.entry(shape.outcome).or_default() += work.macs;
        }
        if shape.place == Place::Npu && (shape.k % 32 != 0 || shape.n % 16 != 0) {
            padded.push(format!("{} x {}", shape.k, shape.n));
        }
    }
    if products == 0 {
        return Finding::note(ID, "nothing in it is multiplied with that could run on the NPU");
    }
    let lost = 100.0 * declined.values().sum::<u64>() as f64 / all.macs.max(1) as f64;
    if lost >= WORTH {
        let words: Vec<&str> = declined.keys().copied().collect();
        return Finding::note(
            ID,
            format!("{lost:.1} % of the work has sizes that the CPU does: {}", words.join(", ")),
        );
    }
    padded.dedup();
    match padded.is_empty() {
        true => Finding::ok(ID, "every large matrix is on the NPU's grid"),
        false => {
            Finding::ok(ID, format!("run with padding, to the same results: {}", few(&padded)))
        }
    }
}

fn few(list: &[String]) -> String {
    match list {
        [first, second, third, _, ..] => {
            format!("{first}, {second}, {third} and {} more", list.len() - 3)
        }
        _ => list.join(", "),
    }
}
