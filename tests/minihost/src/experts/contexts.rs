//! Contexts that come and go: what each alone used goes with it, what two share is packed once, and
//! no stack is taken for another at its address.

use super::case::{self, Batch, Stack};
use super::golden::{Golden, Rounding};
use super::op::{Got, Loaded, with_stack};
use crate::Setup;
use crate::ggml::{self, Backend, Buffer, Context, Node, Region, Type};
use crate::memory::resident;
use crate::report::{self, Report};
use crate::values::Values;
use anyhow::{Result, bail};

/// Two stacks of one shape and one name, and rows that meet them.
pub(super) struct Twins {
    pub(super) stack: Stack,
    batch: Batch,
    /// Encoded and decoded.
    pub(super) weights: [(Vec<u8>, Vec<f32>); 2],
    activation: Vec<f32>,
}

impl Twins {
    pub(super) fn new(setup: &Setup, shape: [usize; 3]) -> Result<Twins> {
        let [k, n, experts] = shape;
        let batch = Batch::new(32, 2);
        let stack = Stack { k, n, experts, batches: vec![batch], ..case::small(Type::Q8_0) };
        let mut values = Values::new(5);
        let weights =
            [stack.weights(setup.host, &mut values)?, stack.weights(setup.host, &mut values)?];
        let activation = batch.activation(k, &mut values);
        Ok(Twins { stack, batch, weights, activation })
    }

    pub(super) fn compute(
        &self,
        setup: &Setup,
        [ours, cpu]: [&Backend; 2],
        (node, buffer): (Node<'_>, &Buffer<'_>),
        name: &str,
    ) -> Result<Vec<f32>> {
        let (host, stack) = (setup.host, &self.stack);
        let ask = Some(setup.device()?);
        let loaded = Loaded { host, stack, node, buffer, ask, ours, cpu };
        match loaded.compute(&self.batch, &self.activation, name)? {
            Got::Computed { ours, .. } => Ok(ours),
            got => bail!("{name}: {got:?}"),
        }
    }

    /// Whether a result is that of one of them and not of the other.
    pub(super) fn belongs(&self, got: &[f32], own: usize, name: &str) -> bool {
        let units = [own, 1 - own].map(|i| {
            let golden =
                Golden::new(&self.stack, &self.batch, &self.weights[i].1, &self.activation);
            golden.units(got, Rounding::Int8)
        });
        let right = units[0] <= 1.0 && units[1] >= 10.0;
        if !right {
            println!("!! {name}: {:.3} of what is allowed; the other's: {:.0}", units[0], units[1]);
        }
        right
    }
}

/// Rounds until libraries, pools and allocators have what they keep: each round's buffers lie a
/// little further than the last one's, until their space has been gone through.
const WARM: usize = 25;
const ROUNDS: usize = 40;

/// A stack and a context a round. True if results are right and memory returns.
fn rounds(setup: &Setup, twins: &Twins, cpu: &Backend) -> Result<bool> {
    let (mut right, mut used) = (true, Vec::new());
    for round in 0..ROUNDS {
        let (own, name) = (round % 2, format!("round-{round}"));
        let bytes = &twins.weights[own].0;
        let got = with_stack(setup.host, &twins.stack, bytes, |node, buffer| {
            let ours = Backend::new(setup.host, setup.device()?)?;
            twins.compute(setup, [&ours, cpu], (node, buffer), &name)
        })?;
        right &= twins.belongs(&got, own, &name);
        used.push(resident()?);
    }
    let Stack { k, n, experts, .. } = twins.stack;
    let codes = (k * n * experts / 1024) as u64;
    let after = used[WARM - 1];
    let growth = used[WARM..].iter().max().map_or(0, |most| most.saturating_sub(after));
    println!("a stack: {codes} kB of codes; growth after round {WARM}: {growth} kB");
    // One stack lost each round would be several times this.
    if growth > codes / 2 {
        println!("!! memory does not return: {used:?}");
    }
    Ok(right && growth <= codes / 2)
}

/// Both in turn at one address, under a context that outlives them.
fn at_one_address(setup: &Setup, twins: &Twins, cpu: &Backend) -> Result<bool> {
    let host = setup.host;
    let ours = Backend::new(host, setup.device()?)?;
    let mut region = Region::new(twins.weights[0].0.len());
    let mut right = true;
    for round in 0..6 {
        let context = Context::new(host, 1)?;
        let ne = [twins.stack.k, twins.stack.n, twins.stack.experts, 1].map(|n| n as i64);
        let node = context.tensor(twins.stack.dtype, ne, "blk.0.ffn_exps.weight")?;
        let buffer = Buffer::around(host, &mut region, true)?;
        buffer.place(node, 0)?;
        buffer.write(node, &twins.weights[round % 2].0)?;
        for again in 0..2 {
            let name = format!("twin-{round}-{again}");
            let got = twins.compute(setup, [&ours, cpu], (node, &buffer), &name)?;
            right &= twins.belongs(&got, round % 2, &name);
        }
    }
    Ok(right)
}

/// One stack under two contexts at once, then one, then another one.
fn shared(setup: &Setup, twins: &Twins, cpu: &Backend) -> Result<bool> {
    let host = setup.host;
    let new = || Backend::new(host, setup.device()?);
    with_stack(host, &twins.stack, &twins.weights[0].0, |node, buffer| {
        let mut right = true;
        let mut go = |ours: &Backend, name: &str| -> Result<()> {
            let got = twins.compute(setup, [ours, cpu], (node, buffer), name)?;
            right &= twins.belongs(&got, 0, name);
            Ok(())
        };
        let (first, second) = (new()?, new()?);
        go(&first, "first")?;
        go(&second, "shared")?;
        drop(first);
        go(&second, "left")?;
        drop(second);
        go(&new()?, "last")?;
        Ok(right)
    })
}

/// How often a stack was packed, by the names that the ops had.
fn packed(report: &Report, prefix: &str) -> Result<usize> {
    let ops: Vec<_> = report.ops.iter().filter(|(name, _)| name.starts_with(prefix)).collect();
    if let Some((name, ran)) = ops.iter().find(|(_, ran)| ran.route != "experts-int8") {
        bail!("{name}: {ran:?}");
    }
    if ops.is_empty() {
        bail!("no op of '{prefix}' is in the report");
    }
    Ok(ops.iter().filter(|(_, ran)| ran.packed_bytes > 0).count())
}

/// All of it. True if right.
///
/// # Errors
/// Those of the host.
pub fn run(setup: &Setup) -> Result<bool> {
    ggml::steady_allocator();
    let cpu = Backend::new(setup.host, setup.host.cpu())?;
    let large = Twins::new(setup, [512, 384, 32])?;
    let mut right = rounds(setup, &large, &cpu)?;
    let small = Twins::new(setup, [256, 96, 4])?;
    right &= at_one_address(setup, &small, &cpu)?;
    right &= shared(setup, &small, &cpu)?;
    let report = report::read(&setup.report)?;
    let names = ["round-", "twin-", "first", "shared", "left", "last"];
    let counts = names.map(|name| packed(&report, name));
    let counts = counts.into_iter().collect::<Result<Vec<_>>>()?;
    // A twin may be known again by what it holds.
    println!("packed: {:?}", names.iter().zip(&counts).collect::<Vec<_>>());
    Ok(right && counts[0] == ROUNDS && (2..=6).contains(&counts[1]) && counts[2..] == [1, 0, 0, 1])
}
