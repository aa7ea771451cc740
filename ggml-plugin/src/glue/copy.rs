//! Copying what a product has computed.
#![allow(unsafe_code)]

use super::backend::Instance;
use super::fuse::{apart, range};
use crate::abi::tensor::Tensor;
use crate::exec::{Redo, parallel};
use crate::route::Dtype;
use half::f16;
use rocket_runtime::kernels::convert;

/// Elements that a thread converts at once.
const PIECE: usize = 1 << 14;

/// # Errors
/// Why the host's CPU backend has to do it.
pub(super) fn run(instance: &Instance, node: &Tensor) -> Result<(), Redo> {
    let source = node.source(0).ok_or(Redo::NotRouted)?;
    let size = |p: usize, &n: &i64| p.checked_mul(usize::try_from(n).ok()?);
    let count = node.ne.iter().try_fold(1, size).ok_or(Redo::NotRouted)?;
    let half = Dtype(node.dtype) == Dtype::F16;
    if !apart(range(node), range(source)) {
        return Err(Redo::Overlap);
    }
    // SAFETY: contiguous F32 of as many elements as the result has, in host memory that the host lets
    // nobody touch while it waits for this graph.
    let values = unsafe { source.elements::<f32>(count) }.ok_or(Redo::NoData)?;
    if half {
        // SAFETY: likewise in F16, and it overlaps nothing that is borrowed beside it.
        let result = unsafe { node.elements_mut::<f16>(count) }.ok_or(Redo::NoData)?;
        pieces(instance, values, result, convert::f32_to_f16)
    } else {
        // SAFETY: likewise in F32.
        let result = unsafe { node.elements_mut::<f32>(count) }.ok_or(Redo::NoData)?;
        pieces(instance, values, result, |from, to| to.copy_from_slice(from))
    }
}

fn pieces<T: Send>(
    instance: &Instance,
    values: &[f32],
    result: &mut [T],
    convert: impl Fn(&[f32], &mut [T]) + Sync,
) -> Result<(), Redo> {
    let count = values.len().div_ceil(PIECE);
    let each = values.chunks(PIECE).zip(result.chunks_mut(PIECE));
    parallel::each(
        each,
        count,
        PIECE,
        instance.plugin.threads,
        || (),
        |(), (from, to)| {
            convert(from, to);
            Ok(())
        },
    )
}
