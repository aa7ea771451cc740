//! Engines that need no NPU, to test what lies around one (feature `test-engine`,
//! `ROCKET_TEST_ENGINE`).

use super::{Engine, MatMul, OpRecord, Weight, scale};
use half::f16;
use rocket_runtime::Error;

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
    fn mul_mat(&self, job: MatMul<'_>) -> Result<OpRecord, Error> {
        match self {
            TestEngine::Reference => Ok(reference(job)),
            TestEngine::Nan => {
                job.out.fill(f32::NAN);
                Ok(OpRecord::default())
            }
            TestEngine::Wrong => {
                job.out.fill(0.25);
                Ok(OpRecord::default())
            }
            TestEngine::Fail => {
                job.out.fill(9.0);
                Err(Error::Timeout { waited_ms: 0, doing: format!("test of {}", job.name) })
            }
            TestEngine::Panic => panic!("a test of {}", job.name),
        }
    }
}

fn reference(job: MatMul<'_>) -> OpRecord {
    let weight: Vec<f32> = match job.weight {
        Weight::F16(w) => w.iter().map(|x| x.to_f32()).collect(),
        Weight::F32(w) => w.iter().map(|&x| f16::from_f32(x).to_f32()).collect(),
    };
    let mut half = vec![f16::ZERO; job.k];
    let rows = job.activation.chunks_exact(job.k).zip(job.scales);
    for ((row, &scale), out) in rows.zip(job.out.chunks_exact_mut(job.n)) {
        scale::to_f16(row, scale, &mut half);
        let row: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
        for (o, w) in out.iter_mut().zip(weight.chunks_exact(job.k)) {
            *o = row.iter().zip(w).map(|(a, w)| a * w).sum::<f32>() * scale;
        }
    }
    OpRecord { macs: (job.m * job.k * job.n) as u64, jobs: 1, ..OpRecord::default() }
}
