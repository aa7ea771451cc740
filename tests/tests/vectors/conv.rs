//! Convolutions on the simulated board against the sum of B.1 and B.2, and against the outputs
//! that vectors list.

use crate::Ran;
use crate::bench::Bench;
use crate::exec::halves;
use crate::json::{File, list, number, u32_of, usize_of};
use half::f16;
use rocket_sim::{Arithmetic, Rule};
use serde_json::Value;

/// What a vector of either folder says about its convolution.
struct Conv {
    ic: usize,
    ih: usize,
    iw: usize,
    oc: usize,
    oh: usize,
    ow: usize,
    kh: usize,
    kw: usize,
    /// y, x.
    stride: [usize; 2],
    dilation: [usize; 2],
    pad: [usize; 2],
    depthwise: bool,
    int8: bool,
    /// Of input, weights and output.
    at: [u32; 3],
}

impl Conv {
    fn read(file: &File) -> Conv {
        let v = &file.value;
        let p = &v["params"];
        let shape = if v["shape"].is_object() { &v["shape"] } else { p };
        let size = |key: &str| usize_of(&shape[key]);
        let pair = |names: [&str; 2], both: &str| {
            let of = |axis: usize| match &p[both] {
                Value::Array(each) => usize_of(&each[axis]),
                Value::Number(n) => n.as_u64().expect("count") as usize,
                _ if p[names[axis]].is_null() => 1,
                _ => usize_of(&p[names[axis]]),
            };
            [of(0), of(1)]
        };
        let op = file.text("op").unwrap_or_default();
        let at = |own: &str, other: &str| {
            let found = if v["dma"].is_object() { &v["dma"][own] } else { &p[other] };
            u32_of(found)
        };
        let channels = |key: &str| size(if shape[key].is_null() { "c" } else { key });
        Conv {
            ic: channels("ic"),
            ih: size("ih"),
            iw: size("iw"),
            oc: channels("oc"),
            oh: size("oh"),
            ow: size("ow"),
            kh: size("kh"),
            kw: size("kw"),
            stride: pair(["stride_y", "stride_x"], "stride"),
            dilation: pair(["dil_y", "dil_x"], "dilation"),
            pad: pair(["pad_top", "pad_left"], "pad"),
            depthwise: op.contains("_dw_") || v["depthwise"] == true,
            int8: op.contains("int8") || file.text("dtype") == Some("int8"),
            at: [
                at("input", "input_dma"),
                at("weights", "weights_dma"),
                at("output", "output_dma"),
            ],
        }
    }

    fn inputs(&self) -> usize {
        self.ic * self.ih * self.iw
    }

    fn weights(&self) -> usize {
        self.oc * self.kh * self.kw * if self.depthwise { 1 } else { self.ic }
    }

    fn element(&self, value: i32, scale: f32) -> Vec<u8> {
        if self.int8 {
            return vec![value as u8];
        }
        f16::from_f32(value as f32 * scale).to_le_bytes().to_vec()
    }

    /// Cube of a row-major CHW tensor (npu-rk3588 B.1).
    fn pack_input(&self, values: &[i32], scale: f32) -> Vec<u8> {
        let (c2, esz) = if self.int8 { (16, 1) } else { (8, 2) };
        let mut out = vec![0; values.len() * esz];
        let plane = self.ih * self.iw;
        for (i, v) in values.iter().enumerate() {
            let (c, pixel) = (i / plane, i % plane);
            let at = (c / c2 * plane + pixel) * c2 + c % c2;
            out[at * esz..][..esz].copy_from_slice(&self.element(*v, scale));
        }
        out
    }

    /// Cube of row-major [oc][ic][kh][kw] weights (npu-rk3588 B.1, B.2).
    fn pack_weights(&self, values: &[i32], scale: f32) -> Vec<u8> {
        let esz = if self.int8 { 1 } else { 2 };
        let taps = self.kh * self.kw;
        let mut out = vec![0; values.len() * esz];
        for (i, v) in values.iter().enumerate() {
            let (tap, rest) = (i % taps, i / taps);
            let at = if self.depthwise {
                let g = if self.int8 { 64 } else { 32 };
                (rest / g * taps + tap) * g + rest % g
            } else {
                let g = if self.int8 { 32 } else { 16 };
                let (ic, oc) = (rest % self.ic, rest / self.ic);
                (((oc / g * (self.ic / 32) + ic / 32) * taps + tap) * g + oc % g) * 32 + ic % 32
            };
            out[at * esz..][..esz].copy_from_slice(&self.element(*v, scale));
        }
        out
    }

