//! A call's way over the workers: who gets which columns, and one thread each while it runs.

use super::format::Format;
use super::operand::{Operand, StoredRows};
use super::output::Out;
use super::worker::{Share, Source, Worker, foreign};
use super::{Inner, Manner, Npu, Plans, Stats, Step, column_step, request};
use crate::device;
use crate::dtype::DType;
use crate::kernels::Bytes;
use crate::plan::Shape;
use crate::{Error, Result};
use std::ops::Range;

/// The activations of a call.
pub(super) enum Activations<'a> {
    /// As they are stored in a cube.
    Stored(Bytes<'a>),
    /// To be written in that form, row by row.
    Codes { rows: usize, row_bytes: usize, store: &'a dyn Fn(usize, &mut [u8]) -> Result<()> },
}

impl Npu {
    /// Runs `shape` with programs of `dtype`. `outs` makes each worker's output from the columns it gets.
    pub(super) fn multiply<'o, F: Format>(
        &self,
        w: Operand<'_, F>,
        dtype: DType,
        shape: Shape,
        a: Activations<'_>,
        outs: impl FnOnce(&[Range<usize>]) -> Vec<Out<'o>>,
    ) -> Result<Stats> {
        let mut inner = self.lock();
        let Inner { workers, plans, codes } = &mut *inner;
        let rows;
        let shares = match w {
            Operand::Resident(r) => resident(r, dtype, shape, plans, self.manner)?,
            Operand::Stream(format, source) => {
                rows = StoredRows(format, source);
                let shares = streamers(workers.len(), self.cores_of_board);
                stream(&rows, dtype, shape, shares, plans, self.manner)?
            }
        };
        let columns: Vec<Range<usize>> = shares.iter().map(|s| s.columns.clone()).collect();
        let a = match a {
            Activations::Stored(bytes) => bytes,
            Activations::Codes { rows, row_bytes, store } => {
                codes.resize(rows * row_bytes, 0);
                for (r, dst) in codes.chunks_exact_mut(row_bytes).enumerate() {
                    store(r, dst)?;
                }
                Bytes::new(codes, rows, row_bytes, row_bytes)
            }
        };
        run(workers, shares, a, outs(&columns), self.cores.as_deref())
    }
}

pub(super) fn resident<'a, F: Format>(
    r: &'a super::Resident<F>,
    dtype: DType,
    shape: Shape,
    plans: &mut Plans,
    manner: Manner,
) -> Result<Vec<Share<'a>>> {
    r.parts()
        .map(|(worker, columns, step, bo)| {
            let part = Shape { n: columns.len(), ..shape };
            let asked = |dtype| request(r.format(), dtype, part, Step::Packed(step), manner);
            let sequence = match plans.get(asked(dtype)) {
                // Steps packed for very few rows may leave no tiles of the twelve rows that adding
                // up on chip needs (trap 22); the host can always add.
                Err(_) if dtype == DType::Fp16 => plans.get(asked(DType::Fp16F32Out))?,
                other => other?,
            };
            Ok(Share { worker, columns, sequence, weights: Source::Packed(bo) })
        })
        .collect()
}

/// Workers that share a call whose weights are packed on the way. A number that the cores divide, or
/// some core has one more to run than the others; two a core, where there are so many, pack on more
/// CPUs.
fn streamers(workers: usize, cores: usize) -> usize {
    if workers <= cores { workers } else { workers / cores * cores }
}

fn stream<'a, F: Format>(
    rows: &'a StoredRows<'_, F>,
    dtype: DType,
    shape: Shape,
    workers: usize,
    plans: &mut Plans,
    manner: Manner,
) -> Result<Vec<Share<'a>>> {
    let step = column_step(dtype, shape.n, workers);
    let most = Step::AtMost(rows.0.most_with(rows.1));
    (0..shape.n)
        .step_by(step)
        .enumerate()
        .map(|(worker, first)| {
            let columns = first..(first + step).min(shape.n);
            let part = Shape { n: columns.len(), ..shape };
            let mut asked = request(rows.0, dtype, part, most, manner);
            asked.streamed = true;
            let sequence = plans.get(asked)?;
            Ok(Share { worker, columns, sequence, weights: Source::Rows(rows) })
        })
        .collect()
}

/// Runs each share on its worker.
fn run(
    workers: &mut [Worker],
    shares: Vec<Share<'_>>,
    a: Bytes<'_>,
    outs: Vec<Out<'_>>,
    cores: Option<&[usize]>,
) -> Result<Stats> {
    std::thread::scope(|scope| {
        let mut workers: Vec<Option<&mut Worker>> = workers.iter_mut().map(Some).collect();
        let mut taken = Vec::with_capacity(shares.len());
        for (share, out) in shares.into_iter().zip(outs) {
            let worker = workers.get_mut(share.worker).and_then(Option::take);
            taken.push((worker.ok_or_else(foreign)?, share, out));
        }
        let threads: Vec<_> = taken
            .into_iter()
            .map(|(worker, share, mut out)| {
                scope.spawn(move || {
                    device::leave_signals_to_others();
                    cores.inspect(|c| crate::board::pin(c));
                    worker.run(&share, a, &mut out)
                })
            })
            .collect();
        let results: Vec<Result<Stats>> = threads
            .into_iter()
            .map(|t| {
                t.join().unwrap_or_else(|_| {
                    Err(Error::Unusable { why: "a worker thread panicked".into() })
                })
            })
            .collect();
        let mut total = Stats::default();
        for r in results {
            total += r?;
        }
        Ok(total)
    })
}

/// One list of row segments a worker, so that each writes its columns in place.
pub(super) fn split_columns<'a, T>(
    out: &'a mut [T],
    columns: &[Range<usize>],
) -> Vec<Vec<&'a mut [T]>> {
    let n: usize = columns.iter().map(Range::len).sum();
    let mut parts: Vec<Vec<&mut [T]>> = columns.iter().map(|_| Vec::new()).collect();
    for mut row in out.chunks_exact_mut(n) {
        for (part, columns) in parts.iter_mut().zip(columns) {
            let (mine, rest) = row.split_at_mut(columns.len());
            part.push(mine);
            row = rest;
        }
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::super::{Int8, Rows};
    use super::*;
    use crate::plan::search::JOB_NS;

    /// A vocabulary's rows are packed in blocks, not all at once.
    #[test]
    fn a_streamed_share_is_never_packed_whole() {
        let (n, k) = (300_000, 256);
        let source = vec![0i8; n * k];
        let rows = StoredRows(Int8::default(), &Rows::new(&source, n, k));
        let manner = Manner { chained: false, job_ns: JOB_NS };
        let shape = Shape { m: 4, k, n };
        let shares = stream(&rows, DType::Int8, shape, 2, &mut Plans::default(), manner).unwrap();
        let mut covered = 0;
        for share in &shares {
            assert_eq!(share.columns.start, covered);
            covered = share.columns.end;
            let widest = share.sequence.groups.iter().map(|g| g.columns.len()).max().unwrap();
            assert!(widest * k <= 32 << 20, "{widest} columns at once");
        }
        assert_eq!((shares.len(), covered), (2, n));
    }

    /// On three cores: no core has one more worker to run than another.
    #[test]
    fn streamed_calls_load_the_cores_alike() {
        let of_three = [1, 2, 3, 4, 5, 6, 7, 8].map(|workers| streamers(workers, 3));
        assert_eq!(of_three, [1, 2, 3, 3, 3, 6, 6, 6]);
    }
}
