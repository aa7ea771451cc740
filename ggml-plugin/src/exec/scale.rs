//! Numbers that have to fit F16: each activation row is divided by its own power of two, because
//! activations exceed the F16 range and one large row must not cost the others their precision
//! (ggml-plugin-behaviour 4).

use super::Redo;
use half::f16;
use half::slice::HalfFloatSliceExt;

/// Largest finite F16 value.
pub const F16_MAX: f32 = 65504.0;

/// Largest and smallest scale: the powers of two that are normal F32 numbers, so that neither the
/// division nor the multiplication back loses anything.
const MAX_SCALE: f32 = f32::from_bits(254 << 23); // 2^127
const MIN_SCALE: f32 = f32::MIN_POSITIVE; // 2^-126

/// A non-zero row of a weight whose largest magnitude is below this is multiplied up first.
///
/// F16 has its full 11 bits down to 2^-14; below, values are multiples of 2^-24, off by up to
/// 2^-25. Beside a row's largest value w that is 2^-25/w, and the ordinary rounding of w itself is
/// 2^-12 of it at best and 2^-11 at worst. At w = 2^-10 the former is 2^-15: an eighth of the best
/// case, lost in it. From there down it grows and at 2^-13 dominates.
pub const MIN_WEIGHT_ROW: f32 = f32::from_bits((127 - 10) << 23); // 2^-10

/// Largest magnitude of a row; `None` when an element is not finite.
pub(super) fn max_abs(row: &[f32]) -> Option<f32> {
    // The bits of a non-negative float order like the float, and everything that is not finite
    // comes after all that is: one integer maximum, which vectorises.
    let bits = row.iter().fold(0u32, |max, x| max.max(x.to_bits() & 0x7fff_ffff));
    (bits < 0x7f80_0000).then(|| f32::from_bits(bits))
}

/// The scale of one activation row: the smallest power of two that is at least its largest
/// magnitude; 1 for a row of zeros.
///
/// # Errors
/// The row cannot be scaled.
pub fn row_scale(row: &[f32]) -> Result<f32, Redo> {
    let max = max_abs(row).ok_or(Redo::ActivationNotFinite)?;
    if max == 0.0 {
        return Ok(1.0);
    }
    if max > MAX_SCALE {
        return Err(Redo::ActivationRange);
    }
    if max <= MIN_SCALE {
        return Ok(MIN_SCALE);
    }
    let power = max.to_bits() & 0x7f80_0000;
    // A power of two is its own scale; otherwise the next one.
    let up = if power == max.to_bits() { 0 } else { 1 << 23 };
    Ok(f32::from_bits(power + up))
}

/// One row divided by its scale, in F16: magnitudes at most 1, and the only rounding is F16's own.
pub fn to_f16(row: &[f32], scale: f32, out: &mut [f16]) {
    // Both a scale and its reciprocal are powers of two, and exact unless the reciprocal is below
    // the normal range; division is exact in all cases.
    let mut part = [0f32; 256];
    for (out, row) in out.chunks_mut(part.len()).zip(row.chunks(part.len())) {
        let part = &mut part[..row.len()];
        part.iter_mut().zip(row).for_each(|(p, x)| *p = x / scale);
        out.convert_from_f32_slice(part);
    }
}

/// Whether the finished result can be trusted. An infinite F16 sum is infinite here as well, also
/// one that overflowed in an earlier K step: infinity stays or becomes no number. Assumed: silicon
/// overflows to infinity, as IEEE does (npu-rk3588 9.3 leaves it open). A last step that saturates
/// instead is exactly 65504 times the row's scale and is caught as well; an earlier one is not.
///
/// # Errors
/// Why not.
pub fn check_result(out: &[f32], n: usize, scales: &[f32]) -> Result<(), Redo> {
    out.chunks_exact(n.max(1)).zip(scales).try_for_each(|(row, scale)| {
        match max_abs(row).ok_or(Redo::ResultNotFinite)? {
            max if max >= F16_MAX * scale => Err(Redo::ResultOverflow),
            _ => Ok(()),
        }
    })
}

