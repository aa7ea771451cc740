//! The whole without a board: what multiplies is an exact double of the lanes.

use super::super::{Cached, Mask, Shape, Strided};
use super::*;
use proptest::prelude::*;

/// Multiplies in double precision.
struct Exact {
    /// Products of each call.
    calls: Vec<usize>,
}

impl Multiply for Exact {
    fn multiply(&mut self, work: Vec<Work<'_>>) -> Result<Stats> {
        self.calls.push(work.len());
        for w in work {
            let (n, k) = (w.w.n(), w.w.k());
            assert_eq!((w.a.cols(), w.out.len()), (k, w.a.rows() * n));
            let mut row = vec![f16::ZERO; k];
            for j in 0..n {
                w.w.load(j, &mut row);
                for i in 0..w.a.rows() {
                    let pairs = w.a.row(i).iter().zip(&row);
                    let sum: f64 = pairs.map(|(a, b)| a.to_f64() * b.to_f64()).sum();
                    w.out[i * n + j] = (sum * f64::from(w.scale[i])) as f32;
                }
            }
        }
        Ok(Stats::default())
    }
}

fn noise(seed: u64, len: usize) -> Vec<f32> {
    let mut x = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    (0..len)
        .map(|_| {
            x = x.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (x >> 40) as f32 / (1 << 23) as f32 - 1.0
        })
        .collect()
}

fn halves(x: &[f32]) -> Vec<f16> {
    x.iter().map(|x| f16::from_f32(*x)).collect()
}

/// One head and token by the definition, in double precision.
fn wanted(job: &Attention<'_>, [stream, head, token]: [usize; 3]) -> Vec<f64> {
    let s = job.shape;
    let half = |c: &Cached<'_>, at, len| match c {
        Cached::Half(rows) => rows.row(at, len).iter().map(|x| x.to_f64()).collect::<Vec<f64>>(),
        Cached::Decoded(_) => panic!("these tests have halves"),
    };
    let kv = |n| [stream, head / (s.heads / s.kv_heads), n];
    let q = job.q.row([stream, head, token], s.key);
    let logits: Vec<f64> = (0..s.n_kv)
        .map(|n| {
            let k = half(&job.k, kv(n), s.key);
            let dot: f64 = q.iter().zip(&k).map(|(q, k)| f64::from(*q) * k).sum();
            let x = dot * f64::from(job.scale);
            job.mask.map_or(x, |m| x + m.row([stream, head, token], s.n_kv)[n].to_f64())
        })
        .collect();
    let most = logits.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    if most == f64::NEG_INFINITY {
        return vec![0.0; s.value];
    }
    let p: Vec<f64> = logits.iter().map(|x| (x - most).exp()).collect();
    let sink = job.sinks.map_or(0.0, |x| (f64::from(x[head]) - most).exp());
    let sum = p.iter().sum::<f64>() + sink;
    let mut out = vec![0.0; s.value];
    for (n, p) in p.iter().enumerate() {
        let v = half(&job.v, kv(n), s.value);
        out.iter_mut().zip(v).for_each(|(o, v)| *o += p / sum * v);
    }
    out
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    /// Whatever the sizes and the units: each row of the result is that of its own head, token and
    /// stream, from K and V of its own KV head.
    #[test]
    fn every_row_is_its_own(
        tokens in 1usize..9, n_kv in 1usize..40, kv_heads in 1usize..4, group in 1usize..4,
        streams in 1usize..3, key in 1usize..20, value in 1usize..20, workers in 1usize..4,
        masked in any::<bool>(), with_sinks in any::<bool>(), seed in any::<u64>(),
    ) {
        let heads = kv_heads * group;
        let shape = Shape { tokens, n_kv, heads, kv_heads, key, value, streams };
        // As llama.cpp has them: Q by token and head, K and V by position and head.
        let q = noise(seed, streams * tokens * heads * key);
        let k = halves(&noise(seed ^ 1, streams * n_kv * kv_heads * key));
        let v = halves(&noise(seed ^ 2, streams * n_kv * kv_heads * value));
        let mut mask = halves(&noise(seed ^ 3, streams * tokens * n_kv));
        for (m, r) in mask.iter_mut().zip(noise(seed ^ 4, streams * tokens * n_kv)) {
            if r > 0.0 { *m = f16::NEG_INFINITY; }
        }
        let sinks = noise(seed ^ 5, heads);
        let rows = |width: usize, h: usize| [n_kv * h * width, width, h * width];
        let job = Attention {
            shape,
            q: Strided::new(&q, [tokens * heads * key, key, heads * key]),
            k: Cached::Half(Strided::new(&k, rows(key, kv_heads))),
            v: Cached::Half(Strided::new(&v, rows(value, kv_heads))),
            mask: masked.then(|| Mask::new(Strided::new(&mask, [tokens * n_kv, 0, n_kv]), streams, 1)),
            sinks: with_sinks.then_some(&sinks),
            scale: 0.5,
            max_bias: 0.0,
            softcap: 0.0,
        };
        let mut out = vec![f32::NAN; shape.results()];
        job.check(out.len()).unwrap();
        let queue = Queue::new(&job, workers, &mut out);
        let skipped = queue.skipped;
        let mut with = Exact { calls: Vec::new() };
        let (_, trouble) = queue.work(&job, &mut with, &mut Buffers::default()).unwrap();
        prop_assert_eq!(trouble, None);
        drop(queue);
        prop_assert!(masked || skipped == 0);
        for (i, got) in out.chunks_exact(value).enumerate() {
            let at = [i / heads / tokens, i % heads, i / heads % tokens];
            for (got, want) in got.iter().zip(wanted(&job, at)) {
                prop_assert!((f64::from(*got) - want).abs() < 3e-3, "{at:?}: {got} {want}");
            }
        }
    }
}

