//! FLASH_ATTN_EXT: every boundary.

use super::super::attention::decide as rule;
use super::*;

/// Llama-3.2-3B's heads over a cache of 2048 positions, as llama.cpp makes them: Q is permuted, K and V
/// are views of the cache.
fn op() -> AttentionFacts {
    of(Dtype::F16, 512, 2048, [24, 8], [128, 128], 1)
}

fn of(
    cache: Dtype,
    tokens: i64,
    n_kv: i64,
    [heads, kv_heads]: [i64; 2],
    [key, value]: [i64; 2],
    streams: i64,
) -> AttentionFacts {
    let q = TensorFacts::contiguous(Dtype::F32, [key, heads, tokens, streams]);
    let cached = |len| {
        let t = TensorFacts::contiguous(cache, [len, kv_heads, n_kv, streams]);
        swapped(t)
    };
    AttentionFacts {
        q: swapped(q),
        k: cached(key),
        v: cached(value),
        mask: Some(TensorFacts::contiguous(Dtype::F16, [n_kv, tokens, 1, streams])),
        sinks: None,
        result: TensorFacts::contiguous(Dtype::F32, [value, heads, tokens, streams]),
        more_sources: false,
        in_host_memory: true,
        op_params: params([0.088, 0.0, 0.0], [10, 0]),
    }
}

/// Dimensions 1 and 2 exchanged.
fn swapped(mut t: TensorFacts) -> TensorFacts {
    t.ne.swap(1, 2);
    t.nb.swap(1, 2);
    t
}

fn params(numbers: [f32; 3], rest: [i32; 2]) -> [i32; 16] {
    let mut p = [0; 16];
    numbers.iter().enumerate().for_each(|(i, x)| p[i] = x.to_bits() as i32);
    p[3..5].copy_from_slice(&rest);
    p
}

fn decide(op: AttentionFacts) -> Result<Route, Reason> {
    super::super::decide(&OpFacts::FlashAttn(op), &POLICY)
}

fn with(change: impl FnOnce(&mut AttentionFacts)) -> Result<Route, Reason> {
    let mut o = op();
    change(&mut o);
    decide(o)
}

fn under(change: impl FnOnce(&mut AttentionPolicy)) -> Result<Route, Reason> {
    let mut policy = POLICY;
    change(&mut policy.attention);
    super::super::decide(&OpFacts::FlashAttn(op()), &policy)
}

/// Each reason of attention, beside those that products share.
pub(super) fn cases() -> Vec<(Result<Route, Reason>, Reason)> {
    let mut no_mask = op();
    no_mask.mask = None;
    vec![
        (under(|p| p.on = false), Reason::AttentionOff),
        (under(|p| p.min_kv = 2049), Reason::AttentionShortContext),
        (under(|p| p.min_tokens = 513), Reason::AttentionFewTokens),
        (decide(no_mask), Reason::AttentionUnmasked),
        (with(|o| o.q.dtype = Dtype::F16), Reason::AttentionQueryType),
        (with(|o| o.v.dtype = Dtype(43)), Reason::AttentionCacheType),
        (with(|o| o.k.block = None), Reason::AttentionCacheType),
        (with(|o| mask(o).dtype = Dtype::F32), Reason::AttentionMask),
        (with(|o| mask(o).ne[1] = 511), Reason::AttentionMask),
        (with(|o| mask(o).ne[0] = 2047), Reason::AttentionMask),
        (with(|o| mask(o).ne[2] = 5), Reason::AttentionMask),
        (with(|o| mask(o).nb[0] = 4), Reason::AttentionMask),
        (
            with(|o| o.sinks = Some(TensorFacts::contiguous(Dtype::F32, [23, 1, 1, 1]))),
            Reason::AttentionSinks,
        ),
        (
            with(|o| o.sinks = Some(TensorFacts::contiguous(Dtype::F16, [24, 1, 1, 1]))),
            Reason::AttentionSinks,
        ),
        (with(|o| o.op_params = params([f32::NAN, 0.0, 0.0], [0, 0])), Reason::AttentionNumbers),
        (with(|o| o.op_params = params([0.1, -8.0, 0.0], [0, 0])), Reason::AttentionNumbers),
        (
            with(|o| o.op_params = params([0.1, 0.0, f32::INFINITY], [0, 0])),
            Reason::AttentionNumbers,
        ),
        (
            with(|o| (o.mask, o.op_params) = (None, params([0.1, 8.0, 0.0], [0, 0]))),
            Reason::AttentionNumbers,
        ),
        (with(|o| o.in_host_memory = false), Reason::AttentionNotInHostMemory),
        (with(|o| o.more_sources = true), Reason::AttentionSource),
        (with(|o| o.result.dtype = Dtype::F16), Reason::ResultType),
        (with(|o| o.k.ne[1] = 0), Reason::Empty),
        (with(|o| o.k.ne[1] = 2047), Reason::ShapeMismatch),
        (with(|o| o.k.ne[2] = 4), Reason::ShapeMismatch),
        (with(|o| o.result.ne.swap(1, 2)), Reason::ShapeMismatch),
        (with(|o| o.v = swapped_rows(o.v)), Reason::NotContiguous),
        (with(|o| o.q.nb[1] += 2), Reason::NotContiguous),
        (with(|o| o.result.nb[2] += 4), Reason::NotContiguous),
        (decide(of(Dtype::F16, 16, 1 << 24, [64, 1], [576, 512], 1)), Reason::TooLarge),
        (with(|o| o.op_params[3] = 11), Reason::AccumulatorPrecision),
        (with(|o| o.op_params[4] = -1), Reason::UnknownParameter),
        (with(|o| o.op_params[5] = 1), Reason::UnknownParameter),
        (
            super::super::decide(&OpFacts::FlashAttn(op()), &Policy { engine: false, ..POLICY }),
            Reason::NoEngine,
        ),
    ]
}