/// The same for formats that cannot overflow on chip: their sums are exact integers or F32.
///
/// # Errors
/// [`Redo::ResultNotFinite`].
pub fn check_finite(out: &[f32]) -> Result<(), Redo> {
    max_abs(out).map(|_| ()).ok_or(Redo::ResultNotFinite)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn finite() -> impl Strategy<Value = f32> {
        any::<u32>().prop_map(f32::from_bits).prop_filter("finite", |x| x.is_finite())
    }

    #[test]
    fn corners() {
        assert_eq!(row_scale(&[]), Ok(1.0));
        assert_eq!(row_scale(&[0.0, -0.0]), Ok(1.0));
        assert_eq!(row_scale(&[1.0, -0.5]), Ok(1.0));
        assert_eq!(row_scale(&[-1.000_000_1]), Ok(2.0));
        assert_eq!(row_scale(&[3000.0]), Ok(4096.0));
        assert_eq!(row_scale(&[f32::from_bits(1)]), Ok(MIN_SCALE));
        assert_eq!(row_scale(&[MAX_SCALE]), Ok(MAX_SCALE));
        assert_eq!(row_scale(&[f32::MAX]), Err(Redo::ActivationRange));
        for bad in [f32::INFINITY, f32::NEG_INFINITY, f32::NAN, -f32::NAN] {
            assert_eq!(row_scale(&[1.0, bad]), Err(Redo::ActivationNotFinite));
        }
        assert_eq!(MAX_SCALE, 2f32.powi(127));
        assert_eq!(MIN_WEIGHT_ROW, 2f32.powi(-10));
    }

    #[test]
    fn results() {
        assert_eq!(check_result(&[1.0, 65503.0, 9e9, 1.0], 2, &[1.0, 2e9]), Ok(()));
        assert_eq!(check_result(&[1.0, -65504.0], 2, &[1.0]), Err(Redo::ResultOverflow));
        assert_eq!(check_result(&[1.0, 131_008.0], 2, &[2.0]), Err(Redo::ResultOverflow));
        assert_eq!(check_result(&[f32::NAN], 1, &[1.0]), Err(Redo::ResultNotFinite));
        assert_eq!(check_result(&[f32::INFINITY], 1, &[1.0]), Err(Redo::ResultNotFinite));
    }

    proptest! {
        /// A scale is a power of two, no smaller than the row, and less than twice as large.
        #[test]
        fn scale_is_tight(row in prop::collection::vec(finite(), 1..20)) {
            let max = row.iter().fold(0f32, |m, x| m.max(x.abs()));
            match row_scale(&row) {
                Ok(s) => {
                    prop_assert_eq!(s.to_bits() & 0x007f_ffff, 0);
                    prop_assert!(s.is_normal() && s > 0.0);
                    if max > 0.0 {
                        prop_assert!(max <= s);
                        prop_assert!(s == MIN_SCALE || f64::from(s) < 2.0 * f64::from(max));
                    }
                }
                Err(e) => {
                    prop_assert_eq!(e, Redo::ActivationRange);
                    prop_assert!(max > MAX_SCALE);
                }
            }
        }

        /// Division is exact, so a scaled value comes back as the F16 rounding of the row's own
        /// range: relative to the row's largest value the error is at most half a unit of F16.
        #[test]
        fn only_f16_rounds(row in prop::collection::vec(-1e30f32..1e30, 1..20)) {
            let s = row_scale(&row).unwrap();
            let mut h = vec![f16::ZERO; row.len()];
            to_f16(&row, s, &mut h);
            for (h, x) in h.iter().zip(&row) {
                prop_assert!(h.to_f32().abs() <= 1.0);
                let exact = f64::from(*x) / f64::from(s);
                prop_assert_eq!(f64::from(x / s), exact);
                prop_assert!((f64::from(h.to_f32()) - exact).abs() <= 2f64.powi(-12));
            }
        }
    }
}
