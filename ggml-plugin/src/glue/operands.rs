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
use crate::route::{Dtype, Route};

/// One set of operands a slice. The route has established types, shapes and strides.
///
/// # Errors
/// Why the CPU has to do the op.
pub(super) fn of<'a>(
    instance: &Instance,
    node: &'a Tensor,
    name: &'a str,
    route: Route,
) -> Result<Vec<Operands<'a>>, Redo> {
    let Route::Fp16 { m, k, n, slices } = route else { return Err(Redo::NotRouted) };
    let plugin = instance.plugin;
    let (weight, activation) = node.source(0).zip(node.source(1)).ok_or(Redo::NotRouted)?;
    let dtype = Dtype(weight.dtype);
    let format = plugin.host.format(dtype).ok_or(Redo::NotRouted)?;
    let row_bytes = format.block.row_bytes(k).ok_or(Redo::NotRouted)?;
    let decode = match (dtype, format.to_float) {
        (Dtype::F16, _) => Decode::F16,
        (Dtype::F32, _) => Decode::F32,
        (_, Some(f)) => Decode::Host(f),
        (_, None) => return Err(Redo::NotRouted),
    };
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
    for other in [range(weight, bytes), range(activation, extent * 4)] {
        if out.0 < other.1 && other.0 < out.1 {
            return Err(Redo::Overlap);
        }
    }
    // SAFETY: the weight is contiguous and of that many bytes, the activation reaches as far as
    // its strides say, the result is contiguous; all lie in host memory that the host lets nobody
    // touch while it waits for this graph, and the result overlaps neither operand.
    let (data, values, result) = unsafe {
        (
            weight.elements::<u8>(bytes).ok_or(Redo::NoData)?,
            activation.elements::<f32>(extent).ok_or(Redo::NoData)?,
            node.elements_mut::<f32>(m * n * slices).ok_or(Redo::NoData)?,
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
                key: key(plugin, weight, data, [n, k]),
                owner: instance.id,
                activation: Activation::new(part, k, rows, strides).ok_or(Redo::NoData)?,
                out: parts.next().ok_or(Redo::NotRouted)?,
            })
        })
        .collect()
}

/// The identity of a weight, if it has a lasting one.
fn key(plugin: &Plugin, weight: &Tensor, data: &[u8], shape: [usize; 2]) -> Option<WeightKey> {
    // The scheduler's copies are named `backend#tensor#n` (ggml-abi 6, pass 5).
    if weight.buffer.is_null() || weight.name().contains('#') {
        return None;
    }
    let f = &plugin.host.f;
    // SAFETY: a live buffer of the host.
    let (usage, base) = unsafe {
        ((f.buffer_get_usage)(weight.buffer), (f.buffer_get_base)(weight.buffer) as usize)
    };
    (usage == USAGE_WEIGHTS).then(|| WeightKey {
        buffer: weight.buffer as usize,
        base,
        offset: (data.as_ptr() as usize).wrapping_sub(base),
        dtype: Dtype(weight.dtype),
        shape,
        hash: identity::hash(data),
    })
}
