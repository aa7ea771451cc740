//! Whole programs on the simulated board, through the driver's calls: memory before, program,
//! every output byte.

use crate::Ran;
use crate::bench::Bench;
use crate::json::{File, bytes, list, number, u32_of, usize_of};
use crate::programs::{assert_words, task};
use half::f16;
use rocket_runtime::dtype::DType;
use rocket_runtime::program::{Ew, MatmulTask, Operand, Reuse};
use rocket_sim::Arithmetic;

pub fn exec(file: &File) -> Ran {
    let v = &file.value;
    let dtype = file.text("dtype").expect("dtype");
    assert_words(&task(v).encode().expect("encodable"), &file.words(), file);
    let memory = &v["memory"];
    let output = u32_of(&memory["output"]["iova"]);
    let want = bytes(&memory["output"]["hex"]);
    for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
        let mut bench = Bench::new(arithmetic);
        let mut areas: Vec<(u32, Vec<u8>)> = ["input", "weights", "add"]
            .iter()
            .filter(|key| !memory[**key].is_null())
            .map(|key| (u32_of(&memory[*key]["iova"]), bytes(&memory[*key]["hex"])))
            .collect();
        // A pattern that no result has, so that a byte nobody stored shows.
        areas.push((output, vec![0xA5; want.len()]));
        areas.sort();
        for (iova, data) in &areas {
            bench.place(*iova, *iova + (data.len() as u32).next_multiple_of(4096));
        }
        areas.iter().for_each(|(iova, data)| bench.write(*iova, data));
        bench.run(&file.words(), output);
        let got = bench.read(output, want.len());
        let differ = got.iter().zip(&want).position(|(a, b)| a != b);
        assert_eq!(differ, None, "{file} ({arithmetic:?}): first differing byte");
        assert_eq!(bench.board.explanations().len(), 0, "{file}: {:?}", bench.board.explanations());
    }
    Ran::new(format!("exec {dtype}"), usize_of(&v["M"]) * usize_of(&v["N"]))
}

/// Constant int4 operands: the sum, clamped to int16.
pub fn saturation(file: &File) -> Ran {
    let cases = list(&file.value["cases"]);
    for case in cases {
        let signed = |key: &str| case[key].as_i64().expect("number");
        let [m, k, n] = ["M", "K", "N"].map(|key| u32_of(&case[key]));
        let [input, weights, output] = [0x1000, 0x10000, 0x40000];
        let dtype = DType::Int4;
        let (operand, reuse) = (None, Reuse::None);
        let ours = MatmulTask { dtype, m, k, n, input, weights, output, operand, reuse };
        let words: Vec<u64> = ours.encode().expect("encodable").iter().map(|w| w.0).collect();
        let both = |key: &str| (signed(key) as u8 & 15) * 17;
        for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
            let mut bench = Bench::new(arithmetic);
            bench.place(0, 0x50000);
            bench.write(input, &vec![both("a"); (m * k / 2) as usize]);
            bench.write(weights, &vec![both("w"); (n * k / 2) as usize]);
            bench.run(&words, output);
            let stored = (signed("stored") as i16).to_le_bytes();
            let want = stored.repeat((m * n) as usize);
            assert!(bench.read(output, want.len()) == want, "{file} ({arithmetic:?}): {case}");
        }
    }
    Ran::new("saturation", cases.len())
}

/// fp16 values written as four hex digits each.
pub fn halves(file: &File, key: &str) -> Vec<u8> {
    let hex = file.text(key).expect("values");
    (0..hex.len())
        .step_by(4)
        .flat_map(|i| u16::from_str_radix(&hex[i..i + 4], 16).expect("hex").to_le_bytes())
        .collect()
}

/// Two stored tensors joined by the elementwise stage, the first through an identity matmul.
pub fn elementwise(file: &File, op: &str) -> Ran {
    let (shape, dma) = (&file.value["shape"], &file.value["dma"]);
    let [m, k, n] = ["M", "K", "N"].map(|key| u32_of(&shape[key]));
    let at = |key: &str| u32_of(&dma[key]);
    let ew = match op {
        "eltwise_add" => Ew::Add,
        "eltwise_mul" => Ew::Mul,
        _ => Ew::Max,
    };
    let ours = MatmulTask {
        dtype: DType::Fp16,
        m,
        k,
        n,
        input: at("input_a"),
        weights: at("weights"),
        output: at("output"),
        operand: Some(Operand { op: ew, iova: at("operand_b") }),
        reuse: Reuse::None,
    };
    assert_words(&ours.encode().expect("encodable"), &file.words(), file);

    // Identity, by the weight cube's own rule (npu-rk3588 3.3): N = K = 32 is two blocks.
    let identity: Vec<u8> = (0..k as usize * n as usize)
        .flat_map(|i| {
            let (block, kernel, channel) = (i / 512, i % 512 / 32, i % 32);
            let one = block * 16 + kernel == channel;
            if one { f16::ONE } else { f16::ZERO }.to_le_bytes()
        })
        .collect();
    let want = halves(file, "out_fp16_hex");
    for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
        let mut bench = Bench::new(arithmetic);
        bench.place(0, 0x10000);
        bench.write(at("weights"), &identity);
        bench.write(at("input_a"), &halves(file, "a_fp16_hex"));
        bench.write(at("operand_b"), &halves(file, "b_fp16_hex"));
        bench.run(&file.words(), at("output"));
        assert_eq!(bench.read(at("output"), want.len()), want, "{file} ({arithmetic:?})");
    }
    Ran::new("elementwise", number(&shape["n"]) as usize)
}
