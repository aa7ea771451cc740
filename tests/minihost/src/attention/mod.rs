//! `attention`: flash attention by our device, compared with double precision, and the host's own
//! beside it.

mod case;

use crate::Setup;
use crate::ggml::{Backend, Buffer, Context, Device, FlashAttn, Host, Node, Type};
use crate::report;
use crate::values::Wanted;
use anyhow::{Context as _, Result, ensure};
use case::{Case, MASK_ROWS, Numbers, UNUSED};
use std::collections::BTreeMap;

/// What the device made of one case.
enum Got {
    Declined,
    Computed { ours: Vec<f32>, cpu: Option<Vec<f32>> },
}

/// Heads before positions, as the cache has positions before heads.
fn by_head<'c>(context: &'c Context, t: Node<'c>) -> Result<Node<'c>> {
    context.permute(t, [0, 2, 1, 3])
}

/// The beginning of each row of a cache, of the positions in use, by head.
fn used<'c>(context: &'c Context, cache: Node<'c>, len: usize, n_kv: usize) -> Result<Node<'c>> {
    let ([_, heads, _, streams], nb) = (cache.ne(), cache.nb());
    let ne = [len as i64, heads, n_kv as i64, streams];
    by_head(context, context.view(cache, ne, [nb[1], nb[2], nb[3]], 0)?)
}

fn one(
    host: &'static Host,
    ask: Option<Device>,
    [ours, cpu]: [&Backend; 2],
    case: &Case,
    n: &Numbers,
    name: &str,
) -> Result<Got> {
    let wide = |x: usize| x as i64;
    let positions = wide(case.n_kv + UNUSED);
    let (kv_heads, streams) = (wide(case.kv_heads), wide(case.streams));
    let stored = Context::new(host, 2)?;
    let k_cache =
        stored.tensor(case.types[0], [wide(case.key), kv_heads, positions, streams], "k")?;
    let v_cache =
        stored.tensor(case.types[1], [wide(case.value), kv_heads, positions, streams], "v")?;
    let caches = Buffer::of(&stored, false)?;
    caches.write(k_cache, &n.k)?;
    caches.write(v_cache, &n.v)?;

    let context = Context::new(host, 12)?;
    let q = context.tensor(
        Type::F32,
        [wide(case.key), wide(case.heads), wide(case.tokens), streams],
        "q",
    )?;
    let k = used(&context, k_cache, case.key, case.n_kv)?;
    let cache = if case.shared { k_cache } else { v_cache };
    let v = used(&context, cache, case.value, case.n_kv)?;
    let mask = match case.masked {
        false => None,
        true => {
            let rows = wide(case.tokens.next_multiple_of(MASK_ROWS));
            Some(context.tensor(Type::F16, [wide(case.n_kv), rows, 1, streams], "mask")?)
        }
    };
    let sinks = match case.sinks {
        true => Some(context.tensor(Type::F32, [wide(case.heads), 1, 1, 1], "sinks")?),
        false => None,
    };
    let numbers = case.numbers;
    let op = FlashAttn { q: by_head(&context, q)?, k, v, mask, sinks, numbers };
    let result = context.flash_attn(&op, name)?;
    // Asked before anything has memory, as schedulers do; the answer must not change.
    let early = ask.map(|device| host.supports(device, result, &[&caches])).transpose()?;
    let buffer = Buffer::of(&context, false)?;
    let buffers = [&caches, &buffer];
    if let Some((device, early)) = ask.zip(early) {
        ensure!(early == host.supports(device, result, &buffers)?, "the answer changed");
        if !early {
            return Ok(Got::Declined);
        }
    }
    buffer.write_floats(q, &n.q)?;
    if let Some(mask) = mask {
        buffer.write(mask, &host.encode(Type::F16, &n.mask, case.n_kv)?)?;
    }
    if let Some(sinks) = sinks {
        buffer.write_floats(sinks, &n.sinks)?;
    }
    let graph = context.graph(&[result])?;
    let compute = |backend: &Backend| -> Result<Vec<f32>> {
        buffer.write_floats(result, &vec![f32::NAN; result.bytes(host) / 4])?;
        backend.compute(&graph, &buffers)?;
        buffer.read_floats(result)
    };
    let got = compute(ours)?;
    let cpu = case.on_cpu().then(|| compute(cpu)).transpose()?;
    Ok(Got::Computed { ours: got, cpu })
}

