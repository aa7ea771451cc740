//! Element types into one another.

use super::select;
use half::{bf16, f16};

/// Rounds to nearest, ties to even; what is too large becomes infinite (npu-rk3588 3.6).
///
/// # Panics
/// When the lengths differ.
pub fn f32_to_f16(src: &[f32], dst: &mut [f16]) {
    assert_eq!(src.len(), dst.len());
    select::f32_to_f16(src, dst);
}

/// Exact.
///
/// # Panics
/// When the lengths differ.
pub fn f16_to_f32(src: &[f16], dst: &mut [f32]) {
    assert_eq!(src.len(), dst.len());
    select::f16_to_f32(src, dst);
}

/// The upper half of each value, cut off and not rounded (npu-rk3588 3.6, 7.10). A NaN whose payload
/// is all in the lower half becomes an infinity, as it does in the vendor's packing.
///
/// # Panics
/// When the lengths differ.
pub fn f32_to_bf16(src: &[f32], dst: &mut [bf16]) {
    assert_eq!(src.len(), dst.len());
    for (d, s) in dst.iter_mut().zip(src) {
        *d = bf16::from_bits((s.to_bits() >> 16) as u16);
    }
}

/// The largest int16 whose high part is an int8 (npu-rk3588 7.8).
pub const I16_MAX: i16 = 32639;

/// Splits each value into `256 * hi + lo` with both parts signed; values above [`I16_MAX`] count
/// as that (npu-rk3588 7.8).
///
/// # Panics
/// When the lengths differ.
pub fn split_i16(src: &[i16], hi: &mut [i8], lo: &mut [i8]) {
    assert!(src.len() == hi.len() && src.len() == lo.len());
    for ((x, hi), lo) in src.iter().zip(hi).zip(lo) {
        let x = (*x).min(I16_MAX);
        *lo = x as i8;
        // What 7.8 calls (x - lo) >> 8: the low part rounds to the nearest multiple of 256.
        *hi = ((x + 128) >> 8) as i8;
    }
}

/// Two int4 values to a byte, the one of the even index in the low nibble (npu-rk3588 3.5); the
/// missing partner of an odd length is 0. False, and `dst` of no use, if a value is outside
/// -8 ..= 7.
///
/// # Panics
/// When `dst` is not half as long as `src`, rounded up.
pub fn nibbles(src: &[i8], dst: &mut [u8]) -> bool {
    assert_eq!(src.len().div_ceil(2), dst.len());
    let (pairs, last) = src.as_chunks::<2>();
    let mut outside = 0;
    for (d, pair) in dst.iter_mut().zip(pairs) {
        let [even, odd] = pair.map(|x| x as u8);
        outside |= (even.wrapping_add(8) | odd.wrapping_add(8)) & 0xf0;
        *d = (even & 0xf) | (odd << 4);
    }
    if let ([x], Some(d)) = (last, dst.last_mut()) {
        outside |= (*x as u8).wrapping_add(8) & 0xf0;
        *d = *x as u8 & 0xf;
    }
    outside == 0
}