/// A second call finds what the first left, in other sizes.
#[test]
fn buffers_are_used_again() {
    let scratch = Scratch::default();
    let mut buffers = scratch.take();
    room(&mut buffers.logits, 1000, 0.0);
    scratch.put(buffers);
    assert!(scratch.bytes() >= 4000);
    assert_eq!(room(&mut scratch.take().logits, 10, 0.0).len(), 10);
    scratch.put(Buffers::default());
    scratch.clear();
    assert_eq!(scratch.bytes(), 0);
}

/// Operands that do not belong together are refused in words.
#[test]
fn misfits() {
    let shape = Shape { tokens: 2, n_kv: 3, heads: 4, kv_heads: 2, key: 5, value: 6, streams: 1 };
    let (q, kv) = (vec![0f32; 40], &*vec![f16::ZERO; 36].leak());
    let good = Attention {
        shape,
        q: Strided::new(&q, [0, 5, 20]),
        k: Cached::Half(Strided::new(kv, [0, 5, 10])),
        v: Cached::Half(Strided::new(kv, [0, 6, 12])),
        mask: Some(Mask::new(Strided::new(kv, [0, 0, 3]), 1, 1)),
        sinks: None,
        scale: 1.0,
        max_bias: 0.0,
        softcap: 0.0,
    };
    assert!(good.check(48).is_ok());
    let with = |change: fn(&mut Attention<'_>, &'static [f16])| {
        let mut a = good;
        change(&mut a, kv);
        a.check(a.shape.results()).unwrap_err().to_string()
    };
    assert!(good.check(47).unwrap_err().to_string().contains("47 elements, not 48"));
    assert!(with(|a, _| a.shape.n_kv = 0).contains("at least 1"));
    assert!(with(|a, _| a.shape.kv_heads = 3).contains("4 heads cannot share 3"));
    assert!(with(|a, _| a.shape.tokens = 3).contains("Q does not"));
    assert!(with(|a, kv| a.k = Cached::Half(Strided::new(kv, [0, 5, 20]))).contains("K does not"));
    assert!(with(|a, kv| a.v = Cached::Half(Strided::new(kv, [0, 6, 13]))).contains("V does not"));
    assert!(
        with(|a, kv| a.mask = Some(Mask::new(Strided::new(kv, [0, 0, 3]), 1, 3))).contains("mask")
    );
    assert!(with(|a, _| a.sinks = Some(&[0.0; 3])).contains("4 heads"));
    assert!(with(|a, _| a.scale = f32::NAN).contains("numbers"));
}
