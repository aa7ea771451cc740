//! Attention against its definition in double precision.

use super::draw::Draw;
use super::judge::{Done, Judged};
use half::f16;
use rocket_runtime::matmul::Npu;
use rocket_runtime::ops::attention::{Attention, Cached, Mask, Scratch, Shape, Strided, attention};
use rocket_runtime::{Error, Result};

const S: Shape =
    Shape { tokens: 12, n_kv: 90, heads: 4, kv_heads: 2, key: 64, value: 64, streams: 1 };
const SCALE: f32 = 0.5;

/// Q, K, V and a causal mask.
struct Numbers {
    q: Vec<f32>,
    k: Vec<f16>,
    v: Vec<f16>,
    mask: Vec<f16>,
}

impl Numbers {
    fn new(seed: u64) -> Numbers {
        let mut draw = Draw(seed);
        let half = |d: &mut Draw| f16::from_f32(d.value());
        let seen = |i: usize| i % S.n_kv <= S.n_kv - S.tokens + i / S.n_kv;
        Numbers {
            q: draw.list(S.tokens * S.heads * S.key, Draw::value),
            k: draw.list(S.n_kv * S.kv_heads * S.key, half),
            v: draw.list(S.n_kv * S.kv_heads * S.value, half),
            mask: (0..S.tokens * S.n_kv)
                .map(|i| if seen(i) { f16::ZERO } else { f16::NEG_INFINITY })
                .collect(),
        }
    }

    fn run(&self, npu: &Npu) -> Result<Done> {
        let strides = |heads: usize, len: usize| [0, len, heads * len];
        let mut out = vec![f32::NAN; S.results()];
        let job = Attention {
            shape: S,
            q: Strided::new(&self.q, strides(S.heads, S.key)),
            k: Cached::Half(Strided::new(&self.k, strides(S.kv_heads, S.key))),
            v: Cached::Half(Strided::new(&self.v, strides(S.kv_heads, S.value))),
            mask: Some(Mask::new(Strided::new(&self.mask, [0, 0, S.n_kv]), 1, 1)),
            sinks: None,
            scale: SCALE,
            max_bias: 0.0,
            softcap: 0.0,
        };
        let outcome = attention(npu, &job, &mut out, &Scratch::default())?;
        match outcome.trouble {
            None => Ok(Done::of(self.judge(&out), &[outcome.stats])),
            Some(trouble) => Err(Error::Unusable { why: format!("attention met {trouble:?}") }),
        }
    }

    /// A token of a head: values, and how far each may be off.
    ///
    /// A logit is off by at most e: Q's rounding to fp16 (2^-11 of each product, or 2^-25 of its row's power
    /// of two), and the fp32 sum (2^-24 a term). Weights are then off by a factor of exp(2e), and rounded to
    /// fp16, once themselves and once in their sum; small ones by 2^-25. As they add up to 1 either way, the
    /// result moves by its values' distances from it.
    fn wanted(&self, head: usize, token: usize, wrong: Wrong) -> Vec<[f64; 2]> {
        let u = 2f64.powi(-11);
        let kv_head = match wrong {
            Wrong::KvHead => (head / (S.heads / S.kv_heads) + 1) % S.kv_heads,
            _ => head / (S.heads / S.kv_heads),
        };
        let scale = f64::from(SCALE) * if wrong == Wrong::Scale { 1.25 } else { 1.0 };
        let q = &self.q[(token * S.heads + head) * S.key..][..S.key];
        let largest = q.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
        let (mut logits, mut off) = (Vec::new(), 0f64);
        for position in 0..S.n_kv {
            let hidden = self.mask[token * S.n_kv + position] == f16::NEG_INFINITY;
            if hidden && wrong != Wrong::Mask {
                continue;
            }
            let k = &self.k[(position * S.kv_heads + kv_head) * S.key..][..S.key];
            let (mut dot, mut size, mut keys) = (0.0, 0.0, 0.0);
            for (q, k) in q.iter().zip(k) {
                let (q, k) = (f64::from(*q), k.to_f64());
                (dot, size, keys) = (dot + q * k, size + (q * k).abs(), keys + k.abs());
            }
            let e =
                u * size + 2f64.powi(-24) * largest * keys + S.key as f64 * 2f64.powi(-24) * size;
            off = off.max(e * scale + 2f64.powi(-22) * (dot * scale).abs());
            logits.push((position, dot * scale));
        }
        let most = logits.iter().fold(f64::NEG_INFINITY, |m, l| m.max(l.1));
        let weights: Vec<(usize, f64)> =
            logits.iter().map(|(at, x)| (*at, (x - most).exp())).collect();
        let sum: f64 = weights.iter().map(|w| w.1).sum();
        let part = (2.0 * off).exp_m1() + 2.0 * u + 1e-6;
        let element = |i: usize| {
            let v = |at: usize| self.v[(at * S.kv_heads + kv_head) * S.value + i].to_f64();
            let value: f64 = weights.iter().map(|(at, w)| w / sum * v(*at)).sum();
            let far = |at: &usize| (v(*at) - value).abs();
            let moved: f64 = weights.iter().map(|(at, w)| w / sum * far(at)).sum();
            let farthest = weights.iter().fold(0f64, |m, (at, _)| m.max(far(at)));
            let count = weights.len() as f64;
            let small = count * 2f64.powi(-24) * (farthest / sum + 1.0);
            [value, moved * part + small + 2f64.powi(-22) * value.abs()]
        };
        (0..S.value).map(element).collect()
    }

    /// The largest distance from what is wanted, in bounds.
    fn distance(&self, out: &[f32], wrong: Wrong) -> f64 {
        let mut worst = 0f64;
        for (row, got) in out.chunks_exact(S.value).enumerate() {
            let wanted = self.wanted(row % S.heads, row / S.heads, wrong);
            for (got, [value, bound]) in got.iter().zip(wanted) {
                let off = (f64::from(*got) - value).abs() / bound;
                worst = if off.is_nan() { f64::INFINITY } else { worst.max(off) };
            }
        }
        worst
    }

    fn judge(&self, out: &[f32]) -> Judged {
        let controls = [Wrong::Mask, Wrong::Scale, Wrong::KvHead];
        Judged::Float {
            of_bound: self.distance(out, Wrong::Nothing),
            control: controls.map(|w| self.distance(out, w)).into_iter().fold(f64::MAX, f64::min),
            elements: out.len(),
            unwritten: out.iter().filter(|x| x.is_nan()).count(),
        }
    }
}

/// What a control gets wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Wrong {
    Nothing,
    Mask,
    Scale,
    KvHead,
}

pub fn run(npu: &Npu) -> Result<Done> {
    Ok(Numbers::new(3).run(npu)?.and(Numbers::new(4).run(npu)?))
}
