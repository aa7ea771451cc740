//! Jobs in flight together, and each core by itself.
//!
//! The driver chooses the core of a job. So as many files as there are cores submit at the same time, round after
//! round, and what counts jobs a core says which took one: a simulated board's own counters, or the interrupts of
//! a real one (kernel-and-uapi D.6). Where every result is right, each core that took a job computed rightly.

use super::draw::Draw;
use super::judge::{self, Done};
use crate::npu::Npu as Device;
use rocket_runtime::board::{Root, irq};
use rocket_runtime::device::Board;
use rocket_runtime::matmul::{Fp16, Int8, Matrix, Npu, Operand, Options, Rows, Summation};
use rocket_runtime::{Error, Result};
use std::path::Path;
use std::sync::Barrier;
use std::time::Duration;

/// M, K and N: long enough that jobs of several files overlap.
const SHAPE: [usize; 3] = [64, 1024, 160];
/// So many rounds at most until every core took a job.
const ROUNDS: u64 = 16;
/// Before a call: no sum of these operands.
const NO_SUM: i32 = i32::MIN;

/// Jobs that one core took.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Core {
    pub name: String,
    pub jobs: u64,
}

/// What the rounds came to.
#[derive(Debug)]
pub struct Rounds {
    /// Of all files and rounds.
    pub done: Done,
    /// Of each core, or why that cannot be known.
    pub cores: std::result::Result<Vec<Core>, String>,
}

/// Files that submit at the same time, one a core.
pub fn rounds(device: &Device) -> Result<Rounds> {
    let board = device.board();
    let files = board.profile().cores;
    let npus = (0..files).map(|_| open(board, 1)).collect::<Result<Vec<Npu>>>()?;
    let before = counts(device);
    let mut done: Option<Done> = None;
    let mut cores = Err(String::new());
    for round in 0..ROUNDS {
        let one = together(&npus, round)?;
        done = Some(done.map_or(one, |d| d.and(one)));
        cores = delta(&before, &counts(device));
        match &cores {
            Ok(cores) if cores.len() >= files && cores.iter().all(|c| c.jobs > 0) => break,
            Err(_) if round > 0 => break,
            _ => {}
        }
    }
    let done = done.ok_or_else(|| Error::Unusable { why: "the board has no core".into() })?;
    Ok(Rounds { done, cores })
}

fn open(board: &dyn Board, workers: usize) -> Result<Npu> {
    Npu::open(board, Options { workers, ..Options::default() })
}

/// One product on each, all at the same time, with operands of their own.
fn together(npus: &[Npu], round: u64) -> Result<Done> {
    let start = Barrier::new(npus.len());
    let done: Vec<Result<Done>> = std::thread::scope(|scope| {
        let threads: Vec<_> = npus
            .iter()
            .enumerate()
            .map(|(i, npu)| {
                let start = &start;
                scope.spawn(move || product(npu, 100 * round + i as u64, start))
            })
            .collect();
        let panicked = || Error::Unusable { why: "a thread of the test panicked".into() };
        threads.into_iter().map(|t| t.join().unwrap_or_else(|_| Err(panicked()))).collect()
    });
    let mut all: Option<Done> = None;
    for one in done {
        let one = one?;
        all = Some(all.map_or(one, |j| j.and(one)));
    }
    all.ok_or_else(|| Error::Unusable { why: "nothing ran".into() })
}

fn product(npu: &Npu, seed: u64, start: &Barrier) -> Result<Done> {
    let [m, k, n] = SHAPE;
    let mut draw = Draw(seed);
    let mut codes = |rows: usize| draw.list(rows * k, |d| 1 + d.whole(63).abs());
    let (a, w) = (codes(m), codes(n));
    let bytes = |x: &[i64]| -> Vec<i8> { x.iter().map(|x| *x as i8).collect() };
    let (narrow_a, narrow_w) = (bytes(&a), bytes(&w));
    let packed = npu.pack(Int8::default(), &Rows::new(&narrow_w, n, k));
    let mut c = vec![NO_SUM; m * n];
    // Whatever became of the weights: the others wait here.
    start.wait();
    let packed = packed?;
    let operand = Operand::Resident(&packed);
    let stats = npu.gemm_exact(Matrix::new(&narrow_a, m, k, k), operand, &mut c)?;
    let c: Vec<i64> = c.into_iter().map(i64::from).collect();
    Ok(Done::of(judge::exact(&c, &a, &w, SHAPE, NO_SUM.into()), &[stats]))
}

/// Several jobs of one file in one SUBMIT, and jobs of two files at the same time.
#[derive(Debug)]
pub struct InFlight {
    pub done: Done,
    pub jobs: u64,
    pub submits: u64,
}

