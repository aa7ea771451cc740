//! The published figures, as data. Where a section does not say how something was run, the name
//! of the row or a comment says how it is read here.

use super::run::{Flow, Run};
use rocket_runtime::dtype::DType;
use rocket_runtime::plan::cost;
use rocket_runtime::program::Reuse;
use rocket_runtime::soc::Profile;

/// One published figure.
#[derive(Debug)]
pub struct Figure {
    pub name: &'static str,
    pub section: &'static str,
    pub what: Quantity,
    pub published: f64,
    /// Modelled / published when the table was committed.
    pub ratio: f64,
}

/// What a figure measures, in terms of what was run.
#[derive(Debug)]
pub enum Quantity {
    /// Operations a second of all MACs at 1 GHz.
    Peak(DType),
    /// NPU time of a product.
    Wait(Run),
    /// NPU time of the second as a part of the first's.
    WaitOf(Run, Run),
    /// Operations a second, the host's part included.
    Rate(Run),
    /// How much faster the second is than the first, the host's part included.
    Gain(Run, Run),
    /// Time a row of the first in units of a row of the second, the host's part included.
    RowCost(Run, Run),
    /// Jobs a second of 64 fp16 tasks 256 x 384 x 256, from that many threads.
    Jobs(usize),
    /// A job of one task that does nothing.
    Floor,
}

impl Quantity {
    pub fn unit(&self) -> &'static str {
        match self {
            Quantity::Peak(_) => "TOP/s",
            Quantity::Wait(_) => "ms",
            Quantity::WaitOf(..) => "of the wait",
            Quantity::Rate(_) => "GOP/s",
            Quantity::Gain(..) => "times as fast",
            Quantity::RowCost(..) => "times a row",
            Quantity::Jobs(_) => "jobs/s",
            Quantity::Floor => "us",
        }
    }

    pub fn modelled(&self, p: &Profile) -> f64 {
        let t = &p.timing;
        match self {
            Quantity::Peak(d) => {
                (2 * t.macs_per_cycle(d.info().bits) * p.cores as u64) as f64 * 1e9 / 1e12
            }
            Quantity::Wait(run) => run.npu_ns(p) / 1e6,
            Quantity::WaitOf(a, b) => b.npu_ns(p) / a.npu_ns(p),
            Quantity::Rate(run) => run.operations() / run.whole_ns(p),
            Quantity::Gain(a, b) => a.whole_ns(p) / b.whole_ns(p),
            Quantity::RowCost(a, b) => a.whole_ns(p) / b.whole_ns(p) * b.shape[0] as f64,
            Quantity::Jobs(threads) => {
                // Row blocks that fill one job.
                let job = Run { shape: [64 * 256, 384, 256], ..TILES };
                (*threads).min(p.cores) as f64 * 1e9 / job.npu_ns(p)
            }
            Quantity::Floor => {
                let task = cost::task_ns(p, 16, 0, 0, MHZ_600);
                (t.job_ns + t.kick_ns + task) as f64 / 1e3
            }
        }
    }
}

const MHZ_600: u64 = 600_000_000;
const LAYER: [usize; 3] = [512, 3840, 4096];
const DOWN: [usize; 3] = [512, 15360, 3840];

/// 320 tiles of 256 x 384 x 256 from one descriptor, summed by the host: five jobs of 64.
const TILES: Run = Run {
    shape: LAYER,
    dtype: DType::Fp16,
    flow: Flow::Host,
    reuse: Reuse::None,
    asymmetric: false,
    batched: false,
    resident: false,
    workers: 1,
    clock_hz: MHZ_600,
};
/// The same added up on chip. The read-back of 4 MB that 8.4 gives beside the 84 ms is one image;
/// whether features were reused it does not say. Read as not: with reuse such a task moves fewer
/// bytes than one of [`TILES`], and could not take longer than the 62 ms of those.
const SUMMED: Run = Run { flow: Flow::OnChip, ..TILES };
/// Many cores, weights packed: five workers, the shipped default (7.4).
const CORES: Run = Run { workers: 5, resident: true, ..TILES };
const CORES_SUMMED: Run = Run { flow: Flow::OnChip, ..CORES };
/// The last step of the ladder in 8.2.
const BEST: Run = Run { reuse: Reuse::Data, asymmetric: true, ..CORES_SUMMED };

const fn of(run: Run, dtype: DType, shape: [usize; 3]) -> Run {
    Run { dtype, shape, ..run }
}

const fn at(run: Run, clock_hz: u64) -> Run {
    Run { clock_hz, ..run }
}

const fn with(run: Run, reuse: Reuse) -> Run {
    Run { reuse, ..run }
}

const fn row(
    section: &'static str,
    name: &'static str,
    published: f64,
    what: Quantity,
    ratio: f64,
) -> Figure {
    Figure { name, section, what, published, ratio }
}

const fn narrow(name: &'static str, shape: [usize; 3], gain: f64, ratio: f64) -> Figure {
    let best = Run { shape, ..BEST };
    row("8.5", name, gain, Quantity::Gain(Run { asymmetric: false, ..best }, best), ratio)
}

use DType::{Fp16, Int4, Int8, Tf32};
use Quantity::{Floor, Gain, Jobs, Peak, Rate, RowCost, Wait, WaitOf};

