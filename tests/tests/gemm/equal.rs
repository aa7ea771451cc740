//! The same products through the kernel's calls and in process: equal bytes, equal counts.

use crate::Case;
use rocket_runtime::matmul::Summation;
use rocket_runtime::matmul::{Npu, Options};
use rocket_runtime::plan::Shape;
use rocket_sim::{Arithmetic, Config, Counters, DriverProfile};
use rocket_tests::{TestBoard, through_the_kernel};

/// What can be compared: which core ran what and who had to wait is chance.
fn fixed(c: Counters) -> Counters {
    Counters { jobs_by_core: [0; 3], modelled_ns: [0; 3], waits: 0, ..c }
}

#[test]
fn the_kernels_calls_give_the_bytes_and_counts_of_the_node_in_process() {
    if !through_the_kernel() {
        println!("not under the preload library: skipped");
        return;
    }
    let mut products = 0;
    for profile in DriverProfile::ALL {
        for shape in [
            Shape { m: 1, k: 32, n: 16 },
            Shape { m: 300, k: 2560, n: 272 },
            Shape { m: 37, k: 577, n: 100 },
        ] {
            for (workers, resident, summation) in [
                (1, false, Summation::OnChip),
                (3, true, Summation::OnChip),
                (2, false, Summation::Host),
            ] {
                let case = Case::reals(shape, 11);
                let run = |kernel: bool| {
                    let config =
                        Config { profile, arithmetic: Arithmetic::Fast, ..Config::default() };
                    let board = TestBoard::open_as(config, kernel);
                    let options =
                        Options { workers, drain_on_signals: false, ..Options::default() };
                    let npu = Npu::open(&board, options).expect("opens");
                    let (c, _) = case.run(&npu, resident, summation).expect("runs");
                    drop(npu);
                    let bits: Vec<u32> = c.iter().map(|x| x.to_bits()).collect();
                    (bits, fixed(board.counters()), board.use_so_far())
                };
                let (kernel, process) = (run(true), run(false));
                assert!(kernel.0 == process.0, "{profile}, {shape:?}: other bytes");
                assert_eq!(kernel.1, process.1, "{profile}, {shape:?}");
                let used = kernel.2.expect("served");
                assert!(used.calls > 10, "{profile}: only {} calls came through", used.calls);
                assert_eq!(process.2, None);
                products += 1;
            }
        }
    }
    println!("{products} products equal to the bit");
}
