//! The NPU without a driver: cores that run what somebody else's driver kicks, in somebody
//! else's memory.
//!
//! [`SimBoard`](crate::SimBoard) is driver and NPU in one. Here is the NPU alone, for a harness that has
//! a real driver: `tests/vm` puts it behind the kernel's. It sees what silicon sees, the controller's
//! registers at a kick and memory through a [`Bus`]; files, jobs and fences are the driver's.

use crate::kernel::sched::Job;
use crate::kernel::space::Space;
use crate::machine::Machine;
use crate::npu::Npu;
pub use crate::pc::Kick;
use crate::{Config, Counters, Explanation};
use rocket_runtime::uapi;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

/// Memory as the NPU's DMA reaches it: little-endian words at addresses of the device, multiples of 8.
pub trait Bus: std::fmt::Debug + Send + Sync {
    /// Fills `to` from `addr` on.
    ///
    /// # Errors
    /// A translation fault: something of it is not mapped. What was read by then does not matter.
    fn read(&self, addr: u64, to: &mut [u64]) -> std::io::Result<()>;

    /// Stores `from` at `addr`.
    ///
    /// # Errors
    /// As [`Bus::read`]; words before the fault may have been stored.
    fn write(&self, addr: u64, from: &[u64]) -> std::io::Result<()>;
}

/// What the cores share: the configuration, counters and explanations.
#[derive(Debug, Clone)]
pub struct Silicon {
    machine: Arc<Machine>,
}

impl Silicon {
    /// An NPU. Of the configuration, what is about the driver has no meaning here; faults number kicks
    /// as they number jobs.
    pub fn new(config: Config) -> Silicon {
        Silicon { machine: Arc::new(Machine::new(config)) }
    }

    /// One of its cores, which reaches memory through `bus`.
    pub fn core(&self, number: usize, bus: Arc<dyn Bus>) -> Core {
        let machine = Arc::clone(&self.machine);
        let npu = Box::new(Npu::new(machine.config.assumptions));
        Core { machine, number, npu, space: Arc::new(Space::of_bus(bus)) }
    }

    /// What the cores did so far. What the driver does is not counted.
    pub fn counters(&self) -> Counters {
        self.machine.counters()
    }

    /// The latest explanations, oldest first, with the core in place of the file and the kick in place
    /// of the job; at most 256 are kept.
    pub fn explanations(&self) -> Vec<Explanation> {
        self.machine.explanations().0
    }
}

/// One core.
#[derive(Debug)]
pub struct Core {
    machine: Arc<Machine>,
    number: usize,
    npu: Box<Npu>,
    space: Arc<Space>,
}

impl Core {
    /// Runs the programs of a kick. The bits of PC_INTERRUPT_RAW_STATUS that it ends with
    /// (kernel-and-uapi B.2), or `None`: it hangs, and [`Silicon::explanations`] says why.
    pub fn kick(&mut self, kick: Kick) -> Option<u32> {
        let job = Job {
            number: self.machine.jobs_seen.fetch_add(1, Relaxed),
            file: self.number as u64,
            tasks: vec![uapi::Task::default(); kick.tasks],
            batched: kick.tasks > 1,
            space: Arc::clone(&self.space),
            buffers: Vec::new(),
            fence: Arc::default(),
            after: Vec::new(),
        };
        let done = self.npu.run_kick(kick, &job, &self.machine, self.number);
        done.then_some(self.npu.status)
    }

    /// The core is reset.
    pub fn reset(&mut self) {
        self.npu.reset();
    }
}
