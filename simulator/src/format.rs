//! Number formats of the operands and what follows from them (npu-rk3588 2.1, 3.1, 3.5, 3.6).

use crate::assumptions::Assumptions;
use half::slice::HalfFloatSliceExt;

/// What features and weights are stored as.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    Int8,
    Int16,
    Fp16,
    Bf16,
    Int4,
    Tf32,
}

impl Format {
    /// The format of a precision code (npu-rk3588 2.1), as an input.
    pub fn of_code(code: u32) -> Option<Format> {
        match code {
            0 => Some(Format::Int8),
            1 => Some(Format::Int16),
            2 => Some(Format::Fp16),
            3 => Some(Format::Bf16),
            6 => Some(Format::Int4),
            7 => Some(Format::Tf32),
            _ => None,
        }
    }

    pub const fn bits(self) -> usize {
        match self {
            Format::Int4 => 4,
            Format::Int8 => 8,
            Format::Int16 | Format::Fp16 | Format::Bf16 => 16,
            Format::Tf32 => 32,
        }
    }

    pub const fn integer(self) -> bool {
        matches!(self, Format::Int4 | Format::Int8 | Format::Int16)
    }

    /// Elements of a 16-byte atom.
    pub const fn atom(self) -> usize {
        128 / self.bits()
    }

    /// Kernels that the MAC array takes at a time.
    pub const fn kernel_group(self) -> usize {
        match self {
            Format::Int4 => 64,
            Format::Int8 => 32,
            _ => 16,
        }
    }

    /// Channels of a weight block.
    pub const fn channel_unit(self) -> usize {
        if matches!(self, Format::Tf32) { 16 } else { 32 }
    }

    /// Channels that a depthwise convolution takes at a time (npu-rk3588 B.2).
    pub const fn depthwise_group(self) -> Option<usize> {
        match self {
            Format::Fp16 => Some(32),
            Format::Int8 => Some(64),
            _ => None,
        }
    }

    /// Bytes of `n` elements.
    pub const fn bytes(self, n: usize) -> usize {
        n * self.bits() / 8
    }

    /// Largest number of products whose partial sums are all exact in fp32.
    pub const fn exact_products(self) -> usize {
        match self {
            Format::Int4 => 1 << 18,
            Format::Int8 => 1 << 10,
            _ => 0,
        }
    }

    /// [`Format::decode`] with tf32 shortened as assumed.
    pub fn decode_operand(self, assume: Assumptions, words: &[u64], floats: &mut [f32]) {
        if self == Format::Tf32 && assume.tf32_rounds {
            return each(words, floats, |bits: u32| f32::from_bits(rounded_to_tf32(bits)));
        }
        self.decode(words, floats);
    }

    /// Memory words as values; every value of every format is exact in fp32.
    pub fn decode(self, words: &[u64], floats: &mut [f32]) {
        match self {
            Format::Fp16 => {
                bytemuck::cast_slice::<u64, half::f16>(words).convert_to_f32_slice(floats);
            }
            Format::Bf16 => {
                bytemuck::cast_slice::<u64, half::bf16>(words).convert_to_f32_slice(floats);
            }
            Format::Tf32 => each(words, floats, |bits: u32| f32::from_bits(bits & !0x1fff)),
            Format::Int16 => each(words, floats, |v: i16| f32::from(v)),
            Format::Int8 => each(words, floats, |v: i8| f32::from(v)),
            Format::Int4 => {
                let bytes = bytemuck::cast_slice::<u64, i8>(words);
                for (pair, v) in floats.chunks_exact_mut(2).zip(bytes) {
                    pair.copy_from_slice(&[f32::from(v << 4 >> 4), f32::from(v >> 4)]);
                }
            }
        }
    }
}

/// To nearest, ties to even; infinities and NaN are left alone.
fn rounded_to_tf32(bits: u32) -> u32 {
    if !f32::from_bits(bits).is_finite() {
        return bits & !0x1fff;
    }
    bits.wrapping_add(0xfff + (bits >> 13 & 1)) & !0x1fff
}

fn each<T: bytemuck::Pod>(words: &[u64], floats: &mut [f32], f: impl Fn(T) -> f32) {
    for (to, from) in floats.iter_mut().zip(bytemuck::cast_slice::<u64, T>(words)) {
        *to = f(*from);
    }
}

/// What the DPU stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Out {
    Int8,
    Int16,
    Fp16,
    Int32,
    Fp32,
}

impl Out {
    pub fn of_code(code: u32) -> Option<Out> {
        match code {
            0 => Some(Out::Int8),
            1 => Some(Out::Int16),
            2 => Some(Out::Fp16),
            4 => Some(Out::Int32),
            5 => Some(Out::Fp32),
            _ => None,
        }
    }

    pub const fn bytes(self) -> usize {
        match self {
            Out::Int8 => 1,
            Out::Int16 | Out::Fp16 => 2,
            Out::Int32 | Out::Fp32 => 4,
        }
    }

    /// Elements of an output atom (npu-rk3588 3.1).
    pub const fn atom(self) -> usize {
        16 / self.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn decoded(f: Format, word: u64) -> Vec<f32> {
        let mut out = vec![0.0; 64 / f.bits()];
        f.decode(&[word], &mut out);
        out
    }

    #[test]
    fn words_become_values() {
        assert_eq!(decoded(Format::Int4, 0x7 | 0x8 << 4)[..3], [7.0, -8.0, 0.0]);
        assert_eq!(decoded(Format::Int8, 0x80ff)[..3], [-1.0, -128.0, 0.0]);
        assert_eq!(decoded(Format::Int16, 0x8000)[..2], [-32768.0, 0.0]);
        assert_eq!(decoded(Format::Bf16, 0x3f80)[0], 1.0);
        let low: u64 = 0x3f80_1fff;
        assert_eq!(decoded(Format::Tf32, low << 32 | 0xbf80_2000), [-1.000_976_6, 1.0]);
    }
}
