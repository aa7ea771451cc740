//! The window of a convolution: which pixels of the image meet which weights
//! (npu-rk3588 B.1, B.2; npu-ops 4.1, 4.5).

use crate::assumptions::Assumptions;
use crate::format::Format;
use crate::regs::{self, RegFile};

/// Extents, strides and border of a convolution.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Window {
    pub in_width: usize,
    pub in_height: usize,
    pub out_width: usize,
    pub out_height: usize,
    pub kernel_width: usize,
    pub kernel_height: usize,
    stride: [usize; 2],
    dilation: [usize; 2],
    /// Left, top.
    pad: [usize; 2],
    /// PAD_CON1.
    pad_value: u32,
    assume: Assumptions,
}

impl Window {
    pub fn read(r: &RegFile) -> Window {
        let field = |reg, hi, lo| r.field(reg, hi, lo) as usize;
        Window {
            in_width: field(regs::CNA_DATA_SIZE0, 26, 16),
            in_height: field(regs::CNA_DATA_SIZE0, 10, 0),
            out_width: field(regs::DPU_DATA_CUBE_WIDTH, 12, 0) + 1,
            out_height: field(regs::DPU_DATA_CUBE_HEIGHT, 12, 0) + 1,
            kernel_width: field(regs::CNA_WEIGHT_SIZE2, 28, 24),
            kernel_height: field(regs::CNA_WEIGHT_SIZE2, 20, 16),
            stride: [field(regs::CNA_CONV_CON3, 2, 0), field(regs::CNA_CONV_CON3, 5, 3)],
            dilation: [
                field(regs::CNA_CONV_CON3, 20, 16) + 1,
                field(regs::CNA_CONV_CON3, 25, 21) + 1,
            ],
            pad: [field(regs::CNA_PAD_CON0, 7, 4), field(regs::CNA_PAD_CON0, 3, 0)],
            pad_value: r.get(regs::CNA_PAD_CON1),
            assume: r.assume,
        }
    }

    /// Positions of the kernel.
    pub fn taps(&self) -> usize {
        self.kernel_width * self.kernel_height
    }

    pub fn out_pixels(&self) -> usize {
        self.out_width * self.out_height
    }

    /// Every output pixel is one input pixel: a matrix product.
    pub fn is_product(&self) -> bool {
        self.taps() == 1
            && self.stride == [1, 1]
            && self.pad == [0, 0]
            && (self.in_width, self.in_height) == (self.out_width, self.out_height)
    }

    /// Whether the last window still starts inside the image.
    pub fn touches_image(&self) -> bool {
        let inside = |out: usize, axis: usize, len: usize| {
            self.stride[axis] > 0 && (out - 1) * self.stride[axis] < len + self.pad[axis]
        };
        inside(self.out_width, 0, self.in_width) && inside(self.out_height, 1, self.in_height)
    }

    /// The input pixel that a tap of an output pixel meets; none in the border.
    fn pixel(&self, out: usize, tap: usize) -> Option<usize> {
        let (ox, oy) = (out % self.out_width, out / self.out_width);
        let (kx, ky) = (tap % self.kernel_width, tap / self.kernel_width);
        let along = |o: usize, k: usize, axis: usize, len: usize| {
            let at =
                (o * self.stride[axis] + k * self.dilation[axis]).checked_sub(self.pad[axis])?;
            (at < len).then_some(at)
        };
        let x = along(ox, kx, 0, self.in_width)?;
        let y = along(oy, ky, 1, self.in_height)?;
        Some(y * self.in_width + x)
    }

    /// What the border holds, channel by channel.
    fn border(&self, format: Format, channels: usize) -> Vec<f32> {
        let [b0, b1] = [self.pad_value as i8, (self.pad_value >> 8) as i8];
        let byte = |c: usize| {
            let low_odd = c % 64 < 32 && c % 2 == 1;
            f32::from(if self.assume.pad_byte_1_on_odd_low_channels && low_odd { b1 } else { b0 })
        };
        if format == Format::Int8 {
            return (0..channels).map(byte).collect();
        }
        let mut one = [0.0; 16];
        let atoms = 64 / format.bits();
        format.decode_operand(self.assume, &[u64::from(self.pad_value)], &mut one[..atoms]);
        vec![one[0]; channels]
    }

    /// The image as rows of a matrix product, a row an output pixel: blocks of `unit` channels,
    /// in each the taps, as the weight cube has them.
    pub fn unfold(
        &self,
        format: Format,
        image: &[f32],
        channels: usize,
        unit: usize,
        rows: &mut Vec<f32>,
    ) {
        let border = self.border(format, channels);
        let taps = self.taps();
        rows.resize(self.out_pixels() * taps * channels, 0.0);
        for (out, row) in rows.chunks_exact_mut(taps * channels).enumerate() {
            for tap in 0..taps {
                let from = match self.pixel(out, tap) {
                    Some(p) => &image[p * channels..][..channels],
                    None => &border,
                };
                for (b, block) in from.chunks_exact(unit).enumerate() {
                    row[(b * taps + tap) * unit..][..unit].copy_from_slice(block);
                }
            }
        }
    }
}
