//! DPU: element-wise stage, output conversion and the writer (npu-rk3588 2.5, 3.4, 5.4, 6).

use crate::assumptions::EW_NARROWS_ONCE;
use crate::check::{Hang, unmapped_in};
use crate::core::{KERNEL_GROUP, Scratch};
use crate::kernel::space::Dma;
use crate::regs::{self, RegFile};
use half::slice::HalfFloatSliceExt;

/// What the element-wise stage does with the sum and its operand (npu-rk3588 6.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ElementWise {
    Add,
    Multiply,
    Max,
    Min,
}

impl ElementWise {
    /// The operation in EW_CFG, if it is one of the known four.
    pub fn read(r: &RegFile) -> Option<ElementWise> {
        match (r.bit(regs::DPU_EW_CFG, 2), r.field(regs::DPU_EW_CFG, 19, 16)) {
            (true, 0) => Some(ElementWise::Multiply),
            (false, 0) => Some(ElementWise::Max),
            (false, 1) => Some(ElementWise::Min),
            (false, 2) => Some(ElementWise::Add),
            _ => None,
        }
    }

    /// In fp32.
    pub fn apply(self, sums: &mut [f32], operand: &[f32]) {
        if !EW_NARROWS_ONCE {
            sums.iter_mut().for_each(|s| *s = half::f16::from_f32(*s).to_f32());
        }
        let each = |f: fn(f32, f32) -> f32, sums: &mut [f32]| {
            sums.iter_mut().zip(operand).for_each(|(s, o)| *s = f(*s, *o));
        };
        match self {
            ElementWise::Add => each(|s, o| s + o, sums),
            ElementWise::Multiply => each(|s, o| s * o, sums),
            ElementWise::Max => each(f32::max, sums),
            ElementWise::Min => each(f32::min, sums),
        }
    }
}

/// The DPU registers that say what is stored and where.
#[derive(Debug, Clone)]
pub struct Dpu {
    pub dst: u64,
    pub surf_stride: u64,
    pub surface_add: u64,
    /// Surfaces stored of each kernel group.
    pub surfaces: usize,
    /// fp32 in memory rather than fp16.
    pub wide: bool,
    pub rows: usize,
    pub channels: usize,
    pub operand: Option<ElementWise>,
}

impl Dpu {
    pub fn read(r: &RegFile) -> Dpu {
        let extent = |reg, hi, lo| r.field(reg, hi, lo) as usize + 1;
        let height = extent(regs::DPU_DATA_CUBE_HEIGHT, 12, 0);
        let armed = !r.bit(regs::DPU_EW_CFG, 0);
        Dpu {
            dst: r.get(regs::DPU_DST_BASE_ADDR).into(),
            surf_stride: (r.get(regs::DPU_DST_SURF_STRIDE) & !0xf).into(),
            surface_add: (r.get(regs::DPU_SURFACE_ADD) & !0xf).into(),
            surfaces: extent(regs::DPU_BS_OW_CFG, 4, 2),
            wide: r.field(regs::DPU_DATA_FORMAT, 31, 29) == 5,
            rows: height * extent(regs::DPU_DATA_CUBE_WIDTH, 12, 0),
            channels: extent(regs::DPU_DATA_CUBE_CHANNEL, 12, 0),
            operand: ElementWise::read(r).filter(|_| armed),
        }
    }

    /// Elements of an output atom (npu-rk3588 3.1).
    pub fn atom(&self) -> usize {
        if self.wide { 4 } else { 8 }
    }

    /// First channel and address of each stored surface, in the order of storing
    /// (npu-rk3588 3.4).
    pub fn surface_list(&self) -> impl Iterator<Item = (usize, u64)> {
        (0..self.channels / KERNEL_GROUP).flat_map(move |g| {
            (0..self.surfaces).map(move |s| {
                let group = self.dst + g as u64 * self.surface_add;
                (g * KERNEL_GROUP + s * self.atom(), group + s as u64 * self.surf_stride)
            })
        })
    }

    /// Converts and stores the sums, at most `limit` surfaces of them; says how many bytes.
    pub fn store(
        &self,
        dma: &mut Dma,
        scratch: &mut Scratch,
        sums: &[f32],
        limit: usize,
    ) -> Result<u64, Hang> {
        let (rows, width) = (self.rows, self.channels);
        // The narrowed sums, then room for one surface.
        let narrowed = if self.wide { 0 } else { sums.len() / 4 };
        let (words, _) = scratch.buffers(4 * (narrowed + 2 * rows));
        let (narrow, surface) = words.split_at_mut(narrowed);
        if !self.wide {
            bytemuck::cast_slice_mut::<u64, half::f16>(narrow).convert_from_f32_slice(sums);
        }
        let mut bytes = 0;
        for (first, addr) in self.surface_list().take(limit) {
            for (m, atom) in surface.chunks_exact_mut(2).enumerate() {
                if self.wide {
                    let from = &sums[m * width + first..][..4];
                    let pair = |i: usize| {
                        u64::from(from[i].to_bits()) | u64::from(from[i + 1].to_bits()) << 32
                    };
                    atom.copy_from_slice(&[pair(0), pair(2)]);
                } else {
                    atom.copy_from_slice(&narrow[(m * width + first) / 4..][..2]);
                }
            }
            let fault = |f| unmapped_in(f, regs::DPU_DST_BASE_ADDR, "output store");
            dma.write(addr, surface).map_err(fault)?;
            bytes += 16 * rows as u64;
        }
        Ok(bytes)
    }
}
