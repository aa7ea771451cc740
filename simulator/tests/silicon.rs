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
