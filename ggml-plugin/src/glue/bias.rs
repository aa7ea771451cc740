//! Adding a bias to the rows of a product.
#![allow(unsafe_code)]

use super::backend::Instance;
use super::fuse::{apart, range};
use crate::abi::tensor::Tensor;
use crate::exec::{Redo, parallel};

/// # Errors
/// Why the host's CPU backend has to do it.
pub(super) fn run(instance: &Instance, node: &Tensor) -> Result<(), Redo> {
    let (product, bias) = node.source(0).zip(node.source(1)).ok_or(Redo::NotRouted)?;
    let size =
        |ne: &[i64]| ne.iter().try_fold(1usize, |p, &n| p.checked_mul(usize::try_from(n).ok()?));
    let (n, all) = size(&node.ne[..1]).zip(size(&node.ne)).ok_or(Redo::NotRouted)?;
    let (out, sum, row) = (range(node), range(product), range(bias));
    let in_place = out.0 == sum.0;
    if !apart(out, row) || (!in_place && !apart(out, sum)) {
        return Err(Redo::Overlap);
    }
    // SAFETY: all are contiguous F32 of that many elements, in host memory that the host lets nobody
    // touch while it waits for this graph; the result overlaps nothing that is borrowed beside it.
    let (rows, bias, source) = unsafe {
        (
            node.elements_mut::<f32>(all).ok_or(Redo::NoData)?,
            bias.elements::<f32>(n).ok_or(Redo::NoData)?,
            match in_place {
                true => None,
                false => Some(product.elements::<f32>(all).ok_or(Redo::NoData)?),
            },
        )
    };
    let each = rows.chunks_exact_mut(n).enumerate();
    let add = |(): &mut (), (i, row): (usize, &mut [f32])| {
        if let Some(source) = source {
            row.copy_from_slice(&source[i * n..][..n]);
        }
        row.iter_mut().zip(bias).for_each(|(x, b)| *x += b);
        Ok(())
    };
    parallel::each(each, all / n, n, instance.plugin.threads, || (), add)
}
