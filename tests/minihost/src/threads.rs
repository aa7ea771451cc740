//! `threads`: what ggml-abi 6.4 allows at once. Contexts compute different graphs, one thread asks
//! about ops, another makes and frees contexts.

use crate::Setup;
use crate::ggml::{Backend, Buffer, Context, Type};
use crate::model::{Model, Place, Shape};
use anyhow::{Result, bail};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// One context: a model of its own, loaded and unloaded in turn.
fn contexts(setup: &Setup, model: &Model, rounds: usize) -> Result<u64> {
    let host = setup.host;
    let mut compared = 0;
    for _ in 0..rounds {
        model.loaded(host, Place::Anywhere, |loaded| {
            let backend = Backend::new(host, setup.device()?)?;
            for _ in 0..2 {
                let d = model.deviation(&loaded.compute(&backend)?);
                if !d.passes() {
                    bail!("a result is {d}");
                }
                compared += 1;
            }
            Ok(())
        })?;
    }
    Ok(compared)
}

/// Asks about one op until the others are done; the answer never changes.
fn ask(setup: &Setup, done: &AtomicBool) -> Result<u64> {
    let stored = Context::new(setup.host, 1)?;
    let weight = stored.tensor(Type::F16, [96, 80, 1, 1], "weight")?;
    let buffer = Buffer::of(&stored, true)?;
    let context = Context::new(setup.host, 4)?;
    let tensor = |m| context.tensor(Type::F32, [96, m, 1, 1], "activation");
    let taken = context.mul_mat(weight, tensor(8)?, "taken")?;
    let declined = context.mul_mat(weight, tensor(7)?, "declined")?;
    let mut asked = 0;
    while !done.load(Ordering::Relaxed) || asked == 0 {
        let device = setup.device()?;
        let supports = |op| setup.host.supports(device, op, &[&buffer]);
        if !supports(taken)? || supports(declined)? {
            bail!("the answer changed after {asked}");
        }
        asked += 2;
    }
    Ok(asked)
}

/// Makes and frees contexts that compute nothing.
fn come_and_go(setup: &Setup, done: &AtomicBool) -> Result<u64> {
    let mut made = 0;
    while !done.load(Ordering::Relaxed) || made == 0 {
        drop(Backend::new(setup.host, setup.device()?)?);
        let (free, total) = setup.host.memory(setup.device()?);
        if free > total {
            bail!("{free} of {total} bytes are free");
        }
        made += 1;
        std::thread::yield_now();
    }
    Ok(made)
}

/// Runs them all. True if every result was right.
///
/// # Errors
/// Those of the host.
pub fn run(setup: &Setup, small: bool) -> Result<bool> {
    let host = setup.host;
    let (count, rounds) = if small { (2, 2) } else { (4, 6) };
    let models: Vec<Model> = (0..count)
        .map(|i| {
            let size = if small { 64 } else { 192 };
            let shape = Shape { m: 8 + i, k: size + 32 * i, n: size + 16 * i + 1, weights: 2 };
            let dtype = [Type::F16, Type::Q8_0, Type::F32, Type::F16][i % 4];
            Model::new(host, dtype, shape, 10 + i as u64)
        })
        .collect::<Result<_>>()?;
    let done = AtomicBool::new(false);
    let compared = AtomicU64::new(0);
    let (asked, made, failures) = std::thread::scope(|scope| {
        let asker = scope.spawn(|| ask(setup, &done));
        let maker = scope.spawn(|| come_and_go(setup, &done));
        let workers: Vec<_> = models
            .iter()
            .map(|model| {
                scope.spawn(|| {
                    let n = contexts(setup, model, rounds)?;
                    compared.fetch_add(n, Ordering::Relaxed);
                    anyhow::Ok(())
                })
            })
            .collect();
        let mut failures = Vec::new();
        for worker in workers {
            match worker.join() {
                Ok(Ok(())) => {}
                Ok(Err(e)) => failures.push(format!("{e:#}")),
                Err(_) => failures.push("a thread panicked".to_owned()),
            }
        }
        done.store(true, Ordering::Relaxed);
        let mut count = |joined: std::thread::Result<Result<u64>>| match joined {
            Ok(Ok(n)) => n,
            Ok(Err(e)) => {
                failures.push(format!("{e:#}"));
                0
            }
            Err(_) => {
                failures.push("a thread panicked".to_owned());
                0
            }
        };
        let (asked, made) = (count(asker.join()), count(maker.join()));
        (asked, made, failures)
    });
    failures.iter().for_each(|f| println!("!! {f}"));
    let compared = compared.into_inner();
    println!("{count} contexts at once: {compared} graphs compared");
    println!("meanwhile: {asked} questions, {made} contexts made and freed");
    Ok(failures.is_empty() && compared == (count * rounds * 2) as u64)
}
