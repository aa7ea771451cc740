//! What a board executed, counted by the board and not by us.

use serde::Serialize;
use std::fmt::Debug;
use std::ops::{Add, Sub};

/// Counts of executed work, from the registers of the programs that ran.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize)]
pub struct Reading {
    /// Multiply-accumulates.
    pub macs: u64,
    /// Programs.
    pub tasks: u64,
    /// Driver jobs.
    pub jobs: u64,
    /// SUBMIT calls.
    pub submits: u64,
    /// Bytes the NPU read and wrote.
    pub dma_bytes: u64,
    /// Modelled nanoseconds, summed over the cores.
    pub modelled_core_ns: u64,
}

impl Sub for Reading {
    type Output = Reading;

    fn sub(self, earlier: Reading) -> Reading {
        Reading {
            macs: self.macs - earlier.macs,
            tasks: self.tasks - earlier.tasks,
            jobs: self.jobs - earlier.jobs,
            submits: self.submits - earlier.submits,
            dma_bytes: self.dma_bytes - earlier.dma_bytes,
            modelled_core_ns: self.modelled_core_ns - earlier.modelled_core_ns,
        }
    }
}

impl Add for Reading {
    type Output = Reading;

    fn add(self, o: Reading) -> Reading {
        Reading {
            macs: self.macs + o.macs,
            tasks: self.tasks + o.tasks,
            jobs: self.jobs + o.jobs,
            submits: self.submits + o.submits,
            dma_bytes: self.dma_bytes + o.dma_bytes,
            modelled_core_ns: self.modelled_core_ns + o.modelled_core_ns,
        }
    }
}

/// Something that can be read. Only a simulated board has one.
pub trait Meter: Send + Sync + Debug {
    /// Totals since the board was made.
    fn read(&self) -> Reading;

    /// What last went wrong on it, in its own words.
    fn explain(&self) -> Option<String>;
}

#[cfg(feature = "simulator")]
impl Meter for rocket_sim::SimBoard {
    fn read(&self) -> Reading {
        let c = self.counters();
        Reading {
            macs: c.macs,
            tasks: c.tasks,
            jobs: c.jobs,
            submits: c.submits,
            dma_bytes: c.dma_read_feature
                + c.dma_read_weight
                + c.dma_read_operand
                + c.dma_read_regcmd
                + c.dma_write,
            modelled_core_ns: c.modelled_ns.iter().sum(),
        }
    }

    fn explain(&self) -> Option<String> {
        self.explanations().last().map(ToString::to_string)
    }
}
