//! Weights that stay on the NPU: how they are packed, budgeted and shared.

use super::Step;
use super::budget::Budget;
use super::format::Format;
use super::operand::{Stored, StoredRows, Weights};
use super::worker::Worker;
use crate::board::pin;
use crate::device::{Bo, TAIL_BYTES, leave_signals_to_others};
use crate::dtype::DType;
use crate::kernels::{self, Bytes};
use crate::plan::{Shape, search};
use crate::{Error, Result};
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Rows of activations that a pack is planned for: llama.cpp's micro-batch. Calls with other
/// numbers of rows run the same K steps, with tiles of their own.
pub const PACK_ROWS: usize = 512;

/// Columns to be packed, as a [`Sequence`](crate::plan::Sequence) reads them.
#[derive(Debug, Clone)]
pub(super) struct Columns {
    pub dtype: DType,
    /// Rows of the source.
    pub rows: Range<usize>,
    /// As many on the grid.
    pub padded: usize,
    /// K on its grid.
    pub k: usize,
    /// Channels of a K step.
    pub step: usize,
}

impl Columns {
    /// Bytes of the image.
    pub(super) fn bytes(&self) -> usize {
        self.dtype.info().row_bytes(self.padded * self.k)
    }
}

/// Rows of weights on their way into a cube, kept between calls.
#[derive(Debug, Default)]
pub(super) struct Scratch {
    /// A kernel group as it is stored.
    group: Vec<u64>,
    /// A row as the caller has it.
    row: Vec<u64>,
}

/// Packs into `dst`, without gaps: K steps one after another, in each its kernel groups. So any
/// number of columns a tile is a contiguous piece, and the tiles' width is free to follow M.
pub(super) fn pack_columns(
    source: &dyn Stored,
    part: &Columns,
    scratch: &mut Scratch,
    dst: &mut [u8],
) -> Result<()> {
    let t = part.dtype.info();
    let row_bytes = (source.k() * t.bits).div_ceil(8);
    // Rows at a distance that keeps each aligned.
    let stride = row_bytes.next_multiple_of(64);
    let Scratch { group: rows, row: elements } = scratch;
    rows.resize(rows.len().max(t.n_group * stride / 8), 0);
    for n0 in (0..part.padded).step_by(t.n_group) {
        let first = (part.rows.start + n0).min(part.rows.end);
        let last = (first + t.n_group).min(part.rows.end);
        let bytes: &mut [u8] = bytemuck::cast_slice_mut(rows);
        for (n, row) in (first..last).zip(bytes.chunks_exact_mut(stride)) {
            source.load(n, elements, &mut row[..row_bytes])?;
        }
        let group = Bytes::new(&bytes[..t.n_group * stride], last - first, row_bytes, stride);
        for k0 in (0..part.k).step_by(part.step) {
            let k = part.step.min(part.k - k0);
            let at = t.row_bytes(k0 * part.padded + n0 * k);
            let piece = group.slice_bytes(t.row_bytes(k0), t.row_bytes(k));
            kernels::weight_group(piece, t.n_group, &mut dst[at..][..t.row_bytes(t.n_group * k)]);
        }
    }
    Ok(())
}

/// Weights packed into NPU buffers, one part a worker. The buffers are freed, and the budget
/// given back, when it is dropped. Shared between threads by reference or in an `Arc`.
#[derive(Debug)]
pub struct Resident<F: Format = super::Fp16> {
    format: F,
    n: usize,
    k: usize,
    parts: Vec<Part>,
    budget: Arc<Budget>,
    charged: u64,
}

#[derive(Debug)]
struct Part {
    /// The worker whose file holds it.
    worker: usize,
    columns: Range<usize>,
    step: usize,
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

impl<F: Format> Resident<F> {
    /// What they are packed for.
    pub fn format(&self) -> F {
        self.format
    }

    /// Rows of the weights.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// Bytes of NPU memory held: padding and the buffers' tails included, as the budget counts.
    pub fn bytes(&self) -> u64 {
        self.charged
    }

    /// Bytes of each part's image.
    pub(super) fn images(&mut self) -> impl Iterator<Item = &mut Bo> {
        self.parts.iter_mut().map(|p| &mut p.bo)
    }

    /// Channels of a K step: the fewest that a worker's part has. A sum of K channels is rounded
    /// `k.div_ceil(k_step)` times at most.
    pub fn k_step(&self) -> usize {
        self.parts.iter().map(|p| p.step).min().unwrap_or(self.k)
    }

