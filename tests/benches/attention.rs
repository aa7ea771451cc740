//! What the attention of one layer costs the NPU, by the simulator's cost model: heads as in
//! Llama-3.2-3B (24 of 128 elements, 8 of K and V), the last 512 tokens of a context. All modelled;
//! nothing is asserted.
//!
//! `cargo bench -p rocket-tests --bench attention`

use half::f16;
use rocket_runtime::matmul::{Npu, Options};
use rocket_runtime::ops::attention::{Attention, Cached, Mask, Scratch, Shape, Strided, attention};
use rocket_sim::{Arithmetic, Config, SimBoard};

const CORES: usize = 3;

fn row(tokens: usize, n_kv: usize) {
    let shape = Shape { tokens, n_kv, heads: 24, kv_heads: 8, key: 128, value: 128, streams: 1 };
    let value = |i: usize| (i * 7919 % 251) as f32 / 256.0 - 0.5;
    let q: Vec<f32> = (0..tokens * 24 * 128).map(value).collect();
    let kv: Vec<f16> = (0..n_kv * 8 * 128).map(|i| f16::from_f32(value(i))).collect();
    let hidden = |i: usize| i % n_kv > n_kv - tokens + i / n_kv;
    let mask: Vec<f16> =
        (0..tokens * n_kv).map(|i| if hidden(i) { f16::NEG_INFINITY } else { f16::ZERO }).collect();
    let cached = Cached::Half(Strided::new(&kv, [0, 128, 8 * 128]));
    let job = Attention {
        shape,
        q: Strided::new(&q, [0, 128, 24 * 128]),
        k: cached,
        v: cached,
        mask: Some(Mask::new(Strided::new(&mask, [0, 0, n_kv]), 1, 1)),
        sinks: None,
        scale: 0.088,
        max_bias: 0.0,
        softcap: 0.0,
    };
    let config = Config { arithmetic: Arithmetic::Fast, cores: CORES, ..Config::default() };
    let board = SimBoard::new(config);
    let options = Options { workers: 5, drain_on_signals: false, ..Options::default() };
    let npu = Npu::open(&board, options).expect("opens");
    let scratch = Scratch::default();
    let mut out = vec![0f32; shape.results()];
    let start = std::time::Instant::now();
    let done = attention(&npu, &job, &mut out, &scratch).expect("runs");
    let took = start.elapsed().as_secs_f64();
    let c = board.counters();
    let total: u64 = c.modelled_ns.iter().sum();
    let read = c.dma_read_feature + c.dma_read_weight + c.dma_read_operand + c.dma_read_regcmd;
    let ms = |ns: u64| ns as f64 / 1e6;
    println!(
        "{tokens:>5} {n_kv:>6} {:>8.1} {:>8.1} {:>7.1} {:>7.1} {:>6} {:>6} {:>8.1} {:>9.1} {:>8.1}",
        ms(total) / CORES as f64,
        2.0 * shape.macs() as f64 / (total as f64 / CORES as f64),
        read as f64 / 1e6,
        c.dma_write as f64 / 1e6,
        done.stats.submits,
        done.stats.tasks,
        100.0 * done.skipped_macs as f64 / shape.macs() as f64,
        scratch.bytes() as f64 / 1e6,
        took * 1e3,
    );
}

fn main() {
    println!("modelled, one layer, three cores evenly loaded, 600 MHz");
    println!(
        "{:>5} {:>6} {:>8} {:>8} {:>7} {:>7} {:>6} {:>6} {:>8} {:>9} {:>8}",
        "rows",
        "n_kv",
        "NPU ms",
        "GOP/s",
        "MB in",
        "MB out",
        "calls",
        "tasks",
        "% void",
        "MB held",
        "host ms"
    );
    for (tokens, n_kv) in [(512, 1024), (512, 4096), (512, 8192), (2048, 2048)] {
        row(tokens, n_kv);
    }
}
