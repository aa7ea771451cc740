//! Which version of a kernel this machine runs. The standard library looks once and remembers.

use super::{Bytes, pack, results};
use half::f16;
#[cfg(not(target_arch = "aarch64"))]
use half::slice::HalfFloatSliceExt;

/// Whole atoms into a feature cube, see [`pack::bands`].
pub(super) fn feature_atoms(src: Bytes<'_>, m: usize, dst: &mut [u8]) {
    #[cfg(target_arch = "x86_64")]
    if super::x86::feature_atoms(src, m, dst) {
        return;
    }
    pack::bands(src, m, dst, pack::quad);
}

/// See [`results::store_f16`].
pub(super) fn store_f16(cube: &[f16], m: usize, rows: &mut [&mut [f32]], scale: Option<&[f32]>) {
    #[cfg(target_arch = "x86_64")]
    if super::x86::store_f16(cube, m, rows, scale) {
        return;
    }
    #[cfg(target_arch = "aarch64")]
    results::store_f16_by(cube, m, rows, scale, super::neon::widen);
    #[cfg(not(target_arch = "aarch64"))]
    results::store_f16_by(cube, m, rows, scale, results::widen);
}

/// See [`super::convert::f32_to_f16`].
pub(super) fn f32_to_f16(src: &[f32], dst: &mut [f16]) {
    #[cfg(target_arch = "aarch64")]
    super::neon::narrow_all(src, dst);
    #[cfg(not(target_arch = "aarch64"))]
    dst.convert_from_f32_slice(src);
}

/// See [`super::convert::f16_to_f32`].
pub(super) fn f16_to_f32(src: &[f16], dst: &mut [f32]) {
    #[cfg(target_arch = "aarch64")]
    super::neon::widen_all(src, dst);
    #[cfg(not(target_arch = "aarch64"))]
    src.convert_to_f32_slice(dst);
}
