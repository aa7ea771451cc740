//! Contexts and stacks that come and go while others compute, or while they are packed.

use super::contexts::Twins;
use super::op::with_stack;
use crate::Setup;
use crate::ggml::{Backend, Buffer, Context, Region};
use crate::report;
use anyhow::{Context as _, Result, bail};

/// Contexts that end while a stack is packed.
const ABANDONED: usize = 12;
const THREADS: usize = 4;

/// A context ends, and its stack goes, while the stack is packed beside the host: nobody may read it
/// any more.
///
/// # Errors
/// Those of the host.
pub fn abandoned(setup: &Setup) -> Result<bool> {
    let host = setup.host;
    let cpu = Backend::new(host, host.cpu())?;
    let twins = Twins::new(setup, [1024, 512, 64])?;
    let mut right = true;
    for round in 0..ABANDONED {
        let (own, name) = (round % 2, format!("round-{round}"));
        let got = with_stack(host, &twins.stack, &twins.weights[own].0, |node, buffer| {
            let ours = Backend::new(host, setup.device()?)?;
            let got = twins.compute(setup, [&ours, &cpu], (node, buffer), &name)?;
            // Sooner or later in it.
            std::thread::sleep(std::time::Duration::from_millis(round as u64 * 3));
            Ok(got)
        })?;
        right &= twins.belongs(&got, own, &name);
    }
    let report = report::read(&setup.report).context("after the last context")?;
    let of = |i: usize| report.ops.get(&format!("round-{i}")).and_then(|ran| ran.redo.as_deref());
    let packing = (0..ABANDONED).filter(|&i| of(i) == Some("experts_packing")).count();
    println!("{packing} of {ABANDONED} contexts ended while their stack was packed");
    Ok(right && packing == ABANDONED)
}

/// Threads, each with a context and a stack of its own, and one that all have a copy of.
///
/// # Errors
/// Those of the host.
pub fn at_once(setup: &Setup) -> Result<bool> {
    let host = setup.host;
    let twins = Twins::new(setup, [512, 160, 16])?;
    let shared = Twins::new(setup, [384, 96, 8])?;
    let one = &|thread: usize| -> Result<bool> {
        let mut right = true;
        for round in 0..4 {
            // The other threads' contexts go on when this one ends.
            let own = (thread + round) % 2;
            let [mine, all] = [&twins.weights[own].0, &shared.weights[0].0];
            right &= with_stack(host, &twins.stack, mine, |node, buffer| {
                with_stack(host, &shared.stack, all, |also, beside| {
                    let cpu = Backend::new(host, host.cpu())?;
                    let ours = Backend::new(host, setup.device()?)?;
                    let (both, mut right) = ([&ours, &cpu], true);
                    for i in 0..3 {
                        let name = format!("thread-{thread}-{round}-{i}");
                        let got = twins.compute(setup, both, (node, buffer), &name)?;
                        right &= twins.belongs(&got, own, &name);
                        let name = format!("shared-{thread}-{round}-{i}");
                        let got = shared.compute(setup, both, (also, beside), &name)?;
                        right &= shared.belongs(&got, 0, &name);
                    }
                    Ok(right)
                })
            })?;
        }
        Ok(right)
    };
    let results: Vec<Result<bool>> = std::thread::scope(|scope| {
        let threads: Vec<_> = (0..THREADS).map(|i| scope.spawn(move || one(i))).collect();
        let join = |t: std::thread::ScopedJoinHandle<'_, Result<bool>>| {
            t.join().unwrap_or_else(|_| bail!("a thread panicked"))
        };
        threads.into_iter().map(join).collect()
    });
    let right = results.into_iter().collect::<Result<Vec<_>>>()?.into_iter().all(|right| right);
    let report = report::read(&setup.report)?;
    let of = |route: &str| report.routes.get(route).copied().unwrap_or(0);
    println!(
        "{THREADS} contexts at once: {} ops in int8, {} by the CPU {:?}",
        of("experts-int8"),
        of("cpu"),
        report.redos
    );
    let all = of("experts-int8") + of("cpu");
    // What is packed meanwhile is the one reason.
    let packing = report.redos.get("experts_packing").copied().unwrap_or(0);
    Ok(right && all == (THREADS * 4 * 3 * 2) as u64 && packing == of("cpu"))
}

/// A stack makes place for another one while it is packed, under a context that outlives both; and
/// comes back. What was packed of it in between must not be a mixture.
///
/// # Errors
/// Those of the host.
pub fn replaced(setup: &Setup) -> Result<bool> {
    let host = setup.host;
    let cpu = Backend::new(host, host.cpu())?;
    let ours = Backend::new(host, setup.device()?)?;
    let twins = Twins::new(setup, [1024, 512, 64])?;
    let mut region = Region::new(twins.weights[0].0.len());
    let context = Context::new(host, 1)?;
    let ne = [twins.stack.k, twins.stack.n, twins.stack.experts, 1].map(|n| n as i64);
    let node = context.tensor(twins.stack.dtype, ne, "blk.0.ffn_exps.weight")?;
    let buffer = Buffer::around(host, &mut region, true)?;
    buffer.place(node, 0)?;
    let mut results = Vec::new();
    let mut compute = |own: usize| -> Result<()> {
        buffer.write(node, &twins.weights[own].0)?;
        let name = format!("op-{}", results.len());
        let got = twins.compute(setup, [&ours, &cpu], (node, &buffer), &name)?;
        results.push((own, name, got));
        Ok(())
    };
    // The first is being packed while the second takes its place.
    compute(0)?;
    compute(1)?;
    // Whatever is packed of them is there by then.
    for _ in 0..8 {
        std::thread::sleep(std::time::Duration::from_millis(250));
        compute(0)?;
        compute(1)?;
    }
    let belongs = |(own, name, got): &(usize, String, Vec<f32>)| twins.belongs(got, *own, name);
    let right = results.iter().filter(|r| !belongs(r)).count() == 0;
    drop(ours);
    let report = report::read(&setup.report)?;
    println!("{:?} {:?}", report.routes, report.redos);
    Ok(right)
}
