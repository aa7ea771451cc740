//! One command word: target, value, register (npu-rk3588 1.2).

use std::fmt;

/// Target of a register write: the block's id plus 1 in bit 0.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
#[allow(missing_docs)]
pub enum Block {
    Pc = 0x0101,
    Cna = 0x0201,
    Core = 0x0801,
    Dpu = 0x1001,
    Rdma = 0x2001,
    Ppu = 0x4001,
    PpuRdma = 0x8001,
}

impl Block {
    /// The block that a write target names; `None` where no block of a program has it.
    pub fn from_target(target: u16) -> Option<Block> {
        [Block::Pc, Block::Cna, Block::Core, Block::Dpu, Block::Rdma, Block::Ppu, Block::PpuRdma]
            .into_iter()
            .find(|b| *b as u16 == target)
    }

    /// First register offset of the block's 4 KiB page (npu-rk3588 1.1).
    pub fn page(self) -> u16 {
        match self {
            Block::Pc => 0x0000,
            Block::Cna => 0x1000,
            Block::Core => 0x3000,
            Block::Dpu => 0x4000,
            Block::Rdma => 0x5000,
            Block::Ppu => 0x6000,
            Block::PpuRdma => 0x7000,
        }
    }
}

/// A command word.
#[derive(Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(transparent)]
pub struct Word(pub u64);

impl Word {
    /// No operation; also the filler that a chain link replaces.
    pub const NOP: Word = Word(0);
    /// Must stand immediately before the enable word (1.3).
    pub const BARRIER: Word = Word(0x0041_0000_0000_0000);

    /// Writes `value` to the register at `offset` (page included) of `block`.
    pub const fn write(block: Block, offset: u16, value: u32) -> Word {
        Word((block as u64) << 48 | (value as u64) << 16 | offset as u64)
    }

    /// Fires the blocks in `mask`.
    pub const fn enable(mask: u32) -> Word {
        Word(0x0081 << 48 | (mask as u64) << 16 | 0x0008)
    }

    /// Bits 63:48.
    pub const fn target(self) -> u16 {
        (self.0 >> 48) as u16
    }

    /// Bits 47:16.
    pub const fn value(self) -> u32 {
        (self.0 >> 16) as u32
    }

    /// Bits 15:0.
    pub const fn register(self) -> u16 {
        self.0 as u16
    }
}

impl fmt::Debug for Word {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:04x}_{:08x}_{:04x}", self.target(), self.value(), self.register())
    }
}

/// The PC's fetch amount for a program of `count` words, in 128-bit units (1.4).
pub const fn amount(count: u32) -> u32 {
    count.div_ceil(2) - 1
}
