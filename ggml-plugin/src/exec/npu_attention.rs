//! Attention on the NPU, by the runtime's operation.

use super::npu::NpuEngine;
use super::{Attend, Attended, OpRecord};
use rocket_runtime::Result;
use rocket_runtime::ops::attention::attention;
use std::time::{Duration, Instant};

impl NpuEngine {
    /// `took` is how long the board had it.
    pub(super) fn attend(&self, job: Attend<'_>, took: &mut Duration) -> Result<Attended> {
        let npu = self.npu()?;
        let start = Instant::now();
        let done = attention(npu, &job.op, job.out, &self.scratch);
        *took = start.elapsed();
        let done = done?;
        let record = OpRecord { skipped_macs: done.skipped_macs, ..OpRecord::of(&done.stats) };
        Ok(Attended { record, trouble: done.trouble })
    }
}
