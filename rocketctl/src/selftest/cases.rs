//! The products: one case a format and way of calling.
//!
//! Each runs twice with other operands, so that results of the call before would be seen, into memory that was
//! filled with what no result can be. How far a float may be off is derived in docs/library.md from the number of
//! additions and roundings; integers must be equal.

use super::draw::Draw;
use super::judge::{self, Done, Shape, Tolerance};
use half::{bf16, f16};
use rocket_runtime::Result;
use rocket_runtime::matmul::{
    Bf16, Fp16, Int4, Int8, Integer, Matrix, Npu, Operand, Rows, Scales, Summation, Tf32, Together,
};

/// M, K and N: off every grid, several K steps in each format.
const SHAPE: Shape = [36, 1100, 130];
/// Channels that share a scale; the last group is shorter.
const GROUP: usize = 128;
/// Relative spacing of binary32, by half.
const U: f64 = 1.0 / (1u64 << 24) as f64;

/// Before a call, where integers go: no sum of these operands.
const NO_SUM: i64 = i32::MIN as i64;

/// Operands in double precision, and as elements.
struct Operands<E> {
    a: Vec<E>,
    w: Vec<E>,
    wide_a: Vec<f64>,
    wide_w: Vec<f64>,
}

/// Float operands in a format that rounds. The last channel is large, so that leaving it out shows.
fn operands<E: Copy>(
    draw: &mut Draw,
    round: impl Fn(f32) -> E,
    widen: impl Fn(E) -> f64,
) -> Operands<E> {
    let [m, k, n] = SHAPE;
    let mut a = draw.list(m * k, Draw::value);
    a.chunks_exact_mut(k).for_each(|row| row[k - 1] += 16.0);
    let mut w = draw.list(n * k, Draw::value);
    w.chunks_exact_mut(k).for_each(|row| row[k - 1] += 4.0);
    let [a, w] = [a, w].map(|x| x.into_iter().map(&round).collect::<Vec<E>>());
    let wide = |x: &[E]| x.iter().map(|x| widen(*x)).collect();
    Operands { wide_a: wide(&a), wide_w: wide(&w), a, w }
}

fn halves(draw: &mut Draw) -> Operands<f16> {
    operands(draw, f16::from_f32, f16::to_f64)
}

/// With other operands each time.
fn twice(one: impl Fn(&mut Draw) -> Result<Done>) -> Result<Done> {
    Ok(one(&mut Draw(1))?.and(one(&mut Draw(2))?))
}

/// fp32 results of each K step, added up by the host in binary64.
fn by_host() -> Tolerance {
    Tolerance { relative: (SHAPE[1] as f64 + 2.0) * U, absolute: 0.0 }
}

/// Each of so many K steps rounded to fp16, and the sum with it.
fn on_chip(steps: usize) -> Tolerance {
    let steps = steps as f64;
    let half = 2f64.powi(-11);
    let relative = (steps + 1.0) * half + (SHAPE[1] as f64 + 2.0) * U;
    Tolerance { relative, absolute: steps * 2f64.powi(-25) }
}

fn nothing() -> Vec<f32> {
    vec![f32::NAN; SHAPE[0] * SHAPE[2]]
}

pub fn fp16(npu: &Npu) -> Result<Done> {
    let [m, k, n] = SHAPE;
    twice(|draw| {
        let x = halves(draw);
        let w = npu.pack(Fp16, &Rows::new(&x.w, n, k))?;
        let mut c = nothing();
        let a = Matrix::new(&x.a, m, k, k);
        let stats = npu.gemm(a, Operand::Resident(&w), &mut c, None, Summation::Host)?;
        Ok(Done::of(judge::floats(&c, &x.wide_a, &x.wide_w, SHAPE, by_host()), &[stats]))
    })
}

pub fn fp16_on_chip(npu: &Npu) -> Result<Done> {
    let [m, k, n] = SHAPE;
    twice(|draw| {
        let x = halves(draw);
        let w = npu.pack(Fp16, &Rows::new(&x.w, n, k))?;
        let mut c = nothing();
        let a = Matrix::new(&x.a, m, k, k);
        let stats = npu.gemm(a, Operand::Resident(&w), &mut c, None, Summation::OnChip)?;
        let bound = on_chip(k.div_ceil(w.k_step()));
        Ok(Done::of(judge::floats(&c, &x.wide_a, &x.wide_w, SHAPE, bound), &[stats]))
    })
}

pub fn fp16_streamed(npu: &Npu) -> Result<Done> {
    let [m, k, n] = SHAPE;
    twice(|draw| {
        let x = halves(draw);
        let mut c = nothing();
        let w = Rows::new(&x.w, n, k);
        let a = Matrix::new(&x.a, m, k, k);
        let stats = npu.gemm(a, Operand::Stream(Fp16, &w), &mut c, None, Summation::Host)?;
        Ok(Done::of(judge::floats(&c, &x.wide_a, &x.wide_w, SHAPE, by_host()), &[stats]))
    })
}

/// Two weights that share an activation, as Q, K and V do.
pub fn fp16_together(npu: &Npu) -> Result<Done> {
    let [m, k, n] = SHAPE;
    twice(|draw| {
        let (x, y) = (halves(draw), halves(draw));
        let first = npu.pack(Fp16, &Rows::new(&x.w, n, k))?;
        let second = npu.pack(Fp16, &Rows::new(&y.w, n, k))?;
        let (mut c, mut d) = (nothing(), nothing());
        let mut all = [Together { w: &first, out: &mut c }, Together { w: &second, out: &mut d }];
        let stats =
            npu.gemm_together(Matrix::new(&x.a, m, k, k), &mut all, None, Summation::Host)?;
        let judged = |c: &[f32], w: &[f64]| judge::floats(c, &x.wide_a, w, SHAPE, by_host());
        Ok(Done::of(judged(&c, &x.wide_w).and(judged(&d, &y.wide_w)), &stats))
    })
}