    /// The sums, row-major CHW; `border` by channel, `offset` added to each weight.
    fn sums(&self, x: &[i32], w: &[i32], border: impl Fn(usize) -> i64, offset: i64) -> Vec<i64> {
        let taps = self.kh * self.kw;
        let mut out = Vec::new();
        for i in 0..self.oc * self.oh * self.ow {
            let (oc, oy, ox) = (i / self.ow / self.oh, i / self.ow % self.oh, i % self.ow);
            let channels = if self.depthwise { oc..oc + 1 } else { 0..self.ic };
            let mut sum = 0;
            for (n, ic) in channels.enumerate() {
                for tap in 0..taps {
                    let along = |o: usize, k: usize, axis: usize| {
                        (o * self.stride[axis] + k * self.dilation[axis]) as isize
                            - self.pad[axis] as isize
                    };
                    let (y, x0) = (along(oy, tap / self.kw, 0), along(ox, tap % self.kw, 1));
                    let inside =
                        (0..self.ih as isize).contains(&y) && (0..self.iw as isize).contains(&x0);
                    let value = if inside {
                        x[(ic * self.ih + y as usize) * self.iw + x0 as usize].into()
                    } else {
                        border(ic)
                    };
                    let at = if self.depthwise { oc } else { oc * self.ic + n };
                    sum += value * (i64::from(w[at * taps + tap]) + offset);
                }
            }
            out.push(sum);
        }
        out
    }

    /// A stored cube as a row-major tensor of elements of `size` bytes.
    fn unpack(&self, cube: &[u8], size: usize) -> Vec<Vec<u8>> {
        let (c2, plane) = (16 / size, self.oh * self.ow);
        (0..self.oc * plane)
            .map(|i| {
                let (c, pixel) = (i / plane, i % plane);
                let at = (c / c2 * plane + pixel) * c2 + c % c2;
                cube[at * size..][..size].to_vec()
            })
            .collect()
    }

    fn end(&self, words: &[u64]) -> u32 {
        let most = words.iter().filter(|w| **w >> 48 & 1 == 1);
        let addresses = most.filter(|w| [0x4020, 0x1070, 0x1110, 0x5020].contains(&(**w as u16)));
        addresses.map(|w| (*w >> 16) as u32).max().expect("addresses") + 0x10000
    }

    /// Runs the program; the stored elements, and the rules that were broken.
    fn run(
        &self,
        arithmetic: Arithmetic,
        words: &[u64],
        areas: &[(u32, Vec<u8>)],
        size: usize,
    ) -> (Vec<Vec<u8>>, Vec<Rule>) {
        let mut bench = Bench::new(arithmetic);
        bench.place(0, self.end(words));
        for (at, data) in areas {
            bench.write(*at, data);
        }
        let len = self.oc * self.oh * self.ow * size;
        // A pattern, so that a byte nobody stored shows.
        bench.write(self.at[2], &vec![0xA5; len]);
        bench.run(words, self.at[2]);
        let got = self.unpack(&bench.read(self.at[2], len), size);
        (got, bench.board.explanations().into_iter().map(|e| e.rule).collect())
    }
}

const BOTH: [Arithmetic; 2] = [Arithmetic::Exact, Arithmetic::Fast];

/// The value that a program writes to a register.
fn register(words: &[u64], offset: u16) -> u32 {
    let word = words.iter().find(|w| **w as u16 == offset && **w >> 48 & 1 == 1);
    (word.expect("register") >> 16) as u32
}

