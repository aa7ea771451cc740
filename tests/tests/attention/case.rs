//! Attentions with everything that decides about their result, and the result in double precision.

use half::f16;
use rocket_runtime::ops::attention::{Attention, Cached, Decode, Mask, Shape, Strided};

/// Which positions a token sees.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Sees {
    /// There is no mask.
    All,
    /// The context and the tokens up to itself, which are the last positions.
    Causal,
    /// Of those the last so many.
    Window(usize),
    /// Positions of its own sequence, of so many in one cache.
    Sequences(usize),
    /// Each head something else, with finite numbers among it.
    ByHead,
    /// As causal, but that every third token sees nothing.
    SomeNothing,
}

/// How K and V are stored.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Stored {
    Half,
    /// V is the first elements of K's rows, as in MLA.
    Shared,
    /// F32, times so much.
    Floats(f32),
}

#[derive(Debug, Clone, Copy)]
pub struct Case {
    pub name: &'static str,
    pub shape: Shape,
    pub sees: Sees,
    pub stored: Stored,
    pub sinks: bool,
    pub max_bias: f32,
    pub softcap: f32,
    pub scale: f32,
    /// Elements between rows, and mask rows beyond the tokens.
    pub gap: usize,
    /// Raw products of Q and K in 60000..135000, beyond fp16.
    pub overflow: bool,
    /// Largest deviation that is allowed beside the derived bound.
    pub most: f64,
}

/// A case's numbers.
#[derive(Debug)]
pub struct Numbers {
    pub case: Case,
    q: Vec<f32>,
    k: Vec<f32>,
    v: Vec<f32>,
    k_half: Vec<f16>,
    v_half: Vec<f16>,
    mask: Vec<f16>,
    sinks: Vec<f32>,
}

/// What a control leaves out or gets wrong.
#[derive(Debug, Clone, Copy, PartialEq)]
pub enum Wrong {
    Nothing,
    Sinks,
    Scale,
    Mask,
    Head,
    KvHead,
    Softcap,
    Alibi,
    Stream,
}

/// An element of the result, and how far off it may be.
#[derive(Debug, Clone, Copy)]
pub struct Wanted {
    pub value: f64,
    pub bound: f64,
}

/// A deterministic stream of numbers in -1..1.
fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ 0x1234_5678_9abc_def1;
    (0..len)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

#[derive(Debug)]
struct Floats<'a> {
    data: &'a [f32],
    strides: [usize; 3],
}

impl Decode for Floats<'_> {
    fn holds(&self, _: [usize; 3], _: usize) -> bool {
        true
    }

    fn decode(&self, at: [usize; 3], dst: &mut [f32]) {
        let first: usize = at.iter().zip(self.strides).map(|(i, s)| i * s).sum();
        dst.copy_from_slice(&self.data[first..][..dst.len()]);
    }
}

