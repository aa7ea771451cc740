//! Products with experts on a simulated board.
#![allow(unsafe_code)]

use super::*;
use crate::exec::engine::Rules as EngineRules;
use crate::exec::identity;
use crate::exec::npu::NpuEngine;
use crate::exec::test_noise::noise;
use crate::exec::verify::Mode;
use crate::exec::weight::{Decode, Form};
use crate::route::Codes;
use rocket_runtime::matmul::Options;
use rocket_sim::SimBoard;
use std::sync::Arc;

const K: usize = 128;
const N: usize = 80;
const EXPERTS: usize = 5;

fn engine(rules: Rules) -> NpuEngine {
    let options = Options { workers: 3, drain_on_signals: false, ..Options::default() };
    let rules = EngineRules { experts: rules, ..EngineRules::default() };
    NpuEngine::new(Arc::new(SimBoard::default()), options, rules, None)
}

fn waiting() -> Rules {
    Rules { wait: true, threads: 1, ..Rules::default() }
}

/// A stack of F32 experts and what is asked of it.
struct Case {
    weights: Vec<f32>,
    a: Vec<f32>,
    ids: Vec<i32>,
    shape: ExpertsShape,
    numerics: Numerics,
}

const INT8: Numerics = Numerics::Native(Codes { group: 64, rotate: true });

impl Case {
    /// `used` experts for each token as `choose` says; `rows` of activation a token.
    fn new(tokens: usize, used: usize, rows: usize, choose: impl Fn(usize) -> i32) -> Case {
        let shape = ExpertsShape { k: K, n: N, experts: EXPERTS, used, tokens, rows };
        Case {
            weights: noise(7, EXPERTS * N * K),
            a: noise(9, tokens * rows * K),
            ids: (0..used * tokens).map(choose).collect(),
            shape,
            numerics: INT8,
        }
    }

    fn key(&self, hash: u64) -> WeightKey {
        WeightKey {
            buffer: 1,
            base: 0,
            offset: 0,
            dtype: Dtype(8),
            shape: [N * EXPERTS, K],
            hash,
            numerics: self.numerics,
        }
    }

    /// Runs it; `stack` when it may stay.
    fn run(
        &self,
        engine: &NpuEngine,
        stack: bool,
        owner: u64,
    ) -> Result<(Vec<f32>, OpRecord), Redo> {
        // SAFETY: no host decoder.
        let form = unsafe { Form::new([N, K], 4 * K, Decode::F32) };
        let bytes: &[u8] = bytemuck::cast_slice(&self.weights);
        let experts: Vec<_> =
            bytes.chunks_exact(4 * N * K).map(|b| form.weight(b).expect("a weight")).collect();
        let source = StackSource { address: bytes.as_ptr() as usize, experts: EXPERTS, form };
        let buckets = Buckets::of(&self.ids, EXPERTS).expect("experts");
        let s = self.shape;
        let mut out = vec![f32::NAN; s.results() * N];
        let op = Operands {
            name: "t",
            shape: s,
            numerics: self.numerics,
            experts: &experts,
            dtype: Dtype(8),
            stack: stack.then(|| (self.key(identity::hash(bytes)), source)),
            owner,
            activation: Activation::new(&self.a, K, [s.rows, s.tokens, 1], [K, s.rows * K, 0])
                .expect("rows"),
            buckets: &buckets,
            out: &mut out,
        };
        let verify = Verify::new(Mode::First);
        let done = run(engine, &verify, (2, &mut Prepared::default()), op);
        done.map(|record| (out, record)).map_err(|(redo, _)| redo)
    }

