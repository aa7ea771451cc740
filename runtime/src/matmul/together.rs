//! Products of one activation with several resident weights, as the projections of a layer.

use super::calls;
use super::format::{Fp16, Summation};
use super::operand::{Matrix, Operand};
use super::output::Out;
use super::share::{resident, split_columns};
use super::wave::Piece;
use super::worker::foreign;
use super::{Inner, Npu, Resident, Stats};
use crate::device;
use crate::{Error, Result};
use std::ops::Range;

/// One of the weights, and where its product goes.
#[derive(Debug)]
pub struct Together<'a> {
    /// N x K.
    pub w: &'a Resident<Fp16>,
    /// M x N, row-major.
    pub out: &'a mut [f32],
}

impl Npu {
    /// Multiplies `a`, M x K, with several weights of that K, as [`Npu::gemm`] does with each: the
    /// results are the same to the bit. Each worker packs the activations once
    /// for all plans that cut them alike, and runs its parts of all products with as few SUBMITs as
    /// their buffers allow. Returns what each product ran; jobs,
    /// tasks, submits and times are all counted for the first.
    ///
    /// # Errors
    /// As [`Npu::gemm`]; no output then holds a result.
    pub fn gemm_together(
        &self,
        a: Matrix<'_>,
        products: &mut [Together<'_>],
        row_scale: Option<&[f32]>,
        summation: Summation,
    ) -> Result<Vec<Stats>> {
        let mut inner = self.lock();
        let Inner { workers, plans, .. } = &mut *inner;
        let mut by_worker: Vec<Vec<(usize, _, Out<'_>)>> =
            workers.iter().map(|_| Vec::new()).collect();
        let mut planned = Vec::with_capacity(products.len());
        for (i, Together { w, out }) in products.iter_mut().enumerate() {
            let shape = calls::shape(a, Operand::Resident(*w), out.len())?;
            if let Some(found) = row_scale.map(<[f32]>::len).filter(|len| *len != shape.m) {
                let why = format!("there must be one scale a row, not {found}");
                return calls::refuse(shape, why);
            }
            let shares = resident(w, summation.dtype(), shape, plans, self.manner)?;
            let mut stats = Stats::default();
            let columns: Vec<Range<usize>> = shares.iter().map(|s| s.columns.clone()).collect();
            for (share, rows) in shares.into_iter().zip(split_columns(out, &columns)) {
                stats += super::worker::planned(&share.sequence);
                let mine = by_worker.get_mut(share.worker).ok_or_else(foreign)?;
                mine.push((i, share, Out::Float { rows, scale: row_scale }));
            }
            planned.push(stats);
        }
        let cores = self.cores.as_deref();
        let ran: Vec<Result<Stats>> = std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .iter_mut()
                .zip(by_worker)
                .filter(|(_, own)| !own.is_empty())
                .map(|(worker, mut own)| {
                    scope.spawn(move || {
                        device::leave_signals_to_others();
                        cores.inspect(|c| crate::board::pin(c));
                        let mut pieces = Vec::with_capacity(own.len());
                        for (_, share, out) in &mut own {
                            pieces.push(Piece { share: share.clone(), a: a.bytes(), out });
                        }
                        worker.run_all(&mut pieces)
                    })
                })
                .collect();
            threads
                .into_iter()
                .map(|t| {
                    t.join().unwrap_or_else(|_| {
                        Err(Error::Unusable { why: "a worker thread panicked".into() })
                    })
                })
                .collect()
        });
        for stats in ran {
            let Stats { tasks, jobs, submits, retries, times, .. } = stats?;
            if let Some(first) = planned.first_mut() {
                *first += Stats { tasks, jobs, submits, retries, times, ..Stats::default() };
            }
        }
        Ok(planned)
    }
}
