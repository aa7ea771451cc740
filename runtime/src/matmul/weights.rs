//! Weights: where their rows come from, how they are packed, and which stay resident.

use super::budget::Budget;
use super::column_step;
use super::worker::Worker;
use crate::board::pin;
use crate::device::{Bo, TAIL_BYTES, leave_signals_to_others};
use crate::dtype::DType;
use crate::layout::pack;
use crate::plan::{Shape, TilePlan, plan};
use crate::{Error, Result};
use half::f16;
use std::fmt::Debug;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// A source of weights, N rows of K elements. Rows may be decoded as they are asked for; several
/// workers ask at once.
pub trait Weights: Sync + Debug {
    /// Rows (columns of the result).
    fn n(&self) -> usize;
    /// Elements of a row.
    fn k(&self) -> usize;
    /// Writes row `n` into `dst`, which holds K elements.
    fn load(&self, n: usize, dst: &mut [f16]);
}

/// Weights that lie in memory as fp16, row-major.
#[derive(Debug, Clone, Copy)]
pub struct Rows<'a> {
    data: &'a [f16],
    n: usize,
    k: usize,
}

impl<'a> Rows<'a> {
    /// `n` rows of `k` elements.
    ///
    /// # Panics
    /// When `data` is not exactly that long.
    pub fn new(data: &'a [f16], n: usize, k: usize) -> Rows<'a> {
        assert_eq!(data.len(), n * k);
        Rows { data, n, k }
    }
}

impl Weights for Rows<'_> {
    fn n(&self) -> usize {
        self.n
    }

    fn k(&self) -> usize {
        self.k
    }

    fn load(&self, n: usize, dst: &mut [f16]) {
        dst.copy_from_slice(&self.data[n * self.k..][..self.k]);
    }
}

/// Packs the tiles `tiles` along N of the columns `columns` into `dst`, without gaps: tile
/// columns one after another, in each its K steps. `k` is K on its grid.
pub(super) fn pack_tiles(
    source: &dyn Weights,
    columns: &Range<usize>,
    plan: &TilePlan,
    k: usize,
    tiles: Range<usize>,
    dst: &mut [f16],
) {
    let group = DType::Fp16.info().n_group;
    let mut scratch = vec![f16::ZERO; group * source.k()];
    let base = tiles.start * plan.nt;
    for ni in tiles {
        let first = columns.start + ni * plan.nt;
        let last = (first + plan.nt).min(columns.end);
        let extent_n = (last - first).next_multiple_of(group);
        for (g, n0) in (first..last).step_by(group).enumerate() {
            let count = group.min(last - n0);
            for (r, row) in scratch.chunks_exact_mut(source.k()).take(count).enumerate() {
                source.load(n0 + r, row);
            }
            let rows: Vec<&[f16]> = scratch.chunks_exact(source.k()).take(count).collect();
            for ki in 0..plan.n_kt {
                let k0 = ki * plan.kt;
                let extent = plan.kt.min(k - k0);
                let at = (ni * plan.nt - base) * k + k0 * extent_n + g * group * extent;
                pack::weight_group_f16(&rows, k0, extent, &mut dst[at..][..group * extent]);
            }
        }
    }
}

/// Weights packed into NPU buffers, one part a worker. The buffers are freed, and the budget
/// given back, when it is dropped.
#[derive(Debug)]
pub struct Resident {
    n: usize,
    k: usize,
    parts: Vec<Part>,
    budget: Arc<Budget>,
    charged: u64,
}

#[derive(Debug)]
struct Part {
    columns: Range<usize>,
    plan: TilePlan,
    bo: Bo,
    _window: WindowShare,
}

/// Most resident bytes of a file: its 4 GiB window must keep room for scratch.
const WINDOW_BYTES: u64 = 7 << 29;

/// Bytes of a file's window held by a resident part.
#[derive(Debug)]
struct WindowShare {
    used: Arc<AtomicU64>,
    bytes: u64,
}

