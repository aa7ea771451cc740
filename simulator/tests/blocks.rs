//! Formats beyond fp16, images, flying passes and pooling: what they compute, and their rules.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use half::f16;
use proptest::prelude::*;
use rocket_runtime::device::JobRef;
use rocket_runtime::uapi::{JOB_BATCHED, Task};
use rocket_sim::{Arithmetic, Config, DriverProfile, Rule};

#[test]
fn formats_with_float_results() {
    for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
        for t in [INT8_F32, BF16, TF32] {
            let rig = Rig::new(Config { arithmetic, ..quick() });
            let mut s = Setup::new(&rig, wide(16, 64, 64));
            let words = retyped(&mut s, t);
            s.run_words(&words, 126);
            assert_eq!(rig.board.explanations(), [], "{t:?}");
            assert_eq!(s.result(), s.expected(), "{t:?}");
        }
    }
}

fn int32_results(s: &Setup) -> Vec<i64> {
    s.result().iter().map(|v| i64::from(v.to_bits() as i32)).collect()
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 12,
        failure_persistence: None,
        ..ProptestConfig::default()
    })]
    #[test]
    fn integers_are_exact_in_either_arithmetic(m in 1u32..6, k in 1u32..128, n in 1u32..3, seed: u64) {
        let shape = wide(4 * m, 32 * k, 32 * n);
        // Far past what fp32 sums hold.
        let values = |count: u32, salt: u64| -> Vec<f32> {
            let mut x = seed ^ salt;
            (0..count).map(|_| {
                x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
                f32::from((x >> 56) as i8) / 2.0 - 60.0
            }).map(f32::floor).collect()
        };
        let (a, w) = (values(shape.m * shape.k, 1), values(shape.n * shape.k, 2));
        let depth = shape.k as usize;
        let want: Vec<i64> = (0..(shape.m * shape.n) as usize).map(|i| {
            let (row, col) = (i / shape.n as usize, i % shape.n as usize);
            (0..depth).map(|c| a[row * depth + c] as i64 * w[col * depth + c] as i64).sum()
        }).collect();
        for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
            let rig = Rig::new(Config { arithmetic, ..quick() });
            let add = vec![0.0; (shape.m * shape.n) as usize];
            let mut s = Setup::of(&rig, shape, a.clone(), w.clone(), add);
            let words = retyped(&mut s, INT8);
            s.run_words(&words, 126);
            prop_assert_eq!(rig.board.explanations(), []);
            prop_assert_eq!(int32_results(&s), want.clone());
        }
    }
}

#[test]
fn direct_requantisation_with_bias_and_weight_offset() {
    for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
        let rig = Rig::new(Config { arithmetic, ..quick() });
        let mut s = Setup::new(&rig, Shape::new(16, 64, 32));
        let bias: Vec<i32> = (0..32).map(|n| 37 * n - 500).collect();
        let biases = rig.with(bytemuck::cast_slice(&bias));
        let mut words = retyped(&mut s, INT8_INT8);
        for (reg, value) in [
            (0x4040, 0x20150),
            (0x4054, 3),
            (0x4080, 5),
            (0x4084, 0x2001),
            (0x4088, 17),
            (0x501c, 2),
            (0x5020, biases.iova()),
        ] {
            set(&mut words, reg, value);
        }
        s.run_words(&words, 126);
        assert_eq!(rig.board.explanations(), []);
        let (bytes, sums) = (s.bytes(), s.expected());
        for (i, sum) in sums.iter().enumerate() {
            let (m, n) = (i / 32, i % 32);
            let features: f32 = s.a[m * 64..][..64].iter().sum();
            let acc = f64::from(sum + 3.0 * features) + f64::from(bias[n]);
            let want = (acc * 8193.0 / 131_072.0).round() as i64 + 5;
            let got = bytes[(n / 16 * 16 + m) * 16 + n % 16] as i8;
            assert_eq!(i64::from(got), want.clamp(-128, 127), "{m} {n}");
        }
    }
}

#[test]
fn formats_that_disagree() {
    let (s, mut words) = typed(wide(16, 64, 64), TF32);
    set(&mut words, 0x3010, 5 << 8 | 1);
    s.run_words(&words, 126);
    s.assert_rule(Rule::Tf32AsFp32);
    for (code, rule) in [(3, Rule::Int4AsFloat), (7, Rule::Int4AsTf32)] {
        let (s, mut words) = typed(wide(16, 64, 64), INT4);
        set(&mut words, 0x100c, code << 7 | code << 4);
        set(&mut words, 0x3010, code << 8);
        s.run_words(&words, 126);
        s.assert_rule(rule);
    }
    let (s, mut words) = typed(wide(16, 64, 64), INT8);
    set(&mut words, 0x3010, 1);
    s.run_words(&words, 126);
    s.assert_rule(Rule::PrecisionsDisagree);
    for (size_e, rule) in [(3, Rule::SurfacesTooFew), (7, Rule::SurfacesTooMany)] {
        let (s, mut words) = typed(wide(16, 64, 64), if size_e == 3 { INT8_F32 } else { BF16 });
        set(&mut words, 0x4050, size_e << 8 | size_e << 5 | size_e << 2 | 2);
        s.run_words(&words, 126);
        s.assert_rule(rule);
    }
    let (s, mut words) = typed(wide(16, 64, 64), INT8_F32);
    set(&mut words, 0x1038, 1 << 24 | 1 << 16 | 48);
    s.run_words(&words, 126);
    s.assert_rule(Rule::ChannelsNotAligned);
}

