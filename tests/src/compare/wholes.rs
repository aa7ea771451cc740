//! What a prefill has besides products with dense weights: experts and attention, ours against the
//! reference as the notes tell it (ggml-plugin-behaviour 7 and 8).
//!
//! What the notes leave open is read in the reference's favour: each head's and each expert's product
//! runs whole on one worker, so that nothing is fetched twice; heads are submitted together, one job a
//! worker for QK and one for AV; tokens choose experts evenly, so that its ladder of rows pads least.

use super::prefill::Total;
use super::{Row, Setting, counting, reference_cost, sound};
use crate::reference::{Kind, Residency};
use half::f16;
use rocket_runtime::dtype::DType;
use rocket_runtime::matmul::{
    Int8, Matrix, Npu, Operand, Options, Product, Resident, Rows, Scales,
};
use rocket_runtime::ops::attention::{Attention, Cached, Mask, Scratch, Shape, Strided, attention};
use rocket_runtime::soc::RK3588;
use rocket_sim::DriverProfile;

/// A part of a model.
#[derive(Debug, Clone, Copy)]
pub struct Whole {
    /// Model and part.
    pub name: &'static str,
    /// How the names of the [models](super::prefill::MODELS) begin that have it.
    pub of: Option<&'static str>,
    /// Layers that have it.
    pub layers: usize,
    /// Which part.
    pub part: Part,
}

/// Sizes of a part.
#[derive(Debug, Clone, Copy)]
pub enum Part {
    /// Heads, those of K and V, and their size.
    Attention(usize, usize, usize),
    /// Experts, those of a token, and K, N and group of each of an expert's products.
    Experts(usize, usize, &'static [[usize; 3]]),
}

/// From the models' published configurations.
pub const WHOLES: &[Whole] = &[
    Whole {
        name: "SmolLM2-135M attention",
        of: Some("SmolLM2-135M"),
        layers: 30,
        part: Part::Attention(9, 3, 64),
    },
    Whole {
        name: "Llama-3.2-3B attention",
        of: Some("Llama-3.2-3B"),
        layers: 28,
        part: Part::Attention(24, 8, 128),
    },
    Whole {
        name: "gpt-oss-20b experts",
        of: None,
        layers: 24,
        part: Part::Experts(32, 4, &[[2880, 2880, 576], [2880, 2880, 576], [2880, 2880, 576]]),
    },
    Whole {
        name: "DeepSeek-V2-Lite experts",
        of: None,
        layers: 26,
        part: Part::Experts(64, 6, &[[2048, 1408, 512], [2048, 1408, 512], [1408, 2048, 352]]),
    },
];

/// Positions from which both sides take attention; rows of an expert from which both take it.
const MIN_KV: usize = 1024;
const MIN_ROWS: usize = 64;

impl Whole {
    /// What it costs in a prompt of so many tokens in micro-batches of `ubatch`: nothing where it stays
    /// on the CPU, as both sides leave it there below the same thresholds.
    ///
    /// # Errors
    /// What the runtime or the board says.
    pub fn prefill(&self, ours: bool, tokens: usize, ubatch: usize) -> Result<Total, String> {
        let mut total = Total::default();
        let mut at = 0;
        while at < tokens {
            let rows = ubatch.min(tokens - at);
            at += rows;
            match self.part {
                Part::Attention(heads, kv_heads, size) => {
                    // Hosts pad their caches.
                    let n_kv = at.next_multiple_of(256);
                    let shape = Shape {
                        tokens: rows,
                        n_kv,
                        heads,
                        kv_heads,
                        key: size,
                        value: size,
                        streams: 1,
                    };
                    if n_kv >= MIN_KV {
                        let one = if ours { our_attention(shape)? } else { its_attention(shape)? };
                        total.sum(&one, self.layers as u64);
                    }
                }
                Part::Experts(count, used, products) => {
                    if rows * used / count < MIN_ROWS {
                        continue;
                    }
                    for &product in products {
                        let one = match ours {
                            true => our_experts(count, rows * used, product)?,
                            false => its_experts(count, rows * used, product)?,
                        };
                        total.sum(&one, self.layers as u64);
                    }
                }
            }
        }
        Ok(total)
    }

