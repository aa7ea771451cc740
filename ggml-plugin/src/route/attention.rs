//! FLASH_ATTN_EXT: Q F32, K and V of any type that the host decodes, a mask of F16, sinks, ALiBi and
//! soft-cap (ggml-plugin-behaviour 3, ggml-abi 2.6).

use super::mul_mat::MAX_ELEMENTS;
use super::{AttentionFacts, AttentionShape, Dtype, Reason, TensorFacts};

/// Which attentions are taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionPolicy {
    /// Any at all (`ROCKET_FLASH_ATTN`).
    pub on: bool,
    /// Positions from which it is worth the trip (`ROCKET_FLASH_ATTN_MIN_KV`).
    pub min_kv: usize,
    /// Tokens from which it is (`ROCKET_FLASH_ATTN_MIN_T`).
    pub min_tokens: usize,
    /// Also without a mask (`ROCKET_FLASH_ATTN_UNMASKED`).
    pub unmasked: bool,
}

/// Dimensions of a program's operands (npu-rk3588 7.1).
const MAX_DIM: i64 = 1 << 24;

/// Where the parameters lie (ggml-abi 2.6).
const SCALE: usize = 0;
const MAX_BIAS: usize = 1;
const SOFTCAP: usize = 2;
const ACCUMULATOR: usize = 3;
const MOST_SEEN: usize = 4;

/// Scale, ALiBi bias and soft-cap of the op.
pub fn numbers(params: &[i32; 16]) -> [f32; 3] {
    [SCALE, MAX_BIAS, SOFTCAP].map(|i| f32::from_bits(params[i] as u32))
}

pub(super) fn decide(
    op: &AttentionFacts,
    policy: &AttentionPolicy,
) -> Result<AttentionShape, Reason> {
    if !policy.on {
        return Err(Reason::AttentionOff);
    }
    if op.more_sources {
        return Err(Reason::AttentionSource);
    }
    if !op.in_host_memory {
        return Err(Reason::AttentionNotInHostMemory);
    }
    if op.q.dtype != Dtype::F32 {
        return Err(Reason::AttentionQueryType);
    }
    if [op.k, op.v].iter().any(|t| !t.dtype.is_known() || t.block.is_none()) {
        return Err(Reason::AttentionCacheType);
    }
    if op.result.dtype != Dtype::F32 {
        return Err(Reason::ResultType);
    }
    let shape = shape(op)?;
    let result = op.result.is_contiguous();
    if !result || ![&op.q, &op.k, &op.v].into_iter().all(rows_are_whole) {
        return Err(Reason::NotContiguous);
    }
    mask(op, shape)?;
    if let Some(s) = op.sinks
        && (s.dtype != Dtype::F32 || !s.is_contiguous() || s.ne != [op.q.ne[2], 1, 1, 1])
    {
        return Err(Reason::AttentionSinks);
    }
    parameters(op)?;
    if op.mask.is_none() && !policy.unmasked {
        return Err(Reason::AttentionUnmasked);
    }
    if shape.n_kv < policy.min_kv {
        return Err(Reason::AttentionShortContext);
    }
    if shape.tokens < policy.min_tokens {
        return Err(Reason::AttentionFewTokens);
    }
    Ok(shape)
}

fn shape(op: &AttentionFacts) -> Result<AttentionShape, Reason> {
    let (q, k, v, r) = (op.q.ne, op.k.ne, op.v.ne, op.result.ne);
    if [q, k, v, r].iter().flatten().any(|&n| n < 1) {
        return Err(Reason::Empty);
    }
    let [key, tokens, heads, streams] = q;
    let [value, n_kv, kv_heads, _] = v;
    if k != [key, n_kv, kv_heads, streams]
        || v[3] != streams
        || r != [value, heads, tokens, streams]
        || heads % kv_heads != 0
    {
        return Err(Reason::ShapeMismatch);
    }
    // Each operand and the logits of one KV head.
    let elements = |dims: &[i64]| {
        dims.iter().try_fold(1usize, |p, &n| p.checked_mul(usize::try_from(n).ok()?))
    };
    let rows = [tokens, heads / kv_heads];
    let products = [
        elements(&[rows[0], rows[1], key]),
        elements(&[rows[0], rows[1], value]),
        elements(&[n_kv, key]),
        elements(&[n_kv, value]),
        elements(&[rows[1], n_kv]),
    ];
    let whole = [elements(&q), elements(&k), elements(&v), elements(&r)];
    let work = elements(&[tokens, heads, streams, n_kv]);
    let fits = |x: &Option<usize>| x.is_some_and(|x| x <= MAX_ELEMENTS);
    let counted = |x: &Option<usize>| x.is_some_and(|x| x <= usize::MAX / 16);
    if [q, k, v].iter().flatten().any(|&n| n > MAX_DIM)
        || !products.iter().all(fits)
        || !whole.iter().all(counted)
        || work.is_none_or(|x| x > usize::MAX >> 26)
    {
        return Err(Reason::TooLarge);
    }
    let [tokens, n_kv, heads, kv_heads, key, value, streams] =
        [tokens, n_kv, heads, kv_heads, key, value, streams].map(|n| n as usize);
    Ok(AttentionShape { tokens, n_kv, heads, kv_heads, key, value, streams })
}

/// Dense rows of whole blocks, at distances of whole elements or blocks.
fn rows_are_whole(t: &TensorFacts) -> bool {
    let Some(block) = t.block else { return false };
    let row = usize::try_from(t.ne[0]).ok().and_then(|n| block.row_bytes(n));
    let apart = t.ne[1..].iter().zip(&t.nb[1..]);
    row.is_some()
        && (t.ne[0] == block.elements as i64 || t.nb[0] == block.bytes)
        && apart.into_iter().all(|(&ne, &nb)| ne == 1 || nb.is_multiple_of(block.bytes))
}

/// A row for each token, perhaps followed by padding rows; its heads and streams serve Q's in turn.
fn mask(op: &AttentionFacts, s: AttentionShape) -> Result<(), Reason> {
    let Some(m) = op.mask else { return Ok(()) };
    let serves = |n: i64, of: usize| n >= 1 && (of as i64) % n == 0;
    let fits = m.dtype == Dtype::F16
        && rows_are_whole(&m)
        && m.ne[0] == s.n_kv as i64
        && m.ne[1] >= s.tokens as i64
        && serves(m.ne[2], s.heads)
        && serves(m.ne[3], s.streams);
    if fits { Ok(()) } else { Err(Reason::AttentionMask) }
}

/// A closed list: what is not known to be satisfied is declined.
fn parameters(op: &AttentionFacts) -> Result<(), Reason> {
    let [scale, max_bias, softcap] = numbers(&op.op_params);
    let sane = scale.is_finite() && [max_bias, softcap].iter().all(|x| x.is_finite() && *x >= 0.0);
    if !sane || (max_bias > 0.0 && op.mask.is_none()) {
        return Err(Reason::AttentionNumbers);
    }
    for (i, &value) in op.op_params.iter().enumerate() {
        match i {
            SCALE | MAX_BIAS | SOFTCAP => {}
            // Products are added up in fp32 on chip, the rest is fp32 on the host: every rank that
            // there is (ggml-abi 2.6) is satisfied.
            ACCUMULATOR if matches!(value, 0 | 10 | 15 | 20 | 30 | 40) => {}
            ACCUMULATOR => return Err(Reason::AccumulatorPrecision),
            // How many positions a row sees at most: a hint.
            MOST_SEEN if value >= 0 => {}
            _ if value == 0 => {}
            _ => return Err(Reason::UnknownParameter),
        }
    }
    Ok(())
}
