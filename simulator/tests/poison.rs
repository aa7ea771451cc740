//! Poisoned outputs: what a task does not store shows, what it must store does not.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rocket_sim::{Config, Fault, Rule};

const POISON: u8 = 0x5e;
const PLAIN: Shape =
    Shape { m: 16, k: 64, n: 32, wide: false, ew: None, data_reuse: false, weight_reuse: false };

fn poisoned() -> Config {
    Config { poison: Some(POISON), ..quick() }
}

fn plain() -> Setup {
    Setup::new(&Rig::new(poisoned()), PLAIN)
}

#[test]
fn good_tasks_leave_none() {
    let wide = Shape { wide: true, ..PLAIN };
    let adding = Shape { ew: Some(EW_ADD), ..PLAIN };
    let nibbles = Shape { n: 64, ..PLAIN };
    for (shape, kind) in [
        (PLAIN, None),
        (adding, None),
        (wide, None),
        (wide, Some(INT8_F32)),
        (wide, Some(TF32)),
        (nibbles, Some(INT4)),
    ] {
        let mut s = Setup::new(&Rig::new(poisoned()), shape);
        let words = kind.map(|k| retyped(&mut s, k)).unwrap_or(s.words.clone());
        s.run_words(&words, 126);
        Seen::of(&s, kind).assert_good();
    }
}

/// Runs a pass from one buffer to another on a board with poison.
fn pass(len: usize, words: impl Fn(u32, u32) -> Vec<u64>) -> (Vec<u8>, Vec<Rule>) {
    let rig = Rig::new(poisoned());
    let input = rig.with(&[0; 8 * 64 * 2]);
    // Twice the room: what lies behind the cube is nobody's.
    let output = rig.with(&vec![SENTINEL; 2 * len]);
    let words = words(input.iova(), output.iova());
    let program = rig.words(&words);
    rig.submit(&[task(&program, words.len())], &[&input, &program], &[&output]).unwrap();
    rig.wait(&output);
    let mut got = output.take(0, 2 * len);
    assert!(got.drain(len..).all(|b| b == SENTINEL), "poison behind the cube");
    (got, rig.board.explanations().iter().map(|e| e.rule).collect())
}

#[test]
fn passes_without_a_convolution() {
    assert_eq!(pass(1024, |i, o| flying(64, i, o)), (vec![0; 1024], vec![]));
    assert_eq!(pass(256, |i, o| pooling(1, [2, 2], i, o)), (vec![0; 256], vec![]));
    let (got, rules) = pass(1024, |i, o| {
        let mut words = flying(64, i, o);
        set(&mut words, 0x5044, 0x17859);
        words
    });
    assert_eq!((got, rules), (vec![POISON; 1024], vec![Rule::MrdmaWithoutFeed]));
    let (got, rules) = pass(256, |i, o| {
        let mut words = pooling(1, [2, 2], i, o);
        set(&mut words, 0x700c, 3);
        words
    });
    assert_eq!((got, rules), (vec![POISON; 256], vec![Rule::SizesDisagree]));
}

#[test]
fn tasks_that_store_nothing_leave_all_of_it() {
    for (offset, value, rule) in [
        (0x4010, 0x4800_0007, Rule::DpuPrecision7),
        (0x5034, 0x4000_0008, Rule::OperandHalfArmed),
        (0x1044, 3, Rule::DataEntries),
    ] {
        let s = plain();
        s.run_with(|w| set(w, offset, value));
        assert_eq!(s.rig.last().unwrap().rule, rule);
        assert!(s.bytes().iter().all(|b| *b == POISON), "{rule}");
    }
    let s = plain();
    s.run_with(|w| w[10] = 0);
    assert_eq!(s.rig.last().unwrap().rule, Rule::RegistersNotWritten);
    assert!(s.bytes().iter().all(|b| *b == POISON));
}

#[test]
fn a_mask_without_its_reader_names_an_output_as_well() {
    let s = plain();
    s.run_with(|w| w[125] = 0x0081_0000_000d_0008);
    assert_eq!(s.rig.last().unwrap().rule, Rule::EnableWithoutRdma);
    assert!(s.bytes().iter().all(|b| *b == POISON));
}

#[test]
fn a_part_that_is_not_stored_shows() {
    let s = plain();
    s.rig.board.inject(Fault::ShortTask { job: 0, task: 0, surfaces: 3 });
    s.run();
    let (got, want) = (s.bytes(), s.stored(None));
    let stored = 3 * 16 * 16;
    assert_eq!(got[..stored], want[..stored]);
    assert!(got[stored..].iter().all(|b| *b == POISON));
}

#[test]
fn absurd_registers_poison_nothing() {
    // 8192 pixels square and as deep, at an address of nothing.
    let (got, rules) = pass(256, |i, o| {
        let mut words = pooling(2, [1, 1], i, o);
        [0x6018, 0x601c, 0x6020].into_iter().for_each(|reg| set(&mut words, reg, 8191));
        set(&mut words, 0x6070, 0x00d0_0000);
        words
    });
    assert_eq!((got, rules), (vec![SENTINEL; 256], vec![Rule::NotModelled]));
    let (got, rules) = pass(256, |i, o| {
        let mut words = pooling(1, [2, 2], i, o);
        set(&mut words, 0x6070, o + 8);
        words
    });
    assert_eq!((got, rules), (vec![SENTINEL; 256], vec![Rule::AddressUnaligned]));
}