    /// Worker, columns, K step and buffer of each part.
    pub(super) fn parts(&self) -> impl Iterator<Item = (usize, Range<usize>, usize, &Bo)> {
        self.parts.iter().map(|p| (p.worker, p.columns.clone(), p.step, &p.bo))
    }
}

impl<F: Format> Drop for Resident<F> {
    fn drop(&mut self) {
        // The memory first: a charge must not find room that is still pinned.
        self.parts.clear();
        self.budget.release(self.charged);
    }
}

/// Bytes of a window that are filled before weights go elsewhere: those that follow one another, as
/// a layer's projections do, then lie on the same workers and share SUBMITs.
const STRETCH: u64 = 256 << 20;

/// Workers that hold a weight: as many as there are cores, those whose windows have most room. More
/// would not finish sooner, and each more is another copy of the activations to pack and fetch.
/// With one worker a weight, those take turns.
pub(super) fn holders(workers: &[Worker], cores: usize) -> Vec<usize> {
    let mut all: Vec<usize> = (0..workers.len()).collect();
    let stretch = if cores > 1 { STRETCH } else { 1 };
    all.sort_by_key(|&i| workers[i].window().load(Relaxed) / stretch);
    all.truncate(cores.max(1));
    all
}

/// How weights of N rows of K are cut for `workers` and calls of M rows, `None` where nothing
/// fits.
pub(super) fn cut<F: Format>(
    format: F,
    shape: Shape,
    most: usize,
    workers: usize,
    manner: super::Manner,
) -> Option<Vec<Columns>> {
    let dtype = format.dtype();
    let t = dtype.info();
    let Shape { m, k, n } = shape;
    let step = super::column_step(dtype, n.max(1), workers);
    (0..n)
        .step_by(step)
        .map(|first| {
            let rows = first..(first + step).min(n);
            let shape = Shape { m, k, n: rows.len() };
            let request = super::request(format, dtype, shape, Step::AtMost(most), manner);
            let plan = search(&request)?;
            let padded = rows.len().next_multiple_of(t.n_group);
            Some(Columns { dtype, rows, padded, k: k.next_multiple_of(t.k_group), step: plan.kt })
        })
        .collect()
}

/// Packs `parts` of `source`, each on a thread of its own.
pub(super) fn pack<F: Format>(
    workers: &mut [Worker],
    budget: &Arc<Budget>,
    format: F,
    source: &dyn Weights<F::Element>,
    parts: Vec<(usize, Columns)>,
    cores: Option<&[usize]>,
) -> Result<Resident<F>> {
    let rows = StoredRows(format, source);
    let size = [source.n(), source.k()];
    fill(workers, budget, format, size, parts, cores, |_, part, scratch, dst| {
        pack_columns(&rows, part, scratch, dst)
    })
}

/// Makes resident what `image` writes of each part, each on a thread of its own.
pub(super) fn fill<F: Format>(
    workers: &mut [Worker],
    budget: &Arc<Budget>,
    format: F,
    [n, k]: [usize; 2],
    parts: Vec<(usize, Columns)>,
    cores: Option<&[usize]>,
    image: impl Fn(usize, &Columns, &mut Scratch, &mut [u8]) -> Result<()> + Sync,
) -> Result<Resident<F>> {
    let charged = parts.iter().map(|(_, c)| (c.bytes() + TAIL_BYTES) as u64).sum();
    budget.charge(charged)?;
    // Owns the charge from here on, whatever fails.
    let mut resident =
        Resident { format, n, k, parts: Vec::new(), budget: budget.clone(), charged };
    let packed: Vec<Result<Part>> = std::thread::scope(|scope| {
        let mut workers: Vec<Option<&mut Worker>> = workers.iter_mut().map(Some).collect();
        let threads: Vec<_> = parts
            .into_iter()
            .enumerate()
            .filter_map(|(i, (index, part))| {
                Some((i, index, workers.get_mut(index)?.take()?, part))
            })
            .map(|(i, index, worker, part)| {
                let image = &image;
                scope.spawn(move || {
                    leave_signals_to_others();
                    cores.inspect(|c| pin(c));
                    fill_part(index, worker, part, |part, scratch, dst| {
                        image(i, part, scratch, dst)
                    })
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

fn fill_part(
    index: usize,
    worker: &mut Worker,
    part: Columns,
    image: impl FnOnce(&Columns, &mut Scratch, &mut [u8]) -> Result<()>,
) -> Result<Part> {
    let len = part.bytes();
    let window = WindowShare::take(worker.window(), (len + TAIL_BYTES) as u64)?;
    let mut bo = Bo::new(worker.file(), len, "resident weights")?;
    let scratch = worker.scratch();
    bo.fill(|dst| image(&part, scratch, dst))??;
    Ok(Part { worker: index, columns: part.rows, step: part.step, bo, _window: window })
}

#[cfg(test)]
mod tests {
    use super::super::{Fp16, Int4, Int8, Npu, Options, Rows};
    use super::*;
    use crate::device::tests::Driver;
    use crate::layout::weight_index;
    use crate::plan::Request;
    use half::f16;

    #[test]
    fn a_window_keeps_room_for_scratch() {
        let used = Arc::new(AtomicU64::new(0));
        let first = WindowShare::take(&used, WINDOW_BYTES - 10).unwrap();
        assert!(WindowShare::take(&used, 11).is_err());
        let second = WindowShare::take(&used, 10).unwrap();
        drop((first, second));
        assert_eq!(used.load(Relaxed), 0);
    }

    /// Step after step, each a weight cube of the part's own rows (npu-rk3588 3.3).
    #[test]
    fn a_part_is_packed_from_its_own_rows() {
        let t = DType::Int8.info();
        let (n, k) = (100, 70);
        let element = |n: usize, k: usize| ((n * 31 + k * 7) % 251) as u8 as i8;
        let source: Vec<i8> = (0..n * k).map(|i| element(i / k, i % k)).collect();
        let rows = StoredRows(Int8::default(), &Rows::new(&source, n, k));
        let part = Columns { dtype: DType::Int8, rows: 32..90, padded: 64, k: 96, step: 64 };
        let mut image = vec![0x55u8; part.bytes()];
        pack_columns(&rows, &part, &mut Scratch::default(), &mut image).unwrap();
        for (column, channel) in (0..64).flat_map(|c| (0..96).map(move |k| (c, k))) {
            let (first, len) = if channel < 64 { (0, 64) } else { (64, 32) };
            let at = first * 64 + weight_index(t, len, column, channel - first);
            let inside = column < 58 && channel < k;
            let want = if inside { element(32 + column, channel) } else { 0 };
            assert_eq!(image[at] as i8, want, "column {column}, channel {channel}");
        }
    }

    fn npu(workers: usize) -> Npu {
        let options = Options { workers, drain_on_signals: false, ..Options::default() };
        Npu::open(&Driver::default(), options).unwrap()
    }

    /// As many as the part has cores, those with most room; weights that follow one another lie on
    /// the same, until a stretch of those windows is full.
    #[test]
    fn weights_go_to_the_files_with_most_room() {
        let npu = npu(6);
        let w = vec![f16::ZERO; 96 * 32];
        let pack = || npu.pack(Fp16, &Rows::new(&w, 96, 32)).unwrap();
        let files = |r: &Resident| r.parts().map(|(worker, ..)| worker).collect::<Vec<_>>();
        let (first, second) = (pack(), pack());
        assert_eq!([files(&first), files(&second)], [[0, 1, 2]; 2]);
        let fill = |file: usize| {
            let inner = npu.lock();
            WindowShare::take(inner.workers[file].window(), STRETCH).unwrap()
        };
        let _one = fill(1);
        assert_eq!(files(&pack()), [0, 2, 3]);
        let _others = [0, 2, 3, 4, 5].map(fill);
        assert_eq!(files(&pack()), [0, 1, 2], "all alike again");
        let whole = || npu.pack_whole(1, Fp16, &Rows::new(&w, 96, 32)).unwrap();
        let turns: Vec<_> = (0..6).map(|_| whole()).collect();
        let mut lanes: Vec<_> = turns.iter().filter_map(Resident::lane).collect();
        lanes.sort_unstable();
        assert_eq!(lanes, [3, 3, 4, 4, 5, 5], "the emptiest first");
    }

    /// The fewer rows there are, the longer a K step may be.
    #[test]
    fn a_pack_is_planned_for_its_rows() {
        let npu = npu(1);
        let (n, k) = (256, 4096);
        let w = vec![f16::ZERO; n * k];
        let step = |rows| {
            let packed = npu.pack_for(rows, Fp16, &Rows::new(&w, n, k)).unwrap();
            let step = packed.parts().next().unwrap().2;
            let request = Request::new(DType::Fp16, Shape { m: rows, k, n });
            assert_eq!(step, search(&request).unwrap().kt, "{rows} rows");
            step
        };
        assert!(step(4) > step(PACK_ROWS));
    }

    /// 16 bits hold 668 products of 7 and 7 (npu-rk3588 5.3).
    #[test]
    fn packed_int4_cannot_saturate() {
        let (n, k) = (64, 4096);
        let packed = npu(1)
            .pack(Int4 { full: false, group: None }, &Rows::new(&vec![7i8; n * k], n, k))
            .unwrap();
        assert!(packed.parts().all(|(_, _, step, _)| step <= 668));
    }
}
