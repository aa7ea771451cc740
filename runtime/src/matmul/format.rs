//! What a GEMM computes in: one type a format, with the bounds that planning must respect.

use super::operand::Weights;
use crate::dtype::DType;
use crate::kernels::convert;
use bytemuck::Pod;
use half::{bf16, f16};
use std::fmt::Debug;

mod sealed {
    pub trait Sealed {}
}

/// A format of both operands. Closed: the types of this module.
pub trait Format: Copy + PartialEq + Debug + Send + Sync + sealed::Sealed + 'static {
    /// What an operand's elements are in the caller's memory.
    type Element: Pod + Send + Sync + Debug;

    /// The program type.
    fn dtype(&self) -> DType;

    /// The name under which packed weights are kept; all that is in it but the group.
    fn name(&self) -> &'static str {
        self.dtype().info().name
    }

    /// Channels that one K step may hold at most, whatever the operands.
    fn most(&self) -> usize {
        self.dtype().info().k_cap
    }

    /// Channels that one K step may hold at most with these weights.
    fn most_with(&self, _weights: &dyn Weights<Self::Element>) -> usize {
        self.most()
    }

    /// Channels of a group with scales of its own; `None` when one scale covers all of K.
    fn group(&self) -> Option<usize> {
        None
    }

    /// Writes `row` as it is stored in a cube, little-endian. False when a value is not one of
    /// the format's.
    fn store(&self, row: &[Self::Element], dst: &mut [u8]) -> bool {
        dst[..size_of_val(row)].copy_from_slice(bytemuck::cast_slice(row));
        true
    }
}

/// A format whose products and sums are floats and whose K steps the host adds up in binary64.
pub trait Float: Format {}

/// A format of integer codes: sums are exact.
pub trait Integer: Format<Element = i8> {
    /// The largest magnitude of a product of two codes.
    fn largest_product(&self) -> usize;
}

/// fp16 operands (npu-rk3588 5.2). K steps are added up on chip in fp16, or by the host from
/// fp32: see [`Summation`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Fp16;

/// Who adds up the K steps of fp16.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Summation {
    /// The elementwise stage, rounding to fp16 at each step (npu-rk3588 6).
    OnChip,
    /// The host in binary64, from one fp32 image a step.
    Host,
}

impl Summation {
    /// The program type it needs.
    pub const fn dtype(self) -> DType {
        match self {
            Summation::OnChip => DType::Fp16,
            Summation::Host => DType::Fp16F32Out,
        }
    }
}

/// bf16 operands, fp32 results (7.10).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Bf16;

/// fp32 operands of which the hardware keeps 10 bits of mantissa, fp32 results (7.11).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Tf32;

/// Signed bytes.
///
/// Results leave the NPU as int32, unscaled: the output converter multiplies by whole numbers and
/// shifts, so no dequantization scale can be folded into it (npu-rk3588 5.4), and its fp32 output
/// holds the same sums in as many bytes, exact only below 2^24 (5.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Int8 {
    /// Channels a scale covers: a multiple of 32; `None` for all of K (7.6).
    pub group: Option<usize>,
}

/// Signed nibbles, one `i8` each in the caller's memory. The hardware's result saturates at 16
/// bits, so K steps are kept short enough that no sum can reach that (5.3): as long as the weights
/// allow with activations of any codes, which is several times what every weight would.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Int4 {
    /// Whether codes reach -8. Without it K steps may be a third longer, and a -8 is refused.
    pub full: bool,
    /// Channels a scale covers: a multiple of 32; `None` for all of K (7.6).
    pub group: Option<usize>,
}

impl sealed::Sealed for Fp16 {}
impl sealed::Sealed for Bf16 {}
impl sealed::Sealed for Tf32 {}
impl sealed::Sealed for Int8 {}
impl sealed::Sealed for Int4 {}

impl Format for Fp16 {
    type Element = f16;

    fn dtype(&self) -> DType {
        DType::Fp16
    }
}

impl Format for Bf16 {
    type Element = bf16;

    fn dtype(&self) -> DType {
        DType::Bf16
    }
}

impl Float for Bf16 {}

impl Format for Tf32 {
    type Element = f32;

    fn dtype(&self) -> DType {
        DType::Tf32
    }
}

impl Float for Tf32 {}

impl Format for Int8 {
    type Element = i8;

    fn dtype(&self) -> DType {
        DType::Int8
    }

    fn group(&self) -> Option<usize> {
        self.group
    }
}

impl Integer for Int8 {
    fn largest_product(&self) -> usize {
        128 * 128
    }
}

