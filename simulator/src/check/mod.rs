//! The validation layer: every known rule, by name, checked on the registers of a program before
//! its blocks run (npu-rk3588 4.5, Appendix C).

mod class;
mod geometry;
mod passes;
mod precision;
mod rules;
mod stages;

pub use passes::{Flight, Pool, flying, pool};

pub use class::Class;
pub use rules::Rule;

use crate::cna::{Cna, Image};
use crate::core::Shape;
use crate::dpu::{Dpu, ElementWise};
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
    /// All tasks of the job run in one kick.
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
    let unwritten = check_written(r, &mut findings)?;
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
        check_operand_feed(r, &mut plan)?;
        geometry::check(r, &plan.cna, &precisions)?;
        stages::check(r, &plan.dpu, format)?;
    }
    precisions.tell(&mut plan);
    if plan.store_nothing {
        return Ok(plan);
    }
    check_output(r, &mut plan)?;
    plan.findings.extend(stages::tables(&plan.dpu, kept.tables));
    check_operand_cube(&mut plan);
    check_reuse(&mut plan, kept);
    check_spoilers(r, &mut plan, kept);
    plan.check_dimensions(r);
    Ok(plan)
}

/// Traps 1 and 9: registers that the program left to others; says whether that breaks it.
fn check_written(r: &RegFile, findings: &mut Vec<(Rule, String)>) -> Result<bool, Hang> {
    let all = || regs::NAMES.iter().map(|(o, _)| *o).filter(|o| *o >> 12 <= 5);
    if !all().any(|o| o >> 12 == 5 && r.written_by_program(o)) {
        let message = "the program writes no DPU-RDMA register".to_owned();
        return Err(Hang::new(Rule::MrdmaWithoutFeed, message));
    }
    let finding = not_written(r, all());
    let breaks = finding.as_ref().is_some_and(|f| f.0 == Rule::RegistersNotWritten);
    findings.extend(finding);
    Ok(breaks)
}

/// Trap 9: which of the registers needed the program did not write.
fn not_written(r: &RegFile, needed: impl Iterator<Item = u16>) -> Option<(Rule, String)> {
    let missing: Vec<u16> = needed.filter(|o| !r.written_by_program(*o)).collect();
    let message =
        format!("{} not written, {} in all", regs::name(*missing.first()?), missing.len());
    let in_job = missing.iter().all(|o| r.written_in_job(*o));
    Some((if in_job { Rule::DeltaProgram } else { Rule::RegistersNotWritten }, message))
}

