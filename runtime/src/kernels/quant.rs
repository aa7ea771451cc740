//! Symmetric quantization.

/// 1.5 * 2^23: a float this large has no fraction, so adding it rounds to nearest even, and its low
/// bits are the integer.
const ROUNDER: f32 = 12_582_912.0;

/// Quantizes one row in groups of `group` elements, the last one perhaps shorter:
/// `scales[g] = max|x| / limit` and `codes = x / scale`, rounded to nearest, ties to even, so
/// `|codes| <= limit` (127 for int8, 7 for int4; npu-rk3588 7.6). A group of zeros has scale 0 and
/// codes 0, and so has one so small (below `limit * 2^-126`) that its scale would lose bits. False,
/// and the output of no use, if a value is not finite. [`Scales`](crate::matmul::Scales) want the
/// scales of many rows group by group.
///
/// # Panics
/// When `group` is 0, `limit` is not positive, or the lengths do not fit.
pub fn quantize_row(
    src: &[f32],
    group: usize,
    limit: i8,
    codes: &mut [i8],
    scales: &mut [f32],
) -> bool {
    quantize(src, group, limit, codes, scales, |max| max / f32::from(limit))
}

/// As [`quantize_row`], with scales that are powers of two, the least that are not below
/// `max|x| / limit`: multiples of such a scale become codes without rounding. So blocks of 4-bit floats
/// with exponents of their own keep their values where these lie within a few octaves
/// (ggml-plugin-behaviour 8.3).
///
/// # Panics
/// As [`quantize_row`].
pub fn quantize_row_shifted(
    src: &[f32],
    group: usize,
    limit: i8,
    codes: &mut [i8],
    scales: &mut [f32],
) -> bool {
    quantize(src, group, limit, codes, scales, |max| {
        let step = max / f32::from(limit);
        let below = f32::from_bits(step.to_bits() & 0x7f80_0000);
        if below == step { step } else { 2.0 * below }
    })
}

fn quantize(
    src: &[f32],
    group: usize,
    limit: i8,
    codes: &mut [i8],
    scales: &mut [f32],
    step_of: impl Fn(f32) -> f32,
) -> bool {
    assert!(group > 0 && limit > 0 && src.len() == codes.len());
    assert_eq!(src.len().div_ceil(group), scales.len());
    for ((src, codes), scale) in src.chunks(group).zip(codes.chunks_mut(group)).zip(scales) {
        // The order of magnitudes is that of their bits, with the non-finite above all.
        let top = src.iter().map(|x| (x.to_bits() & 0x7fff_ffff) as i32).fold(0, i32::max);
        let max = f32::from_bits(top as u32);
        if !max.is_finite() {
            return false;
        }
        let step = step_of(max);
        if step < f32::MIN_POSITIVE {
            *scale = 0.0;
            codes.fill(0);
            continue;
        }
        *scale = step;
        for (code, x) in codes.iter_mut().zip(src) {
            *code = (x / step + ROUNDER).to_bits() as i8;
        }
    }
    true
}
