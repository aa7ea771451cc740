//! Engines that need no NPU, to test what lies around one (feature `test-engine`,
//! `ROCKET_TEST_ENGINE`).

use super::activation::Rows;
use super::weight::Source;
use super::{Attend, Attended, Done, Engine, MatMul, OpRecord};
use half::f16;
use rocket_runtime::Error;
use rocket_runtime::matmul::Weights;
use std::sync::Arc;

/// What the engine does.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TestEngine {
    /// Multiplies F16 operands with an F32 sum: the contract of [`Engine`], slowly.
    Reference,
    /// Reports a failed job.
    Fail,
    /// Panics.
    Panic,
    /// Returns something that is no number.
    Nan,
    /// Returns plausible numbers that are wrong: what no check can notice, and so the control of
    /// every test that compares outputs.
    Wrong,
}

impl TestEngine {
    /// By the word in `ROCKET_TEST_ENGINE`.
    pub fn by_name(name: &str) -> Option<TestEngine> {
        match name {
            "reference" => Some(TestEngine::Reference),
            "fail" => Some(TestEngine::Fail),
            "panic" => Some(TestEngine::Panic),
            "nan" => Some(TestEngine::Nan),
            "wrong" => Some(TestEngine::Wrong),
            _ => None,
        }
    }
}

impl Engine for TestEngine {
    fn mul_mat(&self, job: MatMul<'_>) -> Result<Done, Error> {
        match self {
            TestEngine::Reference => Ok(reference(job)),
            TestEngine::Nan => {
                job.out.fill(f32::NAN);
                Ok(Done::default())
            }
            TestEngine::Wrong => {
                job.out.fill(0.25);
                Ok(Done::default())
            }
            TestEngine::Fail => {
                job.out.fill(9.0);
                Err(Error::Timeout { waited_ms: 0, doing: format!("test of {}", job.name) })
            }
            TestEngine::Panic => panic!("a test of {}", job.name),
        }
    }

    fn attention(&self, job: Attend<'_>) -> Result<Attended, Error> {
        let s = job.op.shape;
        match self {
            TestEngine::Reference => {
                for (r, row) in job.out.chunks_exact_mut(s.value).enumerate() {
                    let (stream, token) = (r / s.heads / s.tokens, r / s.heads % s.tokens);
                    let exact = job.op.exact([stream, r % s.heads, token]);
                    row.iter_mut().zip(exact.values).for_each(|(o, x)| *o = x as f32);
                }
            }
            TestEngine::Nan => job.out.fill(f32::NAN),
            TestEngine::Wrong => job.out.fill(0.25),
            TestEngine::Fail => {
                job.out.fill(9.0);
                let doing = format!("test of {}", job.name);
                return Err(Error::Timeout { waited_ms: 0, doing });
            }
            TestEngine::Panic => panic!("a test of {}", job.name),
        }
        let record = OpRecord { macs: s.macs(), jobs: 1, ..OpRecord::default() };
        Ok(Attended { record, trouble: None })
    }
}

fn reference(job: MatMul<'_>) -> Done {
    let (m, k, n) = (job.m, job.weight.k(), job.weight.n());
    let source = Source::new(job.weight);
    let mut weight = vec![f16::ZERO; n * k];
    weight.chunks_exact_mut(k).enumerate().for_each(|(i, row)| source.load(i, row));
    let Rows::Fp16 { rows, scales } = job.activation else { return Done::default() };
    let rows = rows.chunks_exact(k).zip(scales);
    for ((row, &scale), out) in rows.zip(job.out.chunks_exact_mut(n)) {
        for (o, w) in out.iter_mut().zip(weight.chunks_exact(k)) {
            *o = row.iter().zip(w).map(|(a, w)| a.to_f32() * w.to_f32()).sum::<f32>() * scale;
        }
    }
    let record = OpRecord { macs: (m * k * n) as u64, jobs: 1, ..OpRecord::default() };
    Done { record, columns: Arc::new(source.columns()) }
}
