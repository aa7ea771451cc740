//! The NPU without a driver: kicks, in memory that a test made.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rocket_sim::silicon::{Bus, Core, Kick, Silicon};
use rocket_sim::{Config, Fault, Rule};
use std::io;
use std::sync::{Arc, Mutex};

const SHAPE: Shape =
    Shape { m: 16, k: 64, n: 32, wide: true, ew: None, data_reuse: false, weight_reuse: false };

/// Memory from address `base` on.
#[derive(Debug)]
struct Ram {
    base: u64,
    words: Mutex<Vec<u64>>,
}

impl Ram {
    fn part(&self, addr: u64, len: usize) -> io::Result<std::ops::Range<usize>> {
        let from = addr.checked_sub(self.base).map(|o| (o / 8) as usize);
        let all = self.words.lock().unwrap().len();
        from.filter(|f| f + len <= all).map(|f| f..f + len).ok_or(io::ErrorKind::NotFound.into())
    }
}

impl Bus for Ram {
    fn read(&self, addr: u64, to: &mut [u64]) -> io::Result<()> {
        let part = self.part(addr, to.len())?;
        to.copy_from_slice(&self.words.lock().unwrap()[part]);
        Ok(())
    }

    fn write(&self, addr: u64, from: &[u64]) -> io::Result<()> {
        let part = self.part(addr, from.len())?;
        self.words.lock().unwrap()[part].copy_from_slice(from);
        Ok(())
    }
}

/// A product in memory: its right result, the core, and what to kick.
struct Product {
    setup: Setup,
    ram: Arc<Ram>,
    silicon: Silicon,
    core: Core,
    kick: Kick,
}

const BASE: u32 = 0x10_0000;
const INPUT: u32 = BASE;
const WEIGHTS: u32 = BASE + 0x1000;
const OUTPUT: u32 = BASE + 0x3000;
const PROGRAM: u32 = BASE + 0x5000;

impl Product {
    fn new(config: Config) -> Product {
        // For its operands and its reference alone; it never runs.
        let setup = Setup::new(&Rig::new(quick()), SHAPE);
        let words = encode(&SHAPE, [INPUT, WEIGHTS, OUTPUT, 0]);
        let ram = Arc::new(Ram { base: BASE.into(), words: Mutex::new(vec![!0; 0x6000 / 8]) });
        let put = |at: u32, bytes: &[u8]| {
            let words: Vec<u64> =
                bytes.chunks(8).map(|c| u64::from_le_bytes(c.try_into().unwrap())).collect();
            ram.write(at.into(), &words).unwrap();
        };
        put(INPUT, &pack_feature(&setup.a, 16, 64));
        put(WEIGHTS, &pack_weight(&setup.w, 32, 64));
        ram.write(PROGRAM.into(), &words).unwrap();
        let silicon = Silicon::new(config);
        let core = silicon.core(1, Arc::clone(&ram) as Arc<dyn Bus>);
        let kick = Kick::of(PROGRAM, words.len() as u32, 1);
        Product { setup, ram, silicon, core, kick }
    }

    fn result(&self) -> Vec<f32> {
        let mut words = vec![0; SHAPE.out_bytes() as usize / 8];
        self.ram.read(OUTPUT.into(), &mut words).unwrap();
        let bytes: Vec<u8> = words.iter().flat_map(|w| w.to_le_bytes()).collect();
        unpack(&bytes, 16, 32, true)
    }

    /// Kicks it; it must hang for this reason, before anything is stored.
    fn hangs(mut self, rule: Rule) {
        assert_eq!(self.core.kick(self.kick), None);
        let all = self.silicon.explanations();
        assert_eq!((all[0].rule, all[0].file), (rule, 1), "{}", all[0]);
        assert!(self.result().iter().all(|v| v.is_nan()), "stored for all that");
    }
}

#[test]
fn a_kick_computes_in_memory_of_somebody_else() {
    let mut p = Product::new(Config::default());
    assert_eq!(p.core.kick(p.kick), Some(0x100), "the bit of the DPU, kernel-and-uapi B.2");
    assert_eq!(p.result(), p.setup.expected());
    let counted = p.silicon.counters();
    assert_eq!((counted.macs, counted.kicks, counted.dma_write), (16 * 64 * 32, 1, 16 * 32 * 4));
    assert_eq!(p.silicon.explanations(), []);
}