impl Format for Int4 {
    type Element = i8;

    fn dtype(&self) -> DType {
        DType::Int4
    }

    fn name(&self) -> &'static str {
        if self.full { "int4" } else { "int4-symmetric" }
    }

    /// The sum of a step stays below the saturation value, which marks what was never written.
    fn most(&self) -> usize {
        i16::MAX as usize / self.largest_product()
    }

    fn most_with(&self, weights: &dyn Weights<i8>) -> usize {
        let largest = if self.full { 8 } else { 7 };
        let limit = i16::MAX as u32 / largest;
        let block = self.dtype().info().k_group;
        let mut row = vec![0i8; weights.k()];
        let mut sums = Vec::with_capacity(weights.k().div_ceil(block));
        let mut most = usize::MAX;
        for n in 0..weights.n() {
            weights.load(n, &mut row);
            sums.clear();
            sums.extend(row.chunks(block).map(magnitude));
            most = most.min(longest_below(&sums, limit));
        }
        self.most().max(most.saturating_mul(block)).min(self.dtype().info().k_cap)
    }

    fn group(&self) -> Option<usize> {
        self.group
    }

    fn store(&self, row: &[i8], dst: &mut [u8]) -> bool {
        let least = if self.full { -8 } else { -7 };
        row.iter().all(|x| *x >= least) && convert::nibbles(row, &mut dst[..row.len().div_ceil(2)])
    }
}

fn magnitude(codes: &[i8]) -> u32 {
    codes.iter().map(|x| u32::from(x.unsigned_abs())).sum()
}

/// The largest length of which every run of `blocks` adds up to at most `limit`.
fn longest_below(blocks: &[u32], limit: u32) -> usize {
    // One less than the shortest run that exceeds it.
    let (mut shortest, mut first, mut sum) = (usize::MAX, 0, 0);
    for (i, block) in blocks.iter().enumerate() {
        sum += block;
        while sum > limit {
            shortest = shortest.min(i + 1 - first);
            sum -= blocks[first];
            first += 1;
        }
    }
    if shortest == usize::MAX { shortest } else { shortest - 1 }
}

impl Integer for Int4 {
    fn largest_product(&self) -> usize {
        if self.full { 8 * 8 } else { 7 * 7 }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Rows;
    use super::*;
    use proptest::prelude::*;

    /// The figures of npu-rk3588 5.3.
    #[test]
    fn int4_steps_stay_below_saturation() {
        let most = |full| Int4 { full, group: None }.most();
        assert_eq!((most(false), most(true)), (668, 511));
    }

    proptest! {
        /// Against every run of every length.
        #[test]
        fn no_run_of_the_longest_length_is_above(
            blocks in prop::collection::vec(0u32..50, 0..40), limit in 0u32..300,
        ) {
            let longest = longest_below(&blocks, limit);
            let above = |len: usize| blocks.windows(len).any(|w| w.iter().sum::<u32>() > limit);
            prop_assert!(longest == 0 || longest > blocks.len() || !above(longest));
            prop_assert!(longest >= blocks.len() || above(longest + 1), "longer would do");
        }
    }

    /// Small codes make long steps; one row of large ones makes them short for all.
    #[test]
    fn int4_steps_follow_the_weights() {
        let k = 8192;
        let most = |full, codes: &[i8]| {
            Int4 { full, group: None }.most_with(&Rows::new(codes, codes.len() / k, k))
        };
        assert_eq!(most(true, &vec![8i8.wrapping_neg(); k]), 511);
        assert_eq!(most(false, &vec![7; k]), 668);
        // 32767 / 7 = 4681 of magnitude 1, in whole blocks of 32.
        assert_eq!(most(false, &vec![1; k]), 4672);
        assert_eq!(most(false, &vec![0; k]), 16_384);
        let mut two = vec![1; 2 * k];
        two[k..].fill(-4);
        assert_eq!(most(false, &two), 1152, "32 * floor(4681 / 128)");
    }

    #[test]
    fn int4_takes_its_codes_and_no_others() {
        let stores = |full, row: &[i8]| {
            let mut dst = [0xAA; 2];
            Int4 { full, group: None }.store(row, &mut dst).then_some(dst)
        };
        assert_eq!(stores(true, &[-8, 7, 1]), Some([0x78, 0x01]));
        assert_eq!(stores(false, &[-7, 7, 1]), Some([0x79, 0x01]));
        assert_eq!(stores(false, &[-8, 7, 1]), None);
        assert_eq!(stores(true, &[0, 8, 1]), None);
        assert_eq!(stores(true, &[0, -9, 1]), None);
    }
}
