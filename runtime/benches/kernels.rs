//! Speed of each kernel as a fraction of memcpy's in the same run.
//!
//! `cargo bench -p rocket-runtime --bench kernels [-- WORD]`. The yardstick copies, with one memcpy
//! for each call of the kernel, half of the bytes that the kernel reads and writes together, so
//! both move the same bytes. "cache": the same buffers each time. "memory": the next part of buffers
//! that exceed every cache. Nothing here is asserted: a busy machine is slow, not wrong.

mod cases;

use cases::{Case, NAMES, Paged, REAL, case};
use std::hint::black_box;
use std::time::Instant;

const ROUNDS: usize = 15;

/// More than any cache holds, of the kernel's bytes.
const BEYOND: usize = 192 << 20;

/// Best seconds of a call of the yardstick and of the kernel, taken in turns.
fn best(mut case: Case, beyond: bool) -> (f64, f64) {
    let traffic = case.read + case.written;
    let places = if beyond { case.places } else { 1 };
    let calls = if beyond { places } else { (32 << 20) / traffic + 1 };
    let share = (traffic / 2).next_multiple_of(64);
    let mut src = Paged::new(places * share, |_| 1u8);
    let mut dst = Paged::new(places * share, |_| 0u8);
    let mut copy = |i: usize| {
        let from = &src.get()[i * share..][..share];
        black_box(&mut dst.get()[i * share..][..share]).copy_from_slice(from);
    };
    let time = |f: &mut dyn FnMut(usize)| {
        let start = Instant::now();
        (0..calls).for_each(|i| f(i % places));
        start.elapsed().as_secs_f64() / calls as f64
    };
    (0..ROUNDS).fold((f64::MAX, f64::MAX), |(a, b), _| {
        (a.min(time(&mut copy)), b.min(time(&mut case.run)))
    })
}

fn main() {
    let words: Vec<String> = std::env::args().skip(1).filter(|a| !a.starts_with("--")).collect();
    println!("{:<20} {:>21} {:>23}", "", "cache", "memory");
    println!(
        "{:<20} {:>9} {:>11} {:>11} {:>11}",
        "kernel", "GB/s", "of memcpy", "GB/s", "of memcpy"
    );
    for name in NAMES {
        if !words.is_empty() && !words.iter().any(|w| name.contains(w.as_str())) {
            continue;
        }
        let mut line = format!("{name:<20}");
        for beyond in [false, true] {
            let one = case(name, REAL, 1);
            let traffic = one.read + one.written;
            let sets = BEYOND.div_ceil(traffic * one.places);
            let (copy, ours) = best(if beyond { case(name, REAL, sets) } else { one }, beyond);
            line += &format!(" {:>10.2} {:>11.2}", traffic as f64 / ours / 1e9, copy / ours);
        }
        println!("{line}");
    }
}
