//! Many products at once: each runs whole on one worker, several in one SUBMIT.
//!
//! [`Npu::gemm`] cuts one product over the workers, which suits a large one. Attention has a
//! product a head and a mixture of experts one an expert: there a [`Lane`], one worker and its
//! thread, takes whole products, packs the operands of one once, and does the host's part of them
//! while other lanes keep the cores busy.

use super::calls::{self, Scales};
use super::format::{Format, Fp16, Integer, Summation};
use super::operand::{Matrix, Operand, Stored, StoredRows};
use super::output::{Groups, Out};
use super::share::split_columns;
use super::wave::Piece;
use super::worker::{Share, Source, Worker, foreign};
use super::{Inner, Manner, Npu, Plans, Resident, Stats, Step, request};
use crate::device::{self, Bo};
use crate::dtype::DType;
use crate::kernels::Bytes;
use crate::plan::{Request, Sequence, Shape};
use crate::{Error, Result};
use std::fmt;
use std::ops::Range;
use std::sync::{Arc, Mutex, PoisonError};

/// One worker of an [`Npu`], lent to a closure of [`Npu::lanes`] that runs on a thread of its own.
pub struct Lane<'a> {
    index: usize,
    count: usize,
    worker: &'a mut Worker,
    plans: &'a Mutex<&'a mut Plans>,
    manner: Manner,
}

/// One product of a lane: `out[m, n] = sum over k of a[m, k] * w[n, k]`, scaled.
pub struct Product<'a> {
    shape: Shape,
    a: Bytes<'a>,
    work: Work<'a>,
    out: Out<'a>,
}

/// What a product is made of, without the type of its format.
struct Work<'a> {
    /// Of the packed weights: their worker and buffer.
    packed: Option<(usize, &'a Bo)>,
    rows: Option<Box<dyn Stored + 'a>>,
    /// What is to be planned, and what else if that does not fit.
    asked: [Request; 2],
}

impl fmt::Debug for Lane<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Lane").field("index", &self.index).finish_non_exhaustive()
    }
}

impl fmt::Debug for Product<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Product").field("shape", &self.shape).finish_non_exhaustive()
    }
}