/// A small attention on `device`; whether it is right, and would not be with another KV head.
///
/// # Errors
/// Those of the host.
pub fn small(host: &'static Host, device: Device) -> Result<bool> {
    let case = Case::small();
    let n = case.numbers(host, 3)?;
    let (ours, cpu) = (Backend::new(host, device)?, Backend::new(host, host.cpu())?);
    // Not asked: a device that has been given up takes nothing, and what came before it was computed.
    match one(host, None, [&ours, &cpu], &case, &n, "attention")? {
        Got::Declined => Ok(false),
        Got::Computed { ours, .. } => Ok(worst(&ours, &case.wanted(&n, false)) <= 1.0
            && worst(&ours, &case.wanted(&n, true)) > 10.0),
    }
}

/// The worst element, in units of the bounds.
fn worst(got: &[f32], wanted: &[Wanted]) -> f64 {
    if got.len() != wanted.len() {
        return f64::NAN;
    }
    got.iter().zip(wanted).fold(0.0, |worst, (g, w)| {
        let off = (f64::from(*g) - w.value).abs();
        let units = if off == 0.0 { 0.0 } else { off / w.bound };
        if units > worst || units.is_nan() { units } else { worst }
    })
}

/// Runs the list. True if all are right.
///
/// # Errors
/// Those of the host.
pub fn run(setup: &Setup, list: bool) -> Result<bool> {
    let host = setup.host;
    let cases = case::list(host)?;
    let ours = Backend::new(host, setup.device()?)?;
    let cpu = Backend::new(host, host.cpu())?;
    let mut results = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let n = case.numbers(host, i as u64)?;
        let got = one(host, Some(setup.device()?), [&ours, &cpu], case, &n, &format!("case-{i}"))
            .with_context(|| format!("case {i}: {}", case.name))?;
        results.push((n, got));
    }
    // The report is written when the context ends.
    drop(ours);
    let report = report::read(&setup.report)?;
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    let (mut wrong, mut most, mut weakest, mut theirs) = (0, 0f64, f64::INFINITY, 0f64);
    for (i, (case, (n, got))) in cases.iter().zip(&results).enumerate() {
        let types = case.types.map(|t| host.type_name(t));
        let [k, v] = types;
        let name = format!("{} ({} and {})", case.name, k?, v?);
        let (became, right, words) = match got {
            Got::Declined => {
                let key = (case.key as i64, case.n_kv as i64);
                let found = report.declined.iter().find(|(_, k, n, _)| (*k, *n) == key);
                let why = found.map_or("without a reason", |f| &f.3);
                (format!("declined: {why}"), true, String::new())
            }
            Got::Computed { ours, cpu } => {
                let ran =
                    report.ops.get(&format!("case-{i}")).context("it is not in the report")?;
                match &ran.redo {
                    Some(why) => {
                        let same = cpu.is_some()
                            && ours.iter().zip(cpu.iter().flatten()).all(|(a, b)| {
                                a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan())
                            });
                        (format!("redone: {why}"), same, format!("as the CPU's: {same}"))
                    }
                    None => {
                        let wanted = case.wanted(n, false);
                        let off = worst(ours, &wanted);
                        let cpu = cpu.as_ref().map_or(0.0, |cpu| worst(cpu, &wanted));
                        let control = worst(ours, &case.wanted(n, true));
                        most = if off > most || off.is_nan() { off } else { most };
                        theirs = theirs.max(cpu);
                        // One KV head has none beside it.
                        let told = case.kv_heads == 1 || control > 10.0;
                        if case.kv_heads > 1 {
                            weakest = weakest.min(control);
                        }
                        let words = format!(
                            "{off:.3} of the bound; another KV head: {control:.0}; the CPU's own: {cpu:.3}"
                        );
                        (ran.route.clone(), off <= 1.0 && told, words)
                    }
                }
            }
        };
        let right = right && became == case.expect;
        if !right || list {
            let sign = if right { "  " } else { "!!" };
            println!("{sign} case {i}: {name}: {became}; {words}");
        }
        wrong += usize::from(!right);
        *tally.entry(became).or_default() += 1;
    }
    println!("{} attentions", cases.len());
    for (what, count) in &tally {
        println!("  {count:4} {what}");
    }
    println!(
        "worst: {most:.3} of the bound; weakest negative control: {weakest:.0} times the bound"
    );
    println!("the CPU's own worst: {theirs:.3} of the bound");
    println!("wrong: {wrong}");
    Ok(wrong == 0)
}
