//! One word at a time.

use super::{ListedField, ListedWord, WordKind};
use crate::pc::Word;
use crate::regs;
use crate::regs::fields::{Field, fields};

/// Fields of the enable word's mask: the blocks (npu-rk3588 1.1).
const MASK: &[Field] = &[
    ("PPU_RDMA", 6, 6),
    ("PPU", 5, 5),
    ("RDMA", 4, 4),
    ("DPU", 3, 3),
    ("CORE", 2, 2),
    ("CNA", 0, 0),
];

/// Lists a word by its target (npu-rk3588 1.2).
pub fn word(index: usize, raw: u64) -> ListedWord {
    let w = Word(raw);
    let (target, offset, value) = (w.target(), w.offset(), w.value());
    let (kind, block, register, named) = match target {
        0 if raw == 0 => (WordKind::Nothing, None, None, &[][..]),
        Word::PC => (WordKind::Write, Some("PC"), pc_register(offset), &[][..]),
        Word::BARRIER => (WordKind::Barrier, None, None, &[][..]),
        Word::ENABLE => (WordKind::Enable, Some("PC"), None, MASK),
        _ => match block(target) {
            Some(name) => {
                (WordKind::Write, Some(name), regs::register_name(offset), fields(offset))
            }
            None => (WordKind::Unknown, None, None, &[][..]),
        },
    };
    let fields = named.iter().map(|(name, high, low)| ListedField {
        name,
        high: *high,
        low: *low,
        value: regs::bits(value, *high, *low),
    });
    ListedWord { index, raw, kind, block, offset, register, value, fields: fields.collect() }
}

fn block(target: u16) -> Option<&'static str> {
    Some(match target {
        0x0201 => "CNA",
        0x0801 => "CORE",
        0x1001 => "DPU",
        0x2001 => "RDMA",
        0x4001 => "PPU",
        0x8001 => "PPU_RDMA",
        _ => return None,
    })
}

/// PC registers (npu-rk3588 1.5).
fn pc_register(offset: u16) -> Option<&'static str> {
    Some(match offset {
        0x08 => "PC_OPERATION_ENABLE",
        0x10 => "PC_BASE_ADDRESS",
        0x14 => "PC_REGISTER_AMOUNTS",
        0x20 => "PC_INTERRUPT_MASK",
        0x24 => "PC_INTERRUPT_CLEAR",
        0x30 => "PC_TASK_CON",
        0x34 => "PC_TASK_DMA_BASE_ADDR",
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_are_what_their_targets_say() {
        let w = word(0, 0x0201_0000_00b1_1040);
        let value = |name: &str| w.fields.iter().find(|f| f.name == name).map(|f| f.value);
        assert_eq!((w.block, w.register), (Some("CNA"), Some("CNA_CBUF_CON0")));
        assert_eq!((value("WEIGHT_BANK"), value("DATA_BANK")), (Some(11), Some(1)));
        let kinds = [0, 0x0101_0000_0000_0014, 0x0041 << 48, 0x0081_0000_001d_0008, 1]
            .map(|raw| word(0, raw).kind);
        let want = [WordKind::Nothing, WordKind::Write, WordKind::Barrier, WordKind::Enable];
        assert_eq!((&kinds[..4], kinds[4]), (&want[..], WordKind::Unknown));
        let started: Vec<&str> = word(0, 0x0081_0000_001d_0008)
            .fields
            .iter()
            .filter(|f| f.value == 1)
            .map(|f| f.name)
            .collect();
        assert_eq!(started, ["RDMA", "DPU", "CORE", "CNA"]);
    }
}
