//! OUT_CVT: from what the DPU holds to what it stores (npu-rk3588 5.4, npu-ops 1.6, 1.7).

use crate::assumptions::Assumptions;
use crate::core::Values;
use crate::format::Out;
use crate::regs::{self, RegFile};
use half::slice::HalfFloatSliceExt;

/// The conversion of integers.
#[derive(Debug, Clone, Copy)]
pub struct Convert {
    pub offset: i64,
    pub scale: i64,
    pub shift: u32,
    assume: Assumptions,
}

impl Convert {
    pub fn read(r: &RegFile) -> Convert {
        Convert {
            offset: i64::from(r.get(regs::DPU_OUT_CVT_OFFSET) as i32),
            scale: r.field(regs::DPU_OUT_CVT_SCALE, 15, 0).into(),
            shift: r.field(regs::DPU_OUT_CVT_SHIFT, 5, 0),
            assume: r.assume,
        }
    }

    /// Scaled, shifted to the nearest, moved and clamped.
    pub fn requantise(&self, acc: i64) -> i8 {
        let product = i128::from(acc) * i128::from(self.scale);
        let floor = product >> self.shift;
        let rest = product - (floor << self.shift);
        let half = (1i128 << self.shift) >> 1;
        let up = if self.shift == 0 || rest != half {
            rest > half
        } else if self.assume.requant_ties_to_even {
            floor & 1 == 1
        } else {
            product > 0
        };
        let moved = floor + i128::from(up && self.shift > 0) + i128::from(self.offset);
        moved.clamp(i8::MIN.into(), i8::MAX.into()) as i8
    }

    /// Scaled, and shifted towards minus infinity.
    fn scaled(&self, acc: i64) -> i64 {
        let shifted = (i128::from(acc) * i128::from(self.scale)) >> self.shift;
        shifted.clamp(i64::MIN.into(), i64::MAX.into()) as i64
    }

    /// The values as they lie in memory, row by row.
    pub fn store(&self, out: Out, values: &Values, to: &mut [u64]) {
        let Values { floats, ints } = values;
        match out {
            Out::Int8 => each(to, ints, |v| self.requantise(v)),
            Out::Int16 => {
                each(to, ints, |v| self.scaled(v).clamp(i16::MIN.into(), i16::MAX.into()) as i16)
            }
            Out::Int32 => {
                each(to, ints, |v| self.scaled(v).clamp(i32::MIN.into(), i32::MAX.into()) as i32)
            }
            Out::Fp32 if floats.is_empty() => each(to, ints, |v| self.scaled(v) as f32),
            Out::Fp32 => bytemuck::cast_slice_mut(to).copy_from_slice(floats),
            Out::Fp16 if self.assume.fp16_saturates => {
                let halves = bytemuck::cast_slice_mut::<u64, half::f16>(to);
                let most = half::f16::MAX.to_f32();
                for (to, v) in halves.iter_mut().zip(floats) {
                    *to = half::f16::from_f32(v.clamp(-most, most));
                }
            }
            Out::Fp16 => {
                bytemuck::cast_slice_mut::<u64, half::f16>(to).convert_from_f32_slice(floats);
            }
        }
    }
}

fn each<T: bytemuck::Pod>(to: &mut [u64], from: &[i64], f: impl Fn(i64) -> T) {
    for (to, from) in bytemuck::cast_slice_mut::<u64, T>(to).iter_mut().zip(from) {
        *to = f(*from);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requantisation_is_to_nearest_ties_to_even() {
        let of =
            |offset, scale, shift| Convert { offset, scale, shift, assume: Assumptions::default() };
        let c = of(10, 1, 1);
        let got: Vec<i8> = [-3, -2, -1, 0, 1, 2, 3, 5].map(|v| c.requantise(v)).to_vec();
        assert_eq!(got, [8, 9, 10, 10, 10, 11, 12, 12]);
        assert_eq!([c.requantise(1 << 40), c.requantise(-(1 << 40))], [127, -128]);
        assert_eq!(of(0, 3, 0).requantise(-5), -15);
        assert_eq!(of(0, 65535, 63).requantise(i64::MAX), 127);
        assert_eq!(of(7, 1, 63).requantise(-(1 << 61)), 7);
    }
}
