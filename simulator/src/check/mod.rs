//! The validation layer: every known rule, by name, checked on the registers of a program before
//! its blocks run (npu-rk3588 4.5, Appendix C).

mod class;
mod geometry;
mod history;
mod operand;
mod passes;
mod precision;
mod rules;
mod spoilers;
mod stages;

pub use passes::{Flight, Pool, flying, pool};

pub use class::Class;
pub use rules::Rule;

use crate::cna::{Cna, Image};
use crate::core::Shape;
use crate::dpu::Dpu;
use crate::format::Format;
use crate::kernel::space::Fault;
use crate::lut::Tables;
use crate::rdma::Rdma;
use crate::regs::{self, RegFile};

/// Why the core does not complete.
#[derive(Debug)]
pub struct Hang {
    pub rule: Rule,
    pub message: String,
}

impl Hang {
    pub fn new(rule: Rule, message: String) -> Hang {
        Hang { rule, message }
    }
}

impl Rule {
    /// Whether breaking it may wedge the core across jobs (trap 4).
    pub(crate) fn wedges(self) -> bool {
        matches!(self, Rule::MrdmaWithoutFeed | Rule::OperandHalfArmed)
    }
}

/// An IOMMU fault as a hang (trap 30).
pub fn unmapped(fault: Fault, what: &str) -> Hang {
    let access = if fault.write { "write to" } else { "read of" };
    let message = format!("{access} unmapped IOVA 0x{:08x} ({what})", fault.iova);
    Hang::new(Rule::UnmappedAddress, message)
}

/// As [`unmapped`], with the register that named the address.
pub fn unmapped_in(fault: Fault, register: u16, what: &str) -> Hang {
    unmapped(fault, &format!("{what} by {}", regs::name(register)))
}

/// A program that may run, and what is wrong with it nevertheless.
#[derive(Debug)]
pub struct Plan {
    pub extents: Extents,
    pub format: Format,
    /// What is added to every integer weight (npu-ops 1.5).
    pub weight_offset: i64,
    pub cna: Cna,
    pub dpu: Dpu,
    pub rdma: Rdma,
    pub findings: Vec<(Rule, String)>,
    pub store_nothing: bool,
    pub spoil_percent: u64,
    /// Values at the end that become noise.
    pub spoil_tail: usize,
}

/// What the enable mask starts (npu-rk3588 1.3).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Pass {
    Convolution,
    Flying,
    Pooling,
}

/// The pass of a mask; trap 2.
pub fn pass(mask: u32) -> Result<Pass, Hang> {
    match mask {
        0x1d => Ok(Pass::Convolution),
        0x18 => Ok(Pass::Flying),
        0x60 => Ok(Pass::Pooling),
        0x0d => Err(Hang::new(Rule::EnableWithoutRdma, format!("mask 0x{mask:02x}"))),
        _ => Err(Hang::new(Rule::UnknownMask, format!("mask 0x{mask:02x}"))),
    }
}

/// What a core keeps from the task before, for reuse bits (npu-rk3588 4.3).
#[derive(Debug)]
pub struct Kept<'a> {
    pub feature: &'a Image,
    pub weight: &'a Image,
    pub last: Option<Extents>,
    pub tables: &'a Tables,
    /// The task to check is the first of its job.
    pub first: bool,
    /// The task follows another in the same kick.
    pub chained: bool,
}

/// What must not change between a task and one that reuses its operands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Extents {
    pub shape: Shape,
    pub format: Format,
    pub data_bank: u32,
}

/// Checks the convolution in the registers.
pub fn program(r: &RegFile, kept: &Kept<'_>) -> Result<Plan, Hang> {
    let mut findings = Vec::new();
    let unwritten = history::written(r, &mut findings)?;
    let precisions = precision::read(r);
    let precisions = match precisions {
        Err(hang) if !unwritten => return Err(hang),
        Err(_) => precision::Precisions::unread(),
        Ok(p) => p,
    };
    let format = precisions.format;
    let cna = Cna::read(r);
    let depthwise = format.depthwise_group().filter(|_| cna.depthwise);
    let n = if depthwise.is_some() { cna.channels } else { cna.kernels };
    let taps = cna.window.taps();
    let shape = Shape {
        m: cna.window.out_pixels(),
        k: if depthwise.is_some() { taps } else { taps * cna.channels },
        n,
        depthwise,
    };
    let group = depthwise.unwrap_or(format.kernel_group());
    let bypassed = r.bit(regs::DPU_BS_OW_CFG, 1);
    let mut plan = Plan {
        extents: Extents { shape, format, data_bank: r.field(regs::CNA_CBUF_CON0, 3, 0) },
        format,
        weight_offset: if bypassed || !format.integer() {
            0
        } else {
            i64::from(r.field(regs::DPU_BS_OW_OP, 15, 0) as i16)
        },
        dpu: Dpu::read(r, group, precisions.out),
        cna,
        rdma: Rdma::read(r),
        findings,
        store_nothing: unwritten,
        spoil_percent: 0,
        spoil_tail: 0,
    };
    if plan.store_nothing {
        return Ok(plan);
    }
    let silent = precisions.silent();
    if !silent {
        operand::feed(r, &mut plan)?;
        geometry::check(r, &plan.cna, &precisions)?;
        stages::check(r, &plan.dpu, format)?;
    }
    precisions.tell(&mut plan);
    if plan.store_nothing {
        return Ok(plan);
    }
    check_output(r, &mut plan)?;
    plan.findings.extend(stages::tables(&plan.dpu, kept.tables));
    operand::cube(&mut plan);
    history::reuse(&mut plan, kept);
    spoilers::check(r, &mut plan, kept);
    plan.check_dimensions(r);
    Ok(plan)
}

/// Traps 14 and 26.
fn check_output(r: &RegFile, plan: &mut Plan) -> Result<(), Hang> {
    let d = &mut plan.dpu;
    if plan.format == Format::Int16 {
        d.only_first_row_of = Some(d.group);
        plan.findings.push((Rule::Int16Output, format!("M = {}, N = {}", d.rows, d.channels)));
    } else {
        plan.findings.extend(stages::surfaces(r, d)?);
    }
    if d.operand.is_some() && d.out != crate::format::Out::Fp16 {
        return Err(Hang::new(Rule::NotModelled, "operand with fp32 output".to_owned()));
    }
    Ok(())
}
