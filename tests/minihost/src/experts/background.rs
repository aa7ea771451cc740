//! A stack that is packed beside the host: until it is there, the CPU computes.

use super::case::{Batch, Stack};
use super::golden::{Golden, Rounding};
use super::op::{Got, Loaded, with_stack};
use super::{case, same_bits};
use crate::Setup;
use crate::ggml::{Backend, Type};
use crate::report;
use crate::values::Values;
use anyhow::{Context as _, Result, bail};
use std::time::{Duration, Instant};

/// Until then it must have been packed: a guard against a hang, not a measure.
const PATIENCE: Duration = Duration::from_secs(120);

/// Computes one op again and again until the NPU has the stack. True if every result was right, the
/// first ones those of the CPU.
///
/// # Errors
/// Those of the host; it is never packed.
pub fn run(setup: &Setup) -> Result<bool> {
    let host = setup.host;
    let batch = Batch::new(48, 2);
    let stack = Stack { k: 1024, n: 512, experts: 64, ..case::small(Type::Q4_K) };
    let stack = Stack { batches: vec![batch], ..stack };
    let mut values = Values::new(77);
    let (bytes, weights) = stack.weights(host, &mut values)?;
    let a = batch.activation(stack.k, &mut values);
    let golden = Golden::new(&stack, &batch, &weights, &a);
    let device = setup.device()?;
    let cpu = Backend::new(host, host.cpu())?;
    let ours = Backend::new(host, device)?;
    let results = with_stack(host, &stack, &bytes, |node, buffer| {
        let stack = &stack;
        let loaded =
            Loaded { host, stack, node, buffer, ask: Some(device), ours: &ours, cpu: &cpu };
        let begun = Instant::now();
        let mut all = Vec::new();
        // Until five in a row are not the CPU's.
        let mut npu = 0;
        while npu < 5 {
            if begun.elapsed() > PATIENCE {
                bail!("it is never packed");
            }
            let got = loaded.compute(&batch, &a, &format!("round-{}", all.len()))?;
            let Got::Computed { ours, cpu: Some(cpu) } = got else { bail!("declined") };
            let same = same_bits(&ours, &cpu);
            npu = if same { 0 } else { npu + 1 };
            all.push((ours, same));
        }
        Ok(all)
    })?;
    drop(ours);
    let report = report::read(&setup.report)?;
    let (mut right, mut waited) = (true, 0);
    for (i, (result, same)) in results.iter().enumerate() {
        let name = format!("round-{i}");
        let ran = report.ops.get(&name).with_context(|| format!("{name} is not in the report"))?;
        let packing = ran.redo.as_deref() == Some("experts_packing");
        let units = golden.units(result, Rounding::Int8);
        let fits = match packing {
            true => *same && ran.route == "cpu",
            false => ran.route == "experts-int8" && ran.redo.is_none() && units <= 1.0,
        };
        if !fits {
            println!("!! {name}: {ran:?}, as the CPU's: {same}, {units:.3} of what is allowed");
            right = false;
        }
        // Once packed, it stays.
        right &= !packing || waited == i;
        waited += usize::from(packing);
    }
    println!("{waited} ops by the CPU while it was packed, {} by the NPU", results.len() - waited);
    Ok(right && waited > 0)
}