impl<'a> Product<'a> {
    /// In fp16: `a` is M x K, `w` N x K, `out` M x N, row-major; row `m` of it is multiplied by
    /// `row_scale[m]` if given. The sums are those of [`Npu::gemm`]: rounded to fp16 on chip, or
    /// fp32 results of each K step added up by the host.
    ///
    /// # Errors
    /// [`Error::Shape`] when the operands do not fit together or a dimension is 0 or beyond 2^24;
    /// [`Error::Unusable`] for weights that are not whole on one worker ([`Npu::pack_whole`]).
    pub fn fp16(
        a: Matrix<'a>,
        w: Operand<'a, Fp16>,
        out: &'a mut [f32],
        row_scale: Option<&'a [f32]>,
        summation: Summation,
    ) -> Result<Product<'a>> {
        let shape = calls::shape(a, w, out.len())?;
        Product::fp16_rows(a, w, rows_of(out, shape.n), row_scale, summation)
    }

    /// As [`Product::fp16`] with the rows of the result wherever they are, N elements each: those of
    /// one expert lie between others'.
    ///
    /// # Errors
    /// As [`Product::fp16`].
    pub fn fp16_rows(
        a: Matrix<'a>,
        w: Operand<'a, Fp16>,
        out: Vec<&'a mut [f32]>,
        row_scale: Option<&'a [f32]>,
        summation: Summation,
    ) -> Result<Product<'a>> {
        let shape = calls::shape(a, w, total(&out))?;
        let rows = whole(out, shape)?;
        if let Some(found) = row_scale.map(<[f32]>::len).filter(|len| *len != shape.m) {
            return calls::refuse(shape, format!("there must be one scale a row, not {found}"));
        }
        let work = Work::of(w, [summation.dtype(), Summation::Host.dtype()], shape)?;
        Ok(Product { shape, a: a.bytes(), work, out: Out::Float { rows, scale: row_scale } })
    }

    /// Integer codes of a format that is stored as it is held (int8), with scales: the result of
    /// [`Npu::gemm_scaled`].
    ///
    /// # Errors
    /// As [`Product::fp16`]; [`Error::Shape`] also for what [`Npu::gemm_scaled`] refuses, and for
    /// int4, whose activations must be rewritten for each call.
    pub fn scaled<F: Integer>(
        a: Matrix<'a, i8>,
        w: Operand<'a, F>,
        scales: Scales<'a>,
        out: &'a mut [f32],
    ) -> Result<Product<'a>> {
        let shape = calls::shape(a, w, out.len())?;
        Product::scaled_rows(a, w, scales, rows_of(out, shape.n))
    }

    /// As [`Product::scaled`] with the rows of the result wherever they are, N elements each.
    ///
    /// # Errors
    /// As [`Product::scaled`].
    pub fn scaled_rows<F: Integer>(
        a: Matrix<'a, i8>,
        w: Operand<'a, F>,
        scales: Scales<'a>,
        out: Vec<&'a mut [f32]>,
    ) -> Result<Product<'a>> {
        let shape = calls::shape(a, w, total(&out))?;
        let out_rows = whole(out, shape)?;
        let dtype = w.format().dtype();
        if dtype.info().bits != 8 {
            return calls::refuse(shape, format!("lanes have no {} products", dtype.info().name));
        }
        let len = scales.check(w.format(), shape)?;
        let work = Work::of(w, [dtype; 2], shape)?;
        let (rows, columns) = (scales.rows, scales.columns);
        let scales = Groups { rows, columns, m: shape.m, n: shape.n, first: 0, len };
        let out = Out::Scaled { rows: out_rows, scales };
        Ok(Product { shape, a: a.bytes(), work, out })
    }
}

fn rows_of(out: &mut [f32], n: usize) -> Vec<&mut [f32]> {
    let columns: Range<usize> = 0..n;
    split_columns(out, std::slice::from_ref(&columns)).pop().unwrap_or_default()
}

fn total(rows: &[&mut [f32]]) -> usize {
    rows.iter().map(|r| r.len()).sum()
}

/// The rows, each of the result's length.
fn whole(rows: Vec<&mut [f32]>, shape: Shape) -> Result<Vec<&mut [f32]>> {
    match rows.iter().position(|r| r.len() != shape.n) {
        None if rows.len() == shape.m => Ok(rows),
        at => calls::refuse(
            shape,
            format!("the result must be {} rows of {} elements ({at:?})", shape.m, shape.n),
        ),
    }
}

impl<'a> Work<'a> {
    fn of<F: Format>(w: Operand<'a, F>, dtypes: [DType; 2], shape: Shape) -> Result<Work<'a>> {
        // The lane knows how jobs are run.
        let manner = Manner { chained: false, job_ns: 0 };
        match w {
            Operand::Resident(r) => {
                let (worker, step, bo) = r.whole().ok_or_else(|| Error::Unusable {
                    why: "these weights lie on several workers; pack them with pack_whole".into(),
                })?;
                let asked = dtypes
                    .map(|dtype| request(r.format(), dtype, shape, Step::Packed(step), manner));
                Ok(Work { packed: Some((worker, bo)), rows: None, asked })
            }
            Operand::Stream(format, source) => {
                let most = Step::AtMost(format.most_with(source));
                let asked = dtypes.map(|dtype| Request {
                    streamed: true,
                    ..request(format, dtype, shape, most, manner)
                });
                let rows: Box<dyn Stored + 'a> = Box::new(StoredRows(format, source));
                Ok(Work { packed: None, rows: Some(rows), asked })
            }
        }
    }
}

impl Lane<'_> {
    /// Which of the Npu's workers this is.
    pub fn index(&self) -> usize {
        self.index
    }