#[test]
fn what_is_not_mapped_hangs() {
    let mut p = Product::new(Config::default());
    p.kick.base_address = BASE - 0x1000;
    p.hangs(Rule::UnmappedAddress);
    let p = Product::new(Config::default());
    let far = encode(&SHAPE, [INPUT, BASE + 0x10_0000, OUTPUT, 0]);
    p.ram.write(PROGRAM.into(), &far).unwrap();
    p.hangs(Rule::UnmappedAddress);
}

#[test]
fn the_registers_of_the_controller_are_what_counts() {
    let mut p = Product::new(Config::default());
    p.kick.register_amounts -= 2;
    p.hangs(Rule::EnableNotFetched);
    let mut p = Product::new(Config::default());
    p.kick.tasks = 2;
    assert_eq!(p.core.kick(p.kick), None);
    assert_eq!(p.silicon.explanations()[0].rule, Rule::ChainWithoutLink);
}

#[test]
fn a_fault_meets_its_kick_and_a_reset_ends_it() {
    let mut p = Product::new(Config { faults: vec![Fault::HangJob(1)], ..Config::default() });
    let kicks = [0, 1, 2].map(|_| {
        let done = p.core.kick(p.kick);
        p.core.reset();
        done
    });
    assert_eq!(kicks, [Some(0x100), None, Some(0x100)]);
    assert_eq!(p.result(), p.setup.expected());
}

/// Two programs in one kick, the second where the first links to: whether each result is right, and the rules broken.
fn chained(kind: Option<Kind>) -> ([bool; 2], Vec<Rule>) {
    let rig = Rig::new(quick());
    let [mut s, mut t] = [0; 2].map(|_| Setup::new(&rig, Shape { wide: true, ..SHAPE }));
    let mut words = Vec::new();
    for setup in [&mut s, &mut t] {
        words.extend(match kind {
            Some(kind) => retyped(setup, kind),
            None => setup.words.clone(),
        });
    }
    let program = rig.words(&words);
    words[122] = word(0x10, program.iova() + 1008);
    words[123] = word(0x14, 62);
    // The rig's buffers at their addresses, in memory that is not the rig's.
    let ram = Ram { base: 0, words: Mutex::new(vec![!0; program.iova() as usize / 8 + 512]) };
    let bytes = kind.map_or(16, |k| k.bits) / 8;
    for setup in [&s, &t] {
        for (buf, len) in [(&setup.input, 16 * 64 * bytes), (&setup.weights, 32 * 64 * bytes)] {
            let from = buf.take(0, len as usize);
            ram.write(buf.iova().into(), bytemuck::cast_slice(&from)).unwrap();
        }
    }
    ram.write(program.iova().into(), &words).unwrap();
    let (ram, silicon) = (Arc::new(ram), Silicon::new(Config::default()));
    let mut core = silicon.core(0, Arc::clone(&ram) as Arc<dyn Bus>);
    assert_eq!(core.kick(Kick::of(program.iova(), 126, 2)), Some(0x100));
    let right = [&s, &t].map(|setup| {
        let mut out = vec![0u64; SHAPE.out_bytes() as usize / 8];
        ram.read(setup.output.iova().into(), &mut out).unwrap();
        unpack(bytemuck::cast_slice(&out), 16, 32, true) == setup.expected()
    });
    (right, silicon.explanations().iter().map(|e| e.rule).collect())
}

#[test]
fn programs_of_one_kick() {
    assert_eq!(chained(None), ([true, true], vec![]));
    // Integers are right in the first program of a chain only.
    assert_eq!(chained(Some(INT8_F32)), ([true, false], vec![Rule::ChainedIntegers]));
}

/// Where a driver's jobs begin the NPU does not know: what the kick before left in the CBUF may be used.
#[test]
fn operands_stay_from_kick_to_kick() {
    let mut p = Product::new(Config::default());
    assert_eq!(p.core.kick(p.kick), Some(0x100));
    let again = encode(&Shape { data_reuse: true, ..SHAPE }, [INPUT, WEIGHTS, OUTPUT, 0]);
    p.ram.write(PROGRAM.into(), &again).unwrap();
    p.ram.write(OUTPUT.into(), &vec![!0; SHAPE.out_bytes() as usize / 8]).unwrap();
    assert_eq!(p.core.kick(p.kick), Some(0x100));
    assert_eq!((p.result(), p.silicon.explanations()), (p.setup.expected(), vec![]));
}