impl WindowShare {
    fn take(used: &Arc<AtomicU64>, bytes: u64) -> Result<WindowShare> {
        let fits = |sum: &u64| *sum <= WINDOW_BYTES;
        used.fetch_update(Relaxed, Relaxed, |u| u.checked_add(bytes).filter(fits))
            .map(|_| WindowShare { used: used.clone(), bytes })
            .map_err(|_| Error::Memory {
                asked: bytes,
                what: "resident weights",
                why: "the worker's address window must keep room for activations".into(),
            })
    }
}

impl Drop for WindowShare {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Relaxed);
    }
}

impl Resident {
    /// Rows of the weights.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes of NPU memory held.
    pub fn bytes(&self) -> u64 {
        self.charged
    }

    pub(super) fn parts(&self) -> impl Iterator<Item = (Range<usize>, &TilePlan, &Bo)> {
        self.parts.iter().map(|p| (p.columns.clone(), &p.plan, &p.bo))
    }
}

impl Drop for Resident {
    fn drop(&mut self) {
        // The memory first: a charge must not find room that is still pinned.
        self.parts.clear();
        self.budget.release(self.charged);
    }
}

/// Packs for a plan made at 256 rows, which serves every M (npu-rk3588 7.5).
pub(super) fn pack(
    workers: &mut [Worker],
    budget: &Arc<Budget>,
    source: &dyn Weights,
    cores: Option<&[usize]>,
) -> Result<Resident> {
    let (n, k) = (source.n(), source.k());
    let t = DType::Fp16.info();
    let k_grid = k.next_multiple_of(t.k_group);
    let step = column_step(n.max(1), workers.len());
    let parts: Vec<(Range<usize>, TilePlan)> = (0..n)
        .step_by(step)
        .map(|first| {
            let columns = first..(first + step).min(n);
            let grid = Shape { m: 256, k: k_grid, n: columns.len().next_multiple_of(t.n_group) };
            plan(DType::Fp16, grid).map(|p| (columns, p)).ok_or_else(|| Error::Shape {
                what: format!("resident weights of {n} x {k}"),
                why: "a dimension is 0 or beyond 2^24 (npu-rk3588 7.1)".into(),
            })
        })
        .collect::<Result<_>>()?;
    let bytes = |columns: &Range<usize>| {
        columns.len().next_multiple_of(t.n_group) * k_grid * size_of::<f16>()
    };
    let charged = parts.iter().map(|(c, _)| (bytes(c) + TAIL_BYTES) as u64).sum();
    budget.charge(charged)?;
    // Owns the charge from here on, whatever fails.
    let mut resident = Resident { n, k, parts: Vec::new(), budget: budget.clone(), charged };
    let packed: Vec<Result<Part>> = std::thread::scope(|scope| {
        let threads: Vec<_> = workers
            .iter()
            .zip(parts)
            .map(|(worker, (columns, plan))| {
                scope.spawn(move || {
                    leave_signals_to_others();
                    cores.inspect(|c| pin(c));
                    let len = bytes(&columns);
                    let window = WindowShare::take(worker.window(), (len + TAIL_BYTES) as u64)?;
                    let mut bo = Bo::new(worker.file(), len, "resident weights")?;
                    bo.fill(|dst| {
                        pack_tiles(source, &columns, &plan, k_grid, 0..plan.n_nt, dst);
                    })?;
                    Ok(Part { columns, plan, bo, _window: window })
                })
            })
            .collect();
        threads
            .into_iter()
            .map(|t| {
                t.join().unwrap_or_else(|_| {
                    Err(Error::Unusable { why: "a packing thread panicked".into() })
                })
            })
            .collect()
    });
    resident.parts = packed.into_iter().collect::<Result<_>>()?;
    Ok(resident)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_window_keeps_room_for_scratch() {
        let used = Arc::new(AtomicU64::new(0));
        let first = WindowShare::take(&used, WINDOW_BYTES - 10).unwrap();
        assert!(WindowShare::take(&used, 11).is_err());
        let second = WindowShare::take(&used, 10).unwrap();
        drop((first, second));
        assert_eq!(used.load(Relaxed), 0);
    }
}
