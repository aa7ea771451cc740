//! One core: its registers, its CBUF, and the run of a job through its blocks.

use crate::assumptions::RESET_CLEARS_CORE;
use crate::check::{self, Extents, Hang, Kept, Plan};
use crate::cna::{Cna, Image};
use crate::dpu::Dpu;
use crate::kernel::sched::Job;
use crate::kernel::space::Dma;
use crate::machine::Machine;
use crate::rdma::Rdma;
use crate::regs::RegFile;
use crate::{CORES, Fault, Rule, core, pc};
use rocket_runtime::plan::cost;
use rocket_runtime::soc::RK3588;
use std::sync::atomic::Ordering::Relaxed;

/// What a core keeps between tasks.
#[derive(Debug)]
pub struct Npu {
    pub regs: RegFile,
    /// Fetch buffer of the PC.
    pub words: Vec<u64>,
    /// The CBUF (npu-rk3588 4.3): the last feature and weight images.
    pub feature: Image,
    pub weight: Image,
    last: Option<Extents>,
    scratch: core::Scratch,
    operand: Vec<f32>,
    sums: Vec<f32>,
}

/// One job on its way through the core.
pub struct Run<'a> {
    pub machine: &'a Machine,
    pub job: &'a Job,
    pub dma: Dma,
    core: usize,
    task: usize,
    faults: Vec<Fault>,
    /// Modelled time so far.
    ns: u64,
}

impl Run<'_> {
    /// A kick of the program controller.
    pub fn kicked(&mut self) {
        self.ns += cost::KICK_NS;
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
        Ok(())
    }

    fn explain(&self, rule: Rule, task: Option<usize>, message: String) {
        self.machine.explain(rule, self.job.file, Some(self.job.number), task, message);
    }

    fn injected(&self, what: &str) -> Hang {
        Hang::new(Rule::Injected, what.to_owned())
    }
}

impl Npu {
    pub fn new() -> Npu {
        Npu {
            regs: RegFile::new(),
            words: Vec::new(),
            feature: Image::default(),
            weight: Image::default(),
            last: None,
            scratch: core::Scratch::default(),
            operand: Vec::new(),
            sums: Vec::new(),
        }
    }

    /// A core reset.
    pub fn reset(&mut self) {
        if RESET_CLEARS_CORE {
            *self = Npu::new();
        }
    }

    /// Runs a job; false when it hangs.
    pub fn run_job(&mut self, job: &Job, machine: &Machine, core: usize) -> bool {
        let faults = machine.job_faults(job.number);
        let dma = Dma::new(&job.space);
        let mut run = Run { machine, job, dma, core, task: 0, faults, ns: cost::JOB_NS };
        self.regs.begin_job();
        match self.run_tasks(&mut run) {
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
        let number = run.job.number;
        if run.machine.wedged[run.core % CORES].load(Relaxed) {
            return Err(Hang::new(Rule::CoreWedged, format!("core {}", run.core)));
        }
        if run.faults.contains(&Fault::HangJob(number)) {
            return Err(run.injected("job hangs on request"));
        }
        let job = run.job;
        if job.batched {
            let first = job.tasks[0];
            pc::kick(self, run, first.regcmd, first.regcmd_count, job.tasks.len())?;
        } else {
            for t in &job.tasks {
                pc::kick(self, run, t.regcmd, t.regcmd_count, 1)?;
            }
        }
        if run.faults.contains(&Fault::LoseInterrupt(number)) {
            return Err(run.injected("completion interrupt lost on request"));
        }
        Ok(())
    }

    /// An enable word was met: checks the program and runs the blocks.
    pub fn execute(&mut self, run: &mut Run<'_>, mask: u32) -> Result<(), Hang> {
        let (number, now) = (run.job.number, run.task);
        if run.faults.contains(&Fault::HangTask { job: number, task: now }) {
            return Err(run.injected("task hangs on request"));
        }
        let kept =
            Kept { feature: &self.feature, weight: &self.weight, last: self.last, first: now == 0 };
        let plan = check::program(&self.regs, mask, &kept)?;
        for (rule, message) in &plan.findings {
            run.explain(*rule, Some(now), message.clone());
        }
        if plan.store_nothing {
            run.ns += cost::task_ns(&RK3588, 0, 0, run.machine.config.clock_hz);
            return Ok(());
        }
        self.compute(run, &plan)
    }

    fn compute(&mut self, run: &mut Run<'_>, plan: &Plan) -> Result<(), Hang> {
        let (cna, dpu, rdma): (&Cna, &Dpu, &Rdma) = (&plan.cna, &plan.dpu, &plan.rdma);
        let mut feature_bytes = 0;
        if !cna.data_reuse {
            feature_bytes =
                cna.fetch_feature(&mut run.dma, &mut self.scratch, &mut self.feature)?;
        }
        let mut weight_bytes = 0;
        if !cna.weight_reuse {
            weight_bytes = cna.fetch_weight(&mut run.dma, &mut self.scratch, &mut self.weight)?;
        }
        let shape = plan.extents.shape;
        self.last = Some(plan.extents);
        let arithmetic = run.machine.config.arithmetic;
        let feature = self.feature.fitted(shape.m, shape.k);
        let weight = self.weight.fitted(shape.n, shape.k);
        core::multiply(arithmetic, shape, &feature, &weight, &mut self.scratch, &mut self.sums);

        let mut operand_bytes = 0;
        if let Some(op) = dpu.operand {
            let (scratch, operand) = (&mut self.scratch, &mut self.operand);
            operand_bytes = rdma.fetch_operand(&mut run.dma, scratch, operand)?;
            op.apply(&mut self.sums, operand);
        }
        if plan.spoil_percent > 0 {
            core::spoil(&mut self.sums, plan.spoil_percent);
        }
        let macs = shape.macs();
        run.machine.count(|c| {
            c.macs += macs;
            c.dma_read_feature += feature_bytes;
            c.dma_read_weight += weight_bytes;
            c.dma_read_operand += operand_bytes;
        });

        let (number, now) = (run.job.number, run.task);
        let cut = run.faults.iter().find_map(|f| match *f {
            Fault::PartialTask { job, task, surfaces } if (job, task) == (number, now) => {
                Some((surfaces, true))
            }
            Fault::ShortTask { job, task, surfaces } if (job, task) == (number, now) => {
                Some((surfaces, false))
            }
            _ => None,
        });
        let limit = cut.map_or(usize::MAX, |(surfaces, _)| surfaces);
        let stored = dpu.store(&mut run.dma, &mut self.scratch, &self.sums, limit);
        run.machine.count(|c| c.dma_write += *stored.as_ref().unwrap_or(&0));
        let bytes = stored? + feature_bytes + weight_bytes + operand_bytes;
        if let Some((_, true)) = cut {
            return Err(run.injected("task hangs on request amid its stores"));
        }
        run.ns += cost::task_ns(&RK3588, macs, bytes, run.machine.config.clock_hz);
        Ok(())
    }
}
