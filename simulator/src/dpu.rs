//! DPU: its stages in order, the element-wise one, and the writer (npu-rk3588 2.5, 3.4, 5.1, 6).

use crate::check::{Hang, unmapped_in};
use crate::convert::Convert;
use crate::core::{Scratch, Values};
use crate::format::Out;
use crate::kernel::space::Dma;
use crate::lut::{Lookup, Tables};
use crate::regs::{self, RegFile};
use crate::stage::{Addend, Stage};

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
    pub fn apply(self, narrow_first: bool, sums: &mut [f32], operand: &[f32]) {
        if narrow_first {
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

/// The DPU registers that say what is done and where it is stored.
#[derive(Debug, Clone)]
pub struct Dpu {
    pub dst: u64,
    pub surf_stride: u64,
    pub surface_add: u64,
    /// Surfaces stored of each group.
    pub surfaces: usize,
    /// Channels of a group: what its feed brings at a time.
    pub group: usize,
    pub out: Out,
    pub rows: usize,
    pub channels: usize,
    pub bs: Stage,
    pub bn: Stage,
    pub operand: Option<ElementWise>,
    /// The element-wise stage narrows what the accumulator delivers.
    narrow_first: bool,
    pub lookup: Option<Lookup>,
    pub convert: Convert,
    /// Trap 26: no more than the first row of this many channels is stored.
    pub only_first_row_of: Option<usize>,
}

impl Dpu {
    /// For a feed that brings `group` channels at a time.
    pub fn read(r: &RegFile, group: usize, out: Out) -> Dpu {
        let extent = |reg, hi, lo| r.field(reg, hi, lo) as usize + 1;
        let height = extent(regs::DPU_DATA_CUBE_HEIGHT, 12, 0);
        let armed = !r.bit(regs::DPU_EW_CFG, 0) && !r.bit(regs::DPU_EW_CFG, 1);
        let from_memory = r.bit(regs::DPU_EW_CFG, 6);
        Dpu {
            dst: r.get(regs::DPU_DST_BASE_ADDR).into(),
            surf_stride: (r.get(regs::DPU_DST_SURF_STRIDE) & !0xf).into(),
            surface_add: (r.get(regs::DPU_SURFACE_ADD) & !0xf).into(),
            surfaces: extent(regs::DPU_BS_OW_CFG, 4, 2),
            group,
            out,
            rows: height * extent(regs::DPU_DATA_CUBE_WIDTH, 12, 0),
            channels: extent(regs::DPU_DATA_CUBE_CHANNEL, 12, 0),
            bs: Stage::bs(r),
            bn: Stage::bn(r),
            operand: ElementWise::read(r).filter(|_| armed && from_memory),
            narrow_first: !r.assume.ew_narrows_once,
            lookup: Lookup::read(r),
            convert: Convert::read(r),
            only_first_row_of: None,
        }
    }

    /// Whether BS takes a bias of each channel from memory.
    pub fn biased(&self) -> bool {
        self.bs.addend == Some(Addend::PerChannel)
    }

    /// Everything between the feed and the writer; says how many look-ups met the zero code.
    pub fn process(
        &self,
        values: &mut Values,
        bias: &[i32],
        operand: &[f32],
        tables: &Tables,
    ) -> usize {
        self.bs.apply(values, bias);
        self.bn.apply(values, &[]);
        if let Some(op) = self.operand {
            op.apply(self.narrow_first, &mut values.floats, operand);
        }
        self.lookup.map_or(0, |l| l.apply(tables, &mut values.floats))
    }

    /// First channel and address of each stored surface, in the order of storing
    /// (npu-rk3588 3.4).
    pub fn surface_list(&self) -> impl Iterator<Item = (usize, u64)> {
        let kept = self.only_first_row_of.unwrap_or(self.channels);
        (0..kept / self.group).flat_map(move |g| {
            (0..self.surfaces.min(self.group / self.out.atom())).map(move |s| {
                let group = self.dst + g as u64 * self.surface_add;
                (g * self.group + s * self.out.atom(), group + s as u64 * self.surf_stride)
            })
        })
    }

    /// Converts and stores the values, at most `limit` surfaces of them; says how many bytes.
    pub fn store(
        &self,
        dma: &mut Dma,
        scratch: &mut Scratch,
        values: &Values,
        limit: usize,
    ) -> Result<u64, Hang> {
        let (rows, width, ob) = (self.rows, self.channels, self.out.bytes());
        // The converted values, then room for one surface.
        let converted = rows * width * ob / 8;
        let (words, _) = scratch.buffers(converted + 2 * rows, 0);
        let (converted, surface) = words.split_at_mut(converted);
        self.convert.store(self.out, values, converted);
        let stored = if self.only_first_row_of.is_some() { 1 } else { rows };
        let surface = &mut surface[..2 * stored];
        let mut bytes = 0;
        for (first, addr) in self.surface_list().take(limit) {
            for (m, atom) in surface.chunks_exact_mut(2).enumerate() {
                atom.copy_from_slice(&converted[(m * width + first) * ob / 8..][..2]);
            }
            let fault = |f| unmapped_in(f, regs::DPU_DST_BASE_ADDR, "output store");
            dma.write(addr, surface).map_err(fault)?;
            bytes += surface.len() as u64 * 8;
        }
        Ok(bytes)
    }
}
