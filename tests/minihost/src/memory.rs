//! `memory`: models that come and go. What a context used returns with its end, and a model that
//! takes the place of another is never taken for it.

use crate::Setup;
use crate::ggml::{self, Backend, Type};
use crate::model::{Model, Place, Shape};
use anyhow::{Context as _, Result};
use std::collections::BTreeMap;

/// Rounds until libraries, pools and allocators have what they keep.
const WARM: usize = 3;

/// Kibibytes of this process that are in memory. On the simulator the board's buffers are among
/// them.
///
/// # Errors
/// Linux does not say.
pub fn resident() -> Result<u64> {
    let status = std::fs::read_to_string("/proc/self/status")?;
    let line = status.lines().find_map(|l| l.strip_prefix("VmRSS:")).context("no VmRSS")?;
    Ok(line.trim().trim_end_matches(" kB").parse()?)
}

/// Right results of its own, and not those of the other model.
fn belongs(results: &[Vec<f32>], own: &Model, other: &Model, what: &str) -> bool {
    let (own, other) = (own.deviation(results), other.deviation(results));
    let right = own.passes() && other.worst >= 10.0;
    if !right {
        println!("!! {what}: {own}; the other model: {:.0} of the bound", other.worst);
    }
    right
}

/// Two models of one shape in turn. True if results are right and memory returns.
fn rounds(setup: &Setup, models: &[Model; 2], rounds: usize, bounded: bool) -> Result<bool> {
    let host = setup.host;
    let (mut right, mut used, mut bases) = (true, Vec::new(), BTreeMap::<usize, usize>::new());
    for round in 0..rounds {
        let (own, other) = (&models[round % 2], &models[1 - round % 2]);
        let results = own.loaded(host, Place::Anywhere, |loaded| {
            *bases.entry(loaded.base()).or_default() += 1;
            let backend = Backend::new(host, setup.device()?)?;
            loaded.compute(&backend)
        })?;
        right &= belongs(&results, own, other, &format!("round {round}"));
        used.push(resident()?);
    }
    let Shape { k, n, weights, .. } = models[0].shape;
    let packed = (k * n * weights * 2 / 1024) as u64;
    let after = used.get(WARM - 1).copied().unwrap_or(0);
    let most = used.iter().skip(WARM).copied().max().unwrap_or(after);
    let growth = most.saturating_sub(after);
    println!(
        "resident after each round, MB: {:?}",
        used.iter().map(|k| k >> 10).collect::<Vec<_>>()
    );
    println!("a model: {packed} kB packed; growth after round {WARM}: {growth} kB");
    println!("{} rounds at {} addresses", used.len(), bases.len());
    // One weight lost each round would be several times this.
    let returned = growth <= packed / 2;
    if bounded && !returned {
        println!("!! memory does not return");
    }
    Ok(right && (returned || !bounded))
}

/// Models at one address, one after another, under a context that outlives them.
fn twins(setup: &Setup, models: &[Model; 2]) -> Result<bool> {
    let host = setup.host;
    let lasting = Backend::new(host, setup.device()?)?;
    let mut region = models[0].region();
    let (mut right, mut bases) = (true, BTreeMap::<usize, usize>::new());
    let mut compared = 0;
    for round in 0..6 {
        let (own, other) = (&models[round % 2], &models[1 - round % 2]);
        let both = own.loaded(host, Place::At(&mut region), |loaded| {
            *bases.entry(loaded.base()).or_default() += 1;
            // Twice, so that the second time it is resident; and by a context of its own.
            let young = Backend::new(host, setup.device()?)?;
            Ok([loaded.compute(&lasting)?, loaded.compute(&young)?, loaded.compute(&lasting)?])
        })?;
        for results in &both {
            right &= belongs(results, own, other, &format!("same address, round {round}"));
            compared += 1;
        }
    }
    println!("{compared} results of models at {} address: none mixed: {right}", bases.len());
    Ok(right && bases.len() == 1)
}

/// Two models and two contexts alive at once.
fn together(setup: &Setup, models: &[Model; 2]) -> Result<bool> {
    let host = setup.host;
    let [a, b] = models;
    let contexts = [Backend::new(host, setup.device()?)?, Backend::new(host, setup.device()?)?];
    a.loaded(host, Place::Anywhere, |first| {
        b.loaded(host, Place::Anywhere, |second| {
            let mut right = true;
            for backend in contexts.iter().cycle().take(4) {
                let what = "both loaded";
                right &= belongs(&first.compute(backend)?, a, b, what);
                right &= belongs(&second.compute(backend)?, b, a, what);
            }
            println!("8 results of two models at once: none mixed: {right}");
            Ok(right)
        })
    })
}

/// All of it. True if right.
///
/// # Errors
/// Those of the host.
pub fn run(setup: &Setup, rounds_wanted: usize, small: bool) -> Result<bool> {
    let host = setup.host;
    if !small {
        ggml::steady_allocator();
    }
    let shape = match small {
        true => Shape { m: 8, k: 128, n: 96, weights: 2 },
        false => Shape { m: 8, k: 512, n: 768, weights: 6 },
    };
    let mut right = true;
    for (dtype, count) in [(Type::F16, rounds_wanted), (Type::Q8_0, rounds_wanted.div_ceil(2))] {
        let models = [Model::new(host, dtype, shape, 1)?, Model::new(host, dtype, shape, 2)?];
        println!("{}:", host.type_name(dtype)?);
        right &= rounds(setup, &models, count, !small)?;
        right &= twins(setup, &models)?;
        right &= together(setup, &models)?;
    }
    let (free, total) = host.memory(setup.device()?);
    println!("the device reports {} of {} MB free", free >> 20, total >> 20);
    Ok(right && free > 0 && free <= total)
}
