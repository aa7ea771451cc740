//! The DPU's look-up table: upload, index, interpolation, decoding (npu-rk3588 B.4, npu-ops 2).

use crate::assumptions::Assumptions;
use crate::regs::{self, RegFile};
use half::f16;

/// Entries of a table.
const ENTRIES: usize = 513;

/// The two tables of a core: LE, below zero, and LO.
#[derive(Debug)]
pub struct Tables {
    entries: [[u16; ENTRIES]; 2],
    /// Table and entry that the next word goes to; none unless opened for writing.
    at: Option<(usize, usize)>,
    /// Entries that the running program wrote.
    written: [usize; 2],
}

impl Tables {
    pub fn new() -> Tables {
        Tables { entries: [[0; ENTRIES]; 2], at: None, written: [0; 2] }
    }

    /// A new program: what earlier programs wrote counts as theirs.
    pub fn begin_program(&mut self) {
        self.written = [0; 2];
        self.at = None;
    }

    /// A register write; other registers pass.
    pub fn write(&mut self, offset: u16, value: u32) {
        match offset {
            regs::DPU_LUT_ACCESS_CFG => {
                let table = (value >> 16 & 1) as usize;
                self.at = (value >> 17 & 1 == 1).then_some((table, (value & 0x3ff) as usize));
            }
            regs::DPU_LUT_ACCESS_DATA => {
                let Some((table, entry)) = &mut self.at else { return };
                if let Some(e) = self.entries[*table].get_mut(*entry) {
                    *e = value as u16;
                    self.written[*table] += 1;
                }
                *entry += 1;
            }
            _ => {}
        }
    }

    /// Whether the running program wrote both tables whole.
    pub fn complete(&self) -> bool {
        self.written.iter().all(|n| *n >= ENTRIES)
    }
}

/// How values are looked up and decoded.
#[derive(Debug, Clone, Copy)]
pub struct Lookup {
    /// Index of LE's first entry; LO ends at `lo_end`.
    le_start: i64,
    lo_end: i64,
    /// Entries lie 2^shift apart: LE, LO.
    shift: [u32; 2],
    slope: i64,
    slope_shift: u32,
    offset: i64,
    scale: i64,
    minus_exp: u32,
    assume: Assumptions,
}

impl Lookup {
    /// The look-up, when it is not bypassed.
    pub fn read(r: &RegFile) -> Option<Lookup> {
        if r.bit(regs::DPU_EW_CFG, 0) || r.bit(regs::DPU_EW_CFG, 7) {
            return None;
        }
        Some(Lookup {
            le_start: i64::from(r.get(regs::DPU_LUT_LE_START) as i32),
            lo_end: i64::from(r.get(regs::DPU_LUT_LO_END) as i32),
            shift: [r.field(regs::DPU_LUT_INFO, 15, 8), r.field(regs::DPU_LUT_INFO, 23, 16)],
            slope: r.field(regs::DPU_LUT_LE_SLOPE_SCALE, 15, 0).into(),
            slope_shift: r.field(regs::DPU_LUT_LE_SLOPE_SHIFT, 4, 0),
            offset: i64::from(r.get(regs::DPU_OUT_CVT_OFFSET) as i32),
            scale: r.field(regs::DPU_OUT_CVT_SCALE, 15, 0).into(),
            minus_exp: r.field(regs::DPU_OUT_CVT_SHIFT, 19, 12),
            assume: r.assume,
        })
    }

    /// Whether the two ranges are exactly those of the tables.
    pub fn spans_tables(&self) -> bool {
        let span = |shift: u32| (ENTRIES as i64 - 1) << shift.min(31);
        self.le_start == -span(self.shift[0]) && self.lo_end == span(self.shift[1])
    }

    /// Looks every value up, leaving fp16 values; says how many met the zero code, which decodes
    /// to a power of two instead of zero.
    pub fn apply(&self, tables: &Tables, values: &mut [f32]) -> usize {
        let mut zeros = 0;
        for v in values {
            let code = (self.entry(tables, self.index(*v)) + self.offset) * self.scale;
            zeros += usize::from(code == 0);
            *v = self.decode(code).to_f32();
        }
        zeros
    }

    /// The nearest integer.
    fn index(&self, v: f32) -> i64 {
        let to_even = self.assume.lut_index_ties_to_even;
        if to_even { v.round_ties_even() as i64 } else { v.round() as i64 }
    }

    fn entry(&self, tables: &Tables, index: i64) -> i64 {
        let at = |table: usize, from: i64| {
            let (t, shift) = (&tables.entries[table], self.shift[table]);
            let (k, rest) = ((from >> shift) as usize, from & ((1 << shift) - 1));
            let entry = |k: usize| i64::from(t[k.min(ENTRIES - 1)]);
            entry(k) + (((entry(k + 1) - entry(k)) * rest) >> shift)
        };
        if index >= self.lo_end {
            return i64::from(tables.entries[1][ENTRIES - 1]);
        }
        if index >= 0 {
            return at(1, index);
        }
        if index >= self.le_start {
            return at(0, index - self.le_start);
        }
        let product = (index - self.le_start).saturating_mul(self.slope);
        let below = if self.assume.lut_slope_rounds_down {
            product >> self.slope_shift
        } else {
            product / (1 << self.slope_shift)
        };
        (i64::from(tables.entries[0][0]) + below).max(0)
    }

    /// The exponent field of the fp16 code less MINUS_EXP, wrapping.
    fn decode(&self, code: i64) -> f16 {
        let bits = f16::from_f32(code as f32).to_bits();
        let exponent = u32::from(bits >> 10 & 31).wrapping_sub(self.minus_exp) & 31;
        f16::from_bits(bits & 0x83ff | (exponent as u16) << 10)
    }
}