fn mask(o: &mut AttentionFacts) -> &mut TensorFacts {
    o.mask.as_mut().unwrap()
}

/// V as it is cached without flash attention: the elements of a row are apart.
fn swapped_rows(mut t: TensorFacts) -> TensorFacts {
    t.nb.swap(0, 1);
    t
}

#[test]
fn the_plain_case() {
    let shape = AttentionShape {
        tokens: 512,
        n_kv: 2048,
        heads: 24,
        kv_heads: 8,
        key: 128,
        value: 128,
        streams: 1,
    };
    let route = decide(op()).unwrap();
    assert_eq!(route, Route::Attention(shape));
    assert_eq!(route.name(), "attention");
    assert_eq!(route.products(), Some([512, 128, 2048, 24]));
    assert_eq!(route.macs(), 2 * 512 * 128 * 2048 * 24);
}

/// Everything that llama.cpp's models ask for.
#[test]
fn features() {
    let sinks = TensorFacts::contiguous(Dtype::F32, [24, 1, 1, 1]);
    assert!(with(|o| o.sinks = Some(sinks)).is_ok());
    for numbers in [[0.1, 8.0, 0.0], [1.0, 0.0, 50.0], [-0.5, 0.0, 0.0], [0.0; 3]] {
        assert!(with(|o| o.op_params = params(numbers, [10, 300])).is_ok(), "{numbers:?}");
    }
    for rank in [0, 10, 15, 20, 30, 40] {
        assert!(with(|o| o.op_params[3] = rank).is_ok());
    }
    // Padding rows of older hosts; a mask for each head.
    assert!(
        with(|o| o.mask = Some(TensorFacts::contiguous(Dtype::F16, [2048, 576, 1, 1]))).is_ok()
    );
    assert!(
        with(|o| o.mask = Some(TensorFacts::contiguous(Dtype::F16, [2048, 512, 24, 1]))).is_ok()
    );
    // MLA: K holds the position as well, and V is the rest of the same rows.
    for (key, value) in [(576, 512), (192, 128), (80, 80), (33, 17)] {
        let mut o = of(Dtype::F16, 100, 1024, [128, 1], [key, value], 1);
        o.v.nb = o.k.nb;
        assert!(decide(o).is_ok(), "{key} {value}");
    }
    // Streams with masks of their own, or one for all.
    let streams = of(Dtype::F16, 32, 1024, [9, 3], [64, 64], 4);
    assert_eq!(decide(streams).unwrap().products(), Some([32, 64, 1024, 36]));
    let shared = TensorFacts::contiguous(Dtype::F16, [1024, 32, 1, 1]);
    assert!(decide(AttentionFacts { mask: Some(shared), ..streams }).is_ok());
    assert!(under(|p| (p.min_kv, p.min_tokens) = (2048, 512)).is_ok());
    let unmasked = AttentionPolicy { unmasked: true, ..POLICY.attention };
    assert!(rule(&AttentionFacts { mask: None, ..op() }, &unmasked).is_ok());
}

/// Every type that hosts can decode, as K, as V and as both; a head of part blocks is none.
#[test]
fn every_cache_type() {
    for dtype in Dtype::all().filter(|d| d.block().is_some()) {
        let heads = [8, 8];
        let whole = of(dtype, 64, 1024, heads, [256, 256], 1);
        assert!(decide(whole).is_ok(), "{}", dtype.name());
        let f16 = of(Dtype::F16, 64, 1024, heads, [256, 256], 1);
        assert!(decide(AttentionFacts { k: whole.k, ..f16 }).is_ok());
        assert!(decide(AttentionFacts { v: whole.v, ..f16 }).is_ok());
        let elements = dtype.block().unwrap().elements;
        if elements > 1 {
            let mut part = f16;
            part.k = TensorFacts { ne: part.k.ne, ..whole.k };
            (part.q.ne[0], part.k.ne[0]) = (elements as i64 + 8, elements as i64 + 8);
            assert_eq!(decide(part), Err(Reason::NotContiguous), "{}", dtype.name());
        }
    }
}

proptest! {
    /// The thresholds restated, and nothing panics near or far from any bound.
    #[test]
    fn thresholds(
        tokens in prop_oneof![1i64..40, 1i64..1 << 30],
        n_kv in prop_oneof![1000i64..1100, 1i64..1 << 30],
    ) {
        let o = of(Dtype::F16, tokens, n_kv, [8, 8], [64, 64], 1);
        match decide(o) {
            Ok(_) => prop_assert!(tokens >= 16 && n_kv >= 1024),
            Err(Reason::AttentionShortContext) => prop_assert!(n_kv < 1024),
            Err(Reason::AttentionFewTokens) => prop_assert!(tokens < 16 && n_kv >= 1024),
            Err(why) => {
                prop_assert_eq!(why, Reason::TooLarge);
                prop_assert!(tokens.max(n_kv) > 1 << 20);
            }
        }
    }

    #[test]
    fn garbage_is_declined(
        ne in prop::array::uniform4(any::<i64>()), nb in prop::array::uniform4(any::<usize>()),
        params in prop::array::uniform16(any::<i32>()), dtype in -2i32..50,
    ) {
        let t = TensorFacts { dtype: Dtype(dtype), block: Dtype(dtype).block(), ne, nb };
        let o = AttentionFacts { q: t, k: t, v: t, mask: Some(t), sinks: Some(t), result: t, op_params: params, ..op() };
        prop_assert!(decide(o).is_err());
        let mixed = with(|o| o.k = t).is_err() && with(|o| o.q = t).is_err();
        prop_assert!(mixed && with(|o| o.mask = Some(t)).is_err());
    }
}
