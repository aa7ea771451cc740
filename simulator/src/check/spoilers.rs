//! Programs that complete with noise (npu-rk3588 4.5).

use super::{Kept, Plan, Rule, geometry};
use crate::format::Format;
use crate::regs::{self, RegFile};

/// Traps 7, 15, 17, 18 and 28: programs that complete with noise.
pub fn check(r: &RegFile, plan: &mut Plan, kept: &Kept<'_>) {
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
    if kept.chained && plan.format.integer() {
        plan.findings.push((Rule::ChainedIntegers, format!("{:?}", plan.format)));
        plan.spoil_percent = 100;
    }
    let missing = geometry::slack_is_missing(r, &plan.cna);
    if let Some(message) = missing.filter(|_| plan.format == Format::Int8) {
        plan.findings.push((Rule::SlackBankMissing, message));
        plan.spoil_tail = r.assume.missing_slack_spoils_pixels * plan.dpu.channels;
    }
}
