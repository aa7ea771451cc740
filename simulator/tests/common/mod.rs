//! Test-only program encoder, layouts and file helpers, written from npu-rk3588 2, 3 and
//! Appendix A, apart from the library's own.
#![allow(dead_code, unused_imports, clippy::unwrap_used, clippy::needless_range_loop)]

mod kinds;
mod passes;
mod seen;

pub use kinds::*;
pub use passes::*;
pub use seen::*;

use half::f16;
use nix::errno::Errno;
use rocket_runtime::device::{BoInfo, Deadline, JobRef, Mapping, Node};
use rocket_runtime::uapi::Task;
use rocket_sim::{Class, Config, Explanation, Rule, SimBoard};
use std::sync::Arc;
use std::time::Duration;

pub const DST: u16 = 0x4020;
pub const FEATURE: u16 = 0x1070;
pub const WEIGHTS: u16 = 0x1110;
pub const SRC: u16 = 0x5018;
pub const EW: u16 = 0x5038;

pub const EW_ADD: u32 = 0x1082_02c0;
pub const EW_MUL: u32 = 0x1080_03c4;
pub const EW_MAX: u32 = 0x1080_02c0;
pub const EW_MIN: u32 = 0x1081_02c0;

#[derive(Debug, Clone, Copy, Default)]
pub struct Shape {
    pub m: u32,
    pub k: u32,
    pub n: u32,
    pub wide: bool,
    pub ew: Option<u32>,
    pub data_reuse: bool,
    pub weight_reuse: bool,
}

impl Shape {
    pub fn new(m: u32, k: u32, n: u32) -> Shape {
        Shape { m, k, n, ..Shape::default() }
    }
    pub fn feature_bytes(&self) -> u32 {
        self.m * self.k * 2
    }
    pub fn weight_bytes(&self) -> u32 {
        self.n * self.k * 2
    }
    pub fn out_bytes(&self) -> u32 {
        self.m * self.n * if self.wide { 4 } else { 2 }
    }
}

/// Register offsets in emission order (2.7), without the two leading pointers and the trailer.
fn order() -> Vec<u16> {
    let mut o: Vec<u16> = vec![0x100c, 0x1010, 0x1014];
    o.extend((0x1020..=0x1038).step_by(4));
    o.extend([0x1040, 0x1044]);
    o.extend((0x104c..=0x105c).step_by(4));
    o.extend([0x1060, 0x1064, 0x1068, 0x1070, 0x1074, 0x1078, 0x107c, 0x1080, 0x1084, 0x1088]);
    o.extend([0x1100, 0x1104, 0x1110]);
    o.extend((0x1140..=0x117c).step_by(4));
    o.extend([0x1180, 0x1184, 0x3010, 0x3014, 0x3018, 0x301c, 0x3030]);
    o.extend([0x400c, 0x4010, 0x4014, 0x4020, 0x4024]);
    o.extend((0x4030..=0x4088).step_by(4));
    o.extend((0x4090..=0x40ac).step_by(4));
    o.extend([0x40c0, 0x40c4]);
    o.extend((0x4100..=0x412c).step_by(4));
    o.extend([0x500c, 0x5010, 0x5014, 0x5018, 0x501c, 0x5020, 0x5028, 0x502c, 0x5034, 0x5038]);
    o.extend([0x5040, 0x5044, 0x5048, 0x504c, 0x5064, 0x5068, 0x506c]);
    o
}

pub fn word(offset: u16, value: u32) -> u64 {
    let target = (0x100u64 << (offset >> 12)) | 1;
    target << 48 | u64::from(value) << 16 | u64::from(offset)
}

