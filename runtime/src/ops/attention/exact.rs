//! One row of a result in double precision, plainly: what a board's first result is compared with.

use super::{Attention, Cached, slope};

/// A row of the result, and how far off an honest NPU's may be.
#[derive(Debug, Clone, PartialEq)]
pub struct Exact {
    /// The row.
    pub values: Vec<f64>,
    /// For each element, generously.
    pub bounds: Vec<f64>,
}

impl Cached<'_> {
    /// Row `at` (stream, KV head, position) as it is stored.
    fn stored(&self, at: [usize; 3], len: usize) -> Vec<f64> {
        match self {
            Cached::Half(rows) => rows.row(at, len).iter().map(|x| x.to_f64()).collect(),
            Cached::Decoded(source) => {
                let mut row = vec![0f32; len];
                source.decode(at, &mut row);
                row.into_iter().map(f64::from).collect()
            }
        }
    }
}

impl Attention<'_> {
    /// The row of a stream, head and token.
    ///
    /// # Panics
    /// When there is none.
    pub fn exact(&self, [stream, head, token]: [usize; 3]) -> Exact {
        let s = self.shape;
        let kv = |position| [stream, head / s.group(), position];
        let q = self.q.row([stream, head, token], s.key);
        let mask = self.mask.map(|m| m.row([stream, head, token], s.n_kv));
        let slope = f64::from(slope(head, s.heads, self.max_bias));
        // Logits of what is seen, and the most that one of them may be off: both operands rounded to
        // 11 bits, each sum to 24.
        let (mut seen, mut off) = (Vec::new(), 0f64);
        for position in 0..s.n_kv {
            let bias = mask.map_or(0.0, |m| slope * m[position].to_f64());
            if bias == f64::NEG_INFINITY {
                continue;
            }
            let k = self.k.stored(kv(position), s.key);
            let products = q.iter().zip(&k).map(|(q, k)| f64::from(*q) * k);
            let (sum, size) = products.fold((0.0, 0.0), |(s, t), p| (s + p, t + p.abs()));
            let scaled = sum * f64::from(self.scale);
            let cap = f64::from(self.softcap);
            let logit = if cap == 0.0 { scaled } else { cap * (scaled / cap).tanh() } + bias;
            let rounding = 2f64.powi(-9) * size * f64::from(self.scale.abs());
            off = off.max(rounding + 2f64.powi(-20) * logit.abs());
            seen.push((position, logit));
        }
        let most = seen.iter().map(|x| x.1).fold(f64::NEG_INFINITY, f64::max);
        let mut sum = self.sinks.map_or(0.0, |x| (f64::from(x[head]) - most).exp());
        let (mut values, mut sizes) = (vec![0.0; s.value], vec![0.0; s.value]);
        for (position, logit) in &seen {
            let p = (logit - most).exp();
            sum += p;
            let v = self.v.stored(kv(*position), s.value);
            for ((o, t), v) in values.iter_mut().zip(&mut sizes).zip(&v) {
                *o += p * v;
                *t += (p + 2f64.powi(-14)) * v.abs();
            }
        }
        if seen.is_empty() {
            return Exact { bounds: values.clone(), values };
        }
        values.iter_mut().for_each(|o| *o /= sum);
        let part = (2.0 * off).min(50.0).exp_m1() + 2f64.powi(-8);
        let bounds = sizes.iter().map(|t| part * t / sum).collect();
        Exact { values, bounds }
    }
}
