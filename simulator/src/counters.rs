use serde::{Deserialize, Serialize};
use std::ops::Sub;

/// Most cores a simulated board has (npu-rk3588 1.1).
pub const CORES: usize = 3;

/// Exact counts of what the board did since it was made. Take two snapshots and subtract.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Counters {
    /// Multiply-accumulates of executed tasks, from their registers: M*K*N each, and for a
    /// convolution its taps, border or not.
    pub macs: u64,
    /// Feature bytes read by the CNA, zero for a task that reuses them, and by the PPU's reader.
    pub dma_read_feature: u64,
    /// Weight bytes read by the CNA; zero for a task that reuses them.
    pub dma_read_weight: u64,
    /// Bytes read by the DPU-RDMA: operands, biases, and the cubes of flying passes.
    pub dma_read_operand: u64,
    /// Program bytes read by the PC.
    pub dma_read_regcmd: u64,
    /// Bytes stored by the DPU or the PPU.
    pub dma_write: u64,
    /// Programs that ran to completion.
    pub tasks: u64,
    /// Starts of the program controller: one a task, or one a batched job.
    pub kicks: u64,
    /// Jobs that were queued.
    pub jobs: u64,
    /// Jobs queued to each core and started there.
    pub jobs_by_core: [u64; CORES],
    /// SUBMIT calls.
    pub submits: u64,
    /// Jobs that a SUBMIT contained but that were never run: malformed, or dropped by injection.
    pub jobs_dropped: u64,
    /// Jobs that were failed after the timeout.
    pub jobs_timed_out: u64,
    /// Files closed.
    pub files_closed: u64,
    /// Files closed while they had jobs queued or running (kernel-and-uapi B.6 U1).
    pub closed_with_jobs_in_flight: u64,
    /// Modelled time each core was busy, in ns. Hangs count nothing.
    pub modelled_ns: [u64; CORES],
    /// Bytes copied by PREP_BO and FINI_BO.
    pub cpu_sync: u64,
    /// Fences signalled, one for every job that was queued.
    pub fences: u64,
    /// PREP_BO calls that had to wait for a fence.
    pub waits: u64,
    /// Injected faults that were met.
    pub faults: u64,
}

impl Sub for Counters {
    type Output = Counters;

    fn sub(self, earlier: Counters) -> Counters {
        let each = |a: [u64; CORES], b: [u64; CORES]| std::array::from_fn(|i| a[i] - b[i]);
        Counters {
            macs: self.macs - earlier.macs,
            dma_read_feature: self.dma_read_feature - earlier.dma_read_feature,
            dma_read_weight: self.dma_read_weight - earlier.dma_read_weight,
            dma_read_operand: self.dma_read_operand - earlier.dma_read_operand,
            dma_read_regcmd: self.dma_read_regcmd - earlier.dma_read_regcmd,
            dma_write: self.dma_write - earlier.dma_write,
            tasks: self.tasks - earlier.tasks,
            kicks: self.kicks - earlier.kicks,
            jobs: self.jobs - earlier.jobs,
            jobs_by_core: each(self.jobs_by_core, earlier.jobs_by_core),
            submits: self.submits - earlier.submits,
            jobs_dropped: self.jobs_dropped - earlier.jobs_dropped,
            jobs_timed_out: self.jobs_timed_out - earlier.jobs_timed_out,
            files_closed: self.files_closed - earlier.files_closed,
            closed_with_jobs_in_flight: self.closed_with_jobs_in_flight
                - earlier.closed_with_jobs_in_flight,
            modelled_ns: each(self.modelled_ns, earlier.modelled_ns),
            cpu_sync: self.cpu_sync - earlier.cpu_sync,
            fences: self.fences - earlier.fences,
            waits: self.waits - earlier.waits,
            faults: self.faults - earlier.faults,
        }
    }
}
