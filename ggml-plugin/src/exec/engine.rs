//! What executes a matrix product.

use half::f16;
use rocket_runtime::{Error, device::Board};
use serde::Serialize;
use std::collections::BTreeMap;
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
    /// Multiply-accumulates the NPU was given, padding included.
    pub macs: u64,
    /// Submit calls.
    pub submits: u64,
    /// Jobs in them.
    pub jobs: u64,
    /// Programs in the jobs.
    pub tasks: u64,
    /// The weight was already packed.
    pub resident: bool,
    /// A partial sum reached the largest F16 value, so the result cannot be trusted. An engine
    /// that adds partial sums in F32 must look at each of them (see [`super::scale::saturated`]):
    /// afterwards nobody can tell.
    pub saturated: bool,
    /// Nanoseconds converting and packing.
    pub pack_ns: u64,
    /// Nanoseconds waiting for the NPU.
    pub npu_ns: u64,
    /// Nanoseconds unpacking.
    pub unpack_ns: u64,
    /// Anything else an engine wants to report.
    #[serde(flatten)]
    pub extra: BTreeMap<&'static str, serde_json::Value>,
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
}

/// The engine that drives `board`.
///
/// # Errors
/// Why there is none: the device is then not offered to the host at all.
pub fn open(board: &Arc<dyn Board>, knobs: &crate::knobs::Knobs) -> Result<Arc<dyn Engine>, Error> {
    // The one place where the runtime's matmul is put behind the trait.
    let _ = (board, knobs);
    Err(Error::Unusable { why: "this build cannot run matrix products on it yet".to_owned() })
}