    /// How many there are.
    pub fn count(&self) -> usize {
        self.count
    }

    /// Runs products one after another on this worker, with as few SUBMITs as their buffers allow.
    /// A lost job is run again once.
    ///
    /// # Errors
    /// [`Error::Unusable`] for weights packed on another worker or Npu; otherwise as
    /// [`Npu::gemm`]. No output then holds a result.
    pub fn run(&mut self, products: &mut [Product<'_>]) -> Result<Stats> {
        let mut pieces = Vec::with_capacity(products.len());
        for p in products {
            pieces.push(self.piece(p)?);
        }
        self.worker.run_all(&mut pieces)
    }

    fn piece<'p, 'a>(&self, p: &'p mut Product<'a>) -> Result<Piece<'p, 'a>> {
        let Product { shape, a, work, out } = p;
        let Manner { chained, job_ns } = self.manner;
        let mut plans = self.plans.lock().unwrap_or_else(PoisonError::into_inner);
        let mut plan = |asked: Request| {
            let chained = chained && asked.dtype == DType::Fp16;
            plans.get(Request { chained, job_ns, ..asked })
        };
        // Steps packed for very few rows may leave no tiles of the rows that adding up on chip
        // needs (trap 22).
        let sequence: Arc<Sequence> = plan(work.asked[0]).or_else(|_| plan(work.asked[1]))?;
        let source = match (&work.packed, &work.rows) {
            (Some((worker, _)), _) if *worker != self.index => return Err(foreign()),
            (Some((_, bo)), _) => Source::Packed(bo),
            (None, Some(rows)) => Source::Rows(&**rows),
            (None, None) => return Err(foreign()),
        };
        let share = Share { worker: self.index, columns: 0..shape.n, sequence, weights: source };
        Ok(Piece { share, a: *a, out })
    }
}

impl Npu {
    /// Lends each worker to `run`, on a thread of its own, all at the same time; returns what each
    /// gave back, by worker. How products are shared among lanes is the caller's choice: streamed
    /// ones run anywhere, resident ones where they were packed ([`Resident::lane`]). Other calls
    /// of this Npu wait meanwhile, so a call from in here waits for ever.
    ///
    /// # Errors
    /// The first error of a closure, when all have ended; [`Error::Unusable`] when one panics.
    pub fn lanes<R: Send>(
        &self,
        run: impl Fn(&mut Lane<'_>) -> Result<R> + Sync,
    ) -> Result<Vec<R>> {
        let mut inner = self.lock();
        let Inner { workers, plans, .. } = &mut *inner;
        let (count, manner, cores) = (workers.len(), self.manner, self.cores.as_deref());
        let plans = Mutex::new(plans);
        std::thread::scope(|scope| {
            let threads: Vec<_> = workers
                .iter_mut()
                .enumerate()
                .map(|(index, worker)| {
                    let (plans, run) = (&plans, &run);
                    scope.spawn(move || {
                        device::leave_signals_to_others();
                        cores.inspect(|c| crate::board::pin(c));
                        // Reborrowed for the lane's own lifetime.
                        run(&mut Lane { index, count, worker, plans, manner })
                    })
                })
                .collect();
            let ended: Vec<Result<R>> = threads
                .into_iter()
                .map(|t| {
                    t.join().unwrap_or_else(|_| {
                        Err(Error::Unusable { why: "a lane's thread panicked".into() })
                    })
                })
                .collect();
            ended.into_iter().collect()
        })
    }
}

impl<F: Format> Resident<F> {
    /// The worker that holds all of it; `None` when several do.
    pub fn lane(&self) -> Option<usize> {
        self.whole().map(|(worker, ..)| worker)
    }

    fn whole(&self) -> Option<(usize, usize, &Bo)> {
        let mut parts = self.parts();
        let (worker, _, step, bo) = parts.next()?;
        parts.next().is_none().then_some((worker, step, bo))
    }
}