    /// Cosine of the rows of each used expert with the product by its definition, the least of all.
    fn cosine(&self, out: &[f32]) -> f64 {
        let s = self.shape;
        let mut least = 1f64;
        for e in 0..EXPERTS as i32 {
            let (mut dot, mut x, mut y) = (0f64, 0f64, 0f64);
            for (row, _) in self.ids.iter().enumerate().filter(|(_, id)| **id == e) {
                let (token, slot) = (row / s.used, row % s.used);
                let a = &self.a[(token * s.rows + slot % s.rows) * K..][..K];
                for n in 0..N {
                    let w = &self.weights[(e as usize * N + n) * K..][..K];
                    let want: f64 = a.iter().zip(w).map(|(a, w)| f64::from(a * w)).sum();
                    let got = f64::from(out[row * N + n]);
                    (dot, x, y) = (dot + want * got, x + want * want, y + got * got);
                }
            }
            if x > 0.0 {
                least = least.min(dot / (x * y).sqrt().max(f64::MIN_POSITIVE));
            }
        }
        least
    }
}

/// Experts 0 to 3 in turn, half of the rows to the first; nobody asks for the last.
fn skewed(row: usize) -> i32 {
    if row.is_multiple_of(2) { 0 } else { (row / 2 % 4) as i32 }
}

/// Every format, resident and streamed, with one row a token or one an expert; beside controls that
/// must fail: a dropped expert, a wrong scale, experts exchanged.
#[test]
fn every_format_by_cosine() {
    for (numerics, gate) in [
        (INT8, 0.999),
        (Numerics::Native(Codes { group: 128, rotate: false }), 0.999),
        (Numerics::Shifted(Codes { group: 64, rotate: false }), 0.999),
        (Numerics::Fp16, 0.999_999),
    ] {
        for (tokens, used, rows) in [(24, 2, 1), (24, 2, 2), (7, 3, 3), (1, 1, 1)] {
            let case = Case { numerics, ..Case::new(tokens, used, rows, skewed) };
            let engine = engine(Rules { stream: true, ..waiting() });
            let (streamed, record) = case.run(&engine, false, 1).unwrap();
            assert!(!record.resident);
            let experts = Buckets::of(&case.ids, EXPERTS).unwrap().used().count();
            assert_eq!(record.packed_bytes, (experts * N * K * numerics.bits() / 8) as u64);
            assert_eq!(engine.holdings().experts_streamed, Some(experts as u64));
            let (out, record) = case.run(&engine, true, 1).unwrap();
            assert!(record.resident && record.packed_bytes > 0);
            assert_eq!(out, streamed, "{numerics:?}");
            let got = case.cosine(&out);
            let mut dropped = out.clone();
            for (row, _) in case.ids.iter().enumerate().filter(|(_, id)| **id == 0) {
                dropped[row * N..][..N].fill(0.0);
            }
            let mut wrong = out.clone();
            wrong.chunks_exact_mut(N).for_each(|r| r[..N / 2].iter_mut().for_each(|x| *x *= 2.0));
            let exchanged = Case { ids: case.ids.iter().map(|e| (e + 1) % 5).collect(), ..case };
            let controls =
                [exchanged.cosine(&out), exchanged.cosine(&dropped), exchanged.cosine(&wrong)];
            println!("{numerics:?}: cosine {got:.7}; controls {controls:.3?}");
            assert!(got >= gate && controls.iter().all(|c| *c < 0.99), "{got} {controls:?}");
            let case = Case { numerics, ..Case::new(tokens, used, rows, skewed) };
            assert!(case.cosine(&dropped) < 0.5 && case.cosine(&wrong) < 0.99);
        }
    }
}

