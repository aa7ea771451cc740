//! `supports-op`: the cost of an answer. Schedulers ask thousands of times for a graph.

use crate::Setup;
use crate::ggml::{Buffer, Context, Node, Type};
use anyhow::Result;

const LAYERS: usize = 22;
const PASSES: usize = 3000;

/// Prints nanoseconds; no verdict hangs on them.
///
/// # Errors
/// Those of the host.
pub fn run(setup: &Setup) -> Result<bool> {
    let host = setup.host;
    let (k, m) = (576, 128);
    let stored = Context::new(host, 3 * LAYERS)?;
    let weight = |i: usize, name: &str| {
        stored.tensor(if i.is_multiple_of(2) { Type::F16 } else { Type::Q8_0 }, [k, k, 1, 1], name)
    };
    let weights: Vec<[Node<'_>; 3]> = (0..LAYERS)
        .map(|i| Ok([weight(i, "up")?, weight(i, "gate")?, weight(i, "down")?]))
        .collect::<Result<_>>()?;
    let buffer = Buffer::of(&stored, true)?;
    // Without memory, as when a graph is first placed.
    let context = Context::new(host, 10 * LAYERS + 1)?;
    let mut x = context.tensor(Type::F32, [k, m, 1, 1], "x")?;
    for (i, [up, gate, down]) in weights.into_iter().enumerate() {
        let name = |what: &str| format!("{what}-{i}");
        let norm = context.rms_norm(x)?;
        let a = context.mul_mat(up, norm, &name("up"))?;
        let b = context.mul_mat(gate, norm, &name("gate"))?;
        let sum = context.add(a, b)?;
        let nb = sum.nb();
        let heads = context.view(sum, [64, k / 64, m, 1], [64 * 4, nb[1], nb[2]], 0)?;
        let turned = context.permute(heads, [0, 2, 1, 3])?;
        let back = context.permute(turned, [0, 2, 1, 3])?;
        let flat = context.view(back, [k, m, 1, 1], [nb[1], nb[2], nb[3]], 0)?;
        x = context.add(x, context.mul_mat(down, flat, &name("down"))?)?;
    }
    let graph = context.graph(&[x])?;
    let nodes = graph.nodes();
    let device = setup.device()?;
    let products: Vec<_> = nodes.iter().copied().filter(|n| n.is_product(host)).collect();
    for (what, nodes) in [("all nodes", &nodes), ("products", &products)] {
        let (ns, taken) = host.time_supports(device, nodes, &[&buffer], PASSES)?;
        println!("{what}: {} nodes, {taken} accepted: {ns:.0} ns a call", nodes.len());
    }
    Ok(products.len() == 3 * LAYERS)
}
