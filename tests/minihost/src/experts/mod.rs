//! `experts`: products with experts by our device, compared with double precision, and the host's
//! own beside it.

mod background;
mod case;
mod contexts;
mod golden;
mod op;
mod overlap;
mod placement;
mod verdict;

pub use placement::{Arguments as PlacementArguments, run as placement};

use crate::Setup;
use crate::ggml::{Backend, Device, Host, Type};
use crate::report::{self, Report};
use crate::values::Values;
use anyhow::{Context as _, Result, ensure};
use case::{Batch, Expect, Stack};
use golden::{Golden, Rounding, WRONG};
use op::{Got, Loaded, with_stack};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};
use verdict::{Figures, judge};

#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// A line for each op.
    #[arg(long)]
    list: bool,
    /// Only a few stacks that take a while to pack.
    #[arg(long)]
    stored: bool,
    /// A stack that is packed beside the host, while the CPU computes.
    #[arg(long)]
    background: bool,
    /// Contexts and stacks that come and go.
    #[arg(long)]
    contexts: bool,
    /// The same while stacks are packed.
    #[arg(long)]
    abandoned: bool,
    /// Stacks that take each other's place while they are packed.
    #[arg(long)]
    replaced: bool,
    /// Contexts in threads.
    #[arg(long)]
    threads: bool,
    /// On the host's CPU: what gates and controls are worth.
    #[arg(long)]
    cpu: bool,
    /// What must become of each op, whatever the list says.
    #[arg(long, value_name = "OUTCOME")]
    expect: Option<String>,
}

/// What the variables of the plugin say here, unless they are set already.
pub const DEFAULTS: &[(&str, &str)] = &[
    ("ROCKET_MOE", "1"),
    ("ROCKET_MOE_WAIT", "1"),
    ("ROCKET_PACKED_DIR", "0"),
    // This machine's memory decides nothing.
    ("ROCKET_MOE_CACHE_MB", "0"),
];

fn is(name: &str, value: &str) -> bool {
    std::env::var(name).is_ok_and(|v| v == value)
}

fn is_quantized(t: Type) -> bool {
    ![Type::F32, Type::F16, Type::BF16].contains(&t)
}

/// The list's expectation is that of ROCKET_MOE=1; with `auto` every threshold is taken to be as low
/// as it goes.
fn expected(stack: &Stack, batch: &Batch) -> Expect {
    let native = !is("ROCKET_MOE_NATIVE", "0");
    match batch.expect {
        _ if is("ROCKET_MOE", "0") => Expect::Declined("experts_off"),
        declined @ Expect::Declined(_) => declined,
        expect if !is("ROCKET_MOE", "auto") => expect,
        _ if !native || !is_quantized(stack.dtype) => Expect::Declined("experts_unquantized"),
        _ if batch.used * batch.tokens / stack.experts < 4 => Expect::Declined("experts_few_rows"),
        _ if !stack.kept => Expect::Declined("experts_not_kept"),
        expect => expect,
    }
}

/// Where quantized stacks and others go.
fn route(t: Type) -> &'static str {
    let int8 = is_quantized(t) && !is("ROCKET_MOE_NATIVE", "0");
    if int8 { "experts-int8" } else { "experts-fp16" }
}

fn same_bits(a: &[f32], b: &[f32]) -> bool {
    let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
    a.len() == b.len() && a.iter().zip(b).all(same)
}

/// A stack and what became of its batches.
struct Done {
    stack: Stack,
    /// As the CPU sees them.
    weights: Vec<f32>,
    /// The activation and the result of each batch, and the name it had.
    batches: Vec<(String, Vec<f32>, Got)>,
}

fn compute(
    host: &'static Host,
    ask: Option<Device>,
    [ours, cpu]: [&Backend; 2],
    stack: Stack,
    seed: usize,
) -> Result<Done> {
    let mut values = Values::new(seed as u64);
    let (bytes, weights) = stack.weights(host, &mut values)?;
    let batches = with_stack(host, &stack, &bytes, |node, buffer| {
        let loaded = Loaded { host, stack: &stack, node, buffer, ask, ours, cpu };
        let one = |(i, batch): (usize, &Batch)| {
            let name = format!("case-{seed}-{i}");
            let a = batch.activation(stack.k, &mut values);
            let got = loaded.compute(batch, &a, &name).with_context(|| batch.describe())?;
            Ok((name, a, got))
        };
        stack.batches.iter().enumerate().map(one).collect::<Result<Vec<_>>>()
    })?;
    Ok(Done { stack, weights, batches })
}

/// Whether the first op of a stack that stays packed it, and no later one did.
fn ingested_once(done: &Done, report: &Report) -> Option<bool> {
    let routed = done.batches.iter().filter_map(|(name, ..)| report.ops.get(name));
    let mut packed = routed.filter(|r| r.route == "experts-int8").map(|r| r.packed_bytes);
    let first = packed.next().filter(|_| done.stack.kept)?;
    Some(first > 0 && packed.all(|n| n == 0))
}

