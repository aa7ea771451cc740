//! PPU with its reader: pooling of fp16 cubes (npu-rk3588 B.3, npu-ops 4.8).

use crate::check::{Hang, unmapped_in};
use crate::core::{ATOM, spoil};
use crate::format::Format;
use crate::kernel::space::Dma;
use crate::regs::{self, RegFile};
use half::f16;
use half::slice::HalfFloatSliceExt;

/// What becomes of the values under a window.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Method {
    Average,
    Max,
    Min,
}

/// The registers of a pooling pass.
#[derive(Debug, Clone)]
pub struct Ppu {
    pub method: Option<Method>,
    /// Width, height, channels.
    pub input: [usize; 3],
    pub output: [usize; 3],
    /// Width, height.
    pub kernel: [usize; 2],
    stride: [usize; 2],
    /// Left, top, right, bottom.
    pad: [usize; 4],
    recip: [f32; 2],
    fill: f32,
    src: u64,
    line_stride: u64,
    src_surf_stride: u64,
    dst: u64,
    dst_surf_stride: u64,
}

impl Ppu {
    pub fn read(r: &RegFile) -> Ppu {
        let extents = |regs: [u16; 3]| regs.map(|reg| r.field(reg, 12, 0) as usize + 1);
        let k = |hi, lo| r.field(regs::PPU_POOLING_KERNEL_CFG, hi, lo) as usize + 1;
        let pad = |hi, lo| r.field(regs::PPU_POOLING_PADDING_CFG, hi, lo) as usize;
        let half = |reg| f16::from_bits(r.get(reg) as u16).to_f32();
        Ppu {
            method: match r.field(regs::PPU_OPERATION_MODE_CFG, 1, 0) {
                0 => Some(Method::Average),
                1 => Some(Method::Max),
                2 => Some(Method::Min),
                _ => None,
            },
            input: extents([
                regs::PPU_DATA_CUBE_IN_WIDTH,
                regs::PPU_DATA_CUBE_IN_HEIGHT,
                regs::PPU_DATA_CUBE_IN_CHANNEL,
            ]),
            output: extents([
                regs::PPU_DATA_CUBE_OUT_WIDTH,
                regs::PPU_DATA_CUBE_OUT_HEIGHT,
                regs::PPU_DATA_CUBE_OUT_CHANNEL,
            ]),
            kernel: [k(3, 0), k(11, 8)],
            stride: [k(19, 16), k(23, 20)],
            pad: [pad(2, 0), pad(6, 4), pad(10, 8), pad(14, 12)],
            recip: [half(regs::PPU_RECIP_KERNEL_WIDTH), half(regs::PPU_RECIP_KERNEL_HEIGHT)],
            fill: half(regs::PPU_PADDING_VALUE_1),
            src: r.get(regs::PPU_RDMA_SRC_BASE_ADDR).into(),
            line_stride: r.get(regs::PPU_RDMA_SRC_LINE_STRIDE).into(),
            src_surf_stride: r.get(regs::PPU_RDMA_SRC_SURF_STRIDE).into(),
            dst: r.get(regs::PPU_DST_BASE_ADDR).into(),
            dst_surf_stride: (r.get(regs::PPU_DST_SURF_STRIDE) & !0xf).into(),
        }
    }

    /// Whether the windows cover the padded image as the output's extents say.
    pub fn extents_agree(&self) -> bool {
        (0..2).all(|a| {
            let padded = self.input[a] + self.pad[a] + self.pad[a + 2];
            padded >= self.kernel[a]
                && (padded - self.kernel[a]) / self.stride[a] + 1 == self.output[a]
        }) && self.input[2] == self.output[2]
            && self.input[2].is_multiple_of(ATOM)
    }

    /// Pixels of a stored surface.
    pub fn surface_pixels(&self) -> usize {
        self.output[0] * self.output[1]
    }

    /// Addresses of the stored surfaces, in order.
    pub fn surface_list(&self) -> impl Iterator<Item = u64> {
        (0..self.output[2] / ATOM).map(|s| self.dst + s as u64 * self.dst_surf_stride)
    }

    /// Pools surface by surface, at most `limit` of them, and makes noise of the last
    /// `spoil_tail` values; says how many bytes were read and stored.
    pub fn run(
        &self,
        dma: &mut Dma,
        method: Method,
        limit: usize,
        spoil_tail: usize,
    ) -> Result<[u64; 2], Hang> {
        let ([iw, ih, c], [ow, oh, _]) = (self.input, self.output);
        let mut words = vec![0u64; 2 * iw * ih];
        let mut image = vec![0f32; ATOM * iw * ih];
        let mut pooled = vec![0f32; ATOM * ow * oh];
        let mut stored = vec![0u64; 2 * ow * oh];
        let mut bytes = [0, 0];
        for (s, to) in self.surface_list().enumerate().take(limit) {
            for (y, line) in words.chunks_exact_mut(2 * iw).enumerate() {
                let at = self.src + s as u64 * self.src_surf_stride + y as u64 * self.line_stride;
                let fault = |f| unmapped_in(f, regs::PPU_RDMA_SRC_BASE_ADDR, "cube fetch");
                dma.read(at, line).map_err(fault)?;
            }
            Format::Fp16.decode(&words, &mut image);
            for (i, pixel) in pooled.chunks_exact_mut(ATOM).enumerate() {
                self.window(method, &image, [i % ow, i / ow], pixel);
            }
            if s + 1 == c / ATOM {
                let kept = pooled.len().saturating_sub(spoil_tail);
                spoil(&mut pooled[kept..]);
            }
            bytemuck::cast_slice_mut::<u64, f16>(&mut stored).convert_from_f32_slice(&pooled);
            let fault = |f| unmapped_in(f, regs::PPU_DST_BASE_ADDR, "output store");
            dma.write(to, &stored).map_err(fault)?;
            bytes[0] += words.len() as u64 * 8;
            bytes[1] += stored.len() as u64 * 8;
        }
        Ok(bytes)
    }

    /// One window of one surface; the border counts.
    fn window(&self, method: Method, image: &[f32], out: [usize; 2], to: &mut [f32]) {
        let [iw, ih, _] = self.input;
        to.fill(match method {
            Method::Average => 0.0,
            Method::Max => f32::NEG_INFINITY,
            Method::Min => f32::INFINITY,
        });
        let along = |a: usize, k: usize, len: usize| {
            let at = (out[a] * self.stride[a] + k).checked_sub(self.pad[a])?;
            (at < len).then_some(at)
        };
        for k in 0..self.kernel[0] * self.kernel[1] {
            let x = along(0, k % self.kernel[0], iw);
            let y = along(1, k / self.kernel[0], ih);
            let from = match (x, y) {
                (Some(x), Some(y)) => &image[(y * iw + x) * ATOM..][..ATOM],
                _ => &[self.fill; ATOM],
            };
            for (to, from) in to.iter_mut().zip(from) {
                *to = match method {
                    Method::Average => *to + from,
                    Method::Max => to.max(*from),
                    Method::Min => to.min(*from),
                };
            }
        }
        if method == Method::Average {
            let scale = (-32f32).exp2();
            to.iter_mut().for_each(|v| *v = *v * self.recip[0] * self.recip[1] * scale);
        }
    }
}