impl Case {
    pub fn numbers(self, seed: u64) -> Numbers {
        let s = self.shape;
        let rows =
            |heads: usize, count: usize, len: usize| s.streams * count * heads * (len + self.gap);
        let mut q = noise(seed, rows(s.heads, s.tokens, s.key));
        // Rows of very different sizes: each must be scaled by its own.
        for (i, row) in q.chunks_exact_mut(s.key + self.gap).enumerate() {
            let size = [1.0, 3.0, 0.01, 2.0][i % 4];
            row.iter_mut().for_each(|x| *x *= size);
        }
        let mut k = noise(seed ^ 1, rows(s.kv_heads, s.n_kv, s.key));
        let mut v = noise(seed ^ 2, rows(s.kv_heads, s.n_kv, s.value));
        if self.overflow {
            // One pattern of signs times 32 in Q and times 15 to 32 in K: 128 products of one sign.
            assert_eq!(s.key, 128);
            let sign = |i: usize| if (i * 7 + i / 3) % 5 < 2 { -1.0 } else { 1.0 };
            let pitch = s.key + self.gap;
            q.iter_mut().enumerate().for_each(|(i, x)| *x = 32.0 * sign(i % pitch));
            k.iter_mut().enumerate().for_each(|(i, x)| {
                let size = 15 + (i / pitch * 11 + i / pitch / 5) % 18;
                *x = size as f32 * sign(i % pitch);
            });
        }
        if let Stored::Floats(size) = self.stored {
            k.iter_mut().chain(&mut v).for_each(|x| *x *= size);
        } else {
            k.iter_mut().chain(&mut v).for_each(|x| *x = f16::from_f32(*x).to_f32());
        }
        let half = |x: &[f32]| x.iter().map(|x| f16::from_f32(*x)).collect::<Vec<_>>();
        let (k_half, v_half) = match self.stored {
            Stored::Floats(_) => (Vec::new(), Vec::new()),
            _ => (half(&k), half(&v)),
        };
        let heads = if self.sees == Sees::ByHead { s.heads } else { 1 };
        let finite = noise(seed ^ 3, s.streams * heads * (s.tokens + self.gap) * s.n_kv);
        let mut mask = Vec::new();
        for (i, bias) in finite.iter().enumerate() {
            let (column, row) = (i % s.n_kv, i / s.n_kv);
            let (token, head) = (row % (s.tokens + self.gap), row / (s.tokens + self.gap) % heads);
            let bias = if self.sees == Sees::ByHead { 4.0 * bias } else { 0.0 };
            // ALiBi: the distance, as hosts write it.
            let own = s.n_kv - s.tokens + token.min(s.tokens - 1);
            let bias = if self.max_bias > 0.0 { -(own.abs_diff(column) as f32) } else { bias };
            mask.push(f16::from_f32(if self.sees(head, token, column) {
                bias
            } else {
                f32::NEG_INFINITY
            }));
        }
        let sinks = noise(seed ^ 4, s.heads).iter().map(|x| 3.0 * x + 2.0).collect();
        Numbers { case: self, q, k, v, k_half, v_half, mask, sinks }
    }

    fn sees(&self, head: usize, token: usize, column: usize) -> bool {
        let s = self.shape;
        if token >= s.tokens {
            return false;
        }
        let own = s.n_kv - s.tokens + token;
        match self.sees {
            Sees::All => true,
            Sees::Causal => column <= own,
            Sees::Window(n) => column <= own && column + n > own,
            Sees::Sequences(n) => column * n / s.n_kv == token * n / s.tokens,
            Sees::ByHead => (column * 5 + head * 3 + token).is_multiple_of(2) || column < 3,
            Sees::SomeNothing => column <= own && !token.is_multiple_of(3),
        }
    }

    /// Strides of stream, head and row, for rows that lie token by token.
    fn strides(&self, heads: usize, count: usize, len: usize) -> [usize; 3] {
        let pitch = len + self.gap;
        [count * heads * pitch, pitch, heads * pitch]
    }
}

