//! What the time of an op went into.

use serde::Serialize;
use std::ops::AddAssign;
use std::time::Instant;

/// Nanoseconds, summed over the threads that worked at once: together they can be several times
/// what the host waited.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Times {
    /// Decoding and packing weights.
    pub pack_ns: u64,
    /// Converting and packing activations.
    pub convert_ns: u64,
    /// From submitting jobs to their end, the wait for a free core included.
    pub npu_ns: u64,
    /// Checking results and putting them where the host wants them.
    pub results_ns: u64,
}

impl AddAssign for Times {
    fn add_assign(&mut self, o: Times) {
        self.pack_ns += o.pack_ns;
        self.convert_ns += o.convert_ns;
        self.npu_ns += o.npu_ns;
        self.results_ns += o.results_ns;
    }
}

impl From<rocket_runtime::matmul::Times> for Times {
    fn from(t: rocket_runtime::matmul::Times) -> Times {
        Times {
            pack_ns: t.weights,
            convert_ns: t.activations,
            npu_ns: t.npu,
            results_ns: t.results,
        }
    }
}

/// Nanoseconds since then.
pub(crate) fn ns(since: Instant) -> u64 {
    since.elapsed().as_nanos() as u64
}

/// What an engine holds at a moment. What it cannot tell is `None`, which is not 0.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Holdings {
    /// Bytes of packed weights that stay.
    pub resident_bytes: Option<u64>,
    /// How many weights these are.
    pub resident: Option<u64>,
    /// How many were offered, those included.
    pub offered: Option<u64>,
    /// Experts that stay.
    pub experts: Option<u64>,
    /// Experts that were asked for, those included.
    pub experts_offered: Option<u64>,
    /// How often an expert was packed for a single call.
    pub experts_streamed: Option<u64>,
    /// Bytes that were given back under memory pressure so far.
    pub shed_bytes: Option<u64>,
    /// Worker files, once they are open.
    pub workers: Option<u64>,
}