/// The pattern of the file's data, or one of ours.
fn data(file: &File, c: &Conv) -> (Vec<i32>, Vec<i32>) {
    let int = |n: usize, f: fn(i32) -> i32| (0..n as i32).map(f).collect();
    match file.text("data_pattern").unwrap_or_default() {
        p if p.contains("37i+11") => (
            int(c.inputs(), |i| (37 * i + 11) % 251 - 125),
            int(c.weights(), |i| (29 * i + 7) % 253 - 126),
        ),
        p if p.contains("i%9") => (int(c.inputs(), |i| i % 9 - 4), int(c.weights(), |i| i % 7 - 3)),
        _ => (int(c.inputs(), |i| i % 5 - 2), int(c.weights(), |i| i % 3 - 1)),
    }
}

/// Exact convolutions: fp16 with small integers, int8 to int32. Byte for byte.
pub fn exact(file: &File) -> Ran {
    let (c, words) = (Conv::read(file), file.words());
    let (x, w) = data(file, &c);
    let sums = c.sums(&x, &w, |_| 0, 0);
    let wide = register(&words, 0x4010) >> 29;
    let want: Vec<Vec<u8>> = sums
        .iter()
        .map(|s| match wide {
            4 => (*s as i32).to_le_bytes().to_vec(),
            5 => (*s as f32).to_le_bytes().to_vec(),
            _ => f16::from_f32(*s as f32).to_le_bytes().to_vec(),
        })
        .collect();
    if file.text("output_fp16_hex").is_some() {
        assert_eq!(want.concat(), halves(file, "output_fp16_hex"), "{file}: what the file lists");
    }
    if !file.value["output_sum"].is_null() {
        assert_eq!(Some(sums.iter().sum::<i64>()), file.value["output_sum"].as_i64(), "{file}");
        for (ours, theirs) in sums.iter().zip(list(&file.value["output_int32_first64"])) {
            assert_eq!(Some(*ours), theirs.as_i64(), "{file}");
        }
    }
    let areas = [(c.at[0], c.pack_input(&x, 1.0)), (c.at[1], c.pack_weights(&w, 1.0))];
    for arithmetic in BOTH {
        let (got, rules) = c.run(arithmetic, &words, &areas, want[0].len());
        assert_eq!(rules, [], "{file}");
        assert!(got == want, "{file} ({arithmetic:?})");
    }
    Ran::new(if c.depthwise { "conv depthwise" } else { "conv" }, want.len())
}

/// A convolution with a look-up behind it, bit for bit as the model of npu-ops 2.6.
pub fn fused(file: &File) -> Ran {
    let (c, words) = (Conv::read(file), file.words());
    let (x, w) = data(file, &c);
    let want = halves(file, "output_fp16_hex");
    let areas = [(c.at[0], c.pack_input(&x, 0.25)), (c.at[1], c.pack_weights(&w, 0.0625))];
    for arithmetic in BOTH {
        let (got, rules) = c.run(arithmetic, &words, &areas, 2);
        // Every output that is zero meets the zero code.
        assert_eq!(rules, [Rule::LookupOfZero], "{file}");
        assert!(got.concat() == want, "{file} ({arithmetic:?})");
    }
    Ran::new("conv with look-up", want.len() / 2)
}

/// The byte that a sum becomes (npu-ops 1.6); no sum of these tests is a tie.
fn requantised(words: &[u64], sum: i64) -> i8 {
    let [offset, scale, shift] = [0x4080, 0x4084, 0x4088].map(|reg| register(words, reg));
    let scaled = sum as f64 * f64::from(scale) / f64::from(shift).exp2();
    (scaled.round() as i64 + i64::from(offset as i32)).clamp(-128, 127) as i8
}

