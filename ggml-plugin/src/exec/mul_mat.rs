//! One product from accepted op to trusted result: everything that could make the NPU's answer
//! differ from a correct one is looked at before or after, and named.

use super::{Engine, MatMul, OpRecord, Redo, Weight, WeightKey, scale};
use rocket_runtime::Error;
use std::collections::HashMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Mutex, PoisonError};

/// The operands of one product, as the host holds them.
#[derive(Debug)]
pub struct Operands<'a> {
    /// Name of the result.
    pub name: &'a str,
    /// Rows, inner dimension, columns.
    pub shape: [usize; 3],
    /// `n` rows of `k`.
    pub weight: Weight<'a>,
    /// Set when the weight stays where it is.
    pub key: Option<WeightKey>,
    /// `m` rows of `k`.
    pub activation: &'a [f32],
    /// `m` rows of `n`.
    pub out: &'a mut [f32],
}

/// What was found of each weight, so that a model is looked through once and not for every batch.
#[derive(Debug, Default)]
pub struct Checked(Mutex<HashMap<WeightKey, Result<(), Redo>>>);

impl Checked {
    fn weight(&self, weight: Weight<'_>, key: Option<WeightKey>, k: usize) -> Result<(), Redo> {
        let map = || self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(known) = key.and_then(|key| map().get(&key).copied()) {
            return known;
        }
        let verdict = scale::check_weight(weight, k);
        if let Some(key) = key {
            map().insert(key, verdict);
        }
        verdict
    }

    /// Forgets everything: the addresses may belong to another model next.
    pub fn clear(&self) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clear();
    }
}

/// The scales of the activation, once every operand is known to fit.
///
/// # Errors
/// Why the op belongs on the CPU.
pub fn prepare(op: &Operands<'_>, checked: &Checked) -> Result<Vec<f32>, Redo> {
    let [_, k, _] = op.shape;
    checked.weight(op.weight, op.key, k)?;
    scale::row_scales(op.activation, k)
}

/// Runs one product.
///
/// # Errors
/// Why the CPU has to do it, with the engine's error if that was the reason.
pub fn run(
    engine: &dyn Engine,
    op: Operands<'_>,
    checked: &Checked,
) -> Result<OpRecord, (Redo, Option<Error>)> {
    let scales = prepare(&op, checked).map_err(|r| (r, None))?;
    let [m, k, n] = op.shape;
    let job = MatMul {
        name: op.name,
        m,
        k,
        n,
        weight: op.weight,
        key: op.key,
        activation: op.activation,
        scales: &scales,
        out: &mut *op.out,
    };
    let record = catch_unwind(AssertUnwindSafe(|| engine.mul_mat(job)))
        .map_err(|_| (Redo::EnginePanic, None))?
        .map_err(|e| (Redo::EngineError, Some(e)))?;
    scale::check_result(op.out, n, &scales).map_err(|r| (r, None))?;
    Ok(record)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        fn mul_mat(&self, job: MatMul<'_>) -> Result<OpRecord, Error> {
            assert_eq!(job.scales.len(), job.m);
            let Weight::F32(w) = job.weight else { panic!("the test sends F32") };
            for (i, o) in job.out.iter_mut().enumerate() {
                let (row, col) = (i / job.n, i % job.n);
                *o = (0..job.k).map(|k| job.activation[row * job.k + k] * w[col * job.k + k]).sum();
            }
            match self {
                Fake::Works => Ok(OpRecord { macs: 8, ..OpRecord::default() }),
                Fake::Saturates => {
                    job.out[0] = scale::F16_MAX * job.scales[0];
                    Ok(OpRecord::default())
                }
                Fake::WritesNan => {
                    job.out[3] = f32::NAN;
                    Ok(OpRecord::default())
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
            shape: [2, 2, 2],
            weight: Weight::F32(w),
            key: None,
            activation: a,
            out: &mut out,
        };
        let r = run(engine, op, &Checked::default()).map_err(|(r, _)| r);
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
        assert_eq!(go(&Fake::Panics, &a, &nan).0, Err(Redo::WeightNotFinite));
        assert_eq!(go(&Fake::Panics, &a, &[1e5, 0.0, 0.0, 1.0]).0, Err(Redo::WeightOverflow));
    }

    #[test]
    fn a_weight_is_looked_through_once_if_it_can_be_recognised() {
        let checked = Checked::default();
        let key = WeightKey { data: 1, bytes: 8, buffer: 0, sample: 3 };
        let (good, bad) = ([1.0f32, 2.0], [f32::NAN, 1.0]);
        assert_eq!(checked.weight(Weight::F32(&good), Some(key), 2), Ok(()));
        assert_eq!(checked.weight(Weight::F32(&bad), Some(key), 2), Ok(()));
        checked.clear();
        assert_eq!(checked.weight(Weight::F32(&bad), Some(key), 2), Err(Redo::WeightNotFinite));
        assert_eq!(checked.weight(Weight::F32(&good), Some(key), 2), Err(Redo::WeightNotFinite));
        let other = WeightKey { sample: 4, ..key };
        assert!(checked.weight(Weight::F32(&bad), Some(other), 2).is_err());
        assert!(checked.weight(Weight::F32(&bad), None, 2).is_err());
    }
}