pub fn bfloat16(npu: &Npu) -> Result<Done> {
    let [m, k, n] = SHAPE;
    twice(|draw| {
        let x = operands(draw, bf16::from_f32, bf16::to_f64);
        let mut c = nothing();
        let w = Rows::new(&x.w, n, k);
        let stats =
            npu.gemm_float(Matrix::new(&x.a, m, k, k), Operand::Stream(Bf16, &w), &mut c, None)?;
        Ok(Done::of(judge::floats(&c, &x.wide_a, &x.wide_w, SHAPE, by_host()), &[stats]))
    })
}

pub fn tf32(npu: &Npu) -> Result<Done> {
    let [m, k, n] = SHAPE;
    twice(|draw| {
        // Ten bits behind the point are multiplied; the rest is cut off here, so that products are exact.
        let cut = |x: f32| f32::from_bits(x.to_bits() & !0x1fff);
        let x = operands(draw, cut, f64::from);
        let mut c = nothing();
        let w = Rows::new(&x.w, n, k);
        let stats =
            npu.gemm_float(Matrix::new(&x.a, m, k, k), Operand::Stream(Tf32, &w), &mut c, None)?;
        Ok(Done::of(judge::floats(&c, &x.wide_a, &x.wide_w, SHAPE, by_host()), &[stats]))
    })
}

/// Integer codes of -limit..=limit, none 0 in the last channel, so that leaving it out shows.
fn codes(draw: &mut Draw, limit: i64) -> [Vec<i64>; 2] {
    let [m, k, n] = SHAPE;
    [m, n].map(|rows| {
        let mut all = draw.list(rows * k, |d| d.whole(limit));
        all.chunks_exact_mut(k).for_each(|row| row[k - 1] = row[k - 1].abs().max(1));
        all
    })
}

fn bytes(x: &[i64]) -> Vec<i8> {
    x.iter().map(|x| *x as i8).collect()
}

fn exact_codes<F: Integer>(npu: &Npu, format: F, limit: i64) -> Result<Done> {
    let [m, k, n] = SHAPE;
    twice(|draw| {
        let [a, w] = codes(draw, limit);
        let packed = npu.pack(format, &Rows::new(&bytes(&w), n, k))?;
        let mut c = vec![NO_SUM as i32; m * n];
        let narrow = bytes(&a);
        let stats =
            npu.gemm_exact(Matrix::new(&narrow, m, k, k), Operand::Resident(&packed), &mut c)?;
        let c: Vec<i64> = c.into_iter().map(i64::from).collect();
        Ok(Done::of(judge::exact(&c, &a, &w, SHAPE, NO_SUM), &[stats]))
    })
}

pub fn int8(npu: &Npu) -> Result<Done> {
    exact_codes(npu, Int8::default(), 127)
}

pub fn int4(npu: &Npu) -> Result<Done> {
    exact_codes(npu, Int4 { full: false, group: None }, 7)
}

pub fn int16(npu: &Npu) -> Result<Done> {
    let [m, k, n] = SHAPE;
    twice(|draw| {
        // Above 32 639 an element counts as 32 639 (npu-rk3588 7.8).
        let [a, w] = codes(draw, 32_639);
        let [narrow_a, narrow_w] =
            [&a, &w].map(|x| x.iter().map(|x| *x as i16).collect::<Vec<_>>());
        let packed = npu.pack_i16(&Rows::new(&narrow_w, n, k))?;
        let mut c = vec![NO_SUM; m * n];
        let stats = npu.gemm_i16(Matrix::new(&narrow_a, m, k, k), &packed, &mut c)?;
        Ok(Done::of(judge::exact(&c, &a, &w, SHAPE, NO_SUM), &[stats]))
    })
}

/// Codes with a scale for each group of channels of either operand.
fn scaled_codes<F: Integer>(npu: &Npu, format: F, limit: i64) -> Result<Done> {
    let [m, k, n] = SHAPE;
    let groups = k.div_ceil(GROUP);
    // A term is (scale * scale) * sum: two roundings more than there are groups.
    let bound = Tolerance { relative: (groups as f64 + 2.0) * U, absolute: 0.0 };
    twice(|draw| {
        let [a, w] = codes(draw, limit);
        let mut scales = |rows: usize| draw.list(groups * rows, |d| 0.01 + d.value().abs());
        let (rows, columns) = (scales(m), scales(n));
        let wide = |x: &[i64], scales: &[f32], count: usize| -> Vec<f64> {
            let scale = |i: usize| f64::from(scales[i % k / GROUP * count + i / k]);
            x.iter().enumerate().map(|(i, x)| *x as f64 * scale(i)).collect()
        };
        let packed = npu.pack(format, &Rows::new(&bytes(&w), n, k))?;
        let mut c = nothing();
        let (narrow, scales) = (bytes(&a), Scales { rows: &rows, columns: &columns });
        let operand = Operand::Resident(&packed);
        let stats = npu.gemm_scaled(Matrix::new(&narrow, m, k, k), operand, scales, &mut c)?;
        Ok(Done::of(
            judge::floats(&c, &wide(&a, &rows, m), &wide(&w, &columns, n), SHAPE, bound),
            &[stats],
        ))
    })
}

pub fn int8_scaled(npu: &Npu) -> Result<Done> {
    scaled_codes(npu, Int8 { group: Some(GROUP) }, 127)
}

pub fn int4_scaled(npu: &Npu) -> Result<Done> {
    scaled_codes(npu, Int4 { full: false, group: Some(GROUP) }, 7)
}
