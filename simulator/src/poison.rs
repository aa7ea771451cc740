//! What a task will store, by its registers, filled with a byte before it runs: an output that
//! nobody wrote then shows as such, whatever was there before.

use crate::assumptions::MOST_VALUES_A_TASK;
use crate::core::ATOM;
use crate::dpu::Dpu;
use crate::format::{Format, Out};
use crate::kernel::space::Dma;
use crate::ppu::Ppu;
use crate::regs::{self, RegFile};

/// Fills the output of the blocks in `mask`. No rule is asked: the registers of a task that will
/// hang say where it would store as well. What is not mapped is left out.
pub fn fill(r: &RegFile, mask: u32, dma: &mut Dma, byte: u8) {
    if mask >> 3 & 1 == 1 {
        let dpu = dpu(r);
        surfaces(dma, byte, 2 * dpu.rows, dpu.surface_list().map(|(_, addr)| addr));
    }
    if mask >> 5 & 1 == 1 {
        let ppu = Ppu::read(r);
        surfaces(dma, byte, 2 * ppu.surface_pixels(), ppu.surface_list());
    }
}

/// The writer with its group (npu-rk3588 3.4, B.4). Precisions that no rule lets pass are taken
/// for those of the narrowest group and the widest value.
fn dpu(r: &RegFile) -> Dpu {
    let out = Out::of_code(r.field(regs::DPU_DATA_FORMAT, 31, 29)).unwrap_or(Out::Fp32);
    let format = Format::of_code(r.field(regs::CNA_CONV_CON1, 6, 4)).unwrap_or(Format::Fp16);
    let depthwise = r.field(regs::DPU_FEATURE_MODE_CFG, 4, 3) == 3;
    let group = if r.bit(regs::DPU_FEATURE_MODE_CFG, 0) {
        ATOM
    } else {
        let depthwise = format.depthwise_group().filter(|_| depthwise);
        depthwise.unwrap_or(format.kernel_group())
    };
    Dpu::read(r, group, out)
}

fn surfaces(dma: &mut Dma, byte: u8, words: usize, addresses: impl Iterator<Item = u64>) {
    const AT_ONCE: usize = 512;
    let fill = [u64::from_ne_bytes([byte; 8]); AT_ONCE];
    // Registers can ask for far more than a task may store.
    let most = MOST_VALUES_A_TASK / words.max(1);
    for addr in addresses.take(most).filter(|a| a.is_multiple_of(16)) {
        for at in (0..words).step_by(AT_ONCE) {
            let n = AT_ONCE.min(words - at);
            if dma.write(addr + 8 * at as u64, &fill[..n]).is_err() {
                break;
            }
        }
    }
}
