//! What the spec leaves open: the default of each option, and that the other choice computes
//! something else.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use half::f16;
use rocket_sim::{Assumptions, Config, Fault, Rule};

const PLAIN: Shape =
    Shape { m: 16, k: 64, n: 32, wide: false, ew: None, data_reuse: false, weight_reuse: false };
const WIDE: Shape = Shape { wide: true, ..PLAIN };

/// Boards by default and with one other assumption.
fn boards(other: impl FnOnce(&mut Assumptions)) -> [Rig; 2] {
    let mut assumptions = Assumptions::default();
    other(&mut assumptions);
    assert_ne!(assumptions, Assumptions::default());
    [Assumptions::default(), assumptions].map(|a| Rig::new(Config { assumptions: a, ..quick() }))
}

/// The output of the same set-up on both boards.
fn both(boards: [Rig; 2], run: impl Fn(&Rig) -> Setup) -> [Seen; 2] {
    boards.map(|rig| Seen::of(&run(&rig), None))
}

/// One product whose first element is `a` times `w`, plus `add`.
fn first(rig: &Rig, shape: Shape, a: &[f32], w: &[f32], add: f32) -> Setup {
    let pad = |v: &[f32], n: u32| {
        let mut v = v.to_vec();
        v.resize(n as usize, 0.0);
        v
    };
    let (a, w) = (pad(a, shape.m * shape.k), pad(w, shape.n * shape.k));
    Setup::of(rig, shape, a, w, pad(&[add], shape.m * shape.n))
}

#[test]
fn the_adder_narrows_once() {
    let adding = Shape { ew: Some(EW_ADD), ..PLAIN };
    let firsts = boards(|a| a.ew_narrows_once = false).map(|rig| {
        // 2049 is no fp16, 2050 is.
        let s = first(&rig, adding, &[64.0, 1.0], &[32.0, 1.0], 1.0);
        s.run();
        s.result()[0]
    });
    assert_eq!(firsts, [2050.0, 2048.0]);
}

#[test]
fn tf32_is_cut_off() {
    let low = f32::from_bits(1f32.to_bits() | 0x1fff);
    let firsts = boards(|a| a.tf32_rounds = true).map(|rig| {
        let mut s = first(&rig, WIDE, &[low], &[1.0], 0.0);
        let words = retyped(&mut s, TF32);
        s.run_words(&words, 126);
        s.result()[0]
    });
    assert_eq!(firsts, [1.0, 1.0 + 1.0 / 1024.0]);
}

#[test]
fn fp16_overflows_to_infinity() {
    let firsts = boards(|a| a.fp16_saturates = true).map(|rig| {
        let s = first(&rig, PLAIN, &[-1000.0], &[100.0], 0.0);
        s.run();
        s.result()[0]
    });
    assert_eq!(firsts, [f32::NEG_INFINITY, -65504.0]);
}

#[test]
fn requantisation_ties_to_even() {
    let bytes = boards(|a| a.requant_ties_to_even = false).map(|rig| {
        let mut s = first(&rig, PLAIN, &[5.0], &[1.0], 0.0);
        let biases = rig.with(&[0; 128]);
        let mut words = retyped(&mut s, INT8_INT8);
        for (reg, value) in
            [(0x4040, 0x20150), (0x4084, 1), (0x4088, 1), (0x501c, 2), (0x5020, biases.iova())]
        {
            set(&mut words, reg, value);
        }
        s.run_words(&words, 126);
        assert_eq!(rig.board.explanations(), []);
        s.bytes()[0]
    });
    assert_eq!(bytes, [2, 3]);
}

#[test]
fn zero_notch_repeats_the_first_surface() {
    let adding = Shape { ew: Some(EW_ADD), ..PLAIN };
    let [default, other] = both(boards(|a| a.zero_notch_repeats_first_surface = false), |rig| {
        let s = Setup::new(rig, adding);
        s.run_with(|w| [0x504c, 0x506c].into_iter().for_each(|reg| set(w, reg, 0)));
        s
    });
    assert_eq!([&default.rules, &other.rules], [&[Rule::OperandNotchZero]; 2]);
    assert_ne!(default.got, other.got);
}

#[test]
fn notches_have_a_floor() {
    let few = Shape { m: 8, ew: Some(EW_ADD), ..PLAIN };
    let [default, other] = both(boards(|a| a.notch_floor_atoms = 0), |rig| {
        let s = Setup::new(rig, few);
        s.run_with(|w| [0x504c, 0x506c].into_iter().for_each(|reg| set(w, reg, 128)));
        s
    });
    assert_eq!(default.rules, [Rule::OperandMisstrided]);
    assert_ne!(default.got, default.want);
    other.assert_good();
}

#[test]
fn bad_rows_spoil_everything() {
    let [default, other] = both(boards(|a| a.bad_rows_spoil_everything = false), |rig| {
        let s = Setup::new(rig, Shape { m: 6, ..PLAIN });
        s.run();
        s
    });
    assert_eq!([&default.rules, &other.rules], [&[Rule::RowsNotMultipleOf4]; 2]);
    assert_ne!(default.got, other.got);
}