/// An fp16 program; addresses are input, weights, output, operand.
pub fn encode(s: &Shape, [input, weights, output, add]: [u32; 4]) -> Vec<u64> {
    let (m, k, n) = (s.m, s.k, s.n);
    let row = 2 * k;
    let dbank = (m * row).div_ceil(32768);
    let se = if s.wide { 3 } else { 1 };
    let h = u32::from(!s.wide);
    let notch = if s.ew.is_some() { m.max(12) << 4 } else { 0 };
    let reuse = u32::from(s.weight_reuse) << 13 | u32::from(s.data_reuse) << 12;
    let value = |offset: u16| match offset {
        0x100c => 2 << 7 | 2 << 4,
        0x1010 => (m + 1) << 4,
        0x1014 => 9,
        0x1020 | 0x1084 => 1 << 16 | m,
        0x1024 => (k - 1) << 16 | k,
        0x1028 => 1,
        0x102c => m,
        0x1030 => row * n,
        0x1034 => row,
        0x1038 => 1 << 24 | 1 << 16 | n,
        0x1040 => reuse | (12u32.saturating_sub(dbank)) << 4 | dbank,
        0x1044 => row.div_ceil(64),
        0x104c => 0xb,
        0x1050..=0x105c => 0x10000,
        FEATURE => input,
        0x1078 => 0x000f_000f,
        0x107c => 4,
        0x1080 => 4 * (m / 4).saturating_sub(1),
        0x1088 => k,
        WEIGHTS => weights,
        0x3010 => 0x201,
        0x3014 | 0x405c => (m - 1) << 16,
        0x3018 | 0x4058 | 0x5014 => n - 1,
        0x400c => 0x1e4,
        0x4010 => {
            if s.wide {
                0xa800_0002
            } else {
                0x4800_0002
            }
        }
        DST => output,
        0x4024 => m << 4,
        0x4034 | 0x5010 => m - 1,
        0x403c => (n - 1) << 16 | (n - 1),
        0x4040 | 0x4060 => 0x53,
        0x4050 => se << 8 | se << 5 | se << 2 | 2,
        0x4070 => s.ew.unwrap_or(0x383),
        0x4078 => 1,
        0x4084 => h << 16 | 1,
        0x40c0 => (m * (se + 1)) << 4,
        SRC if s.ew.is_some() => add,
        EW if s.ew.is_some() => add + 16 * m,
        0x5034 => {
            if s.ew.is_some() {
                0x4000_0008
            } else {
                1
            }
        }
        0x5044 => {
            if s.ew.is_some() {
                0x17d40
            } else {
                0x7810 | h << 3
            }
        }
        0x5040 | 0x504c | 0x506c => notch,
        0x5068 => 0x0101_0101,
        _ => 0,
    };
    let mut words = vec![word(0x4004, 0xe), word(0x5004, 0xe)];
    words.extend(order().into_iter().map(|o| word(o, value(o))));
    words.extend([0, 0x0101_0000_0000_0014, 0x0041_0000_0000_0000, 0x0081_0000_001d_0008]);
    words
}

/// Replaces the value of a register.
pub fn set(words: &mut [u64], offset: u16, value: u32) {
    let w = words
        .iter_mut()
        .find(|w| **w as u16 == offset && **w >> 48 & 1 == 1 && **w != 0)
        .unwrap_or_else(|| panic!("no register 0x{offset:04x}"));
    *w = word(offset, value);
}

pub fn get(words: &[u64], offset: u16) -> u32 {
    let w = words.iter().find(|w| **w as u16 == offset && **w >> 48 & 1 == 1);
    (w.unwrap() >> 16) as u32
}

/// Feature cube (3.2).
pub fn pack_feature(a: &[f32], m: usize, k: usize) -> Vec<u8> {
    let mut out = vec![0; m * k * 2];
    for i in 0..m * k {
        let (r, c) = (i / k, i % k);
        let at = 2 * (c / 8 * m * 8 + r * 8 + c % 8);
        out[at..at + 2].copy_from_slice(&f16::from_f32(a[i]).to_le_bytes());
    }
    out
}

/// Weight cube (3.3).
pub fn pack_weight(w: &[f32], n: usize, k: usize) -> Vec<u8> {
    let mut out = vec![0; n * k * 2];
    for i in 0..n * k {
        let (r, c) = (i / k, i % k);
        let at = 2 * (r / 16 * 16 * k + c / 32 * 512 + r % 16 * 32 + c % 32);
        out[at..at + 2].copy_from_slice(&f16::from_f32(w[i]).to_le_bytes());
    }
    out
}

/// Output cube (3.4).
pub fn unpack(bytes: &[u8], m: usize, n: usize, wide: bool) -> Vec<f32> {
    let c2 = if wide { 4 } else { 8 };
    let mut out = vec![0.0; m * n];
    for i in 0..m * n {
        let (r, c) = (i / n, i % n);
        let at = c / c2 * m * c2 + r * c2 + c % c2;
        out[i] = if wide {
            f32::from_le_bytes(bytes[4 * at..4 * at + 4].try_into().unwrap())
        } else {
            f16::from_le_bytes(bytes[2 * at..2 * at + 2].try_into().unwrap()).to_f32()
        };
    }
    out
}

/// A buffer object with its mapping.
#[derive(Debug)]
pub struct Buf {
    pub info: BoInfo,
    map: Mapping,
}

