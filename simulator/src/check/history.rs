//! What a program takes from those before it: registers, and operands in the CBUF (npu-rk3588 1.2,
//! 4.3; traps 9 and 20).

use super::{Hang, Kept, Plan, Rule};
use crate::regs::{self, RegFile};

/// Traps 1 and 9: registers that the program left to others; says whether that breaks it.
pub fn written(r: &RegFile, findings: &mut Vec<(Rule, String)>) -> Result<bool, Hang> {
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
pub fn not_written(r: &RegFile, needed: impl Iterator<Item = u16>) -> Option<(Rule, String)> {
    let missing: Vec<u16> = needed.filter(|o| !r.written_by_program(*o)).collect();
    let message =
        format!("{} not written, {} in all", regs::name(*missing.first()?), missing.len());
    let in_job = missing.iter().all(|o| r.written_in_job(*o));
    Some((if in_job { Rule::DeltaProgram } else { Rule::RegistersNotWritten }, message))
}

/// Trap 20: what a reuse bit takes must be what this task would have fetched.
pub fn reuse(plan: &mut Plan, kept: &Kept<'_>) {
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
