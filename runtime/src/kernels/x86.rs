//! Versions for x86-64 processors with AVX2 and F16C. Each returns false, and does nothing, on others.
#![allow(unsafe_code)] // a border: instructions that not every processor has

use super::{Bytes, pack, results};
use half::f16;
use std::arch::is_x86_feature_detected;
use std::arch::x86_64::*;

pub(super) fn feature_atoms(src: Bytes<'_>, m: usize, dst: &mut [u8]) -> bool {
    if !is_x86_feature_detected!("avx2") {
        return false;
    }
    // SAFETY: the processor has AVX2.
    unsafe { feature_atoms_avx2(src, m, dst) };
    true
}

#[target_feature(enable = "avx2")]
fn feature_atoms_avx2(src: Bytes<'_>, m: usize, dst: &mut [u8]) {
    pack::bands(src, m, dst, |rows, lines, step| quad(rows, lines, step));
}

/// Two planes at a time: half as many stores fill a line, so more lines are under way at once.
#[target_feature(enable = "avx2")]
#[inline]
fn quad(rows: [&pack::Share; 4], lines: &mut [[u8; 64]], step: usize) {
    let [a, b, c, d] = rows;
    for p in 0..a.len() / 32 {
        let (a, b) = (load(&a.as_chunks().0[p]), load(&b.as_chunks().0[p]));
        let (c, d) = (load(&c.as_chunks().0[p]), load(&d.as_chunks().0[p]));
        let (even, odd) = (2 * p * step, (2 * p + 1) * step);
        let low =
            [_mm256_permute2x128_si256::<0x20>(a, b), _mm256_permute2x128_si256::<0x20>(c, d)];
        store(&mut lines[even], low);
        let high =
            [_mm256_permute2x128_si256::<0x31>(a, b), _mm256_permute2x128_si256::<0x31>(c, d)];
        store(&mut lines[odd], high);
    }
}

#[target_feature(enable = "avx")]
#[inline]
fn load(atoms: &[u8; 32]) -> __m256i {
    // SAFETY: 32 bytes are there, and any alignment will do.
    unsafe { _mm256_loadu_si256(atoms.as_ptr().cast()) }
}

#[target_feature(enable = "avx")]
#[inline]
fn store(line: &mut [u8; 64], [low, high]: [__m256i; 2]) {
    // SAFETY: 64 bytes are there, and any alignment will do.
    unsafe {
        _mm256_storeu_si256(line.as_mut_ptr().cast(), low);
        _mm256_storeu_si256(line.as_mut_ptr().add(32).cast(), high);
    }
}

pub(super) fn store_f16(
    cube: &[f16],
    m: usize,
    rows: &mut [&mut [f32]],
    scale: Option<&[f32]>,
) -> bool {
    if !(is_x86_feature_detected!("avx") && is_x86_feature_detected!("f16c")) {
        return false;
    }
    // SAFETY: the processor has AVX and F16C.
    unsafe { store_f16_f16c(cube, m, rows, scale) };
    true
}

#[target_feature(enable = "avx,f16c")]
fn store_f16_f16c(cube: &[f16], m: usize, rows: &mut [&mut [f32]], scale: Option<&[f32]>) {
    results::store_f16_by(cube, m, rows, scale, |atom| {
        let mut out = [0f32; 8];
        // SAFETY: both arrays are as large as what is read and written, which need no alignment.
        unsafe {
            let wide = _mm256_cvtph_ps(_mm_loadu_si128(atom.as_ptr().cast()));
            _mm256_storeu_ps(out.as_mut_ptr(), wide);
        }
        out
    });
}