impl Buf {
    pub fn iova(&self) -> u32 {
        self.info.iova as u32
    }
    pub fn handle(&self) -> u32 {
        self.info.handle
    }
    #[allow(unsafe_code)]
    pub fn put(&self, at: usize, bytes: &[u8]) {
        assert!(at + bytes.len() <= self.map.len());
        // SAFETY: inside the mapping, which lives as long as self.
        unsafe {
            let to = self.map.as_ptr().as_ptr().add(at);
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), to, bytes.len());
        }
    }
    #[allow(unsafe_code)]
    pub fn take(&self, at: usize, len: usize) -> Vec<u8> {
        assert!(at + len <= self.map.len());
        // SAFETY: as above; tests do not read while a PREP_BO runs.
        unsafe { std::slice::from_raw_parts(self.map.as_ptr().as_ptr().add(at), len).to_vec() }
    }
}

/// One file with what tests do on it.
#[derive(Debug, Clone)]
pub struct Rig {
    pub board: SimBoard,
    pub node: Arc<dyn Node>,
}

pub fn quick() -> Config {
    Config { timeout: Duration::from_millis(30), ..Config::default() }
}

impl Rig {
    pub fn new(config: Config) -> Rig {
        Rig::on(&SimBoard::new(config))
    }
    pub fn on(board: &SimBoard) -> Rig {
        let node = Arc::new(board.open_file().unwrap());
        Rig { board: board.clone(), node }
    }
    pub fn buf(&self, len: usize) -> Buf {
        let info = self.node.create_bo(len as u32).unwrap();
        let map = self.node.map_bo(&info, len).unwrap();
        Buf { info, map }
    }
    /// A buffer with these bytes, flushed.
    pub fn with(&self, bytes: &[u8]) -> Buf {
        let b = self.buf(bytes.len());
        b.put(0, bytes);
        self.node.fini_bo(b.handle()).unwrap();
        b
    }
    pub fn words(&self, words: &[u64]) -> Buf {
        self.with(bytemuck::cast_slice(words))
    }
    pub fn submit(&self, tasks: &[Task], reads: &[&Buf], writes: &[&Buf]) -> Result<(), Errno> {
        let reads: Vec<u32> = reads.iter().map(|b| b.handle()).collect();
        let writes: Vec<u32> = writes.iter().map(|b| b.handle()).collect();
        let job = JobRef { tasks, reads: &reads, writes: &writes, flags: 0 };
        self.node.submit(&[job])
    }
    pub fn wait(&self, b: &Buf) {
        self.node.prep_bo(b.handle(), Deadline::after_ms(20_000)).unwrap();
    }
    pub fn last(&self) -> Option<Explanation> {
        self.board.explanations().pop()
    }
}

pub fn task(program: &Buf, count: usize) -> Task {
    Task { regcmd: program.iova(), regcmd_count: count as u32 }
}

/// A value no product in these tests gives, in every halfword.
pub const SENTINEL: u8 = 0xa7;

/// A complete multiplication set up on a file: buffers filled, program encoded.
#[derive(Debug)]
pub struct Setup {
    pub rig: Rig,
    pub shape: Shape,
    pub a: Vec<f32>,
    pub w: Vec<f32>,
    pub add: Vec<f32>,
    pub input: Buf,
    pub weights: Buf,
    pub output: Buf,
    pub operand: Buf,
    pub words: Vec<u64>,
}

impl Setup {
    /// With small integers.
    pub fn new(rig: &Rig, shape: Shape) -> Setup {
        let mut seed = 12345u32;
        let mut next = |n: u32| -> Vec<f32> {
            (0..n)
                .map(|_| {
                    seed = seed.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
                    (seed >> 24) as f32 % 7.0 - 3.0
                })
                .collect()
        };
        let (a, w) = (next(shape.m * shape.k), next(shape.n * shape.k));
        let add = next(shape.m * shape.n);
        Setup::of(rig, shape, a, w, add)
    }

    pub fn of(rig: &Rig, shape: Shape, a: Vec<f32>, w: Vec<f32>, add: Vec<f32>) -> Setup {
        let (m, k, n) = (shape.m as usize, shape.k as usize, shape.n as usize);
        let input = rig.with(&pack_feature(&a, m, k));
        let weights = rig.with(&pack_weight(&w, n, k));
        // Room for misstrided reads.
        let mut cube = pack_feature(&add, m, n);
        cube.resize(cube.len() * 2 + 4096, 0);
        let operand = rig.with(&cube);
        let output = rig.with(&vec![SENTINEL; shape.out_bytes() as usize]);
        let addr = [&input, &weights, &output, &operand].map(Buf::iova);
        let words = encode(&shape, addr);
        Setup { rig: rig.clone(), shape, a, w, add, input, weights, output, operand, words }
    }

