//! Attentions as models make them, and their results in double precision.

use crate::ggml::{Host, Type};
use crate::values::{Values, Wanted};
use anyhow::Result;

/// One attention, with K and V in a cache of more positions than are used.
#[derive(Debug, Clone)]
pub struct Case {
    pub name: &'static str,
    /// Types of K and V.
    pub types: [Type; 2],
    pub tokens: usize,
    pub n_kv: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub key: usize,
    pub value: usize,
    pub streams: usize,
    /// V is the beginning of K's rows.
    pub shared: bool,
    pub masked: bool,
    /// Every third token sees nothing.
    pub some_nothing: bool,
    pub sinks: bool,
    pub numbers: [f32; 3],
    /// A key that is seen is not a number.
    pub spoiled: bool,
    /// `attention`, or why not.
    pub expect: &'static str,
}

/// Its numbers.
#[derive(Debug)]
pub struct Numbers {
    pub q: Vec<f32>,
    /// Encoded, for the whole cache.
    pub k: Vec<u8>,
    pub v: Vec<u8>,
    /// What the CPU sees of them.
    keys: Vec<f32>,
    values: Vec<f32>,
    pub mask: Vec<f32>,
    pub sinks: Vec<f32>,
}

/// Positions of the cache beyond those in use.
pub const UNUSED: usize = 6;
/// Rows of a mask are padded to this on older hosts.
pub const MASK_ROWS: usize = 64;

fn base() -> Case {
    Case {
        name: "heads of their own",
        types: [Type::F16; 2],
        tokens: 20,
        n_kv: 96,
        heads: 4,
        kv_heads: 4,
        key: 64,
        value: 64,
        streams: 1,
        shared: false,
        masked: true,
        some_nothing: false,
        sinks: false,
        numbers: [0.6, 0.0, 0.0],
        spoiled: false,
        expect: "attention",
    }
}

/// The list.
///
/// # Errors
/// The host's table of types is not as expected.
pub fn list(host: &Host) -> Result<Vec<Case>> {
    let base = base();
    let gqa = Case { name: "GQA", heads: 12, kv_heads: 3, ..base.clone() };
    let mut all = vec![
        base.clone(),
        gqa.clone(),
        Case { name: "one token", tokens: 1, n_kv: 200, ..gqa.clone() },
        Case { name: "soft-cap", numbers: [0.6, 0.0, 3.0], ..gqa.clone() },
        Case { name: "ALiBi", numbers: [0.6, 8.0, 0.0], ..gqa.clone() },
        Case { name: "tokens that see nothing", some_nothing: true, ..gqa.clone() },
        Case { name: "odd heads", key: 40, value: 24, ..gqa.clone() },
        Case {
            name: "MLA",
            heads: 8,
            kv_heads: 1,
            key: 576,
            value: 512,
            shared: true,
            numbers: [0.1, 0.0, 0.0],
            ..base.clone()
        },
        Case { name: "MLA, small", key: 192, value: 128, ..base.clone() },
        Case { name: "streams", streams: 3, ..gqa.clone() },
    ];
    if host.has_sinks() {
        all.push(Case { name: "sinks", sinks: true, ..gqa.clone() });
        all.push(Case {
            name: "sinks, nothing seen",
            sinks: true,
            some_nothing: true,
            ..gqa.clone()
        });
    }
    // Every type that a head of 256 holds whole blocks of; the tables of some take seconds to make.
    for t in host.encoded_types().into_iter().filter(|t| !t.is_slow_to_encode()) {
        let (key, value) = (256, 256);
        all.push(Case {
            name: "cache type",
            types: [t; 2],
            key,
            value,
            heads: 4,
            kv_heads: 2,
            ..base.clone()
        });
    }
    all.push(Case { name: "mixed types", types: [Type::Q8_0, Type::F16], ..gqa.clone() });
    all.push(Case { name: "mixed types", types: [Type::BF16, Type::F32], ..gqa.clone() });
    all.push(Case {
        name: "a key is no number",
        spoiled: true,
        expect: "redone: cache_not_finite",
        ..gqa.clone()
    });
    // A declined op is found by the sizes of K.
    all.push(Case {
        name: "no mask",
        masked: false,
        n_kv: 97,
        expect: "declined: attention_unmasked",
        ..gqa.clone()
    });
    Ok(all)
}

/// Types whose caches the CPU computes with on every host: F16, BF16, Q4_0, Q4_1, Q5_0, Q5_1, Q8_0.
/// It aborts the process for some others.
const CPU_TYPES: [i32; 7] = [1, 30, 2, 3, 6, 7, 8];

impl Case {
    /// A small one, for faults.
    pub fn small() -> Case {
        Case { tokens: 8, n_kv: 40, heads: 4, kv_heads: 2, ..base() }
    }

    /// Whether the CPU may be asked.
    pub fn on_cpu(&self) -> bool {
        self.types.iter().all(|t| CPU_TYPES.contains(&t.0))
    }

