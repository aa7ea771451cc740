//! What the simulator charges for a program is what the cost model says of its dtype.

use crate::bench::Bench;
use rocket_runtime::dtype::DType;
use rocket_runtime::plan::{Shape, cost};
use rocket_runtime::program::{MatmulTask, Reuse};
use rocket_runtime::soc::RK3588;
use rocket_sim::Arithmetic;

#[test]
fn each_dtype_is_charged_at_its_own_rate() {
    let shape = Shape { m: 64, k: 256, n: 128 };
    let mut charged = Vec::new();
    for dtype in DType::ALL.into_iter().filter(|d| *d != DType::Int16) {
        let mut bench = Bench::new(Arithmetic::Fast);
        let [input, weights, output] = [0x1_0000, 0x4_0000, 0x8_0000];
        bench.place(0, output);
        bench.place(output, output + 0x4_0000);
        let (m, k, n) = (64, 256, 128);
        let (operand, reuse) = (None, Reuse::None);
        let task = MatmulTask { dtype, m, k, n, input, weights, output, operand, reuse };
        let words: Vec<u64> = task.encode().expect("encodable").iter().map(|w| w.0).collect();
        bench.run(&words, output);
        bench.read(output, 4);
        assert_eq!(bench.board.explanations(), [], "{dtype:?}");
        let bytes = cost::task_bytes(dtype, shape, false);
        let bits = dtype.info().bits;
        let t = &RK3588.timing;
        let want = t.job_ns
            + t.kick_ns
            + cost::task_ns(&RK3588, bits, shape.macs(), bytes, RK3588.nominal_hz);
        let got: u64 = bench.board.counters().modelled_ns.iter().sum();
        assert_eq!(got, want, "{dtype:?}");
        charged.push(got);
    }
    charged.sort_unstable();
    charged.dedup();
    // One for each width of operands and results: fp32 and int32 results are the same bytes.
    assert_eq!(charged.len(), 5, "{charged:?}");
}
