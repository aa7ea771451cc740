//! One core: its registers, its CBUF, and the run of a job through its blocks.

use crate::assumptions::Assumptions;
use crate::check::{self, Extents, Flight, Hang, Kept, Pass, Plan, Pool};
use crate::cna::Image;
use crate::kernel::sched::Job;
use crate::kernel::space::Dma;
use crate::lut::Tables;
use crate::machine::Machine;
use crate::pc::Kick;
use crate::regs::RegFile;
use crate::{CORES, Fault, Rule, core, pc, poison};
use rocket_runtime::plan::cost;
use rocket_runtime::soc::RK3588;
use std::sync::atomic::Ordering::Relaxed;

/// The clock that an idle NPU is parked at (kernel-and-uapi C.2).
const BOOT_HZ: u64 = 200_000_000;

/// Raw status: the block that a program ended in is done (kernel-and-uapi B.2). Of the two groups of
/// registers that silicon alternates between, one is modelled.
const DPU_DONE: u32 = 0x100;
const PPU_DONE: u32 = 0x400;

/// What a core keeps between tasks.
#[derive(Debug)]
pub struct Npu {
    pub regs: RegFile,
    /// Fetch buffer of the PC.
    pub words: Vec<u64>,
    /// The CBUF (npu-rk3588 4.3): the last feature and weight images.
    pub feature: Image,
    pub weight: Image,
    /// The look-up tables.
    pub tables: Tables,
    /// What PC_INTERRUPT_RAW_STATUS shows after the last program.
    pub status: u32,
    last: Option<Extents>,
    scratch: core::Scratch,
    /// The image unfolded to rows.
    rows: Vec<f32>,
    operand: Vec<f32>,
    bias: Vec<i32>,
    values: core::Values,
}

/// One job on its way through the core.
pub struct Run<'a> {
    pub machine: &'a Machine,
    pub job: &'a Job,
    pub dma: Dma,
    core: usize,
    task: usize,
    /// The task at hand is the first of its job.
    first: bool,
    faults: Vec<Fault>,
    /// Modelled time so far.
    ns: u64,
}

impl Run<'_> {
    /// Whether the core works at all, and the job is not to hang from the start.
    fn sound(&self) -> Result<(), Hang> {
        let number = self.job.number;
        if self.machine.wedged[self.core % CORES].load(Relaxed) {
            return Err(Hang::new(Rule::CoreWedged, format!("core {}", self.core)));
        }
        if self.faults.contains(&Fault::HangJob(number)) {
            return Err(self.injected("job hangs on request"));
        }
        if self.faults.contains(&Fault::IommuFault(number)) {
            return Err(self.injected("IOMMU fault on request"));
        }
        Ok(())
    }

    /// A kick of the program controller.
    pub fn kicked(&mut self) {
        self.ns += RK3588.timing.kick_ns;
        self.machine.count(|c| c.kicks += 1);
    }

    /// Program bytes were fetched.
    pub fn fetched(&mut self, bytes: u64) {
        self.machine.count(|c| c.dma_read_regcmd += bytes);
    }

    /// A task has completed.
    pub fn task_done(&mut self) -> Result<(), Hang> {
        self.machine.count(|c| c.tasks += 1);
        let limit = self.machine.config.job_limit.as_nanos();
        if u128::from(self.ns) > limit {
            let message = format!("{} ns modelled after {} task(s)", self.ns, self.task + 1);
            return Err(Hang::new(Rule::JobTooLong, message));
        }
        self.task += 1;
        self.first = false;
        Ok(())
    }

    fn explain(&self, rule: Rule, task: Option<usize>, message: String) {
        self.machine.explain(rule, self.job.file, Some(self.job.number), task, message);
    }

    /// Reports what is wrong with the task at hand.
    pub fn tell(&self, findings: &[(Rule, String)]) {
        for (rule, message) in findings {
            self.explain(*rule, Some(self.task), message.clone());
        }
    }

    fn met_zero_codes(&self, zeros: usize) {
        if zeros > 0 {
            let message = format!("{zeros} values");
            self.explain(Rule::LookupOfZero, Some(self.task), message);
        }
    }

    /// The injected end of this task: after how many surfaces, and whether it hangs then.
    fn cut(&self) -> Option<(usize, bool)> {
        let at = (self.job.number, self.task);
        self.faults.iter().find_map(|f| match *f {
            Fault::PartialTask { job, task, surfaces } if (job, task) == at => {
                Some((surfaces, true))
            }
            Fault::ShortTask { job, task, surfaces } if (job, task) == at => {
                Some((surfaces, false))
            }
            _ => None,
        })
    }

    /// Most surfaces this task stores.
    fn limit(&self) -> usize {
        self.cut().map_or(usize::MAX, |(surfaces, _)| surfaces)
    }

    /// Its surfaces are stored.
    fn stored(&self) -> Result<(), Hang> {
        match self.cut() {
            Some((_, true)) => Err(self.injected("task hangs on request amid its stores")),
            _ => Ok(()),
        }
    }

    /// Modelled time of a task that multiplies operands of `bits`.
    fn charge(&mut self, bits: usize, macs: u64, bytes: u64) {
        let hz = self.machine.clock_hz.load(Relaxed);
        let slow = self.faults.iter().find_map(|f| match f {
            Fault::SlowJob { times, .. } => Some(u64::from(*times)),
            _ => None,
        });
        let ns = cost::task_ns(&RK3588, bits, macs, bytes, hz);
        self.ns = self.ns.saturating_add(ns.saturating_mul(slow.unwrap_or(1)));
    }

    /// Modelled time of a task that multiplies nothing.
    fn charge_bytes(&mut self, bytes: u64) {
        self.charge(16, 0, bytes);
    }

    fn injected(&self, what: &str) -> Hang {
        Hang::new(Rule::Injected, what.to_owned())
    }
}

