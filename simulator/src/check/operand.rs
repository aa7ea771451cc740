//! The element-wise operand of a convolution: who feeds it, and where it lies (npu-rk3588 6.2, 6.3;
//! traps 1, 3 and 21 to 24).

use super::{Hang, Plan, Rule, geometry};
use crate::core::KERNEL_GROUP;
use crate::dpu::ElementWise;
use crate::format::Format;
use crate::regs::{self, RegFile};

/// Traps 1 and 3: who feeds the element-wise stage.
pub fn feed(r: &RegFile, plan: &mut Plan) -> Result<(), Hang> {
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

/// Traps 21 to 23: where the operand cube lies.
pub fn cube(plan: &mut Plan) {
    let (d, op) = (&plan.dpu, &plan.rdma);
    let Some(kind) = d.operand else { return };
    let size = op.surface_bytes();
    if op.stuck() {
        let message = format!("SURF_NOTCH {} EW_SURF_NOTCH {}", op.notch, op.ew_notch);
        plan.findings.push((Rule::OperandNotchZero, message));
    } else if op.channels > KERNEL_GROUP && op.gaps() != [size; 2] {
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
