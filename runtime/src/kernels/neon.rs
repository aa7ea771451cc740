//! NEON where the compiler's own vectors are worse: conversion from and to binary16, which armv8-a
//! has and portable code cannot name. (The half crate asks for FEAT_FP16, converts in software
//! without it, and takes five times the instructions with it.) Nothing here asks for more than the
//! baseline: FEAT_FP16 adds half arithmetic and FEAT_DotProd products, and no kernel has either.
#![allow(unsafe_code)] // a border: vector loads and stores take pointers

use half::f16;
use std::arch::aarch64::*;

/// Eight halves to floats.
#[inline(always)]
pub(super) fn widen(atom: &[f16; 8]) -> [f32; 8] {
    let mut out = [0f32; 8];
    // SAFETY: NEON is part of armv8-a; both arrays are as large as what is read and written.
    unsafe {
        let halves = vreinterpretq_f16_u16(vld1q_u16(atom.as_ptr().cast()));
        vst1q_f32(out.as_mut_ptr(), vcvt_f32_f16(vget_low_f16(halves)));
        vst1q_f32(out.as_mut_ptr().add(4), vcvt_high_f32_f16(halves));
    }
    out
}

/// Eight floats to halves, to nearest, ties to even (the rounding mode of every Rust program).
#[inline(always)]
fn narrow(x: &[f32; 8]) -> [f16; 8] {
    let mut out = [f16::ZERO; 8];
    // SAFETY: NEON is part of armv8-a; both arrays are as large as what is read and written.
    unsafe {
        let low = vcvt_f16_f32(vld1q_f32(x.as_ptr()));
        let halves = vcvt_high_f16_f32(low, vld1q_f32(x.as_ptr().add(4)));
        vst1q_u16(out.as_mut_ptr().cast(), vreinterpretq_u16_f16(halves));
    }
    out
}

/// A slice, the last of it padded to eight.
pub(super) fn widen_all(src: &[f16], dst: &mut [f32]) {
    by_eights(src, dst, widen);
}

/// As [`widen_all`], the other way.
pub(super) fn narrow_all(src: &[f32], dst: &mut [f16]) {
    by_eights(src, dst, narrow);
}

#[inline(always)]
fn by_eights<S: Copy + Default, D: Copy>(
    src: &[S],
    dst: &mut [D],
    convert: impl Fn(&[S; 8]) -> [D; 8],
) {
    let ((src, last), (dst, rest)) = (src.as_chunks(), dst.as_chunks_mut());
    for (s, d) in src.iter().zip(dst) {
        *d = convert(s);
    }
    let mut padded = [S::default(); 8];
    padded[..last.len()].copy_from_slice(last);
    rest.copy_from_slice(&convert(&padded)[..rest.len()]);
}