#[test]
fn amounts_have_sixteen_bits() {
    let [default, other] = both(boards(|a| a.register_amounts_bits = 4), |rig| {
        let s = Setup::new(rig, PLAIN);
        s.run();
        s
    });
    default.assert_good();
    assert_eq!(other.rules, [Rule::EnableNotFetched]);
}

#[test]
fn a_reset_clears_the_core() {
    let results = boards(|a| a.reset_clears_core = false).map(|rig| {
        let s = Setup::new(&rig, PLAIN);
        s.run();
        rig.board.inject(Fault::HangJob(1));
        s.run();
        // What the CBUF holds: the first job's features, or nothing.
        s.output.put(0, &vec![SENTINEL; s.bytes().len()]);
        rig.node.fini_bo(s.output.handle()).unwrap();
        s.run_with(|w| set(w, 0x1040, 0x10b1));
        assert_eq!(rig.last().unwrap().rule, Rule::StaleReuse);
        s.result() == s.expected()
    });
    assert_eq!(results, [false, true]);
}

#[test]
fn spoilt_shares_are_as_assumed() {
    let [default, other] = both(boards(|a| a.fc_data_bank_spoils_percent = 0), |rig| {
        let s = Setup::new(rig, PLAIN);
        s.run_with(|w| set(w, 0x1040, 0x1b1));
        s
    });
    assert_eq!([&default.rules, &other.rules], [&[Rule::FcDataBank]; 2]);
    assert!(default.got != default.want && other.got == other.want);

    let wrong = boards(|a| a.missing_slack_spoils_pixels = 1).map(|rig| {
        let mut s = Setup::new(&rig, Shape { m: 144, k: 224, ..WIDE });
        let mut words = retyped(&mut s, INT8_F32);
        set(&mut words, 0x1040, 11 << 4 | 1);
        s.run_words(&words, 126);
        assert_eq!(rig.last().unwrap().rule, Rule::SlackBankMissing);
        s.result().iter().zip(s.expected()).filter(|(got, want)| *got != want).count()
    });
    assert_eq!(wrong, [4 * 32, 32]);
}

/// The values that a flying pass stores.
fn flown(rig: &Rig, values: &[f32], words: impl Fn(u32, u32) -> Vec<u64>) -> Vec<f32> {
    let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
    let input = rig.with(bytemuck::cast_slice(&halves));
    let output = rig.with(&vec![SENTINEL; 2 * values.len()]);
    let words = words(input.iova(), output.iova());
    let program = rig.words(&words);
    rig.submit(&[task(&program, words.len())], &[&input, &program], &[&output]).unwrap();
    rig.wait(&output);
    let bytes = output.take(0, 2 * values.len());
    bytes.chunks(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect()
}

#[test]
fn a_full_dimension_spoils_as_many_as_assumed() {
    let x = ramp(8 * 8191);
    let wrong = boards(|a| a.full_dimension_spoils_values = 3).map(|rig| {
        let got = flown(&rig, &x, |i, o| flying(8191, i, o));
        assert_eq!(rig.last().unwrap().rule, Rule::FullDimension);
        got.iter().zip(&x).filter(|(a, b)| a != b).count()
    });
    assert_eq!(wrong, [54, 3]);
}

/// A look-up in tables whose codes are their index and 1024, decoded to fp16 as they are.
fn stairs(input: u32, output: u32) -> Vec<u64> {
    let mut words = looking_up(8, input, output);
    let entries = words.iter_mut().filter(|w| **w as u16 == 0x4104);
    for (i, w) in entries.enumerate() {
        *w = word(0x4104, 1024 + 32 * (i as u32 % 513));
    }
    set(&mut words, 0x4088, 1 << 31);
    // Below LE_START: three in 32.
    set(&mut words, 0x4120, 3);
    set(&mut words, 0x4124, 5);
    words
}

#[test]
fn look_up_indices_tie_to_even() {
    let mut x = [0.0; 64];
    x[0] = 0.5;
    let firsts = boards(|a| a.lut_index_ties_to_even = false).map(|rig| flown(&rig, &x, stairs)[0]);
    assert_eq!(firsts, [1024.0, 1025.0]);
}

#[test]
fn the_slope_below_the_table_rounds_down() {
    let mut x = [0.0; 64];
    // 16 below LE_START: a step and a half.
    x[0] = -16400.0;
    let firsts = boards(|a| a.lut_slope_rounds_down = false).map(|rig| flown(&rig, &x, stairs)[0]);
    assert_eq!(firsts, [1022.0, 1023.0]);
}

#[test]
fn odd_low_channels_take_the_second_border_byte() {
    let firsts = boards(|a| a.pad_byte_1_on_odd_low_channels = false).map(|rig| {
        // The kernel sees channel 1; the image is empty, and a line of border lies above it.
        let mut s = first(&rig, WIDE, &[0.0], &[0.0, 1.0], 0.0);
        let words = retyped(&mut s, INT8_F32);
        s.words = words;
        let mut words = as_image(&s, 4, 4);
        set(&mut words, 0x1044, 4);
        set(&mut words, 0x1068, 1);
        set(&mut words, 0x1184, 0x0301);
        s.run_words(&words, 126);
        assert_eq!(rig.board.explanations(), []);
        s.result()[0]
    });
    assert_eq!(firsts, [3.0, 1.0]);
}
