//! Any words as a register program, and valid programs with words changed, through the decoder
//! and the blocks.

use super::bases::{BASES, INPUT, SIZE, programs};
use super::nothing_left;
use super::stream::Stream;
use rocket_runtime::device::{BoInfo, Deadline, JobRef, Mapping, Node};
use rocket_runtime::uapi::{JOB_BATCHED, Task};
use rocket_sim::{Arithmetic, Config, Counters, DriverProfile, Explanation, SimBoard};
use std::sync::LazyLock;
use std::time::Duration;

/// Most products or values a program may ask for: what takes longer is left out. Sizes the
/// simulator refuses for being enormous are refused before any work, so nothing is lost there.
const MOST_WORK: u64 = 1 << 20;
const MOST_WORDS: usize = INPUT / 8;

#[derive(Debug, Clone)]
struct Input {
    config: Config,
    words: Vec<u64>,
    tasks: Vec<Task>,
    flags: u32,
    times: usize,
}

/// Everything that is seen of a run.
type Seen = (Vec<u8>, Counters, Vec<Explanation>);

/// Runs `data` as a job. One in eight runs twice, which must be the same to the byte.
pub fn commands(data: &[u8]) -> bool {
    let input = decode(data);
    if work(&input.words) > MOST_WORK {
        return false;
    }
    let twice = data.iter().fold(0u8, |a, b| a.wrapping_mul(31).wrapping_add(*b)) % 8 == 0;
    let seen = run(&input, twice);
    if twice {
        assert_eq!(seen, run(&input, true), "two runs differ");
    }
    true
}

/// Whether every base runs as it stands, without a word of complaint: what mutations start from
/// must work.
pub fn bases_run() {
    for (i, base) in BASES.iter().enumerate() {
        let chained = u8::from(programs(base) > 1);
        let (_, counters, explanations) = run(&decode(&[i as u8, chained | chained << 6]), true);
        let tasks = programs(base) as u64;
        assert_eq!((counters.tasks, counters.jobs_timed_out), (tasks, 0), "{i}: {explanations:?}");
        assert!(explanations.is_empty(), "{i}: {explanations:?}");
    }
}

fn decode(data: &[u8]) -> Input {
    let mut s = Stream(data);
    let base = s.of(0..BASES.len() + 1);
    let [options, shorter] = s.bytes();
    let mut words = Vec::new();
    if let Some(base) = BASES.get(base) {
        words.extend_from_slice(base);
        while !s.is_empty() && !words.is_empty() {
            mutate(&mut words, &mut s);
        }
    } else {
        while !s.is_empty() && words.len() < 512 {
            words.push(s.u64());
        }
    }
    words.truncate(MOST_WORDS);
    let n = programs(&words);
    let each = words.len() / n;
    let batched = options & 1 != 0;
    let tasks = (0..n).map(|i| Task {
        regcmd: (i * each * 8) as u32,
        regcmd_count: (each as u32).wrapping_sub(u32::from(shorter % 8)),
    });
    Input {
        config: Config {
            profile: if batched { DriverProfile::V1_1 } else { DriverProfile::Stock },
            arithmetic: if options & 2 == 0 { Arithmetic::Fast } else { Arithmetic::Exact },
            sticky_wedge: options & 4 != 0,
            stepped: true,
            timeout: Duration::ZERO,
            ..Config::default()
        },
        tasks: tasks.take(1 + usize::from(options >> 5)).collect(),
        words,
        flags: if batched { JOB_BATCHED } else { 0 },
        times: 1 + usize::from(options >> 3 & 1),
    }
}

/// Values where fields begin and end.
const VALUES: &[u32] = &[
    0,
    1,
    2,
    3,
    4,
    7,
    8,
    0xf,
    0x10,
    0x1d,
    0x18,
    0x60,
    0xff,
    0x1ff,
    0x7ff,
    0x1fff,
    0x3fff,
    0xfff0,
    0xffff,
    0x4000,
    0xc000,
    0x1_0000,
    0xffff_fff0,
    0x7fff_ffff,
    0x8000_0000,
    u32::MAX,
];