    /// The mathematical result, in f64 rounded once to f32.
    pub fn expected(&self) -> Vec<f32> {
        let (m, k, n) = (self.shape.m as usize, self.shape.k as usize, self.shape.n as usize);
        let mut c = vec![0.0; m * n];
        for i in 0..m * n {
            let (a, w) = (&self.a[i / n * k..][..k], &self.w[i % n * k..][..k]);
            let sum: f64 = a.iter().zip(w).map(|(a, w)| f64::from(*a) * f64::from(*w)).sum();
            let (x, y) = (sum as f32, self.add[i]);
            c[i] = match self.shape.ew {
                Some(EW_ADD) => x + y,
                Some(EW_MUL) => x * y,
                Some(EW_MAX) => x.max(y),
                Some(EW_MIN) => x.min(y),
                _ => x,
            };
        }
        c
    }

    /// Submits `words` as a job of one task and waits.
    pub fn run_words(&self, words: &[u64], count: usize) {
        let program = self.rig.words(words);
        let reads = [&self.input, &self.weights, &self.operand, &program];
        self.rig.submit(&[task(&program, count)], &reads, &[&self.output]).unwrap();
        self.rig.wait(&self.output);
    }

    pub fn run(&self) {
        self.run_words(&self.words, self.words.len());
    }

    /// Runs a mutated program.
    pub fn run_with(&self, mutate: impl FnOnce(&mut Vec<u64>)) {
        let mut words = self.words.clone();
        mutate(&mut words);
        self.run_words(&words, words.len());
    }

    pub fn bytes(&self) -> Vec<u8> {
        self.output.take(0, self.shape.out_bytes() as usize)
    }

    pub fn result(&self) -> Vec<f32> {
        unpack(&self.bytes(), self.shape.m as usize, self.shape.n as usize, self.shape.wide)
    }

    pub fn untouched(&self) -> bool {
        self.bytes().iter().all(|b| *b == SENTINEL)
    }

    /// Asserts that the last explanation is about this rule and that what happened fits its class.
    pub fn assert_rule(&self, rule: Rule) {
        let e = self.rig.last().unwrap_or_else(|| panic!("{rule:?}: no explanation"));
        assert_eq!(e.rule, rule, "{e}");
        let timed_out = self.rig.board.counters().jobs_timed_out;
        match rule.class() {
            Class::Hang => assert!(timed_out == 1 && self.untouched(), "{e}"),
            Class::Garbage => assert!(timed_out == 0 && self.result() != self.expected(), "{e}"),
            Class::Silent => {
                assert!(timed_out == 0 && self.bytes().contains(&SENTINEL), "{e}");
                assert_ne!(self.result(), self.expected(), "{e}");
            }
            Class::Note => assert!(timed_out == 0 && self.result() == self.expected(), "{e}"),
        }
    }
}

/// The folder of golden vectors, or none when neither the variable nor the folder is there.
pub fn vectors() -> Option<std::path::PathBuf> {
    let set = std::env::var_os("ROCKET_VECTORS");
    let named = set.is_some();
    let root = set.map_or_else(
        || concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/vectors").into(),
        std::path::PathBuf::from,
    );
    let dir = root.join("rk3588-matmul");
    match std::fs::read_dir(&dir) {
        Ok(_) => Some(dir),
        Err(e) if named => panic!("ROCKET_VECTORS: cannot read {}: {e}", dir.display()),
        Err(_) => {
            println!("skipped: no vectors at {}; set ROCKET_VECTORS", dir.display());
            None
        }
    }
}

pub fn json(path: &std::path::Path) -> serde_json::Value {
    serde_json::from_slice(&std::fs::read(path).unwrap()).unwrap()
}

pub fn hex(v: &serde_json::Value) -> u64 {
    u64::from_str_radix(v.as_str().unwrap().trim_start_matches("0x"), 16).unwrap()
}

pub fn words_of(v: &serde_json::Value) -> Vec<u64> {
    v["words"].as_array().unwrap().iter().map(hex).collect()
}

/// Files whose name starts like this, in order.
pub fn files(dir: &std::path::Path, prefix: &str) -> Vec<std::path::PathBuf> {
    let mut found: Vec<_> = std::fs::read_dir(dir)
        .unwrap()
        .map(|e| e.unwrap().path())
        .filter(|p| p.file_name().unwrap().to_string_lossy().starts_with(prefix))
        .collect();
    found.sort();
    found
}