#[test]
fn int16_stores_sixteen_channels_of_one_row() {
    let (s, words) = typed(wide(16, 64, 32), INT16);
    s.run_words(&words, 126);
    s.assert_rule(Rule::Int16Output);
    let (got, want) = (int32_results(&s), s.expected());
    let sentinel = i64::from(i32::from_le_bytes([SENTINEL; 4]));
    for (i, v) in got.iter().enumerate() {
        assert_eq!(*v, if i < 16 { want[i] as i64 } else { sentinel }, "{i}");
    }
}

#[test]
fn int8_without_slack_at_a_nearly_full_bank() {
    let (s, mut words) = typed(wide(144, 224, 32), INT8_F32);
    set(&mut words, 0x1040, 11 << 4 | 1);
    s.run_words(&words, 126);
    s.assert_rule(Rule::SlackBankMissing);
    let (got, want) = (s.result(), s.expected());
    let tail = got.len() - 4 * 32;
    assert_eq!(got[..tail], want[..tail]);
    // Exactly full, or far from it, is harmless.
    for (m, k) in [(128, 256), (64, 64)] {
        let (s, mut words) = typed(wide(m, k, 32), INT8_F32);
        set(&mut words, 0x1040, 11 << 4 | 1);
        s.run_words(&words, 126);
        assert_eq!(s.rig.board.explanations(), []);
        assert_eq!(s.result(), s.expected());
    }
}

#[test]
fn integers_in_the_adder() {
    let (s, mut words) = typed(wide(16, 64, 32), INT8_F32);
    for (reg, value) in [
        (0x4070, 0x10c2_02c0),
        (SRC, s.operand.iova()),
        (0x5034, 0x4000_000c),
        (EW, s.operand.iova() + 256),
        (0x5044, 0x27d80),
    ] {
        set(&mut words, reg, value);
    }
    s.run_words(&words, 126);
    s.assert_rule(Rule::IntegerOperand);
}

#[test]
fn integers_in_a_chain() {
    let rig = Rig::new(Config { profile: DriverProfile::V1_1, ..quick() });
    let [mut s, mut t] = [0; 2].map(|_| Setup::new(&rig, wide(16, 64, 32)));
    let mut words = retyped(&mut s, INT8_F32);
    words.extend(retyped(&mut t, INT8_F32));
    let program = rig.words(&words);
    words[122] = word(0x10, program.iova() + 1008);
    words[123] = word(0x14, 62);
    program.put(0, bytemuck::cast_slice(&words));
    rig.node.fini_bo(program.handle()).unwrap();
    let tasks = [0, 1008].map(|o| Task { regcmd: program.iova() + o, regcmd_count: 126 });
    let reads = [&s.input, &s.weights, &t.input, &t.weights, &program].map(Buf::handle);
    let writes = [s.output.handle(), t.output.handle()];
    let job = JobRef { tasks: &tasks, reads: &reads, writes: &writes, flags: JOB_BATCHED };
    rig.node.submit(&[job]).unwrap();
    rig.wait(&t.output);
    t.assert_rule(Rule::ChainedIntegers);
    rig.wait(&s.output);
    assert_eq!(s.result(), s.expected());
}

#[test]
fn images() {
    let s = Setup::new(&Rig::new(quick()), Shape::new(15, 64, 32));
    s.run_words(&as_image(&s, 3, 5), 126);
    assert_eq!(s.rig.board.explanations(), []);
    assert_eq!(s.result(), s.expected());
    // One pixel wide, with the convolution's stride formula: not a row too many.
    s.run_words(&as_image(&s, 1, 15), 126);
    assert_eq!(s.rig.board.explanations(), []);
    let s = Setup::new(&Rig::new(quick()), Shape::new(16, 64, 32));
    s.run_words(&as_image(&s, 8, 2), 126);
    s.assert_rule(Rule::ImageTooLow);
}

/// Runs a program from one buffer to another; the values stored, and the rules broken.
fn pass(values: &[f32], out: usize, words: impl Fn(u32, u32) -> Vec<u64>) -> (Vec<f32>, Vec<Rule>) {
    let rig = Rig::new(quick());
    let halves: Vec<f16> = values.iter().map(|v| f16::from_f32(*v)).collect();
    let input = rig.with(bytemuck::cast_slice(&halves));
    let output = rig.with(&vec![SENTINEL; 2 * out]);
    let words = words(input.iova(), output.iova());
    let program = rig.words(&words);
    rig.submit(&[task(&program, words.len())], &[&input, &program], &[&output]).unwrap();
    rig.wait(&output);
    let stored = output.take(0, 2 * out);
    let stored = stored.chunks(2).map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32()).collect();
    (stored, rig.board.explanations().into_iter().map(|e| e.rule).collect())
}

