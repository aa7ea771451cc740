//! Pooling and look-ups on the simulated board, bit for bit.

use crate::Ran;
use crate::bench::Bench;
use crate::exec::halves;
use crate::json::{File, list, u32_of, usize_of};
use half::f16;
use rocket_sim::{Arithmetic, Rule};

/// Where a vector of either folder puts its input and output.
fn addresses(file: &File) -> [u32; 2] {
    let (dma, params) = (&file.value["dma"], &file.value["params"]);
    if dma.is_object() {
        ["input", "output"].map(|key| u32_of(&dma[key]))
    } else {
        ["input_dma", "output_dma"].map(|key| u32_of(&params[key]))
    }
}

/// Runs one program; the output and the rules that were broken.
fn run(file: &File, input: &[u8], len: usize) -> (Vec<u8>, Vec<Rule>) {
    let [from, to] = addresses(file);
    let mut bench = Bench::new(Arithmetic::Exact);
    bench.place(0, from.max(to) + 0x10000);
    bench.write(from, input);
    bench.write(to, &vec![0xA5; len]);
    bench.run(&file.words(), to);
    let got = bench.read(to, len);
    (got, bench.board.explanations().into_iter().map(|e| e.rule).collect())
}

/// Pooling against windows of a tensor, and against the output that a vector lists.
pub fn pool(file: &File) -> Ran {
    let v = &file.value;
    let p = &v["params"];
    let ops = v["shape"].is_object();
    let size = |key: &str| usize_of(if ops { &v["shape"][key] } else { &p[key] });
    let [c, ih, iw, oh, ow] = ["c", "ih", "iw", "oh", "ow"].map(size);
    let of = |key: &str, i: usize, own: &str| {
        if ops { usize_of(&list(&p[key])[i]) } else { usize_of(&p[own]) }
    };
    let kernel = [of("kernel", 0, "kh"), of("kernel", 1, "kw")];
    let stride = [of("stride", 0, "stride_y"), of("stride", 1, "stride_x")];
    let pad = [of("pad_tlbr", 0, "pad_top"), of("pad_tlbr", 1, "pad_left")];
    let max = file.text("op").map_or_else(|| usize_of(&p["method"]) == 1, |op| op.contains("max"));

    let x: Vec<f32> = (0..c * ih * iw).map(|i| (i % 13) as f32 - 6.0).collect();
    let cube = |values: &[f32], plane: usize| {
        let mut out = vec![0; values.len() * 2];
        for (i, v) in values.iter().enumerate() {
            let at = (i / plane / 8 * plane + i % plane) * 8 + i / plane % 8;
            out[2 * at..][..2].copy_from_slice(&f16::from_f32(*v).to_le_bytes());
        }
        out
    };
    let want: Vec<f32> = (0..c * oh * ow)
        .map(|i| {
            let (ch, oy, ox) = (i / ow / oh, i / ow % oh, i % ow);
            let mut all = Vec::new();
            for k in 0..kernel[0] * kernel[1] {
                let y = (oy * stride[0] + k / kernel[1]).wrapping_sub(pad[0]);
                let x0 = (ox * stride[1] + k % kernel[1]).wrapping_sub(pad[1]);
                if y < ih && x0 < iw {
                    all.push(x[(ch * ih + y) * iw + x0]);
                }
            }
            if max {
                all.into_iter().fold(f32::NEG_INFINITY, f32::max)
            } else {
                all.iter().sum::<f32>() / (kernel[0] * kernel[1]) as f32
            }
        })
        .collect();
    let (got, rules) = run(file, &cube(&x, ih * iw), 2 * want.len());
    assert_eq!(rules, [], "{file}");
    assert!(got == cube(&want, oh * ow), "{file}");
    if file.text("output_fp16_hex").is_some() {
        let listed: Vec<f32> = halves(file, "output_fp16_hex")
            .chunks(2)
            .map(|b| f16::from_le_bytes([b[0], b[1]]).to_f32())
            .collect();
        assert!(listed == want, "{file}: what the file lists");
    }
    Ran::new(if max { "pool max" } else { "pool average" }, want.len())
}

/// A look-up alone.
pub fn lookup(file: &File) -> Ran {
    if file.text("op").is_none() {
        return sigmoid(file);
    }
    let n = usize_of(&file.value["shape"]["n"]);
    let mut input = halves(file, "input_fp16_hex");
    input.resize(2 * usize_of(&file.value["shape"]["n_padded"]), 0);
    let want = halves(file, "output_fp16_hex");
    let (got, rules) = run(file, &input, input.len());
    assert!(got[..2 * n] == want[..2 * n], "{file}");
    // A function through zero may meet the zero code, where the listed bytes have it too.
    let minus_exp = usize_of(&file.value["params"]["minus_exp"]) as f32;
    let spike = f16::from_f32((17.0 - minus_exp).exp2()).to_le_bytes();
    let zero = want.chunks(2).any(|v| v == spike);
    assert_eq!(rules, if zero { vec![Rule::LookupOfZero] } else { vec![] }, "{file}");
    Ran::new("look-up", n)
}

/// Within the gate of sigmoid.
fn sigmoid(file: &File) -> Ran {
    assert_eq!(file.text("function"), Some("sigmoid"), "{file}");
    let n = usize_of(&file.value["n"]);
    let x: Vec<f16> =
        (0..n).map(|i| f16::from_f32(16.0 * i as f32 / (n - 1) as f32 - 8.0)).collect();
    let input: Vec<u8> = x.iter().flat_map(|v| v.to_le_bytes()).collect();
    let (got, rules) = run(file, &input, input.len());
    assert_eq!(rules, [], "{file}");
    let worst = x.iter().zip(got.chunks(2)).map(|(x, got)| {
        let true_value = 1.0 / (1.0 + (-f64::from(*x)).exp());
        (f64::from(f16::from_le_bytes([got[0], got[1]])) - true_value).abs()
    });
    let worst = worst.fold(0.0, f64::max);
    // npu-ops 2.7. The listed bytes of the other sigmoid vector are 0.00162 off at 8.
    assert!(worst < 0.005, "{file}: {worst}");
    Ran::new("look-up sigmoid", n)
}