pub fn in_flight(device: &Device) -> Result<InFlight> {
    let board = device.board();
    // Programs become jobs of their own.
    let options = Options { workers: 1, job_time: Duration::from_nanos(1), ..Options::default() };
    let npu = Npu::open(board, options)?;
    let [m, k, n] = [96, 1024, 1024];
    let mut draw = Draw(7);
    // Whole numbers so small that every sum is exact in fp16's products and fp32's sums.
    let mut whole = |rows: usize| draw.list(rows * k, |d| 1 + d.whole(3).abs());
    let (a, w) = (whole(m), whole(n));
    let half = |x: &[i64]| -> Vec<half::f16> {
        x.iter().map(|x| half::f16::from_f32(*x as f32)).collect()
    };
    let (narrow_a, narrow_w) = (half(&a), half(&w));
    let mut c = vec![f32::NAN; m * n];
    let packed = npu.pack(Fp16, &Rows::new(&narrow_w, n, k))?;
    let operand = Operand::Resident(&packed);
    let matrix = Matrix::new(&narrow_a, m, k, k);
    let stats = npu.gemm(matrix, operand, &mut c, None, Summation::Host)?;
    // What is not a number, and so was not written, becomes 0, which is no sum of these.
    let c: Vec<i64> = c.into_iter().map(|c| c as i64).collect();
    let one_file = Done::of(judge::exact(&c, &a, &w, [m, k, n], 0), &[stats]);
    let two = [open(board, 1)?, open(board, 1)?];
    let done = one_file.and(together(&two, 90)?).and(together(&two, 91)?);
    Ok(InFlight { done, jobs: stats.jobs, submits: stats.submits })
}

type Counts = std::result::Result<Vec<Core>, String>;

fn counts(device: &Device) -> Counts {
    if let Some(sim) = device.sim() {
        let counted = sim.counters().jobs_by_core;
        let cores = counted.iter().take(sim.config().cores).enumerate();
        return Ok(cores
            .map(|(i, jobs)| Core { name: format!("core {i}"), jobs: *jobs })
            .collect());
    }
    let root = Root::open(Path::new("/")).map_err(|e| e.to_string())?;
    let text = root.text("proc/interrupts").map_err(|e| e.to_string())?;
    match interrupts(&text) {
        cores if cores.is_empty() => Err("no line of /proc/interrupts names an NPU core".into()),
        cores => Ok(cores),
    }
}

/// What was counted in between. Counts that stood still tell nothing: a driver may poll.
fn delta(before: &Counts, after: &Counts) -> Counts {
    let (before, after) = (before.as_ref().map_err(Clone::clone)?, after.clone()?);
    let was = |name: &str| before.iter().find(|c| c.name == name).map_or(0, |c| c.jobs);
    let cores: Vec<Core> = after
        .into_iter()
        .map(|c| Core { jobs: c.jobs.saturating_sub(was(&c.name)), name: c.name })
        .collect();
    match cores.iter().all(|c| c.jobs == 0) {
        true => Err("no core's interrupts were counted: the driver polls, or batches".into()),
        false => Ok(cores),
    }
}

/// Interrupts of each NPU core, over all CPUs, by core name. A core shares its line with its IOMMU (D.6).
fn interrupts(text: &str) -> Vec<Core> {
    let mut cores: Vec<Core> = Vec::new();
    for line in irq::parse(text).unwrap_or_default() {
        let jobs = line.counts.iter().fold(0u64, |sum, n| sum.saturating_add(*n));
        let name = line.names.into_iter().find(|n| n.ends_with(".npu"));
        cores.extend(name.map(|name| Core { name, jobs }));
    }
    cores.sort_by(|a, b| a.name.cmp(&b.name));
    cores
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    const TEXT: &str = "           CPU0       CPU1
 36:         11          4     GICv3 142 Level     fdab9000.iommu, fdab0000.npu
 37:          0          7     GICv3 143 Level     fdaca000.iommu, fdac0000.npu
 38:          1          1     GICv3 144 Level     fdada000.iommu
 39:      9          9         ITS-MSI 1 Edge      nvme0q1
IPI0:       100        200       Rescheduling interrupts
";

    #[test]
    fn cores_share_lines_and_are_summed_over_cpus() {
        let core = |name: &str, jobs| Core { name: name.into(), jobs };
        assert_eq!(interrupts(TEXT), [core("fdab0000.npu", 15), core("fdac0000.npu", 7)]);
        let later = TEXT.replace("        11 ", "        14 ");
        let moved = delta(&Ok(interrupts(TEXT)), &Ok(interrupts(&later))).unwrap();
        assert_eq!(moved, [core("fdab0000.npu", 3), core("fdac0000.npu", 0)]);
    }

    /// Counts that stood still are unknown, and not "no core works".
    #[test]
    fn nothing_counted_is_unknown() {
        let same = Ok(interrupts(TEXT));
        assert!(delta(&same, &same.clone()).is_err());
        assert_eq!(delta(&Err("why".into()), &same), Err("why".into()));
        assert!(interrupts("CPU0\n 36: fdab0000.npu\n").is_empty());
    }

    proptest! {
        #[test]
        fn any_text(text in ".{0,300}") {
            interrupts(&text);
        }
    }
}