#[test]
fn flying_passes() {
    let x = ramp(64);
    let (got, rules) = pass(&x, 64, |i, o| flying(8, i, o));
    assert_eq!((got, rules), (x.clone(), vec![]));
    // BN: the factor first, then the addend, then the ReLU.
    let (got, rules) = pass(&x, 64, |i, o| {
        let mut words = flying(8, i, o);
        set(&mut words, 0x4060, 0x20000);
        let at = words.len() - 4;
        words.insert(at, word(0x4068, u32::from(f16::from_f32(0.5).to_bits()) << 16));
        words.insert(at, word(0x4064, 3f32.to_bits()));
        words
    });
    let want: Vec<f32> = x.iter().map(|v| (v * 0.5 + 3.0).max(0.0)).collect();
    assert_eq!((got, rules), (want, vec![]));
    // An operand reads as zero.
    let (got, rules) = pass(&x, 64, |i, o| {
        let mut words = flying(8, i, o);
        set(&mut words, 0x4070, EW_MUL);
        set(&mut words, 0x5034, 0x4000_0008);
        words
    });
    assert_eq!((got, rules), (vec![-0.0; 64], vec![Rule::OperandInFlight]));
    let (_, rules) = pass(&x, 64, |i, o| {
        let mut words = flying(8, i, o);
        set(&mut words, 0x5044, 0x17859);
        words
    });
    assert_eq!(rules, [Rule::MrdmaWithoutFeed]);
    let (_, rules) = pass(&x, 64, |i, o| {
        let mut words = flying(8, i, o);
        set(&mut words, 0x500c, 6);
        words
    });
    assert_eq!(rules, [Rule::SizesDisagree]);
    let (_, rules) = pass(&x, 64, |i, o| {
        let mut words = flying(8, i, o);
        words.remove(10);
        words
    });
    assert_eq!(rules, [Rule::RegistersNotWritten]);
}

#[test]
fn a_full_dimension_spoils_the_tail() {
    let x = ramp(8 * 8191);
    let (got, rules) = pass(&x, x.len(), |i, o| flying(8191, i, o));
    assert_eq!(rules, [Rule::FullDimension]);
    assert_eq!(got.iter().zip(&x).filter(|(a, b)| a != b).count(), 54);
}

#[test]
fn tables_of_nobody_decode_zero_to_four() {
    let (got, rules) = pass(&ramp(64), 64, |i, o| looking_up_in_old_tables(8, i, o));
    assert_eq!(rules, [Rule::TablesNotUploaded, Rule::LookupOfZero]);
    assert_eq!(got, [4.0; 64]);
}

#[test]
fn pools() {
    let x = ramp(8 * 64);
    let min = |o: usize, c: usize| {
        let at = |dy: usize, dx: usize| x[((o / 4 * 2 + dy) * 8 + o % 4 * 2 + dx) * 8 + c];
        at(0, 0).min(at(0, 1)).min(at(1, 0)).min(at(1, 1))
    };
    let want: Vec<f32> = (0..16 * 8).map(|i| min(i / 8, i % 8)).collect();
    let (got, rules) = pass(&x, 128, |i, o| pooling(2, [2, 2], i, o));
    assert_eq!((got, rules), (want.clone(), vec![]));
    let (got, rules) = pass(&x, 512, |i, o| pooling(0, [1, 2], i, o));
    assert_eq!(rules, [Rule::PoolingOfOne]);
    assert!(got[..256].iter().all(|v| !v.is_finite()));
    let (got, rules) = pass(&x, 128, |i, o| {
        let mut words = pooling(2, [2, 2], i, o);
        set(&mut words, 0x7030, 0);
        words
    });
    assert_eq!((got, rules), (want, vec![Rule::PoolingPrecision]));
    for (reg, value, rule) in [
        (0x6018, 4, Rule::SizesDisagree),
        (0x700c, 3, Rule::SizesDisagree),
        (0x6024, 0x13, Rule::NotModelled),
        (0x6024, 2, Rule::NotModelled),
        (0x701c, 8, Rule::AddressUnaligned),
        (0x701c, 0x00d0_0000, Rule::UnmappedAddress),
    ] {
        let (_, rules) = pass(&x, 128, |i, o| {
            let mut words = pooling(2, [2, 2], i, o);
            set(&mut words, reg, value);
            words
        });
        assert_eq!(rules, [rule], "{reg:x}");
    }
    // Registers that ask for gigabytes are refused before the host's memory is.
    let (_, rules) = pass(&x, 128, |i, o| {
        let mut words = pooling(2, [1, 1], i, o);
        for reg in [0x600c, 0x6010, 0x6014, 0x6018, 0x601c, 0x6020, 0x700c, 0x7010, 0x7014] {
            set(&mut words, reg, 8000);
        }
        words
    });
    assert_eq!(rules, [Rule::NotModelled]);
}
