//! BS and BN: the DPU's per-channel stages (npu-ops 1.1, 1.4).

use crate::core::Values;
use crate::regs::{self, RegFile};

/// What a stage adds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Addend {
    /// The same to every value: fp32 or int32, as the values are.
    Register(u32),
    /// An int32 of each channel, from memory.
    PerChannel,
}

/// One stage, without what it bypasses. No program uses BS with a factor, so that one order,
/// factor first, serves both.
#[derive(Debug, Clone, Copy, Default)]
pub struct Stage {
    /// fp16 where values are floats, an unsigned integer where they are integers.
    pub factor: Option<u16>,
    pub addend: Option<Addend>,
    pub relu: bool,
}

impl Stage {
    /// BS.
    pub fn bs(r: &RegFile) -> Stage {
        Stage::read(r, [regs::DPU_BS_CFG, regs::DPU_BS_ALU_CFG, regs::DPU_BS_MUL_CFG])
    }

    /// BN.
    pub fn bn(r: &RegFile) -> Stage {
        Stage::read(r, [regs::DPU_BN_CFG, regs::DPU_BN_ALU_CFG, regs::DPU_BN_MUL_CFG])
    }

    fn read(r: &RegFile, [cfg, alu, mul]: [u16; 3]) -> Stage {
        if r.bit(cfg, 0) {
            return Stage::default();
        }
        let addend = if r.bit(cfg, 8) { Addend::PerChannel } else { Addend::Register(r.get(alu)) };
        Stage {
            factor: (!r.bit(cfg, 4)).then(|| r.field(mul, 31, 16) as u16),
            addend: (!r.bit(cfg, 1)).then_some(addend),
            relu: !r.bit(cfg, 6),
        }
    }

    /// In fp32, or in integers; `bias` holds what PerChannel names.
    pub fn apply(&self, values: &mut Values, bias: &[i32]) {
        if let Some(bits) = self.factor {
            let factor = half::f16::from_bits(bits).to_f32();
            values.floats.iter_mut().for_each(|v| *v *= factor);
            values.ints.iter_mut().for_each(|v| *v = v.saturating_mul(bits.into()));
        }
        match self.addend {
            Some(Addend::Register(bits)) => {
                values.floats.iter_mut().for_each(|v| *v += f32::from_bits(bits));
                values.ints.iter_mut().for_each(|v| *v = v.saturating_add((bits as i32).into()));
            }
            Some(Addend::PerChannel) => {
                for row in values.ints.chunks_exact_mut(bias.len().max(1)) {
                    row.iter_mut().zip(bias).for_each(|(v, b)| *v += i64::from(*b));
                }
            }
            None => {}
        }
        if self.relu {
            values.floats.iter_mut().for_each(|v| *v = v.max(0.0));
            values.ints.iter_mut().for_each(|v| *v = (*v).max(0));
        }
    }
}
