//! What executes a matrix product.

use super::meter::Reading;
use super::npu::NpuEngine;
use super::residency;
use super::weight::{Columns, Weight};
use crate::board::Found;
use crate::knobs::{Affinity, Knobs};
use crate::route::Dtype;
use half::f16;
use rocket_runtime::Error;
use rocket_runtime::matmul::Options;
use serde::Serialize;
use std::fmt::Debug;
use std::path::Path;
use std::sync::Arc;

/// Identity of a weight that stays where it is: it lies in a buffer the host marked as weights
/// and is no copy of the scheduler's (those share a few addresses). Names are no identity:
/// whisper.cpp's weights have none. An address can be reused after a model is unloaded, hence the
/// hash of the contents.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct WeightKey {
    /// The buffer object around it.
    pub buffer: usize,
    /// First byte of that buffer.
    pub base: usize,
    /// Offset of the first element in the buffer.
    pub offset: usize,
    /// Type number.
    pub dtype: Dtype,
    /// Rows and elements of a row.
    pub shape: [usize; 2],
    /// Hash of the contents, see [`super::identity`].
    pub hash: u64,
}

/// One product: `out[m][n] = sum over k of activation[m][k] * weight[n][k]`. All operands are
/// dense and in row order; none overlap the result.
#[derive(Debug)]
pub struct MatMul<'a> {
    /// Name of the result tensor, for messages.
    pub name: &'a str,
    /// Rows of activation and result.
    pub m: usize,
    /// The weight, whose K and N are the product's: any, the engine pads.
    pub weight: Weight<'a>,
    /// Set when the weight may be kept resident.
    pub key: Option<WeightKey>,
    /// The context that asks: what it alone uses goes when it ends.
    pub owner: u64,
    /// `m` rows of `k`, each divided by its scale: magnitudes at most 1.
    pub activation: &'a [f16],
    /// A power of two for each row: the result row is multiplied by it.
    pub scales: &'a [f32],
    /// `m` rows of `n`; every element is written.
    pub out: &'a mut [f32],
}

/// What an engine hands back with the result.
#[derive(Debug, Default)]
pub struct Done {
    /// For reports.
    pub record: OpRecord,
    /// What the caller still has to do to the columns of the result.
    pub columns: Arc<Columns>,
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
    /// Bytes of weights that were decoded and packed for it.
    pub packed_bytes: u64,
    /// What the board says it executed for this op, where it can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board: Option<Reading>,
}

impl OpRecord {
    /// Adds another slice of the same op.
    pub fn add(&mut self, o: &OpRecord) {
        self.macs += o.macs;
        self.padding_macs += o.padding_macs;
        self.submits += o.submits;
        self.jobs += o.jobs;
        self.tasks += o.tasks;
        self.resident &= o.resident;
        self.retries += o.retries;
        self.packed_bytes += o.packed_bytes;
        self.board = match (self.board, o.board) {
            (Some(a), Some(b)) => Some(a + b),
            (a, b) => a.or(b),
        };
    }
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
    fn mul_mat(&self, job: MatMul<'_>) -> Result<Done, Error>;

    /// Whether it still takes products. Once it does not, it never does again in this process:
    /// the answer decides where the scheduler puts ops.
    fn available(&self) -> bool {
        true
    }

    /// Gives it up for good: its results are wrong.
    fn distrust(&self) {}

    /// A context has ended: gives back what no other one uses.
    fn release(&self, _owner: u64) {}

    /// What stays resident and why not more, since this was last asked; `None` when that says
    /// nothing new.
    fn outcome(&self) -> Option<String> {
        None
    }
}

/// The engine that drives what was found.
pub fn open(found: &Found, knobs: &Knobs) -> Arc<dyn Engine> {
    let options = Options {
        workers: knobs.n_threads,
        drain_on_signals: true,
        cores: cores(knobs),
        ..Options::default()
    };
    let rules = residency::Rules::of(knobs);
    Arc::new(NpuEngine::new(found.board.clone(), options, rules, found.meter.clone()))
}

/// The CPUs that workers run on; `None` for any.
pub fn cores(knobs: &Knobs) -> Option<Vec<usize>> {
    match &knobs.affinity {
        // The big ones of those that the user left to this process.
        Affinity::Auto => rocket_runtime::board::big_cores(Path::new("/")).and_then(|mut big| {
            let allowed = rocket_runtime::board::allowed_cpus();
            big.retain(|c| allowed.contains(c));
            (!big.is_empty()).then_some(big)
        }),
        Affinity::Off => None,
        Affinity::Cores(cores) => Some(cores.clone()),
    }
}