/// Blocks of 4-bit floats whose exponents lie within three octaves keep their values as codes, which
/// rounding to 127 steps would not; further apart the small ones are rounded.
#[test]
fn mxfp4_keeps_its_values() {
    use crate::exec::codes::CodedWeight;
    use rocket_runtime::matmul::Weights;
    let values = [0.0, 0.5, 1.0, 1.5, 2.0, 3.0, 4.0, 6.0];
    for (octaves, exact) in [(0, true), (3, true), (6, false)] {
        // Sixteen values a block, four blocks of growing exponents.
        let row: Vec<f32> = (0..64)
            .map(|i| {
                let sign = if i % 16 < 8 { 1.0 } else { -1.0 };
                let exponent = (i / 16 * octaves / 3) - 9;
                sign * values[i as usize % 8] * 2f32.powi(exponent)
            })
            .collect();
        let coded = |shifted: bool| {
            let codes = Codes { group: 64, rotate: false };
            let numerics = if shifted { Numerics::Shifted(codes) } else { Numerics::Native(codes) };
            let w = CodedWeight::new(Weight::of_f32(&row, 1, 64), numerics).unwrap();
            let mut codes = [0i8; 64];
            w.load(0, &mut codes);
            codes.iter().map(|c| f32::from(*c) * w.scales()[0]).collect::<Vec<_>>()
        };
        assert_eq!(coded(true) == row, exact, "{octaves} octaves");
        assert_ne!(coded(false), row, "the control");
    }
}

/// The CPU computes while a stack is packed, and then never again; it goes with its last context.
#[test]
fn a_stack_is_packed_beside_the_host_and_goes_with_its_contexts() {
    let case = Case::new(16, 2, 1, skewed);
    let engine = engine(Rules { threads: 1, ..Rules::default() });
    let mut waited = 0;
    let (out, record) = loop {
        match case.run(&engine, true, 1) {
            Ok(done) => break done,
            Err(redo) => assert_eq!(redo, Redo::ExpertsPacking),
        }
        waited += 1;
        assert!(waited < 10_000, "never packed");
        std::thread::sleep(std::time::Duration::from_millis(1));
    };
    assert!(record.resident && waited > 0);
    assert!(case.cosine(&out) > 0.999);
    let used = || engine.npu().unwrap().budget().used();
    let one = used();
    assert!(one >= (EXPERTS * N * K) as u64);
    assert_eq!(engine.holdings().experts, Some(EXPERTS as u64));
    assert_eq!(case.run(&engine, true, 2).unwrap().0, out, "another context shares it");
    assert_eq!(used(), one);
    engine.release(1);
    assert_eq!(used(), one);
    let told = engine.outcome().join("");
    assert!(told.contains("5 of 5 experts resident") && !told.contains(';'), "{told}");
    assert!(engine.outcome().is_empty());
    engine.release(2);
    assert_eq!(used(), 0);
    assert_eq!(engine.holdings().experts, None);
}

/// A stack that finds no room is the CPU's, or streamed where everything is to run here.
#[test]
fn no_room() {
    let case = Case::new(16, 2, 1, skewed);
    for stream in [false, true] {
        let board = SimBoard::default();
        let options = Options {
            workers: 2,
            budget: Some((3 * N * K) as u64),
            drain_on_signals: false,
            ..Options::default()
        };
        let rules =
            EngineRules { experts: Rules { stream, ..waiting() }, ..EngineRules::default() };
        let engine = NpuEngine::new(Arc::new(board), options, rules, None);
        for _ in 0..2 {
            match case.run(&engine, true, 1) {
                Ok((out, record)) => {
                    assert!(stream && !record.resident);
                    assert!(case.cosine(&out) > 0.999);
                }
                Err(redo) => assert!(!stream && redo == Redo::ExpertsNotResident),
            }
        }
        assert_eq!(engine.npu().unwrap().budget().used(), 0, "half a stack is of no use");
        assert!(engine.outcome().join("").contains("1 stacks found no room"));
    }
}

/// A weight that is not finite is the CPU's business, resident or not.
#[test]
fn what_is_not_finite() {
    let mut case = Case::new(16, 2, 1, skewed);
    case.weights[3 * N * K + 5] = f32::NAN;
    let engine = engine(Rules { stream: true, ..waiting() });
    for stack in [true, true, false] {
        assert_eq!(case.run(&engine, stack, 1).unwrap_err(), Redo::WeightNotFinite);
    }
    let mut case = Case::new(16, 2, 1, skewed);
    case.a[3] = f32::INFINITY;
    assert_eq!(case.run(&engine, false, 1).unwrap_err(), Redo::ActivationNotFinite);
}

