//! One product from accepted op to trusted result: everything that could make the NPU's answer
//! differ from a correct one is looked at before or after, and named.

use super::activation::{Activation, Prepared, Rows};
use super::times::ns;
use super::verify::{Subject, Verify};
use super::weight::Weight;
use super::{Done, Engine, MatMul, OpRecord, Redo, WeightKey, scale};
use crate::route::{Dtype, Numerics};
use rocket_runtime::Error;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::Instant;

/// The operands of one product, as the host holds them.
#[derive(Debug)]
pub struct Operands<'a> {
    /// Name of the result.
    pub name: &'a str,
    /// The weight.
    pub weight: Weight<'a>,
    /// Its type.
    pub dtype: Dtype,
    /// In which numbers the product is computed.
    pub numerics: Numerics,
    /// Set when the weight stays where it is.
    pub key: Option<WeightKey>,
    /// The context that asks.
    pub owner: u64,
    /// As many rows as the result has, of the weight's K.
    pub activation: Activation<'a>,
    /// A row of the weight's N for each of the activation's.
    pub out: &'a mut [f32],
}

/// What runs a product besides its operands.
#[derive(Debug)]
pub struct Means<'a> {
    /// The NPU.
    pub engine: &'a dyn Engine,
    /// Whose result is compared, and what was.
    pub verify: &'a Verify,
    /// Threads for the conversion of activations.
    pub threads: usize,
    /// Memory for it, kept between calls.
    pub scratch: &'a mut Prepared,
}

/// Runs one product.
///
/// # Errors
/// Why the CPU has to do it, with the engine's error if that was the reason.
pub fn run(means: Means<'_>, mut op: Operands<'_>) -> Result<OpRecord, (Redo, Option<Error>)> {
    let Means { engine, verify, threads, scratch } = means;
    let refuse = |redo| (redo, None);
    let begun = Instant::now();
    // A thread that the system refuses is a panic.
    catch_unwind(AssertUnwindSafe(|| scratch.fill(&op.activation, op.numerics, threads)))
        .map_err(|_| refuse(Redo::EnginePanic))?
        .map_err(refuse)?;
    let convert_ns = ns(begun);
    let (m, rows) = (op.activation.len(), scratch.rows(op.numerics));
    let done = catch_unwind(AssertUnwindSafe(|| engine.mul_mat(op.job(m, rows))))
        .map_err(|_| refuse(Redo::EnginePanic))?
        .map_err(|e| (Redo::EngineError, Some(e)))?;
    let mut record = finish(engine, verify, &mut op, rows, done).map_err(refuse)?;
    record.times.convert_ns += convert_ns;
    Ok(record)
}

/// Runs several products of one activation, which is the first's.
///
/// # Errors
/// Why they have to run one by one.
pub fn run_together(means: Means<'_>, ops: &mut [Operands<'_>]) -> Result<Vec<OpRecord>, Redo> {
    let Means { engine, verify, threads, scratch } = means;
    let Some(first) = ops.first() else { return Ok(Vec::new()) };
    let (m, numerics) = (first.activation.len(), first.numerics);
    let begun = Instant::now();
    catch_unwind(AssertUnwindSafe(|| scratch.fill(&first.activation, numerics, threads)))
        .map_err(|_| Redo::EnginePanic)??;
    let convert_ns = ns(begun);
    let rows = scratch.rows(numerics);
    let jobs = ops.iter_mut().map(|op| op.job(m, rows)).collect();
    let done = catch_unwind(AssertUnwindSafe(|| engine.mul_mat_together(jobs)))
        .map_err(|_| Redo::EnginePanic)?
        .map_err(|_| Redo::EngineError)?;
    let finished = ops.iter_mut().zip(done);
    let mut records: Vec<OpRecord> = finished
        .map(|(op, done)| finish(engine, verify, op, rows, done))
        .collect::<Result<_, _>>()?;
    if let Some(first) = records.first_mut() {
        first.times.convert_ns += convert_ns;
    }
    Ok(records)
}

impl Operands<'_> {
    fn job<'j>(&'j mut self, m: usize, rows: Rows<'j>) -> MatMul<'j> {
        MatMul {
            name: self.name,
            m,
            weight: self.weight,
            key: self.key,
            owner: self.owner,
            numerics: self.numerics,
            activation: rows,
            out: &mut *self.out,
        }
    }
}