#[rustfmt::skip]
pub static FIGURES: [Figure; 42] = [
    row("8.1", "peak of three cores at 1 GHz, fp16", 3.0, Peak(Fp16), 1.024),
    row("8.1", "peak of three cores at 1 GHz, int8", 6.0, Peak(Int8), 1.024),
    row("8.1", "peak of three cores at 1 GHz, int4", 12.0, Peak(Int4), 1.024),
    row("8.1", "200 to 600 MHz, one descriptor, 56.5 to 75.3 GFLOP/s", 1.333, Gain(at(TILES, 200_000_000), TILES), 0.934),
    row("8.1", "200 to 600 MHz, end to end, as products of 512x3840x4096", 1.43, Gain(at(CORES, 200_000_000), CORES), 0.915),
    row("8.1", "600 to 900 MHz: no gain, as products of 512x3840x4096", 1.0, Gain(BEST, at(BEST, 900_000_000)), 1.09),
    row("8.2", "512x3840x4096 fp16, resident, multi-core", 461.0, Rate(BEST), 0.991),
    row("8.2", "512x3840x4096 int8, resident, multi-core", 386.0, Rate(of(CORES, Int8, LAYER)), 1.174),
    row("8.2", "512x3840x4096 int4, resident, multi-core", 413.0, Rate(of(CORES, Int4, LAYER)), 2.069),
    row("8.2", "512x15360x3840 fp16, resident, multi-core", 486.0, Rate(of(BEST, Fp16, DOWN)), 1.05),
    row("8.2", "512x15360x3840 int8, resident, multi-core", 452.0, Rate(of(CORES, Int8, DOWN)), 1.023),
    row("8.2", "512x15360x3840 int4, resident, multi-core", 463.0, Rate(of(CORES, Int4, DOWN)), 2.049),
    row("8.2", "512x3840x4096 fp16, one descriptor, single kicks", 94.0, Rate(TILES), 0.802),
    row("8.3", "512x3840x4096 fp16, one descriptor, batched", 96.0, Rate(Run { batched: true, ..TILES }), 0.84),
    row("8.2", "512x3840x4096 tf32, one descriptor", 37.0, Rate(of(TILES, Tf32, LAYER)), 1.062),
    row("8.2", "a row at M = 1 (run as 4) against one at M = 512", 82.0, RowCost(of(BEST, Fp16, [4, 3840, 4096]), BEST), 0.712),
    row("8.2", "64-task jobs of 256x384x256, 1 thread", 39.5, Jobs(1), 1.631),
    row("8.2", "64-task jobs of 256x384x256, 2 threads", 84.3, Jobs(2), 1.528),
    row("8.2", "64-task jobs of 256x384x256, 3 threads", 116.1, Jobs(3), 1.665),
    row("8.2", "64-task jobs of 256x384x256, 4 threads", 120.9, Jobs(4), 1.598),
    row("8.2", "K accumulation, 11.40 to 13.38 t/s, as 512x3840x4096", 1.174, Gain(CORES, CORES_SUMMED), 1.303),
    row("8.3", "submit floor, 51 to 54 us", 52.5, Floor, 0.99),
    row("8.3", "wait for 320 tasks, single kicks", 62.0, Wait(TILES), 1.252),
    row("8.3", "wait for 320 tasks, batched", 48.0, Wait(Run { batched: true, ..TILES }), 1.328),
    row("8.3", "batched wait as a part of the single-kick one", 0.774, WaitOf(TILES, Run { batched: true, ..TILES }), 1.061),
    row("8.3", "wait without reuse (chains of one tile), as 512x15360x3840", 1.18, WaitOf(with(of(SUMMED, Fp16, DOWN), Reuse::Data), of(SUMMED, Fp16, DOWN)), 0.998),
    row("8.4", "wait for 320 tasks, K accumulation, no reuse", 84.0, Wait(SUMMED), 1.024),
    row("8.5", "DATA_REUSE, wait", 0.79, WaitOf(SUMMED, with(SUMMED, Reuse::Data)), 1.073),
    row("8.5", "DATA_REUSE, end to end, as 512x3840x4096", 1.07, Gain(CORES_SUMMED, with(CORES_SUMMED, Reuse::Data)), 1.014),
    row("8.5", "WEIGHT_REUSE, end to end, as 512x3840x4096", 1.01, Gain(CORES_SUMMED, with(CORES_SUMMED, Reuse::Weights)), 1.057),
    row("8.5", "K accumulation, prefill, as 512x3840x4096", 1.19, Gain(CORES, CORES_SUMMED), 1.285),
    narrow("asymmetric N, 512x2048x2048", [512, 2048, 2048], 1.158, 0.888),
    narrow("asymmetric N, 512x2048x4096", [512, 2048, 4096], 1.138, 0.907),
    narrow("asymmetric N, 2048x4096x4096", [2048, 4096, 4096], 1.092, 0.916),
    narrow("asymmetric N, 1024x4096x4096, 7 to 9 %", [1024, 4096, 4096], 1.08, 0.927),
    narrow("asymmetric N, 512x8192x2048", [512, 8192, 2048], 1.081, 0.927),
    narrow("asymmetric N, 1024x8192x8192", [1024, 8192, 8192], 1.072, 0.93),
    narrow("asymmetric N, 512x4096x4096", [512, 4096, 4096], 1.06, 0.945),
    narrow("asymmetric N, 512x15360x3840, 5 to 7 %", DOWN, 1.06, 0.921),
    narrow("asymmetric N, 512x3840x15360", [512, 3840, 15360], 1.02, 0.928),
    narrow("asymmetric N, 512x3840x4096", LAYER, 1.02, 0.949),
    narrow("asymmetric N, N of 256", [512, 3840, 256], 1.0, 1.0),
];
