//! DPU-RDMA: reads the element-wise operand cube, the bias of each channel, and the cube of a
//! flying pass (npu-rk3588 2.6, 6.3, B.4; npu-ops 1.8).

use crate::assumptions::Assumptions;
use crate::check::{Hang, unmapped_in};
use crate::core::{ATOM, KERNEL_GROUP, Scratch};
use crate::format::Format;
use crate::kernel::space::Dma;
use crate::regs::{self, RegFile};

/// The registers that say where the operand lies.
#[derive(Debug, Clone)]
pub struct Rdma {
    src: u64,
    ew_base: u64,
    bias: u64,
    pub notch: u64,
    pub ew_notch: u64,
    pub rows: usize,
    pub channels: usize,
    pub mrdma_on: bool,
    pub erdma_on: bool,
    pub comb_use: u32,
    assume: Assumptions,
}

impl Rdma {
    pub fn read(r: &RegFile) -> Rdma {
        let extent = |reg| r.field(reg, 12, 0) as usize + 1;
        Rdma {
            src: r.get(regs::RDMA_SRC_BASE_ADDR).into(),
            ew_base: r.get(regs::RDMA_EW_BASE_ADDR).into(),
            bias: r.get(regs::RDMA_BS_BASE_ADDR).into(),
            notch: (r.get(regs::RDMA_SURF_NOTCH) & !0xf).into(),
            ew_notch: (r.get(regs::RDMA_EW_SURF_NOTCH) & !0xf).into(),
            rows: extent(regs::RDMA_DATA_CUBE_HEIGHT) * extent(regs::RDMA_DATA_CUBE_WIDTH),
            channels: extent(regs::RDMA_DATA_CUBE_CHANNEL),
            mrdma_on: !r.bit(regs::RDMA_FEATURE_MODE_CFG, 4),
            erdma_on: !r.bit(regs::RDMA_ERDMA_CFG, 0),
            comb_use: r.field(regs::RDMA_FEATURE_MODE_CFG, 10, 8),
            assume: r.assume,
        }
    }

    /// Bytes of one surface.
    pub fn surface_bytes(&self) -> u64 {
        16 * self.rows as u64
    }

    /// Whether a notch is zero, so that the pointer never advances (trap 23).
    pub fn stuck(&self) -> bool {
        self.notch == 0 || self.ew_notch == 0
    }

    /// How far the pointers move on after a surface, beyond it: MRDMA's and ERDMA's (trap 22).
    pub fn gaps(&self) -> [u64; 2] {
        let floor = 16 * u64::from(self.assume.notch_floor_atoms);
        [self.notch, self.ew_notch].map(|notch| notch.max(floor))
    }

    /// Address, channel and base register of each surface read.
    pub fn surface_list(&self) -> impl Iterator<Item = (usize, u64, u16)> {
        (0..self.channels / KERNEL_GROUP).flat_map(move |g| {
            let (even, odd) = if self.stuck() && self.assume.zero_notch_repeats_first_surface {
                (self.src, self.src)
            } else {
                let (g, step) = (g as u64, self.surface_bytes());
                let [even, odd] = self.gaps();
                (self.src + g * (step + even), self.ew_base + g * (step + odd))
            };
            let first = g * KERNEL_GROUP;
            [(first, even, regs::RDMA_SRC_BASE_ADDR), (first + ATOM, odd, regs::RDMA_EW_BASE_ADDR)]
        })
    }

    /// Reads the operand into `rows` by `channels` values; says how many bytes that was.
    pub fn fetch_operand(
        &self,
        dma: &mut Dma,
        scratch: &mut Scratch,
        operand: &mut Vec<f32>,
    ) -> Result<u64, Hang> {
        operand.resize(self.rows * self.channels, 0.0);
        let (words, floats) = scratch.buffers(2 * self.rows, self.rows * ATOM);
        let mut bytes = 0;
        for (first, addr, reg) in self.surface_list() {
            dma.read(addr, words).map_err(|f| unmapped_in(f, reg, "operand fetch"))?;
            bytes += self.surface_bytes();
            Format::Fp16.decode(words, floats);
            let rows = operand.chunks_exact_mut(self.channels);
            for (row, atom) in rows.zip(floats.chunks_exact(ATOM)) {
                row[first..first + ATOM].copy_from_slice(atom);
            }
        }
        Ok(bytes)
    }

    /// Reads the int32 bias of each channel; says how many bytes that was.
    pub fn fetch_bias(&self, dma: &mut Dma, bias: &mut Vec<i32>) -> Result<u64, Hang> {
        let mut words = vec![0u64; self.channels.div_ceil(2)];
        let fault = |f| unmapped_in(f, regs::RDMA_BS_BASE_ADDR, "bias fetch");
        dma.read(self.bias, &mut words).map_err(fault)?;
        bias.clear();
        bias.extend_from_slice(&bytemuck::cast_slice(&words)[..self.channels]);
        Ok(4 * self.channels as u64)
    }

    /// Reads the cube of a flying pass, one atom deep; says how many bytes that was.
    pub fn fetch_main(&self, dma: &mut Dma, values: &mut Vec<f32>) -> Result<u64, Hang> {
        let mut words = vec![0u64; 2 * self.rows];
        let fault = |f| unmapped_in(f, regs::RDMA_SRC_BASE_ADDR, "cube fetch");
        dma.read(self.src, &mut words).map_err(fault)?;
        values.resize(self.rows * ATOM, 0.0);
        Format::Fp16.decode(&words, values);
        Ok(self.surface_bytes())
    }
}