/// Runs the list. True if all are right.
///
/// # Errors
/// Those of the host.
pub fn run(setup: &Setup, arguments: &Arguments) -> Result<bool> {
    let host = setup.host;
    if arguments.background {
        return background::run(setup);
    }
    if arguments.contexts {
        return contexts::run(setup);
    }
    if arguments.abandoned {
        return overlap::abandoned(setup);
    }
    if arguments.replaced {
        return overlap::replaced(setup);
    }
    if arguments.threads {
        return overlap::at_once(setup);
    }
    let stacks = if arguments.stored { case::stored(host) } else { case::list(host)? };
    let device = if arguments.cpu { host.cpu() } else { setup.device()? };
    let (ours, cpu) = (Backend::new(host, device)?, Backend::new(host, host.cpu())?);
    let ask = (!arguments.cpu).then_some(device);
    let mut all = Vec::new();
    for (i, mut stack) in stacks.into_iter().enumerate() {
        if arguments.cpu {
            // It does not rotate.
            let outliers = |b: &Batch| b.numbers == case::Numbers::Outliers;
            stack.batches.retain(|b| b.expect == Expect::Npu && !outliers(b));
        }
        let what = format!("stack {i}: {:?} {:?}", stack.dtype, [stack.k, stack.n, stack.experts]);
        all.push(compute(host, ask, [&ours, &cpu], stack, i).context(what)?);
    }
    // The report is written when the context ends.
    drop(ours);
    let report = if arguments.cpu { None } else { Some(report::read(&setup.report)?) };
    let (mut figures, mut hash, mut ops) = (Figures::default(), DefaultHasher::new(), 0);
    let (mut once, mut packed) = (0, 0);
    for done in &all {
        let stack = &done.stack;
        for (batch, record) in stack.batches.iter().zip(&done.batches) {
            let (became, right, words) =
                judge(done, batch, record, report.as_ref(), host, &mut figures)?;
            let wanted = match expected(stack, batch) {
                _ if arguments.expect.is_some() => arguments.expect.clone().unwrap_or_default(),
                _ if arguments.cpu => "cpu".to_owned(),
                Expect::Npu | Expect::Anything => route(stack.dtype).to_owned(),
                Expect::Fails => "failed".to_owned(),
                Expect::Redone(why) => format!("redone: {why}"),
                Expect::Declined(why) => format!("declined: {why}"),
            };
            if !right || became != wanted || arguments.list {
                let sign = if right && became == wanted { "  " } else { "!!" };
                let (dtype, size) =
                    (host.type_name(stack.dtype)?, [stack.k, stack.n, stack.experts]);
                let batch = batch.describe();
                println!("{sign} {}: {dtype} {size:?}, {batch}: {became}; {words}", record.0);
                if became != wanted {
                    println!("!!   expected: {wanted}");
                }
            }
            if let (Got::Computed { ours, .. }, Expect::Npu) = (&record.2, batch.expect) {
                ours.iter().for_each(|x| x.to_bits().hash(&mut hash));
            }
            ops += 1;
            figures.wrong += usize::from(!right || became != wanted);
            *figures.tally.entry(became).or_default() += 1;
        }
        let Some(report) = &report else { continue };
        match ingested_once(done, report) {
            Some(false) if is("ROCKET_PACKED_DIR", "0") => {
                println!("!! stack of {:?} {:?}: not packed once", stack.dtype, [stack.k, stack.n]);
                figures.wrong += 1;
            }
            Some(_) => once += 1,
            None => {}
        }
        let records = done.batches.iter().filter_map(|(name, ..)| report.ops.get(name));
        packed += records.map(|r| r.packed_bytes).sum::<u64>();
    }
    println!("{ops} products with experts of {} stacks", all.len());
    for (what, count) in &figures.tally {
        println!("  {count:4} {what}");
    }
    for (at, what) in ["fp16", "int8"].into_iter().enumerate() {
        if let Some(weakest) = figures.weakest[at] {
            println!(
                "{what}: worst {:.3} of what is allowed; weakest negative control {weakest:.1} times",
                figures.worst[at]
            );
        }
    }
    println!("the CPU's own worst: {:.3} of it", figures.cpu);
    println!("stacks in int8 that stayed: {once}");
    println!("packed bytes: {packed}");
    println!("results: {:016x}", hash.finish());
    println!("wrong: {}", figures.wrong);
    Ok(figures.wrong == 0)
}

/// Experts of both routes on `device`, each twice; whether they are right and would not be with
/// wrong weights.
///
/// # Errors
/// Those of the host.
pub fn small(host: &'static Host, device: Device) -> Result<bool> {
    let (ours, cpu) = (Backend::new(host, device)?, Backend::new(host, host.cpu())?);
    let mut right = true;
    for (seed, dtype) in [Type::Q8_0, Type::F16].into_iter().enumerate() {
        let mut stack = case::small(dtype);
        stack.batches = stack.batches.repeat(2);
        let done = compute(host, None, [&ours, &cpu], stack, seed)?;
        let rounding = if is_quantized(dtype) { Rounding::Int8 } else { Rounding::Fp16 };
        for (batch, (_, a, got)) in done.stack.batches.iter().zip(&done.batches) {
            let Got::Computed { ours, .. } = got else { return Ok(false) };
            let golden = Golden::new(&done.stack, batch, &done.weights, a);
            let controls = WRONG.iter().filter_map(|&w| golden.control(ours, rounding, w));
            let weakest = controls.fold(f64::INFINITY, f64::min);
            right &= golden.units(ours, rounding) <= 1.0 && weakest > 1.0;
        }
    }
    ensure!(!is("ROCKET_MOE", "0"), "experts are off");
    Ok(right)
}
