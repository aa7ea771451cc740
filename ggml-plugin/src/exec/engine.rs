//! What executes a matrix product.

use super::meter::Reading;
use super::npu::NpuEngine;
use crate::board::Found;
use crate::knobs::Knobs;
use half::f16;
use rocket_runtime::Error;
use rocket_runtime::matmul::Options;
use serde::Serialize;
use std::fmt::Debug;
use std::sync::Arc;

/// A stored weight: `n` rows of `k` elements.
#[derive(Debug, Clone, Copy)]
pub enum Weight<'a> {
    /// As the NPU takes it.
    F16(&'a [f16]),
    /// Checked to convert to F16 without overflow or loss of its small rows.
    F32(&'a [f32]),
}

/// Identity of a weight that stays where it is: it lies in a buffer the host marked as weights
/// and is no copy of the scheduler's (those share a few addresses). Names are no identity:
/// whisper.cpp's weights have none. An address can be reused after a model is unloaded, hence the
/// sample of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightKey {
    /// Address of the first element.
    pub data: usize,
    /// Bytes.
    pub bytes: usize,
    /// Base of the buffer around it.
    pub buffer: usize,
    /// Hash of evenly spread words of the contents.
    pub sample: u64,
}

/// One product: `out[m][n] = sum over k of activation[m][k] * weight[n][k]`. All operands are
/// dense and in row order; none overlap the result.
#[derive(Debug)]
pub struct MatMul<'a> {
    /// Name of the result tensor, for messages.
    pub name: &'a str,
    /// Rows of activation and result.
    pub m: usize,
    /// Inner dimension: any, the engine pads.
    pub k: usize,
    /// Rows of the weight, columns of the result: any, the engine pads.
    pub n: usize,
    /// `n` rows of `k`.
    pub weight: Weight<'a>,
    /// Set when the weight may be kept resident.
    pub key: Option<WeightKey>,
    /// `m` rows of `k`, all finite.
    pub activation: &'a [f32],
    /// A power of two for each row of the activation, at least its largest magnitude: convert
    /// `activation / scale` to F16 (see [`super::scale::to_f16`]), multiply the result row by it.
    pub scales: &'a [f32],
    /// `m` rows of `n`; every element is written.
    pub out: &'a mut [f32],
}

/// What an engine did for one op, for reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OpRecord {
    /// Multiply-accumulates of the planned programs, padding included.
    pub macs: u64,
    /// Of these, the ones that only multiply padding.
    pub padding_macs: u64,
    /// Submit calls.
    pub submits: u64,
    /// Jobs in them.
    pub jobs: u64,
    /// Programs in the jobs.
    pub tasks: u64,
    /// The weight was already packed.
    pub resident: bool,
    /// Groups of jobs run again because one was lost.
    pub retries: u64,
    /// What the board says it executed for this op, where it can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board: Option<Reading>,
}

/// Something that multiplies. Several threads may call it at once (ggml-abi 6.4).
///
/// Constructing one must start no threads and register nothing process-wide: the host may still
/// unload this library (ggml-abi 4). The first job is early enough.
pub trait Engine: Send + Sync + Debug {
    /// Computes `job.out`.
    ///
    /// # Errors
    /// The op is then redone on the CPU; `out` may hold anything.
    fn mul_mat(&self, job: MatMul<'_>) -> Result<OpRecord, Error>;

    /// Whether it still takes products. Once it does not, it never does again in this process:
    /// the answer decides where the scheduler puts ops.
    fn available(&self) -> bool {
        true
    }

    /// Gives resident weights back: no context is left that could use them.
    fn release(&self) {}
}

/// The engine that drives what was found.
pub fn open(found: &Found, knobs: &Knobs) -> Arc<dyn Engine> {
    let options =
        Options { workers: knobs.n_threads, budget: knobs.cache_bytes, drain_on_signals: true };
    Arc::new(NpuEngine::new(found.board.clone(), options, found.meter.clone()))
}