    /// # Errors
    /// The host cannot encode it.
    pub fn numbers(&self, host: &Host, seed: u64) -> Result<Numbers> {
        let mut take = Values::new(seed);
        let cache = self.streams * (self.n_kv + UNUSED) * self.kv_heads;
        let mut floats = take.take(cache * self.key);
        let q = take.take(self.streams * self.tokens * self.heads * self.key);
        if self.spoiled {
            floats[0] = f32::NAN;
        }
        let k = host.encode(self.types[0], &floats, self.key)?;
        let v = host.encode(self.types[1], &take.take(cache * self.value), self.value)?;
        let keys = host.decode(self.types[0], &k, self.key)?;
        let values = host.decode(self.types[1], &v, self.value)?;
        let rows = self.tokens.next_multiple_of(MASK_ROWS);
        let mut mask = vec![f32::NEG_INFINITY; self.streams * rows * self.n_kv];
        for (i, m) in mask.iter_mut().enumerate() {
            let (column, token) = (i % self.n_kv, i / self.n_kv % rows);
            let own = self.n_kv - self.tokens + token;
            let nothing = self.some_nothing && token.is_multiple_of(3);
            if token < self.tokens && column <= own && !nothing {
                // As hosts write it for ALiBi: the distance.
                *m = if self.numbers[1] > 0.0 { column as f32 - own as f32 } else { 0.0 };
            }
        }
        let sinks = take.take(self.heads).iter().map(|x| 3.0 * x + 2.0).collect();
        Ok(Numbers { q, k, v, keys, values, mask, sinks })
    }

    /// The whole result; with `wrong`, that of the KV head beside.
    ///
    /// The bound is that of the library's own tests of attention (tests/tests/attention/case.rs):
    /// logits off by e move their weights by exp(2e) - 1, fp16 by 2^-10, and a moved weight moves the
    /// result by its value's distance from it.
    pub fn wanted(&self, n: &Numbers, wrong: bool) -> Vec<Wanted> {
        let mut out = Vec::new();
        for stream in 0..self.streams {
            for token in 0..self.tokens {
                for head in 0..self.heads {
                    out.extend(self.row(n, [stream, token, head], wrong));
                }
            }
        }
        out
    }

    fn row(&self, n: &Numbers, [stream, token, head]: [usize; 3], wrong: bool) -> Vec<Wanted> {
        let u = 2f64.powi(-11);
        let f64s = |x: &[f32]| x.iter().map(|x| f64::from(*x)).collect::<Vec<f64>>();
        let beside = usize::from(wrong);
        let kv_head = (head / (self.heads / self.kv_heads) + beside) % self.kv_heads;
        let cell = |p: usize| (stream * (self.n_kv + UNUSED) + p) * self.kv_heads + kv_head;
        let q = f64s(
            &n.q[((stream * self.tokens + token) * self.heads + head) * self.key..][..self.key],
        );
        let [scale, bias, cap] = self.numbers.map(f64::from);
        let powers = f64::from(1u32 << self.heads.ilog2());
        let h = head as f64;
        let slope = match bias {
            0.0 => 1.0,
            b if h < powers => (-b / powers * (h + 1.0)).exp2(),
            b => (-b / 2.0 / powers * (2.0 * (h - powers) + 1.0)).exp2(),
        };
        let rows = self.tokens.next_multiple_of(MASK_ROWS);
        let mut logits = Vec::new();
        let mut off = 0f64;
        for p in 0..self.n_kv {
            let m = f64::from(n.mask[(stream * rows + token) * self.n_kv + p]);
            if m == f64::NEG_INFINITY && self.masked {
                continue;
            }
            let k = f64s(&n.keys[cell(p) * self.key..][..self.key]);
            let dot: f64 = q.iter().zip(&k).map(|(a, b)| a * b).sum();
            let abs: f64 = q.iter().zip(&k).map(|(a, b)| (a * b).abs()).sum();
            let x = if cap == 0.0 { dot * scale } else { cap * (dot * scale / cap).tanh() };
            // Q and K rounded to fp16, and the smallest steps of either.
            let floor = 2f64.powi(-24) * (q.len() as f64) * 4.0;
            off = off.max(scale * (2.0 * u * abs + floor + q.len() as f64 * 2f64.powi(-24) * abs));
            logits.push((p, x + slope * if self.masked { m } else { 0.0 }));
        }
        if logits.is_empty() {
            return vec![Wanted { value: 0.0, bound: 0.0 }; self.value];
        }
        off += 2f64.powi(-22) * 200.0 + 1e-6 * cap;
        let most = logits.iter().map(|l| l.1).fold(f64::NEG_INFINITY, f64::max);
        let sink = if self.sinks { (f64::from(n.sinks[head]) - most).exp() } else { 0.0 };
        let sum = sink + logits.iter().map(|l| (l.1 - most).exp()).sum::<f64>();
        let value = |p: usize, i: usize| match self.shared {
            true => f64::from(n.keys[cell(p) * self.key + i]),
            false => f64::from(n.values[cell(p) * self.value + i]),
        };
        (0..self.value)
            .map(|i| {
                let each = || logits.iter().map(|l| ((l.1 - most).exp() / sum, value(l.0, i)));
                let result: f64 = each().map(|(w, v)| w * v).sum();
                let moved: f64 = each().map(|(w, v)| w * (v - result).abs()).sum();
                let abs: f64 = each().map(|(w, v)| w * v.abs()).sum();
                let moved = moved + sink / sum * result.abs();
                let small = self.n_kv as f64 * 2f64.powi(-22) + u * abs;
                Wanted { value: result, bound: moved * ((2.0 * off).exp_m1() + 2.0 * u) + small }
            })
            .collect()
    }
}