impl Numbers {
    /// Calls `f` with the attention.
    pub fn with<R>(&self, f: impl FnOnce(Attention<'_>) -> R) -> R {
        let (c, s) = (self.case, self.case.shape);
        let keys = c.strides(s.kv_heads, s.n_kv, s.key);
        let values =
            if c.stored == Stored::Shared { keys } else { c.strides(s.kv_heads, s.n_kv, s.value) };
        let floats =
            [(&self.k, keys), (&self.v, values)].map(|(data, strides)| Floats { data, strides });
        let (k, v) = match c.stored {
            Stored::Floats(_) => (Cached::Decoded(&floats[0]), Cached::Decoded(&floats[1])),
            _ => (
                Cached::Half(Strided::new(&self.k_half, keys)),
                Cached::Half(Strided::new(self.values(), values)),
            ),
        };
        let heads = if c.sees == Sees::ByHead { s.heads } else { 1 };
        let rows = (s.tokens + c.gap) * s.n_kv;
        f(Attention {
            shape: s,
            q: Strided::new(&self.q, c.strides(s.heads, s.tokens, s.key)),
            k,
            v,
            mask: (c.sees != Sees::All).then(|| {
                Mask::new(Strided::new(&self.mask, [heads * rows, rows, s.n_kv]), s.streams, heads)
            }),
            sinks: c.sinks.then_some(&self.sinks),
            scale: c.scale,
            max_bias: c.max_bias,
            softcap: c.softcap,
        })
    }

    fn values(&self) -> &[f16] {
        if self.case.stored == Stored::Shared { &self.k_half } else { &self.v_half }
    }

    /// K or V of a stream, KV head and position.
    fn cached(&self, keys: bool, [stream, head, position]: [usize; 3]) -> &[f32] {
        let (c, s) = (self.case, self.case.shape);
        let shared = c.stored == Stored::Shared;
        let len = if keys { s.key } else { s.value };
        let pitch = if keys || shared { s.key } else { s.value } + c.gap;
        let data = if keys || shared { &self.k } else { &self.v };
        &data[((stream * s.n_kv + position) * s.kv_heads + head) * pitch..][..len]
    }

    /// The smallest and largest raw product of Q and K.
    pub fn raw(&self) -> (f64, f64) {
        let s = self.case.shape;
        let q = &self.q[..s.key];
        let dot = |n| {
            let k = self.cached(true, [0, 0, n]);
            q.iter().zip(k).map(|(q, k)| f64::from(*q) * f64::from(*k)).sum::<f64>()
        };
        let all: Vec<f64> = (0..s.n_kv).map(dot).collect();
        (all.iter().copied().fold(f64::MAX, f64::min), all.iter().copied().fold(f64::MIN, f64::max))
    }

    /// The result of a stream, head and token, by the definition (ggml-abi 2.6), or what a mistake
    /// would make of it.
    ///
    /// The bound: weights are those of logits that are each off by at most e, so off by exp(2e) - 1
    /// of themselves at most; then rounded to fp16, which is 2^-11 and once more for the sum, or
    /// 2^-25 if small. As the weights of values and sink add up to 1 either way, a deviation moves the
    /// result by its value's distance from the result. e is made of Q's rounding (2^-11 of each
    /// product, or 2^-25 of the row's power of two), K's likewise if it was no fp16, the chip's
    /// fp32 sum (2^-24 a term) and the host's operations (2^-22 of the logit and 1e-6 of the cap).
    pub fn wanted(&self, [stream, head, token]: [usize; 3], wrong: Wrong) -> Vec<Wanted> {
        let (c, s) = (self.case, self.case.shape);
        let is = |w| wrong == w;
        let group = s.heads / s.kv_heads;
        let other = if is(Wrong::Head) { (head + 1) % s.heads } else { head };
        let mut kv_head = head / group;
        if is(Wrong::KvHead) {
            kv_head = head % s.kv_heads;
        }
        let kv_stream = if is(Wrong::Stream) { (stream + 1) % s.streams } else { stream };
        let q =
            &self.q[((stream * s.tokens + token) * s.heads + other) * (s.key + c.gap)..][..s.key];
        let q_max = q.iter().fold(0f64, |m, x| m.max(f64::from(x.abs())));
        let scale = f64::from(c.scale) * if is(Wrong::Scale) { 1.25 } else { 1.0 };
        let heads = if c.sees == Sees::ByHead { s.heads } else { 1 };
        let mask_row = (stream * heads + head % heads) * (s.tokens + c.gap) + token;
        // ALiBi by its definition: halves from head to head with 8 heads and a bias of 8.
        let n = 1 << s.heads.ilog2();
        let power = |b: f64, e: usize| 2f64.powf(-b / f64::from(n)).powi(e as i32);
        let bias = f64::from(c.max_bias);
        let slope = match head as i32 {
            _ if bias == 0.0 || is(Wrong::Alibi) => 1.0,
            h if h < n => power(bias, head + 1),
            h => power(bias / 2.0, 2 * (h - n) as usize + 1),
        };
        let decoded = matches!(c.stored, Stored::Floats(_));
        let size = match c.stored {
            Stored::Floats(x) => 2.0 * f64::from(x),
            _ => 0.0,
        };
        let u = 2f64.powi(-11);
        let (mut logits, mut off) = (Vec::new(), 0f64);
        for position in 0..s.n_kv {
            let m = match c.sees {
                Sees::All => 0.0,
                _ if is(Wrong::Mask) => 0.0,
                _ => slope * self.mask[mask_row * s.n_kv + position].to_f64(),
            };
            if m == f64::NEG_INFINITY {
                continue;
            }
            let k = self.cached(true, [kv_stream, kv_head, position]);
            let (mut dot, mut abs, mut k_abs, mut q_abs) = (0.0, 0.0, 0.0, 0.0);
            for (q, k) in q.iter().zip(k) {
                let (q, k) = (f64::from(*q), f64::from(*k));
                dot += q * k;
                abs += (q * k).abs();
                k_abs += k.abs();
                q_abs += q.abs();
            }
            let mut e = u * abs + 2f64.powi(-25) * 2.0 * q_max * k_abs;
            if decoded {
                e += u * abs + 2f64.powi(-25) * size * q_abs;
            }
            e += s.key as f64 * 2f64.powi(-24) * abs;
            let x = dot * scale;
            let cap = f64::from(c.softcap);
            let x = if cap == 0.0 || is(Wrong::Softcap) { x } else { cap * (x / cap).tanh() };
            let x = x + m;
            off = off.max(
                e * scale.abs() + 2f64.powi(-22) * (dot * scale).abs().max(m.abs()) + 1e-6 * cap,
            );
            logits.push((position, x));
        }
        if logits.is_empty() {
            return vec![Wanted { value: 0.0, bound: 0.0 }; s.value];
        }
        let most = logits.iter().map(|l| l.1).fold(f64::NEG_INFINITY, f64::max);
        let sink = match c.sinks && !is(Wrong::Sinks) {
            true => (f64::from(self.sinks[head]) - most).exp(),
            false => 0.0,
        };
        let weights: Vec<(usize, f64)> =
            logits.iter().map(|(n, x)| (*n, (x - most).exp())).collect();
        let values_sum: f64 = weights.iter().map(|w| w.1).sum();
        let sum = values_sum + sink;
        let part = (2.0 * off).exp_m1() + 2.0 * u + 1e-6;
        (0..s.value)
            .map(|i| {
                let v = |n| f64::from(self.cached(false, [kv_stream, kv_head, n])[i]);
                let value = weights.iter().map(|(n, w)| w / sum * v(*n)).sum::<f64>();
                let (mut moved, mut abs, mut far) = (sink / sum * value.abs(), 0.0, value.abs());
                for (n, w) in &weights {
                    moved += w / sum * (v(*n) - value).abs();
                    abs += w / sum * v(*n).abs();
                    far = f64::max(far, (v(*n) - value).abs());
                }
                let count = weights.len() as f64;
                let mut bound = moved * part + count * 2f64.powi(-24) * far / values_sum;
                bound += count * 2f64.powi(-24) * abs + 2f64.powi(-22) * value.abs();
                if decoded {
                    bound += u * abs + 2f64.powi(-25) * size;
                }
                Wanted { value, bound }
            })
            .collect()
    }
}

impl Numbers {
    /// Puts `bad` at the beginning of Q (0), K (1), V (2) or the mask (3).
    pub fn spoil(&mut self, which: usize, bad: f32) {
        match which {
            0 => self.q[0] = bad,
            1 => self.k_half[0] = f16::from_f32(bad),
            2 => self.v_half[0] = f16::from_f32(bad),
            _ => self.mask[0] = f16::from_f32(bad),
        }
    }
}