/// One change: the word, what is done to it, and a value.
fn mutate(words: &mut Vec<u64>, s: &mut Stream<'_>) {
    let (at, value) = (s.u16(), s.u32());
    let len = words.len();
    let i = usize::from(at & 0x7ff) % len;
    let old = (words[i] >> 16) as u32;
    let with = |value: u32| words[i] & 0xffff_0000_0000_ffff | u64::from(value) << 16;
    match at >> 11 {
        0..=3 => words[i] = with(value),
        4..=7 => words[i] = with(old ^ 1 << (value & 31)),
        8..=11 => words[i] = with(VALUES[value as usize % VALUES.len()]),
        12..=15 => words[i] = with(old.wrapping_add_signed(i32::from(value as i8))),
        16..=19 => {
            // One field of the register.
            let (shift, width) = (value & 31, value >> 5 & 15);
            let mask = ((1u32 << width) - 1) << shift;
            words[i] = with(old & !mask | (value >> 9) << shift & mask);
        }
        20 => drop(words.remove(i)),
        21 => words.swap(i, value as usize % len),
        22 => words.insert(i, words[value as usize % len]),
        23 => words[i] ^= 1 << (value & 63),
        24 => words[i] = words[i] & !0xffff | u64::from(value & 0xffff),
        25 => words.truncate(i + 1),
        _ => words[i] = u64::from(value) << 32 | s.u64() >> 32,
    }
}

/// A bound of what the registers ask for, whatever the order of their writes.
fn work(words: &[u64]) -> u64 {
    let most = |reg: u16, hi: u32, lo: u32| {
        let of = |w: &&u64| **w as u16 == reg;
        let fields = words.iter().filter(of).map(|w| w >> (16 + lo) & ((1 << (hi - lo + 1)) - 1));
        fields.max().unwrap_or(0)
    };
    let pixels = (most(0x4030, 12, 0) + 1) * (most(0x4034, 12, 0) + 1);
    let taps = most(0x1038, 28, 24).max(1) * most(0x1038, 20, 16).max(1);
    let depth = taps * most(0x1024, 15, 0).max(1);
    let product = pixels * depth * most(0x1038, 13, 0).max(1);
    let pool = |w, h, c| (most(w, 12, 0) + 1) * (most(h, 12, 0) + 1) * (most(c, 12, 0) + 1);
    let kernel = (most(0x6034, 3, 0) + 1) * (most(0x6034, 11, 8) + 1);
    let pooled = pool(0x600c, 0x6010, 0x6014).max(pool(0x6018, 0x601c, 0x6020) * kernel);
    product.max(pixels * (most(0x403c, 12, 0) + 1)).max(pooled)
}

/// Looking costs as much as the job, so it is done only where it matters.
fn run(input: &Input, look: bool) -> Seen {
    let board = SimBoard::new(input.config.clone());
    let seen = {
        let file = board.open_file().unwrap();
        let bo = file.create_bo(SIZE as u32).unwrap();
        let map = file.map_bo(&bo, SIZE).unwrap();
        fill(&map, &input.words);
        file.fini_bo(bo.handle).unwrap();
        let job =
            JobRef { tasks: &input.tasks, reads: &[], writes: &[bo.handle], flags: input.flags };
        for _ in 0..input.times {
            match file.submit(&[job]) {
                Ok(()) => {}
                // A program of no words.
                Err(e) => assert_eq!(e, nix::errno::Errno::EINVAL),
            }
        }
        while board.step() {}
        if look { observe(&board, &file, &bo, &map) } else { Seen::default() }
    };
    nothing_left(&board);
    seen
}

fn observe(board: &SimBoard, file: &dyn Node, bo: &BoInfo, map: &Mapping) -> Seen {
    // Whatever became of the job, its fence has signalled.
    file.prep_bo(bo.handle, Deadline::POLL).unwrap();
    (read(map), board.counters(), board.explanations())
}

/// The program, and data whose bytes differ.
#[allow(unsafe_code)]
fn fill(map: &Mapping, words: &[u64]) {
    let bytes: &[u8] = bytemuck::cast_slice(words);
    // SAFETY: nobody else touches the mapping, and lengths are those of the buffer.
    let all = unsafe { std::slice::from_raw_parts_mut(map.as_ptr().as_ptr(), SIZE) };
    all[..bytes.len()].copy_from_slice(bytes);
    all[INPUT..].copy_from_slice(&DATA);
}

/// Bytes that differ, none of them part of an infinity.
static DATA: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let bytes = (0..(SIZE - INPUT) as u32).map(|i| i.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]);
    bytes.map(|b| b & 0xbf).collect()
});

#[allow(unsafe_code)]
fn read(map: &Mapping) -> Vec<u8> {
    // SAFETY: as above; no job is left that could write.
    unsafe { std::slice::from_raw_parts(map.as_ptr().as_ptr(), SIZE) }.to_vec()
}
