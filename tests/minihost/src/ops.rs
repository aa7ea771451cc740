//! `ops`: every case of the list, computed by our device and compared.

use crate::Setup;
use crate::cases::{self, Case, Expect, Layout, Numbers, Origin};
use crate::ggml::{Backend, Buffer, Context, Graph, Host, Node, Type};
use crate::report::{self, Report};
use crate::values::{Deviation, Values, Wanted, product};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;

/// What the device made of one case.
#[derive(Debug)]
enum Got {
    Declined,
    /// Compared with the product in double precision.
    Computed(Deviation),
    /// Whether the bits are those of the host's CPU.
    AsTheCpu(bool),
}

/// Sizes of the activation as memory: its parent's, and elements before the first.
fn parent(case: &Case) -> ([i64; 4], usize) {
    let [k, m, b2, b3] = case.activation;
    match case.layout {
        Layout::Dense => ([k, m, b2, b3], 0),
        Layout::Gaps(g) => ([k + g, m, b2, b3], (g / 3) as usize),
        Layout::Heads(g) => ([k + g, b2, m, b3], (g / 3) as usize),
        Layout::Transposed => ([m, k, b2, b3], 0),
    }
}

/// The activation as a tensor of its sizes, from its parent.
fn shaped<'c>(context: &'c Context, case: &Case, whole: Node<'c>) -> Result<Node<'c>> {
    let (ne, before) = parent(case);
    let k = case.activation[0];
    let nb = whole.nb();
    let cut = |t| context.view(t, [k, ne[1], ne[2], ne[3]], [nb[1], nb[2], nb[3]], before * 4);
    match case.layout {
        Layout::Dense => Ok(whole),
        Layout::Gaps(_) => cut(whole),
        Layout::Heads(0) => context.permute(whole, [0, 2, 1, 3]),
        Layout::Heads(_) => context.permute(cut(whole)?, [0, 2, 1, 3]),
        Layout::Transposed => context.permute(whole, [1, 0, 2, 3]),
    }
}

/// The rows of the activation in the order of the result's, by the definition of the layout.
fn rows(case: &Case, memory: &[f32]) -> Vec<f32> {
    let [k, m, b2, b3] = case.activation.map(|n| n as usize);
    let (ne, before) = parent(case);
    let pitch = ne[0] as usize;
    let mut out = Vec::with_capacity(k * m * b2 * b3);
    for i3 in 0..b3 {
        for i2 in 0..b2 {
            for i1 in 0..m {
                let row = match case.layout {
                    Layout::Heads(_) => (i3 * m + i1) * b2 + i2,
                    _ => (i3 * b2 + i2) * m + i1,
                };
                out.extend_from_slice(&memory[row * pitch + before..][..k]);
            }
        }
    }
    out
}

/// Weight values, before the type's rounding.
fn weight_values(case: &Case, values: &mut Values) -> Vec<f32> {
    let [k, n, b2, b3] = case.weight.map(|n| n as usize);
    let mut w = values.take(k * n * b2 * b3);
    match case.numbers {
        Numbers::WildWeights => {
            let sizes = [1.0, 1e-9, 1e7, 1e-30, 1e20];
            for (row, size) in w.chunks_exact_mut(k).zip(sizes.iter().cycle()) {
                row.iter_mut().for_each(|x| *x *= size);
            }
        }
        Numbers::TinyWeights => w.iter_mut().for_each(|x| *x *= 1e-6),
        Numbers::InfiniteWeight => w[k * n - 2] = f32::NEG_INFINITY,
        Numbers::Overflow => w.fill(60000.0),
        _ => {}
    }
    w
}

fn activation_values(case: &Case, values: &mut Values) -> Vec<f32> {
    let (ne, before) = parent(case);
    let pitch = ne[0] as usize;
    let count = ne.iter().product::<i64>() as usize;
    let mut a = values.take(count);
    let mut each = |sizes: &[f32]| {
        for (row, size) in a.chunks_exact_mut(pitch).zip(sizes.iter().cycle()) {
            row.iter_mut().for_each(|x| *x *= size);
        }
    };
    match case.numbers {
        Numbers::LargeRow => a[3 * pitch..4 * pitch].iter_mut().for_each(|x| *x *= 3000.0),
        Numbers::WildRows => each(&[1e30, 1e-20, 1.0]),
        Numbers::NotANumber => a[before] = f32::NAN,
        Numbers::Overflow => a.fill(1.0),
        _ => {}
    }
    a
}

/// The whole result in double precision.
fn wanted(case: &Case, a: &[f32], w: &[f32]) -> Vec<Wanted> {
    let [k, n, w2, w3] = case.weight.map(|n| n as usize);
    let [_, m, a2, a3] = case.activation.map(|n| n as usize);
    let mut out = Vec::new();
    for i3 in 0..a3 {
        for i2 in 0..a2 {
            let batch = i3 / (a3 / w3) * w2 + i2 / (a2 / w2);
            let rows = &a[(i3 * a2 + i2) * m * k..][..m * k];
            out.extend(product(rows, &w[batch * n * k..][..n * k], k));
        }
    }
    out
}

/// Rows of a larger weight that lie before the view of one.
const ROWS_BEFORE: i64 = 3;

