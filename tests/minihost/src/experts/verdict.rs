//! What became of a batch, and whether it is right.

use super::case::{Batch, Expect};
use super::golden::{Golden, Rounding, WRONG};
use super::op::Got;
use super::{Done, expected, is_quantized, same_bits};
use crate::ggml::Host;
use crate::report::Report;
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;

fn rounding(route: &str) -> Option<Rounding> {
    match route {
        "experts-int8" => Some(Rounding::Int8),
        "experts-fp16" => Some(Rounding::Fp16),
        _ => None,
    }
}

/// Figures of all ops.
#[derive(Default)]
pub(super) struct Figures {
    pub(super) worst: [f64; 2],
    pub(super) weakest: [Option<f64>; 2],
    pub(super) cpu: f64,
    pub(super) wrong: usize,
    pub(super) tally: BTreeMap<String, usize>,
}

/// What the report says became of a batch, whether it is right, and words about it.
pub(super) fn judge(
    done: &Done,
    batch: &Batch,
    (name, a, got): &(String, Vec<f32>, Got),
    report: Option<&Report>,
    host: &Host,
    figures: &mut Figures,
) -> Result<(String, bool, String)> {
    let stack = &done.stack;
    let (ours, cpu) = match got {
        Got::Failed => return Ok(("failed".to_owned(), true, String::new())),
        Got::Declined => {
            let shape = (host.type_name(stack.dtype)?, stack.k as i64, stack.n as i64);
            let all = report.into_iter().flat_map(|r| &r.declined);
            let reasons: Vec<&str> = all
                .filter(|(t, k, n, _)| (t, *k, *n) == (&shape.0, shape.1, shape.2))
                .map(|d| d.3.as_str())
                .collect();
            // Several batches of a stack may each have their own.
            let wanted = expected(stack, batch);
            let own = |r: &&&str| matches!(wanted, Expect::Declined(why) if why == **r);
            let own = reasons.iter().find(own);
            let reason = own.or(reasons.first()).copied().unwrap_or("without a reason");
            return Ok((format!("declined: {reason}"), true, String::new()));
        }
        Got::Computed { ours, cpu } => (ours, cpu.as_deref()),
    };
    let (became, rounding) = match report {
        None if is_quantized(stack.dtype) => ("cpu".to_owned(), Some(Rounding::Int8)),
        None => ("cpu".to_owned(), Some(Rounding::Fp16)),
        Some(report) => {
            let ran = report.ops.get(name).with_context(|| format!("{name} is not in it"))?;
            match &ran.redo {
                Some(why) => {
                    let same = cpu.is_some_and(|cpu| same_bits(ours, cpu));
                    let words = format!("as the CPU's: {same}");
                    return Ok((format!("redone: {why}"), same, words));
                }
                None => (ran.route.clone(), rounding(&ran.route)),
            }
        }
    };
    let Some(rounding) = rounding.filter(|_| batch.expect == Expect::Npu) else {
        return Ok((became, true, String::new()));
    };
    let golden = Golden::new(stack, batch, &done.weights, a);
    let units = golden.units(ours, rounding);
    let controls = WRONG.map(|wrong| golden.control(ours, rounding, wrong));
    let weakest = controls.into_iter().flatten().fold(f64::INFINITY, f64::min);
    let theirs = cpu.map_or(0.0, |cpu| golden.units(cpu, rounding));
    let at = usize::from(rounding == Rounding::Int8);
    let worst = figures.worst[at];
    figures.worst[at] = if units > worst || units.is_nan() { units } else { worst };
    figures.weakest[at] = Some(figures.weakest[at].map_or(weakest, |w| w.min(weakest)));
    figures.cpu = figures.cpu.max(theirs);
    let words =
        format!("{units:.3} of what is allowed; wrong weights: {controls:.1?}; CPU's: {theirs:.3}");
    Ok((became, units <= 1.0 && weakest > 1.0, words))
}