impl Npu {
    pub fn new(assume: Assumptions) -> Npu {
        Npu {
            regs: RegFile::new(assume),
            words: Vec::new(),
            feature: Image::default(),
            weight: Image::default(),
            tables: Tables::new(),
            status: 0,
            last: None,
            scratch: core::Scratch::default(),
            rows: Vec::new(),
            operand: Vec::new(),
            bias: Vec::new(),
            values: core::Values::default(),
        }
    }

    /// A core reset.
    pub fn reset(&mut self) {
        if self.regs.assume.reset_clears_core {
            *self = Npu::new(self.regs.assume);
        }
    }

    /// Runs a job; false when it hangs.
    pub fn run_job(&mut self, job: &Job, machine: &Machine, core: usize) -> bool {
        self.run(job, machine, core, |npu, run| npu.run_tasks(run))
    }

    /// Runs one kick of a driver that is not ours, which counts as a job; false when it hangs.
    pub fn run_kick(&mut self, kick: Kick, job: &Job, machine: &Machine, core: usize) -> bool {
        self.run(job, machine, core, |npu, run| {
            // Where that driver's jobs begin, the NPU cannot know.
            run.first = false;
            run.sound()?;
            pc::kick(npu, run, kick)
        })
    }

    fn run(
        &mut self,
        job: &Job,
        machine: &Machine,
        core: usize,
        tasks: impl FnOnce(&mut Npu, &mut Run<'_>) -> Result<(), Hang>,
    ) -> bool {
        let faults = machine.job_faults(job.number, true);
        let dma = Dma::new(&job.space);
        let ns = RK3588.timing.job_ns;
        let mut run = Run { machine, job, dma, core, task: 0, first: true, faults, ns };
        self.regs.begin_job();
        match tasks(self, &mut run) {
            Ok(()) => {
                machine.count(|c| c.modelled_ns[core % CORES] += run.ns);
                true
            }
            Err(hang) => {
                if machine.config.sticky_wedge && hang.rule.wedges() {
                    machine.wedged[core % CORES].store(true, Relaxed);
                }
                run.explain(hang.rule, Some(run.task), hang.message);
                false
            }
        }
    }

    fn run_tasks(&mut self, run: &mut Run<'_>) -> Result<(), Hang> {
        run.sound()?;
        let job = run.job;
        if job.batched {
            let first = job.tasks[0];
            pc::kick(self, run, Kick::of(first.regcmd, first.regcmd_count, job.tasks.len()))?;
        } else {
            for t in &job.tasks {
                pc::kick(self, run, Kick::of(t.regcmd, t.regcmd_count, 1))?;
            }
        }
        if run.faults.contains(&Fault::LoseInterrupt(job.number)) {
            return Err(run.injected("completion interrupt lost on request"));
        }
        Ok(())
    }

    /// An enable word was met: checks the program and runs the blocks.
    pub fn execute(&mut self, run: &mut Run<'_>, mask: u32) -> Result<(), Hang> {
        let (number, now) = (run.job.number, run.task);
        if now == run.job.tasks.len() / 2 && run.faults.contains(&Fault::ParkClock(number)) {
            run.machine.clock_hz.store(BOOT_HZ, Relaxed);
            let message = format!("clock parked at {BOOT_HZ} Hz on request");
            run.explain(Rule::Injected, Some(now), message);
        }
        if let Some(byte) = run.machine.config.poison {
            poison::fill(&self.regs, mask, &mut run.dma, byte);
        }
        if run.faults.contains(&Fault::HangTask { job: number, task: now }) {
            return Err(run.injected("task hangs on request"));
        }
        let pass = check::pass(mask)?;
        self.status = if matches!(pass, Pass::Pooling) { PPU_DONE } else { DPU_DONE };
        let done = match pass {
            Pass::Convolution => {
                let kept = Kept {
                    feature: &self.feature,
                    weight: &self.weight,
                    last: self.last,
                    tables: &self.tables,
                    first: run.first,
                    chained: run.job.batched && now > 0,
                };
                let plan = check::program(&self.regs, &kept)?;
                run.tell(&plan.findings);
                (!plan.store_nothing).then(|| self.compute(run, &plan))
            }
            Pass::Flying => {
                let flight = check::flying(&self.regs, &self.tables)?;
                run.tell(&flight.findings);
                (!flight.store_nothing).then(|| self.fly(run, &flight))
            }
            Pass::Pooling => {
                let pool = check::pool(&self.regs)?;
                run.tell(&pool.findings);
                (!pool.store_nothing).then(|| Npu::pool(run, &pool))
            }
        };
        done.unwrap_or_else(|| {
            run.charge_bytes(0);
            Ok(())
        })
    }

    /// A convolution with all that follows it.
    fn compute(&mut self, run: &mut Run<'_>, plan: &Plan) -> Result<(), Hang> {
        let (cna, dpu, rdma, format) = (&plan.cna, &plan.dpu, &plan.rdma, plan.format);
        let (dma, scratch) = (&mut run.dma, &mut self.scratch);
        let mut feature_bytes = 0;
        if !cna.data_reuse {
            feature_bytes = cna.fetch_feature(format, dma, scratch, &mut self.feature)?;
        }
        let mut weight_bytes = 0;
        if !cna.weight_reuse {
            weight_bytes = cna.fetch_weight(format, dma, scratch, &mut self.weight)?;
        }
        let shape = plan.extents.shape;
        self.last = Some(plan.extents);
        let image = self.feature.fitted(cna.rows(), cna.channels);
        let (kernels, depth) = cna.weight_extents(format);
        let weight = self.weight.fitted(kernels, depth);
        let rows = if cna.window.is_product() && shape.depthwise.is_none() {
            &*image
        } else {
            let unit = shape.depthwise.unwrap_or(format.channel_unit());
            cna.window.unfold(format, &image, cna.channels, unit, &mut self.rows);
            &self.rows
        };
        let arithmetic = run.machine.config.arithmetic;
        let (offset, values) = (plan.weight_offset, &mut self.values);
        core::multiply(arithmetic, format, shape, [rows, &weight], offset, scratch, values);

        let mut operand_bytes = 0;
        if dpu.biased() {
            operand_bytes += rdma.fetch_bias(dma, &mut self.bias)?;
        }
        if dpu.operand.is_some() {
            operand_bytes += rdma.fetch_operand(dma, scratch, &mut self.operand)?;
        }
        let zeros = dpu.process(values, &self.bias, &self.operand, &self.tables);
        if plan.spoil_percent > 0 {
            values.spoil(plan.spoil_percent, 0);
        }
        if plan.spoil_tail > 0 {
            values.spoil(100, (shape.m * shape.n).saturating_sub(plan.spoil_tail));
        }
        run.met_zero_codes(zeros);
        let macs = shape.macs();
        run.machine.count(|c| {
            c.macs += macs;
            c.dma_read_feature += feature_bytes;
            c.dma_read_weight += weight_bytes;
            c.dma_read_operand += operand_bytes;
        });

        let limit = run.limit();
        let stored = dpu.store(&mut run.dma, scratch, values, limit);
        run.machine.count(|c| c.dma_write += *stored.as_ref().unwrap_or(&0));
        let bytes = stored? + feature_bytes + weight_bytes + operand_bytes;
        run.stored()?;
        run.charge(format.bits(), macs, bytes);
        Ok(())
    }

    /// A pass through the DPU alone.
    fn fly(&mut self, run: &mut Run<'_>, flight: &Flight) -> Result<(), Hang> {
        let (dpu, values) = (&flight.dpu, &mut self.values);
        values.ints.clear();
        let read = flight.rdma.fetch_main(&mut run.dma, &mut values.floats)?;
        // Trap 25: an operand reads as zero.
        self.operand.clear();
        self.operand.resize(values.floats.len(), 0.0);
        let zeros = dpu.process(values, &[], &self.operand, &self.tables);
        if flight.spoil_tail > 0 {
            values.spoil(100, values.floats.len().saturating_sub(flight.spoil_tail));
        }
        run.met_zero_codes(zeros);
        run.machine.count(|c| c.dma_read_operand += read);
        let limit = run.limit();
        let stored = dpu.store(&mut run.dma, &mut self.scratch, values, limit)?;
        run.machine.count(|c| c.dma_write += stored);
        run.stored()?;
        run.charge_bytes(read + stored);
        Ok(())
    }

    /// A pass through the PPU.
    fn pool(run: &mut Run<'_>, pool: &Pool) -> Result<(), Hang> {
        let limit = run.limit();
        let [read, stored] = pool.ppu.run(&mut run.dma, pool.method, limit, pool.spoil_tail)?;
        run.machine.count(|c| {
            c.dma_read_feature += read;
            c.dma_write += stored;
        });
        run.stored()?;
        run.charge_bytes(read + stored);
        Ok(())
    }
}