fn one(setup: &Setup, ours: &Backend, cpu: &Backend, case: &Case, name: &str) -> Result<Got> {
    let host = setup.host;
    let mut values = Values::new(case.weight.iter().chain(&case.activation).sum::<i64>() as u64);
    let [k, n, b2, b3] = case.weight;
    let weights = weight_values(case, &mut values);
    let bytes = host.encode(case.dtype, &weights, k as usize)?;
    let decoded = host.decode(case.dtype, &bytes, k as usize)?;

    let stored = Context::new(host, 2)?;
    let is_view = case.origin == Origin::View;
    let before = if is_view { ROWS_BEFORE } else { 0 };
    let leaf = stored.tensor(case.dtype, [k, n + before, b2, b3], "weight")?;
    let weight_buffer = Buffer::of(&stored, case.origin != Origin::Plain)?;
    let row = host.row_bytes(case.dtype, k as usize)?;
    let unused = vec![0u8; row * before as usize];
    weight_buffer.write(leaf, &[unused, bytes].concat())?;

    let context = Context::new(host, 8)?;
    let (ne, _) = parent(case);
    let whole = context.tensor(Type::F32, ne, "activation")?;
    let activation = shaped(&context, case, whole)?;
    let weight = if is_view {
        let nb = leaf.nb();
        context.view(leaf, [k, n, b2, b3], [nb[1], nb[2], nb[3]], row * before as usize)?
    } else {
        leaf
    };
    let result = context.mul_mat(weight, activation, name)?;
    let device = setup.device()?;
    // Asked before anything has memory, as schedulers do; the answer must not change.
    let early = host.supports(device, result, &[&weight_buffer])?;
    let buffer = Buffer::of(&context, false)?;
    let buffers = [&weight_buffer, &buffer];
    anyhow::ensure!(early == host.supports(device, result, &buffers)?, "the answer changed");
    if !early {
        return Ok(Got::Declined);
    }
    let memory = activation_values(case, &mut values);
    buffer.write_floats(whole, &memory)?;
    let graph = context.graph(&[result])?;
    let compute = |backend: &Backend, graph: &Graph<'_>| -> Result<Vec<f32>> {
        buffer.write_floats(result, &vec![f32::NAN; result.bytes(host) / 4])?;
        backend.compute(graph, &buffers)?;
        buffer.read_floats(result)
    };
    let got = compute(ours, &graph)?;
    if let Expect::Redone(_) = case.expect {
        let cpu = compute(cpu, &graph)?;
        let same = |(a, b): (&f32, &f32)| a.to_bits() == b.to_bits() || (a.is_nan() && b.is_nan());
        return Ok(Got::AsTheCpu(got.iter().zip(&cpu).all(same)));
    }
    let wanted = wanted(case, &rows(case, &memory), &decoded);
    Ok(Got::Computed(Deviation::of(&got, &wanted, n as usize)))
}

/// What the report says became of a case.
fn became(host: &Host, report: &Report, case: &Case, name: &str, got: &Got) -> Result<String> {
    if let Got::Declined = got {
        let dtype = host.type_name(case.dtype)?;
        let found = report.declined.iter().find(|(t, k, n, _)| {
            (t.as_str(), *k, *n) == (dtype.as_str(), case.weight[0], case.weight[1])
        });
        return Ok(
            found.map_or("declined: without a reason".to_owned(), |f| format!("declined: {}", f.3))
        );
    }
    let ran = report.ops.get(name).with_context(|| format!("{name} is not in the report"))?;
    Ok(match &ran.redo {
        None => ran.route.clone(),
        Some(why) => format!("redone: {why}"),
    })
}

/// Runs the list. True if all are right.
///
/// # Errors
/// Those of the host.
pub fn run(setup: &Setup, small: bool, list: bool) -> Result<bool> {
    let host = setup.host;
    let cases = cases::list(host, small)?;
    let ours = Backend::new(host, setup.device()?)?;
    let cpu = Backend::new(host, host.cpu())?;
    let mut results = Vec::new();
    for (i, case) in cases.iter().enumerate() {
        let got = one(setup, &ours, &cpu, case, &format!("case-{i}"))
            .with_context(|| format!("case {i}: {}", case.describe()))?;
        results.push(got);
    }
    // The report is written when the context ends.
    drop(ours);
    let report = report::read(&setup.report)?;
    let mut tally: BTreeMap<String, usize> = BTreeMap::new();
    let (mut wrong, mut worst, mut least) = (0, 0f64, f64::INFINITY);
    for (i, (case, got)) in cases.iter().zip(&results).enumerate() {
        let became = became(host, &report, case, &format!("case-{i}"), got)?;
        let expected = match case.expect {
            Expect::Npu => "fp16".to_owned(),
            Expect::Redone(why) => format!("redone: {why}"),
            Expect::Declined(why) => format!("declined: {why}"),
        };
        let (right, words) = match got {
            Got::Declined => (true, String::new()),
            Got::AsTheCpu(same) => (*same, format!("as the CPU's: {same}")),
            Got::Computed(d) => {
                worst = if d.worst > worst || d.worst.is_nan() { d.worst } else { worst };
                least = least.min(d.control);
                (d.passes(), d.to_string())
            }
        };
        let right = right && became == expected;
        if !right || list {
            let sign = if right { "  " } else { "!!" };
            let dtype = host.type_name(case.dtype)?;
            println!("{sign} case {i}: {dtype} {}: {became}; {words}", case.describe());
            if became != expected {
                println!("!!   expected: {expected}");
            }
        }
        wrong += usize::from(!right);
        *tally.entry(became).or_default() += 1;
    }
    let on_npu = tally.get("fp16").copied().unwrap_or(0);
    println!("{} products, {} weight types", cases.len(), host.encoded_types().len());
    for (what, count) in &tally {
        println!("  {count:4} {what}");
    }
    println!("on the NPU: {on_npu}");
    println!(
        "worst: {worst:.3} of the bound; weakest negative control: {least:.0} times the bound"
    );
    println!("wrong: {wrong}");
    Ok(wrong == 0)
}