    /// Bytes of experts' codes that any prefill in micro-batches of `ubatch` reads: all of them in each
    /// one, for every expert has tokens there.
    pub fn codes_read(&self, tokens: usize, ubatch: usize) -> Option<u64> {
        let Part::Experts(count, _, products) = self.part else { return None };
        let of_layer: usize = products.iter().map(|[k, n, _]| count * k * n).sum();
        Some((of_layer * self.layers * tokens.div_ceil(ubatch)) as u64)
    }
}

fn open(board: &crate::meter::Meter) -> rocket_runtime::Result<Npu> {
    Npu::open(board, Options { budget: None, drain_on_signals: false, ..Options::default() })
}

fn our_attention(shape: Shape) -> Result<Total, String> {
    let (size, n_kv) = (shape.key, shape.n_kv);
    let q = vec![0.5f32; shape.tokens * shape.heads * size];
    let kv = vec![f16::ONE; n_kv * shape.kv_heads * size];
    // The last tokens of the context, each of which sees itself and what is before it.
    let before = n_kv - shape.tokens;
    let hidden = |i: usize| i % n_kv > before + i / n_kv;
    let mask: Vec<f16> = (0..shape.tokens * n_kv)
        .map(|i| if hidden(i) { f16::NEG_INFINITY } else { f16::ZERO })
        .collect();
    let cached = Cached::Half(Strided::new(&kv, [0, size, shape.kv_heads * size]));
    let job = Attention {
        shape,
        q: Strided::new(&q, [0, size, shape.heads * size]),
        k: cached,
        v: cached,
        mask: Some(Mask::new(Strided::new(&mask, [0, 0, n_kv]), 1, 1)),
        sinks: None,
        scale: 0.1,
        max_bias: 0.0,
        softcap: 0.0,
    };
    let meter = counting(DriverProfile::Stock);
    let mut out = vec![0f32; shape.results()];
    let run = |begin: &mut dyn FnMut()| -> rocket_runtime::Result<Npu> {
        let npu = open(&meter)?;
        begin();
        attention(&npu, &job, &mut out, &Scratch::default())?;
        Ok(npu)
    };
    let (_npu, cost) = meter.measure(run).map_err(|e| e.to_string())?;
    sound(&meter, "our attention")?;
    let mut total = Total::default();
    total.add(&cost, 1);
    Ok(total)
}

/// Two products a head, of all positions whatever the mask hides.
fn its_attention(s: Shape) -> Result<Total, String> {
    let mut total = Total::default();
    for shape in [[s.tokens, s.key, s.n_kv], [s.tokens, s.n_kv, s.value]] {
        let one = its_product(shape, Kind::plain(DType::Fp16), Residency::Streaming)?;
        total.sum(&one, s.heads as u64);
    }
    total.submits = 2 * super::REFERENCE_WORKERS as u64;
    total.npu_ns /= RK3588.cores as u64;
    Ok(total)
}

fn its_product(shape: [usize; 3], kind: Kind, residency: Residency) -> Result<Total, String> {
    let row = Row::of(shape, kind);
    let shares = row.shares(1, residency).ok_or_else(|| format!("the reference refuses {row}"))?;
    let cost = reference_cost(&shares, Setting { residency, ..Setting::default() })?;
    let mut total = Total::default();
    total.add(&cost, 1);
    Ok(total)
}

/// Rows of an expert as the reference pads them: two steps an octave from 64 on.
fn ladder(rows: usize) -> usize {
    let octave = rows.max(MIN_ROWS).next_power_of_two();
    let between = octave / 4 * 3;
    if rows <= between && between > MIN_ROWS { between } else { octave }
}

fn its_experts(count: usize, results: usize, [k, n, group]: [usize; 3]) -> Result<Total, String> {
    let rows = ladder(results.div_ceil(count));
    let one = its_product([rows, k, n], Kind::grouped(DType::Int8, group), Residency::Resident)?;
    let mut total = Total::default();
    total.sum(&one, count as u64);
    total.npu_ns /= RK3588.cores as u64;
    Ok(total)
}

fn our_experts(count: usize, results: usize, [k, n, group]: [usize; 3]) -> Result<Total, String> {
    let format = Int8 { group: Some(group) };
    let zeros = vec![0i8; n * k];
    let own = |e: usize| results / count + usize::from(e < results % count);
    let most = results.div_ceil(count);
    let a = vec![0i8; most * k];
    let groups = k.div_ceil(group);
    let (row_scales, columns) = (vec![1f32; groups * most], vec![1f32; groups * n]);
    let meter = counting(DriverProfile::Stock);
    let run = |begin: &mut dyn FnMut()| -> rocket_runtime::Result<Npu> {
        let npu = open(&meter)?;
        let rows = Rows::new(&zeros, n, k);
        let packed: Vec<Resident<Int8>> =
            (0..count).map(|_| npu.pack_whole(512, format, &rows)).collect::<Result<_, _>>()?;
        begin();
        npu.lanes(|lane| {
            let mine: Vec<usize> =
                (0..count).filter(|e| packed[*e].lane() == Some(lane.index())).collect();
            let mut outs: Vec<Vec<f32>> = mine.iter().map(|e| vec![0.0; own(*e) * n]).collect();
            let mut products = Vec::new();
            for (e, out) in mine.iter().zip(&mut outs) {
                let m = own(*e);
                let scales = Scales { rows: &row_scales[..groups * m], columns: &columns };
                let a = Matrix::new(&a[..m * k], m, k, k);
                products.push(Product::scaled(a, Operand::Resident(&packed[*e]), scales, out)?);
            }
            lane.run(&mut products)
        })?;
        drop(packed);
        Ok(npu)
    };
    let (_npu, cost) = meter.measure(run).map_err(|e| e.to_string())?;
    sound(&meter, "our experts")?;
    let mut total = Total::default();
    total.add(&cost, 1);
    Ok(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ggml-plugin-behaviour 8.2.
    #[test]
    fn the_ladder_has_two_steps_an_octave() {
        for (rows, padded) in
            [(1, 64), (64, 64), (65, 96), (96, 96), (97, 128), (129, 192), (193, 256), (257, 384)]
        {
            assert_eq!(ladder(rows), padded, "{rows}");
        }
    }

    /// Small sizes, both sides, by what must hold: the same multiply-adds cost what they cost, and a
    /// mask halves what ours does.
    #[test]
    fn parts_cost_something_on_both_sides() {
        let part = Part::Experts(4, 2, &[[64, 64, 32]]);
        let small = Whole { name: "small", of: None, layers: 2, part };
        for ours in [false, true] {
            let twice = small.prefill(ours, 512, 256).unwrap();
            let once = small.prefill(ours, 256, 256).unwrap();
            assert!(once.dma > 0 && once.submits > 0 && once.npu_ns > 0);
            assert_eq!(twice.dma, 2 * once.dma);
            assert_eq!(small.prefill(ours, 100, 100).unwrap(), Total::default());
        }
        let part = Part::Attention(2, 1, 64);
        let small = Whole { name: "small", of: None, layers: 1, part };
        let [its, ours] = [false, true].map(|o| small.prefill(o, 1024, 1024).unwrap());
        assert!(ours.dma < its.dma, "{ours:?} {its:?}");
        assert_eq!(small.prefill(true, 512, 512).unwrap(), Total::default());
    }
}
