//! The operands of an accepted product as slices: the one place where the host's pointers become
//! memory that safe code reads.
#![allow(unsafe_code)]

use super::backend::Instance;
use super::plugin::Plugin;
use crate::abi::constants::USAGE_WEIGHTS;
use crate::abi::tensor::Tensor;
use crate::exec::activation::Activation;
use crate::exec::mul_mat::Operands;
use crate::exec::weight::{Decode, Weight};
use crate::exec::{Redo, WeightKey, identity};
use crate::route::{Dtype, Numerics, Route};

/// One set of operands a slice. The route has established types, shapes and strides. The result goes to
/// `elsewhere`, if that is given, and not to the node's memory.
///
/// # Errors
/// Why the CPU has to do the op.
pub(super) fn of<'a>(
    instance: &Instance,
    node: &'a Tensor,
    name: &'a str,
    route: Route,
    elsewhere: Option<&'a mut [f32]>,
) -> Result<Vec<Operands<'a>>, Redo> {
    let Route::Product { numerics, m, k, n, slices } = route else { return Err(Redo::NotRouted) };
    let plugin = instance.plugin;
    let (weight, activation) = node.source(0).zip(node.source(1)).ok_or(Redo::NotRouted)?;
    let dtype = Dtype(weight.dtype);
    let format = plugin.host.format(dtype).ok_or(Redo::NotRouted)?;
    let row_bytes = format.block.row_bytes(k).ok_or(Redo::NotRouted)?;
    let decode = Decode::of(dtype, format.to_float).ok_or(Redo::NotRouted)?;
    let wide = |x: i64| x as usize;
    let (w2, w3) = (wide(weight.ne[2]), wide(weight.ne[3]));
    let (a1, a2, a3) = (wide(activation.ne[1]), wide(activation.ne[2]), wide(activation.ne[3]));
    let strides = [1, 2, 3].map(|i| activation.nb[i] / 4);
    let rows = [a1, a2, a3];
    let extent = Activation::extent(k, rows, strides).ok_or(Redo::NotRouted)?;

    let range = |t: &Tensor, bytes: usize| {
        let first = t.data as usize;
        (first, first.saturating_add(bytes))
    };
    let bytes = row_bytes * n * w2 * w3;
    let out = range(node, m * n * slices * 4);
    let overlaps = |other: (usize, usize)| out.0 < other.1 && other.0 < out.1;
    let operands = [range(weight, bytes), range(activation, extent * 4)];
    if elsewhere.is_none() && operands.into_iter().any(overlaps) {
        return Err(Redo::Overlap);
    }
    // SAFETY: the weight is contiguous and of that many bytes, the activation reaches as far as
    // its strides say, a result in its place is contiguous; all lie in host memory that the host lets nobody
    // touch while it waits for this graph, and the result overlaps neither operand.
    let (data, values, result) = unsafe {
        (
            weight.elements::<u8>(bytes).ok_or(Redo::NoData)?,
            activation.elements::<f32>(extent).ok_or(Redo::NoData)?,
            match elsewhere {
                Some(out) => out.get_mut(..m * n * slices).ok_or(Redo::NoData)?,
                None => node.elements_mut::<f32>(m * n * slices).ok_or(Redo::NoData)?,
            },
        )
    };
    let each = row_bytes * n;
    let mut parts = result.chunks_exact_mut(m * n);
    (0..slices)
        .map(|slice| {
            // The batches that share a weight lie together in dimension 2 of the activation; with
            // one weight for all, everything does.
            let (i2, i3) = (slice % w2, slice / w2);
            let (part, rows) = match slices {
                1 => (values, rows),
                _ => {
                    let share = a2 / w2;
                    let first = i2 * share * strides[1] + i3 * strides[2];
                    (&values[first..], [a1, share, 1])
                }
            };
            let at = (i3 / (a3 / w3) * w2 + i2) * each;
            let data = &data[at..][..each];
            // SAFETY: the host's own decoder of this type, for rows of whole blocks.
            let weight_rows = unsafe { Weight::new(data, [n, k], row_bytes, decode) };
            Ok(Operands {
                name,
                weight: weight_rows.ok_or(Redo::NoData)?,
                dtype,
                numerics,
                key: key(plugin, weight, data, [n, k], numerics),
                owner: instance.id,
                activation: Activation::new(part, k, rows, strides).ok_or(Redo::NoData)?,
                out: parts.next().ok_or(Redo::NotRouted)?,
            })
        })
        .collect()
}

/// Whether a weight stays where it is: it lies in a buffer of weights, and is no copy of the
/// scheduler's, which are named `backend#tensor#n` (ggml-abi 6, pass 5).
pub(super) fn stays(plugin: &Plugin, weight: &Tensor) -> bool {
    if weight.buffer.is_null() || weight.name().contains('#') {
        return false;
    }
    // SAFETY: a live buffer of the host.
    unsafe { (plugin.host.f.buffer_get_usage)(weight.buffer) == USAGE_WEIGHTS }
}

/// The identity of a weight, if it has a lasting one.
pub(super) fn key(
    plugin: &Plugin,
    weight: &Tensor,
    data: &[u8],
    shape: [usize; 2],
    numerics: Numerics,
) -> Option<WeightKey> {
    if !stays(plugin, weight) {
        return None;
    }
    // SAFETY: a live buffer of the host.
    let base = unsafe { (plugin.host.f.buffer_get_base)(weight.buffer) as usize };
    Some(WeightKey {
        buffer: weight.buffer as usize,
        base,
        offset: (data.as_ptr() as usize).wrapping_sub(base),
        dtype: Dtype(weight.dtype),
        shape,
        hash: identity::hash(data),
        numerics,
    })
}