/// A second engine takes the experts from the folder, bit for bit; other weights, another rounding or a
/// damaged file are packed.
#[test]
fn packed_experts_are_kept() {
    let dir = tempfile::tempdir().unwrap();
    let folder = PackedFolder { path: dir.path().join("packed"), limit: Some(1 << 30) };
    let rules = || Rules { folder: Some(folder.clone()), ..waiting() };
    let files = || std::fs::read_dir(&folder.path).map_or(0, |d| d.count());
    let case = Case::new(16, 2, 1, skewed);
    let (first, _) = case.run(&engine(rules()), true, 1).unwrap();
    assert_eq!(files(), EXPERTS);
    let kept = || -> Vec<_> {
        let of = |e: std::io::Result<std::fs::DirEntry>| {
            let e = e.unwrap();
            (e.file_name(), std::os::unix::fs::MetadataExt::ino(&e.metadata().unwrap()))
        };
        let mut all: Vec<_> = std::fs::read_dir(&folder.path).unwrap().map(of).collect();
        all.sort();
        all
    };
    let before = kept();
    let (again, record) = case.run(&engine(rules()), true, 1).unwrap();
    assert_eq!((again, record.packed_bytes), (first.clone(), 0));
    assert_eq!(kept(), before, "nothing was written again");
    let other = Case { numerics: Numerics::Shifted(Codes { group: 64, rotate: false }), ..case };
    assert!(other.cosine(&other.run(&engine(rules()), true, 1).unwrap().0) > 0.999);
    assert_eq!(files(), 2 * EXPERTS);
    for (name, _) in kept() {
        let path = folder.path.join(name);
        let mut bytes = std::fs::read(&path).unwrap();
        let at = bytes.len() - 9000;
        bytes[at] ^= 1;
        std::fs::write(&path, bytes).unwrap();
    }
    let case = Case { numerics: INT8, ..other };
    assert_eq!(case.run(&engine(rules()), true, 1).unwrap().0, first);
    // A folder that cannot be used costs nothing but the next start.
    let file = dir.path().join("file");
    std::fs::write(&file, "").unwrap();
    let bad = Rules { folder: Some(PackedFolder { path: file, limit: None }), ..waiting() };
    assert_eq!(case.run(&engine(bad), true, 1).unwrap().0, first);
}

/// Memory that becomes short takes whole stacks; results stay right.
#[test]
fn stacks_are_given_back() {
    let case = Case::new(16, 2, 1, skewed);
    let engine = engine(waiting());
    let (out, _) = case.run(&engine, true, 1).unwrap();
    assert!(case.cosine(&out) > 0.999);
    assert!(engine.shelf().shed(1) >= (EXPERTS * N * K) as u64);
    assert_eq!(engine.shelf().bytes(), 0);
    assert_eq!(engine.npu().unwrap().budget().used(), 0);
    assert_eq!(case.run(&engine, true, 1).unwrap_err(), Redo::ExpertsNotResident);
    assert!(engine.outcome().join("").contains("given back under memory pressure"));
}

/// Weights that are not what their key says, as when they are replaced while they are packed, are never
/// used.
#[test]
fn a_stack_that_changed_while_it_was_packed_is_not_used() {
    let case = Case::new(16, 2, 1, skewed);
    let engine = engine(waiting());
    // SAFETY: no host decoder.
    let form = unsafe { Form::new([N, K], 4 * K, Decode::F32) };
    let bytes: &[u8] = bytemuck::cast_slice(&case.weights);
    let source = StackSource { address: bytes.as_ptr() as usize, experts: EXPERTS, form };
    engine.npu().unwrap();
    let standing = |hash| engine.shelf().find(case.key(hash), source, 1);
    // Waited for, and then gone.
    let other = identity::hash(bytes) ^ 1;
    assert!(matches!(standing(other), Standing::Absent(Absent::NoRoom)));
    assert_eq!(engine.shelf().counts(), [0, 0]);
    assert!(matches!(standing(identity::hash(bytes)), Standing::Ready(_)));
}
