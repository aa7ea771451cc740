//! Programs in other number formats, and of images.

use super::*;
use half::bf16;

/// A row of the tables of npu-rk3588 2.1 and 3.1.
#[derive(Debug, Clone, Copy)]
pub struct Kind {
    pub code: u32,
    pub dpu: u32,
    pub out: u32,
    pub bits: u32,
    pub group: u32,
    pub unit: u32,
    pub size_e: u32,
    pub qd: u32,
}

pub const fn kind(
    code: u32,
    dpu: u32,
    out: u32,
    bits: u32,
    group: u32,
    size_e: u32,
    qd: u32,
) -> Kind {
    let unit = if bits == 32 { 16 } else { 32 };
    Kind { code, dpu, out, bits, group, unit, size_e, qd }
}

pub const INT8: Kind = kind(0, 0, 4, 8, 32, 7, 0);
pub const INT8_F32: Kind = kind(0, 0, 5, 8, 32, 7, 0);
pub const INT8_INT8: Kind = kind(0, 0, 0, 8, 32, 1, 1);
pub const INT16: Kind = kind(1, 1, 4, 16, 16, 7, 1);
pub const BF16: Kind = kind(3, 3, 5, 16, 16, 3, 1);
pub const INT4: Kind = kind(6, 6, 1, 4, 64, 7, 0);
pub const TF32: Kind = kind(7, 5, 5, 32, 16, 3, 1);

pub fn encode_value(k: Kind, v: f32) -> Vec<u8> {
    match k.code {
        0 => vec![v as i8 as u8],
        1 => (v as i16).to_le_bytes().to_vec(),
        3 => bf16::from_f32(v).to_le_bytes().to_vec(),
        _ => v.to_le_bytes().to_vec(),
    }
}

/// A cube, by the element index of each value.
pub fn cube(k: Kind, values: &[f32], index: impl Fn(usize) -> usize) -> Vec<u8> {
    let mut out = vec![0; values.len() * k.bits as usize / 8];
    for (i, v) in values.iter().enumerate() {
        let at = index(i);
        if k.bits == 4 {
            out[at / 2] |= ((*v as i8 & 15) as u8) << (4 * (at % 2));
        } else {
            let bytes = encode_value(k, *v);
            out[at * bytes.len()..][..bytes.len()].copy_from_slice(&bytes);
        }
    }
    out
}

/// Gives a set-up buffers in another format, and gives the program for it.
pub fn retyped(s: &mut Setup, t: Kind) -> Vec<u64> {
    let (m, k, n) = (s.shape.m, s.shape.k, s.shape.n);
    let (ms, ks) = (m as usize, k as usize);
    let (g, u, c2) = (t.group as usize, t.unit as usize, 128 / t.bits as usize);
    s.input = s.rig.with(&cube(t, &s.a, |i| (i % ks / c2 * ms + i / ks) * c2 + i % ks % c2));
    s.weights = s.rig.with(&cube(t, &s.w, |i| {
        let (r, c) = (i / ks, i % ks);
        r / g * g * ks + c / u * u * g + r % g * u + c % u
    }));
    let row = k * t.bits / 8;
    let slack = u32::from(t.code == 0);
    let dbank = (m * row).div_ceil(32768) + slack;
    let mut words = s.words.clone();
    let od = if t.out == 0 { 0 } else { 2 };
    for (reg, value) in [
        (0x100c, t.code << 7 | t.code << 4),
        (0x1030, row * n),
        (0x1034, row),
        (0x1040, (12 - dbank) << 4 | dbank),
        (0x1044, row.div_ceil(64)),
        (FEATURE, s.input.iova()),
        (WEIGHTS, s.weights.iova()),
        (0x3010, t.code << 8 | t.qd),
        (0x4010, t.out << 29 | t.dpu << 26 | t.dpu),
        (0x4050, t.size_e << 8 | t.size_e << 5 | t.size_e << 2 | od),
        (0x4084, 1),
        (0x40c0, (m * (t.size_e + 1)) << 4),
    ] {
        set(&mut words, reg, value);
    }
    words
}

pub fn wide(m: u32, k: u32, n: u32) -> Shape {
    Shape { wide: true, ..Shape::new(m, k, n) }
}

/// A set-up whose results are 32 bits wide, and its program in another format.
pub fn typed(shape: Shape, t: Kind) -> (Setup, Vec<u64>) {
    let mut s = Setup::new(&Rig::new(quick()), shape);
    let words = retyped(&mut s, t);
    (s, words)
}

/// The same pixels as an image of another shape.
pub fn as_image(s: &Setup, w: u32, h: u32) -> Vec<u64> {
    let mut words = s.words.clone();
    for (reg, value) in [
        (0x1020, w << 16 | h),
        (0x1028, w),
        (0x1044, (w * s.shape.k * 2).div_ceil(64)),
        (0x107c, 4 * w),
        (0x1080, w * h.saturating_sub(4)),
        (0x1084, w << 16 | h),
        (0x3014, (h - 1) << 16 | (w - 1)),
        (0x4030, w - 1),
        (0x4034, h - 1),
        (0x405c, (h - 1) << 16 | (w - 1)),
        (0x500c, w - 1),
        (0x5010, h - 1),
    ] {
        set(&mut words, reg, value);
    }
    words
}