/// Traps 1 and 3: who feeds the element-wise stage.
fn check_operand_feed(r: &RegFile, plan: &mut Plan) -> Result<(), Hang> {
    const COMB_BOTH: u32 = 5;
    let cfg = r.get(regs::DPU_EW_CFG);
    // A look-up alone leaves the operation armed in name only (npu-ops 2.3).
    let armed = !r.bit(regs::DPU_EW_CFG, 0) && plan.dpu.lookup.is_none();
    let from_rdma = r.bit(regs::DPU_EW_CFG, 6);
    let d = &plan.rdma;
    let found = format!(
        "EW_CFG 0x{cfg:08x}, ERDMA {}, MRDMA {}, COMB_USE {}",
        if d.erdma_on { "on" } else { "off" },
        if d.mrdma_on { "on" } else { "off" },
        d.comb_use
    );
    if armed && from_rdma != d.erdma_on || !armed && d.erdma_on {
        return Err(Hang::new(Rule::OperandHalfArmed, found));
    }
    if armed && !from_rdma {
        return Err(Hang::new(Rule::NotModelled, format!("operand from registers: {found}")));
    }
    if d.mrdma_on && (d.comb_use != COMB_BOTH || !armed) {
        return Err(Hang::new(Rule::MrdmaWithoutFeed, found));
    }
    if armed && !d.mrdma_on {
        return Err(Hang::new(Rule::OperandHalfArmed, found));
    }
    if armed && plan.format.integer() {
        plan.findings.push((Rule::IntegerOperand, found));
        plan.spoil_percent = 100;
        plan.dpu.operand = None;
        return Ok(());
    }
    if armed && (plan.format != Format::Fp16 || plan.cna.depthwise) {
        let message = format!("operand of {:?}: {found}", plan.format);
        return Err(Hang::new(Rule::NotModelled, message));
    }
    if armed {
        return geometry::check_operand_words(r).map_err(|why| {
            Hang::new(Rule::NotModelled, format!("operand configuration: {why}; {found}"))
        });
    }
    Ok(())
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

/// Traps 21 to 23: where the operand cube lies.
fn check_operand_cube(plan: &mut Plan) {
    let (d, op) = (&plan.dpu, &plan.rdma);
    let Some(kind) = d.operand else { return };
    let size = op.surface_bytes();
    if op.stuck() {
        let message = format!("SURF_NOTCH {} EW_SURF_NOTCH {}", op.notch, op.ew_notch);
        plan.findings.push((Rule::OperandNotchZero, message));
    } else if op.channels > crate::core::KERNEL_GROUP && op.gaps() != [size; 2] {
        let message = format!(
            "notches {} and {}, surfaces of {size} bytes (M = {}, N = {})",
            op.notch, op.ew_notch, op.rows, op.channels
        );
        plan.findings.push((Rule::OperandMisstrided, message));
    }
    let overlap = op
        .surface_list()
        .find(|(_, a, _)| d.surface_list().any(|(_, o)| *a < o + size && o < *a + size));
    if let Some((_, at, _)) = overlap {
        let what = if kind == ElementWise::Add { "accumulation" } else { "operand" };
        let message =
            format!("{what} in place: operand surface at 0x{at:08x} is stored to as well");
        plan.findings.push((Rule::OperandInPlace, message));
        plan.spoil_percent = 100;
    }
}

/// Trap 20: what a reuse bit takes must be what this task would have fetched.
fn check_reuse(plan: &mut Plan, kept: &Kept<'_>) {
    let c = &plan.cna;
    let (kernels, depth) = c.weight_extents(plan.format);
    let both = [
        (c.data_reuse, "DATA_REUSE", kept.feature, (c.feature_addr, c.rows(), c.channels)),
        (c.weight_reuse, "WEIGHT_REUSE", kept.weight, (c.weight_addr, kernels, depth)),
    ];
    for (on, bit, image, (addr, rows, depth)) in both {
        if !on {
            continue;
        }
        if kept.first {
            let message = format!("{bit} on the first task of a job");
            plan.findings.push((Rule::StaleReuse, message));
        } else if (image.addr, image.rows, image.depth) != (addr, rows, depth) {
            let message = format!(
                "{bit}: kept {}x{} from 0x{:08x}, wanted {rows}x{depth} from 0x{addr:08x}",
                image.rows, image.depth, image.addr
            );
            plan.findings.push((Rule::StaleReuse, message));
        } else if let Some(last) = kept.last.filter(|last| *last != plan.extents) {
            let message = format!("{bit}: {last:?} before, {:?} now", plan.extents);
            plan.findings.push((Rule::StaleReuse, message));
            // With another split the operand does not lie where this task looks for it.
            if last.data_bank != plan.extents.data_bank {
                plan.spoil_percent = 100;
            }
        }
    }
    if c.data_reuse && c.weight_reuse {
        plan.findings.push((Rule::BothReuseBits, "DATA_REUSE and WEIGHT_REUSE".to_owned()));
    }
}

/// Traps 7, 15, 17, 18 and 28: programs that complete with noise.
fn check_spoilers(r: &RegFile, plan: &mut Plan, kept: &Kept<'_>) {
    let window = &plan.cna.window;
    let rows = plan.cna.rows();
    let product = window.is_product() && window.in_width == 1;
    // The matmul's stride formula truncates; the convolution's does not.
    let truncated = !rows.is_multiple_of(4) && !plan.cna.planes_adjoin();
    let bad = if product && (rows < 4 || truncated) {
        Some((Rule::RowsNotMultipleOf4, format!("M = {rows}")))
    } else if window.in_height < 4 {
        Some((Rule::ImageTooLow, format!("height {}", window.in_height)))
    } else {
        None
    };
    if let Some(finding) = bad {
        plan.findings.push(finding);
        if r.assume.bad_rows_spoil_everything {
            plan.spoil_percent = 100;
        }
    }
    let bank = r.field(regs::CNA_CBUF_CON0, 10, 8);
    if bank != 0 {
        plan.findings.push((Rule::FcDataBank, format!("FC_DATA_BANK = {bank}")));
        plan.spoil_percent = plan.spoil_percent.max(r.assume.fc_data_bank_spoils_percent);
    }
    if kept.chained && !kept.first && plan.format.integer() {
        plan.findings.push((Rule::ChainedIntegers, format!("{:?}", plan.format)));
        plan.spoil_percent = 100;
    }
    let missing = geometry::slack_is_missing(r, &plan.cna);
    if let Some(message) = missing.filter(|_| plan.format == Format::Int8) {
        plan.findings.push((Rule::SlackBankMissing, message));
        plan.spoil_tail = r.assume.missing_slack_spoils_pixels * plan.dpu.channels;
    }
}
