//! The program controller: fetches command words, writes registers, fires blocks
//! (npu-rk3588 1.2 to 1.6, Appendix C).

use crate::Rule;
use crate::check::{Hang, unmapped};
use crate::lut::Tables;
use crate::npu::{Npu, Run};
use crate::regs::{self, RegFile};

/// PC registers that a program may write.
const BASE_ADDRESS: u16 = 0x10;
const REGISTER_AMOUNTS: u16 = 0x14;
const TASK_DMA_BASE_ADDR: u16 = 0x34;
const OPERATION_ENABLE: u16 = 0x08;

/// A command word (npu-rk3588 1.2).
#[derive(Debug, Clone, Copy)]
pub struct Word(pub u64);

impl Word {
    /// Targets of words that are not plain register writes.
    pub const PC: u16 = 0x0101;
    pub const BARRIER: u16 = 0x0041;
    pub const ENABLE: u16 = 0x0081;

    pub const fn target(self) -> u16 {
        (self.0 >> 48) as u16
    }

    pub const fn value(self) -> u32 {
        (self.0 >> 16) as u32
    }

    pub const fn offset(self) -> u16 {
        self.0 as u16
    }
}

/// Target of each register page (npu-rk3588 1.1); nothing decodes page 2.
const fn target_of_page(page: u16) -> Option<u16> {
    match page {
        1 | 3..=7 => Some((0x100 << page) | 1),
        _ => None,
    }
}

/// What one program asked for besides register writes.
#[derive(Debug, Default)]
pub struct Program {
    pub mask: Option<u32>,
    /// Where it links to; zero: nowhere.
    pub next: u64,
    next_amount: u64,
    pub findings: Vec<(Rule, String)>,
}

/// What the driver writes to the controller (npu-rk3588 1.4, kernel-and-uapi B.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kick {
    /// PC_BASE_ADDRESS: where the first program lies.
    pub base_address: u32,
    /// PC_REGISTER_AMOUNTS: its length in units of 128 bits, less one.
    pub register_amounts: u32,
    /// Programs to run, from PC_TASK_CON.
    pub tasks: usize,
}

impl Kick {
    /// For a program of `count` words.
    pub fn of(regcmd: u32, count: u32, tasks: usize) -> Kick {
        let register_amounts = count.div_ceil(2).saturating_sub(1);
        Kick { base_address: regcmd, register_amounts, tasks }
    }
}

/// Runs the programs of one kick: each further one lies where the one before it links to.
pub fn kick(npu: &mut Npu, run: &mut Run<'_>, kick: Kick) -> Result<(), Hang> {
    let tasks = kick.tasks;
    let (mut addr, mut amount) = (u64::from(kick.base_address), u64::from(kick.register_amounts));
    let bits = npu.regs.assume.register_amounts_bits;
    run.kicked();
    for done in 1..=tasks {
        let program = fetch(npu, run, addr, amount)?;
        run.tell(&program.findings);
        let Some(mask) = program.mask else {
            let message =
                format!("no enable word among {} words at 0x{addr:08x}", words(amount, bits));
            return Err(Hang::new(Rule::EnableNotFetched, message));
        };
        npu.execute(run, mask)?;
        if done < tasks && program.next == 0 {
            let message = format!("program {done} of {tasks} at 0x{addr:08x} names no next one");
            return Err(Hang::new(Rule::ChainWithoutLink, message));
        }
        if tasks == 1 && program.next != 0 {
            let message = format!("runs on to the program at 0x{:08x}", program.next);
            return Err(Hang::new(Rule::ChainNotBatched, message));
        }
        (addr, amount) = (program.next, program.next_amount);
        run.task_done()?;
    }
    Ok(())
}

/// Words that an amount of so many bits makes the controller fetch.
fn words(amount: u64, bits: u32) -> usize {
    (((amount & ((1 << bits.min(24)) - 1)) + 1) * 2) as usize
}

/// Fetches one program and writes its registers.
fn fetch(npu: &mut Npu, run: &mut Run<'_>, addr: u64, amount: u64) -> Result<Program, Hang> {
    if !addr.is_multiple_of(16) {
        let message = format!("program at 0x{addr:08x}");
        return Err(Hang::new(Rule::AddressUnaligned, message));
    }
    let mut buffer = std::mem::take(&mut npu.words);
    buffer.resize(words(amount, npu.regs.assume.register_amounts_bits), 0);
    let decoded = match run.dma.read(addr, &mut buffer) {
        Ok(()) => {
            run.fetched(buffer.len() as u64 * 8);
            decode(&mut npu.regs, &mut npu.tables, &buffer)
        }
        Err(fault) => Err(unmapped(fault, "program fetch")),
    };
    npu.words = buffer;
    decoded
}

/// Writes the registers of one program, up to its enable word.
pub fn decode(r: &mut RegFile, tables: &mut Tables, words: &[u64]) -> Result<Program, Hang> {
    r.begin_program();
    tables.begin_program();
    let mut program = Program::default();
    let mut unknown_registers = Vec::new();
    let mut barrier = false;
    for (i, &word) in words.iter().enumerate() {
        let w = Word(word);
        let (target, value, offset) = (w.target(), w.value(), w.offset());
        let unknown = || Hang::new(Rule::UnknownWord, format!("word {i} is 0x{word:016x}"));
        match target {
            0 if word == 0 => {}
            Word::PC => match offset {
                BASE_ADDRESS => program.next = u64::from(value & !0xf),
                REGISTER_AMOUNTS => program.next_amount = u64::from(value),
                TASK_DMA_BASE_ADDR if value != 0 => {
                    let message = format!("word {i} sets it to 0x{value:08x}");
                    return Err(Hang::new(Rule::TaskDmaBase, message));
                }
                TASK_DMA_BASE_ADDR => {}
                _ => return Err(unknown()),
            },
            Word::BARRIER if word & 0xffff_ffff_ffff == 0 => {}
            Word::ENABLE if offset == OPERATION_ENABLE => {
                if !barrier {
                    let message = format!("enable word at position {i}");
                    return Err(Hang::new(Rule::BarrierMissing, message));
                }
                program.mask = Some(value);
                program.findings.extend(not_described(&unknown_registers));
                return Ok(program);
            }
            _ if target & 0xff == 1 => {
                if target_of_page(offset >> 12) != Some(target) || !r.write(offset, value) {
                    let message = format!("word {i} is 0x{word:016x}");
                    return Err(Hang::new(Rule::PageMismatch, message));
                }
                if regs::register_name(offset).is_none() {
                    unknown_registers.push(offset);
                }
                tables.write(offset, value);
            }
            _ => return Err(unknown()),
        }
        barrier = target == Word::BARRIER;
    }
    Ok(program)
}

/// Writes to registers that no list has: taken, without effect.
fn not_described(offsets: &[u16]) -> Option<(Rule, String)> {
    let message = format!("0x{:04x}, {} write(s) in all", offsets.first()?, offsets.len());
    Some((Rule::UnknownRegister, message))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn targets_follow_pages() {
        let all: Vec<_> = (0..10).map(target_of_page).collect();
        let want = [None, Some(0x201), None, Some(0x801), Some(0x1001), Some(0x2001), Some(0x4001)];
        assert_eq!(all[..7], want);
        assert_eq!(all[7..], [Some(0x8001), None, None]);
        assert_eq!((words(62, 16), words(0, 16), words(62, 4)), (126, 2, 30));
    }
}