/// Looks at a result before anybody else does.
fn finish(
    engine: &dyn Engine,
    verify: &Verify,
    op: &mut Operands<'_>,
    rows: Rows<'_>,
    mut done: Done,
) -> Result<OpRecord, Redo> {
    let begun = Instant::now();
    if !done.columns.fit() {
        return Err(Redo::WeightNotFinite);
    }
    let n = op.weight.n();
    match rows {
        Rows::Fp16 { scales, .. } => scale::check_result(op.out, n, scales)?,
        _ => scale::check_finite(op.out)?,
    }
    done.columns.apply(op.out, n);
    done.record.times.results_ns += ns(begun);
    let subject = Subject { weight: &op.weight, dtype: op.dtype, numerics: op.numerics };
    if let Err(why) = verify.check(subject, rows, op.out) {
        tracing::error!(
            "{}: {why}; the NPU's results cannot be trusted, so it is left alone until this \
             process ends, and everything is computed on the CPU",
            op.name
        );
        engine.distrust();
        return Err(Redo::Mismatch);
    }
    Ok(done.record)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exec::Done;
    use crate::exec::verify::Mode;

    /// Multiplies as told, then does what the test wants.
    #[derive(Debug)]
    enum Fake {
        Works,
        Saturates,
        WritesNan,
        Fails,
        Panics,
    }

    impl Engine for Fake {
        fn mul_mat(&self, job: MatMul<'_>) -> Result<Done, Error> {
            let Rows::Fp16 { rows, scales } = job.activation else { panic!("{job:?}") };
            assert_eq!((scales.len(), rows.len()), (job.m, job.m * job.weight.k()));
            let (n, k) = (job.weight.n(), job.weight.k());
            let mut w = vec![0f32; k];
            for (i, o) in job.out.iter_mut().enumerate() {
                let (row, col) = (i / n, i % n);
                job.weight.decode_row(col, &mut w);
                let a = &rows[row * k..][..k];
                let sum: f32 = a.iter().zip(&w).map(|(a, w)| a.to_f32() * w).sum();
                *o = sum * scales[row];
            }
            let done =
                Done { record: OpRecord { macs: 8, ..OpRecord::default() }, ..Done::default() };
            match self {
                Fake::Works => Ok(done),
                Fake::Saturates => {
                    job.out[0] = scale::F16_MAX * scales[0];
                    Ok(done)
                }
                Fake::WritesNan => {
                    job.out[3] = f32::NAN;
                    Ok(done)
                }
                Fake::Fails => Err(Error::Timeout { waited_ms: 1, doing: "test".into() }),
                Fake::Panics => panic!("on purpose"),
            }
        }
    }

    fn go(engine: &Fake, a: &[f32; 4], w: &[f32; 4]) -> (Result<OpRecord, Redo>, [f32; 4]) {
        let mut out = [0.0; 4];
        let op = Operands {
            name: "t",
            weight: Weight::of_f32(w, 2, 2),
            dtype: Dtype::F32,
            numerics: Numerics::Fp16,
            key: None,
            owner: 0,
            activation: Activation::new(a, 2, [2, 1, 1], [2, 0, 0]).unwrap(),
            out: &mut out,
        };
        let verify = Verify::new(Mode::Off);
        let scratch = &mut Prepared::default();
        let r = run(Means { engine, verify: &verify, threads: 1, scratch }, op).map_err(|(r, _)| r);
        (r, out)
    }

    #[test]
    fn results_and_redos() {
        let (a, w) = ([1.0, 2.0, 3.0, 4.0], [1.0, 0.0, 0.0, 1.0]);
        let (r, out) = go(&Fake::Works, &a, &w);
        assert_eq!((r.unwrap().macs, out), (8, a));
        for (engine, redo) in [
            (Fake::Saturates, Redo::ResultOverflow),
            (Fake::WritesNan, Redo::ResultNotFinite),
            (Fake::Fails, Redo::EngineError),
            (Fake::Panics, Redo::EnginePanic),
        ] {
            assert_eq!(go(&engine, &a, &w).0, Err(redo));
        }
        // Bad operands never reach the engine.
        let nan = [1.0, f32::NAN, 0.0, 0.0];
        assert_eq!(go(&Fake::Panics, &nan, &w).0, Err(Redo::ActivationNotFinite));
    }
}