/// Requantised depthwise convolution, byte for byte.
pub fn requant(file: &File) -> Ran {
    let (c, words) = (Conv::read(file), file.words());
    let x: Vec<i32> = (0..c.inputs() as i32).map(|i| (37 * i + 11) % 251 - 125).collect();
    let w: Vec<i32> = (0..c.weights() as i32).map(|i| (29 * i + 7) % 253 - 126).collect();
    let bias: Vec<i32> = (0..c.oc as i32).map(|i| 1000 * i - 30000).collect();
    let pad = register(&words, 0x1184);
    let border =
        |ch: usize| i64::from((pad >> if ch % 64 < 32 && ch % 2 == 1 { 8 } else { 0 }) as i8);
    let offset = i64::from(register(&words, 0x4054) as i16);
    let sums = c.sums(&x, &w, border, offset);
    let want: Vec<Vec<u8>> = sums
        .iter()
        .enumerate()
        .map(|(i, s)| {
            let sum = s + i64::from(bias[i / (c.oh * c.ow)]);
            vec![requantised(&words, sum) as u8]
        })
        .collect();
    let biases = bias.iter().flat_map(|b| b.to_le_bytes()).collect();
    let areas = [
        (c.at[0], c.pack_input(&x, 1.0)),
        (c.at[1], c.pack_weights(&w, 1.0)),
        (register(&words, 0x5020), biases),
    ];
    for arithmetic in BOTH {
        let (got, rules) = c.run(arithmetic, &words, &areas, 1);
        assert_eq!(rules, [], "{file}");
        assert!(got == want, "{file} ({arithmetic:?})");
    }
    Ran::new("conv depthwise int8", want.len())
}

/// Accumulators and bytes measured on silicon, through the program of the same geometry: the
/// features are zero, so that the bias is the accumulator; weights outside the image stand for
/// the border.
pub fn measured(file: &File, sibling: &File) -> Ran {
    let (c, words) = (Conv::read(sibling), sibling.words());
    let p = &file.value["params"];
    for (key, reg) in [
        ("out_cvt_scale", 0x4084),
        ("out_cvt_shift", 0x4088),
        ("bs_ow_op", 0x4054),
        ("pad_con1", 0x1184),
    ] {
        assert_eq!(number(&p[key]) as u32, register(&words, reg), "{file}: {key}");
    }
    let signed = |v: &Value| v.as_i64().expect("number");
    assert_eq!(signed(&p["out_cvt_offset"]), i64::from(register(&words, 0x4080) as i32));
    let run = |weights: &[i32], bias: &[i32]| {
        let biases = bias.iter().flat_map(|b| b.to_le_bytes()).collect();
        let areas = [
            (c.at[0], vec![0; c.inputs()]),
            (c.at[1], c.pack_weights(weights, 1.0)),
            (register(&words, 0x5020), biases),
        ];
        let (got, rules) = c.run(Arithmetic::Exact, &words, &areas, 1);
        assert_eq!(rules, [], "{file}");
        got
    };
    // Weights of -128 count nothing with the offset of 128.
    let nothing = vec![-128; c.weights()];
    let interior = list(&file.value["interior"]);
    for some in interior.chunks(c.oc) {
        let mut bias = vec![0; c.oc];
        bias.iter_mut().zip(some).for_each(|(b, s)| *b = signed(&s[0]) as i32);
        let got = run(&nothing, &bias);
        for (ch, sample) in some.iter().enumerate() {
            let at = (ch * c.oh + 3) * c.ow + 3;
            assert_eq!(i64::from(got[at][0] as i8), signed(&sample[1]), "{file}: {sample}");
        }
    }
    let border = list(&file.value["border"]);
    for sample in border {
        let [ch, oy, ox, inside, mut outside, out] = [0, 1, 2, 3, 4, 5].map(|i| signed(&sample[i]));
        let mut bias = vec![0; c.oc];
        bias[ch as usize] = inside as i32;
        let mut weights = nothing.clone();
        for tap in 0..(c.kh * c.kw) as i64 {
            let (y, x) = (oy + tap / c.kw as i64 - 1, ox + tap % c.kw as i64 - 1);
            if !(0..c.ih as i64).contains(&y) || !(0..c.iw as i64).contains(&x) {
                let part = outside.clamp(0, 255);
                weights[ch as usize * c.kh * c.kw + tap as usize] += part as i32;
                outside -= part;
            }
        }
        assert_eq!(outside, 0, "{file}: {sample}");
        let got = run(&weights, &bias);
        let at = (ch as usize * c.oh + oy as usize) * c.ow + ox as usize;
        assert_eq!(i64::from(got[at][0] as i8), out, "{file}: {sample}");
    }
    Ran::new("measured requantisation", interior.len() + border.len())
}
