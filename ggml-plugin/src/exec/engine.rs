//! What executes a matrix product.

use super::activation::Rows;
use super::experts;
use super::meter::Reading;
use super::npu::NpuEngine;
use super::residency;
use super::times::{Holdings, Times};
use super::weight::{Columns, Weight};
use crate::board::Found;
use crate::knobs::{Affinity, Knobs, Packed};
use crate::route::{Dtype, ExpertsMode, Numerics};
use rocket_runtime::Error;
use rocket_runtime::matmul::{Options, Stats};
use rocket_runtime::ops::attention::{Attention, Trouble};
use serde::Serialize;
use std::ffi::OsString;
use std::fmt::Debug;
use std::path::{Path, PathBuf};
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
    /// In which numbers it is packed.
    pub numerics: Numerics,
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
    /// In which numbers it is computed.
    pub numerics: Numerics,
    /// `m` rows of `k`, prepared for these numbers.
    pub activation: Rows<'a>,
    /// `m` rows of `n`; every element is written.
    pub out: &'a mut [f32],
}

impl MatMul<'_> {
    /// Bytes of the weight, packed.
    pub fn packed_bytes(&self) -> u64 {
        (self.weight.n() * self.weight.k() * self.numerics.bits() / 8) as u64
    }
}

/// What an engine hands back with the result.
#[derive(Debug, Default)]
pub struct Done {
    /// For reports.
    pub record: OpRecord,
    /// What the caller still has to do to the columns of the result.
    pub columns: Arc<Columns>,
}

/// One attention.
#[derive(Debug)]
pub struct Attend<'a> {
    /// Name of the result tensor, for messages.
    pub name: &'a str,
    /// The operands.
    pub op: Attention<'a>,
    /// Rows by stream, token and head; every element is written.
    pub out: &'a mut [f32],
}

/// What an engine hands back with the result of an attention.
#[derive(Debug, Default)]
pub struct Attended {
    /// For reports.
    pub record: OpRecord,
    /// Set when the operands or results are no numbers: then there is no result.
    pub trouble: Option<Trouble>,
}

/// What an engine did for one op, for reports.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct OpRecord {
    /// Multiply-accumulates of the planned programs, padding included.
    pub macs: u64,
    /// Of these, the ones that only multiply padding.
    pub padding_macs: u64,
    /// Those of the op that a mask makes void and that no program did.
    #[serde(skip_serializing_if = "is_zero")]
    pub skipped_macs: u64,
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
    /// What its time went into.
    pub times: Times,
    /// What the board says it executed for this op, where it can tell.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub board: Option<Reading>,
}

fn is_zero(x: &u64) -> bool {
    *x == 0
}

impl OpRecord {
    /// What the runtime says that it ran.
    pub fn of(stats: &Stats) -> OpRecord {
        OpRecord {
            macs: stats.executed_macs,
            padding_macs: stats.padding_macs,
            submits: stats.submits,
            jobs: stats.jobs,
            tasks: stats.tasks,
            retries: stats.retries,
            times: stats.times.into(),
            ..OpRecord::default()
        }
    }

    /// Adds another slice of the same op.
    pub fn add(&mut self, o: &OpRecord) {
        self.macs += o.macs;
        self.padding_macs += o.padding_macs;
        self.skipped_macs += o.skipped_macs;
        self.submits += o.submits;
        self.jobs += o.jobs;
        self.tasks += o.tasks;
        self.resident &= o.resident;
        self.retries += o.retries;
        self.packed_bytes += o.packed_bytes;
        self.times += o.times;
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

    /// Computes an attention.
    ///
    /// # Errors
    /// As [`Engine::mul_mat`].
    fn attention(&self, job: Attend<'_>) -> Result<Attended, Error> {
        Err(Error::Unusable { why: format!("{}: this engine has no attention", job.name) })
    }

    /// Computes several products of the same activation, whose weights all have keys.
    ///
    /// # Errors
    /// They are then computed one by one; the outputs may hold anything.
    fn mul_mat_together(&self, jobs: Vec<MatMul<'_>>) -> Result<Vec<Done>, Error> {
        let names: Vec<&str> = jobs.iter().map(|j| j.name).collect();
        let why = format!("this engine does not run {} together", names.join(", "));
        Err(Error::Unusable { why })
    }

    /// Computes a product with experts.
    ///
    /// # Errors
    /// As [`Engine::mul_mat`].
    fn experts(&self, job: experts::Job<'_>) -> Result<experts::Done, Error> {
        Err(Error::Unusable { why: format!("{}: this engine has no experts", job.name) })
    }

    /// Memory for so many bytes of experts is spoken for: dense weights leave it alone.
    fn promise(&self, _bytes: u64) {}

    /// Whether it still takes products. Once it does not, it never does again in this process:
    /// the answer decides where the scheduler puts ops.
    fn available(&self) -> bool {
        true
    }

    /// Gives it up for good: its results are wrong.
    fn distrust(&self) {}

    /// A context has ended: gives back what no other one uses.
    fn release(&self, _owner: u64) {}

    /// Bytes of weights that may become resident, all together; `None` for no limit.
    fn room(&self) -> Option<u64> {
        None
    }

    /// What stays resident and why not more, a line for each kind of weight that has something new
    /// to say since this was last asked.
    fn outcome(&self) -> Vec<String> {
        Vec::new()
    }

    /// What it holds now.
    fn holdings(&self) -> Holdings {
        Holdings::default()
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
    let rules = Rules { weights: residency::Rules::of(knobs), experts: expert_rules(knobs) };
    Arc::new(NpuEngine::new(found.board.clone(), options, rules, found.meter.clone()))
}

/// What may stay.
#[derive(Debug, Clone, Default)]
pub struct Rules {
    /// Of dense weights.
    pub weights: residency::Rules,
    /// Of experts.
    pub experts: experts::Rules,
}

fn expert_rules(knobs: &Knobs) -> experts::Rules {
    let here = std::thread::available_parallelism().map_or(1, usize::from);
    experts::Rules {
        wait: knobs.moe_wait,
        stream: knobs.experts.mode == ExpertsMode::Forced,
        folder: packed_folder(knobs, |name| std::env::var_os(name)),
        // The host computes meanwhile.
        threads: (cores(knobs).map_or(here, |c| c.len()) / 2).max(1),
    }
}

/// The folder that was named, else one of the user's cache; none where there is no home.
fn packed_folder(
    knobs: &Knobs,
    variable: impl Fn(&str) -> Option<OsString>,
) -> Option<experts::PackedFolder> {
    let of = |name: &str| variable(name).filter(|v| !v.is_empty()).map(PathBuf::from);
    let path = match &knobs.packed {
        Packed::Off => None,
        Packed::In(path) => Some(path.clone()),
        Packed::On => of("XDG_CACHE_HOME")
            .filter(|p| p.is_absolute())
            .or_else(|| Some(of("HOME")?.join(".cache")))
            .map(|cache| cache.join("rocket-npu/packed")),
    };
    path.map(|path| experts::PackedFolder { path, limit: knobs.packed_bytes })
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
