//! One attention from accepted op to trusted result.

use super::verify::Verify;
use super::{Attend, Engine, OpRecord, Redo};
use rocket_runtime::Error;
use rocket_runtime::ops::attention::{Attention, Trouble};
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs one attention.
///
/// # Errors
/// Why the CPU has to do it, with the engine's error if that was the reason.
pub fn run(
    engine: &dyn Engine,
    verify: &Verify,
    name: &str,
    op: Attention<'_>,
    out: &mut [f32],
) -> Result<OpRecord, (Redo, Option<Error>)> {
    let refuse = |redo| (redo, None);
    let job = Attend { name, op, out: &mut *out };
    let done = catch_unwind(AssertUnwindSafe(|| engine.attention(job)))
        .map_err(|_| refuse(Redo::EnginePanic))?
        .map_err(|e| (Redo::EngineError, Some(e)))?;
    match done.trouble {
        Some(Trouble::QueryNotFinite) => return Err(refuse(Redo::ActivationNotFinite)),
        Some(Trouble::CacheNotFinite) => return Err(refuse(Redo::CacheNotFinite)),
        Some(Trouble::ResultNotFinite) => return Err(refuse(Redo::ResultNotFinite)),
        None => {}
    }
    if out.iter().any(|x| !x.is_finite()) {
        return Err(refuse(Redo::ResultNotFinite));
    }
    if let Err(why) = verify.attention(&op, out) {
        tracing::error!(
            "{name}: {why}; the NPU's results cannot be trusted, so it is left alone until this \
             process ends, and everything is computed on the CPU"
        );
        engine.distrust();
        return Err(refuse(Redo::Mismatch));
    }
    Ok(done.record)
}

#[cfg(test)]
mod tests {
    use super::super::test_noise::noise;
    use super::super::verify::Mode;
    use super::super::{Attended, Done, MatMul};
    use super::*;
    use half::f16;
    use rocket_runtime::ops::attention::{Cached, Shape, Strided};

    /// The exact result, damaged as told.
    #[derive(Debug)]
    struct Fake {
        damage: fn(&mut [f32]),
        trouble: Option<Trouble>,
    }

    impl Engine for Fake {
        fn mul_mat(&self, _: MatMul<'_>) -> Result<Done, Error> {
            panic!("attention alone")
        }

        fn attention(&self, job: Attend<'_>) -> Result<Attended, Error> {
            let s = job.op.shape;
            for (r, row) in job.out.chunks_exact_mut(s.value).enumerate() {
                let exact = job.op.exact([0, r % s.heads, r / s.heads]);
                row.iter_mut().zip(exact.values).for_each(|(o, x)| *o = x as f32);
            }
            (self.damage)(job.out);
            Ok(Attended { trouble: self.trouble, ..Attended::default() })
        }
    }

    const SHAPE: Shape =
        Shape { tokens: 5, n_kv: 40, heads: 4, kv_heads: 2, key: 16, value: 24, streams: 1 };

    fn go(damage: fn(&mut [f32]), trouble: Option<Trouble>, mode: Mode) -> Result<(), Redo> {
        let s = SHAPE;
        let half = |x: Vec<f32>| x.into_iter().map(f16::from_f32).collect::<Vec<_>>();
        let q = noise(1, s.tokens * s.heads * s.key);
        let k = half(noise(2, s.n_kv * s.kv_heads * s.key));
        let v = half(noise(3, s.n_kv * s.kv_heads * s.value));
        let op = Attention {
            shape: s,
            q: Strided::new(&q, [0, s.key, s.heads * s.key]),
            k: Cached::Half(Strided::new(&k, [0, s.key, s.kv_heads * s.key])),
            v: Cached::Half(Strided::new(&v, [0, s.value, s.kv_heads * s.value])),
            mask: None,
            sinks: None,
            scale: 0.25,
            max_bias: 0.0,
            softcap: 0.0,
        };
        let mut out = vec![0f32; s.results()];
        let done = run(&Fake { damage, trouble }, &Verify::new(mode), "t", op, &mut out);
        done.map(|_| ()).map_err(|(redo, _)| redo)
    }

    #[test]
    fn results_and_redos() {
        assert_eq!(go(|_| (), None, Mode::First), Ok(()));
        assert_eq!(go(|o| o.iter_mut().for_each(|x| *x *= 1.001), None, Mode::First), Ok(()));
        for (trouble, redo) in [
            (Trouble::QueryNotFinite, Redo::ActivationNotFinite),
            (Trouble::CacheNotFinite, Redo::CacheNotFinite),
            (Trouble::ResultNotFinite, Redo::ResultNotFinite),
        ] {
            assert_eq!(go(|_| (), Some(trouble), Mode::Off), Err(redo));
        }
        assert_eq!(go(|o| o[3] = f32::NAN, None, Mode::Off), Err(Redo::ResultNotFinite));
        for damage in [
            (|o| o.fill(0.0)) as fn(&mut [f32]),
            |o| o.reverse(),
            // Heads exchanged; a tile of columns lost.
            |o| o.chunks_exact_mut(2 * 24).for_each(|pair| pair.rotate_left(24)),
            |o| o.chunks_exact_mut(24).for_each(|row| row[16..].fill(0.0)),
        ] {
            assert_eq!(go(damage, None, Mode::First), Err(Redo::Mismatch));
            assert_eq!(go(damage, None, Mode::Off), Ok(()));
        }
    }
}
