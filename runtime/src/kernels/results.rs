//! Output cubes into rows.
//! The shapes are told where they are seen, in the module above.

use super::select;
use half::f16;

/// Rows handled together: their atoms of a plane are one cache line of the cube.
const ROWS: usize = 4;

/// Rows that are walked together, planes likewise, and the planes that are walked for four rows before
/// the next four: a longer run of each row against more pages of the cube. Found by measuring, for
/// 4- and for 2-byte elements.
const BAND_ROWS: usize = 64;
const BAND_PLANES: usize = 8;
const NEAR: [usize; 2] = [32, 8];

/// What to do with atoms of `C` elements.
trait Atoms<O, const C: usize> {
    /// The atoms of rows `i ..` of one plane, which begin at element `at` of the cube and at
    /// column `j` of the result.
    fn run<const R: usize>(&self, at: usize, i: usize, j: usize, out: [&mut [O; C]; R]);
}

/// Walks the atoms so that rows and cubes are both few streams of whole lines: four atoms of a plane
/// are a line, and a band's share of a row is two or more.
#[inline(always)]
fn each<O: Copy + Default, const C: usize>(
    m: usize,
    rows: &mut [&mut [O]],
    work: &impl Atoms<O, C>,
) {
    assert!(rows.len() <= m, "{} rows of a tile of {m}", rows.len());
    let shortest = rows.iter().map(|r| r.len()).min().unwrap_or(0);
    let planes = shortest / C / BAND_PLANES * BAND_PLANES;
    let near = NEAR[usize::from(C > 4)];
    for (b, band) in rows.chunks_mut(BAND_ROWS).enumerate() {
        for first in (0..planes).step_by(near) {
            for (q, quad) in band.chunks_mut(ROWS).enumerate() {
                let i = b * BAND_ROWS + q * ROWS;
                for p in (first..planes.min(first + near)).step_by(BAND_PLANES) {
                    each_share(m, i, p, quad, work);
                }
            }
        }
    }
    // What is left of each row: less than a band of atoms, and the ragged one.
    for (i, row) in rows.iter_mut().enumerate() {
        for (p, part) in (planes..).zip(row[planes * C..].chunks_mut(C)) {
            let mut atom = [O::default(); C];
            atom[..part.len()].copy_from_slice(part);
            work.run((p * m + i) * C, i, p * C, [&mut atom]);
            part.copy_from_slice(&atom[..part.len()]);
        }
    }
}

/// A band's share of up to four rows, from row `i` and plane `p` on.
#[inline(always)]
fn each_share<O, const C: usize>(
    m: usize,
    i: usize,
    p: usize,
    quad: &mut [&mut [O]],
    work: &impl Atoms<O, C>,
) {
    if let [r0, r1, r2, r3] = quad
        && let (Some(r0), Some(r1), Some(r2), Some(r3)) =
            (share(r0, p), share(r1, p), share(r2, p), share(r3, p))
    {
        for q in 0..BAND_PLANES {
            let out = [&mut r0[q], &mut r1[q], &mut r2[q], &mut r3[q]];
            work.run(((p + q) * m + i) * C, i, (p + q) * C, out);
        }
        return;
    }
    for (i, row) in (i..).zip(quad) {
        for (p, atom) in (p..).zip(share(row, p).into_iter().flatten()) {
            work.run((p * m + i) * C, i, p * C, [atom]);
        }
    }
}

/// A band's share of a row, from the atom of plane `p` on.
#[inline(always)]
fn share<O, const C: usize>(row: &mut [O], p: usize) -> Option<&mut [[O; C]; BAND_PLANES]> {
    row[p * C..].as_chunks_mut().0.first_chunk_mut()
}

/// The `R` atoms at element `at`.
#[inline(always)]
fn atoms<T, const C: usize, const R: usize>(cube: &[T], at: usize) -> &[[T; C]; R] {
    match cube[at..].as_chunks().0.first_chunk() {
        Some(atoms) => atoms,
        None => panic!("a cube of {} elements is too short for its rows", cube.len()),
    }
}

// Below, loops count: the compiler unrolls those, and not iterators over arrays of references.

/// Sums the steps of `R` atoms, beginning with the first step's value.
#[inline(always)]
fn sum<T: Copy, S: Copy, const C: usize, const R: usize>(
    cubes: &[&[T]],
    at: usize,
    zero: S,
    widen: impl Fn(T) -> S,
    add: impl Fn(S, S) -> S,
) -> [[S; C]; R] {
    let mut acc = [[zero; C]; R];
    let Some((first, rest)) = cubes.split_first() else { return acc };
    let x: &[[T; C]; R] = atoms(first, at);
    for r in 0..R {
        for c in 0..C {
            acc[r][c] = widen(x[r][c]);
        }
    }
    for cube in rest {
        let x: &[[T; C]; R] = atoms(cube, at);
        for r in 0..R {
            for c in 0..C {
                acc[r][c] = add(acc[r][c], widen(x[r][c]));
            }
        }
    }
    acc
}

/// `R` factors from the one of row `i` on.
#[inline(always)]
fn factors<const R: usize>(scale: &[f32], i: usize) -> &[f32; R] {
    match scale[i..].first_chunk() {
        Some(factors) => factors,
        None => panic!("{} factors are fewer than the rows", scale.len()),
    }
}

struct StoreF16<'a, F>(&'a [f16], Option<&'a [f32]>, F);

impl<F: Fn(&[f16; 8]) -> [f32; 8]> Atoms<f32, 8> for StoreF16<'_, F> {
    #[inline(always)]
    fn run<const R: usize>(&self, at: usize, i: usize, _: usize, out: [&mut [f32; 8]; R]) {
        let x: &[[f16; 8]; R] = atoms(self.0, at);
        let factor = self.1.map(|scale| factors::<R>(scale, i));
        for r in 0..R {
            *out[r] = (self.2)(&x[r]);
            if let Some(factor) = factor {
                *out[r] = out[r].map(|x| x * factor[r]);
            }
        }
    }
}

struct SumF32<'a>(&'a [&'a [f32]], Option<&'a [f32]>);

impl Atoms<f32, 4> for SumF32<'_> {
    #[inline(always)]
    fn run<const R: usize>(&self, at: usize, i: usize, _: usize, out: [&mut [f32; 4]; R]) {
        let sums: [[f64; 4]; R] = sum(self.0, at, 0.0, f64::from, |a, b| a + b);
        let factor = self.1.map(|scale| factors::<R>(scale, i));
        for r in 0..R {
            for c in 0..4 {
                let x = sums[r][c] as f32;
                out[r][c] = factor.map_or(x, |factor| x * factor[r]);
            }
        }
    }
}

struct SumInt<'a, T>(&'a [&'a [T]]);

impl<T: Copy + Into<i32>, const C: usize> Atoms<i32, C> for SumInt<'_, T> {
    #[inline(always)]
    fn run<const R: usize>(&self, at: usize, _: usize, _: usize, out: [&mut [i32; C]; R]) {
        let sums: [[i32; C]; R] = sum(self.0, at, 0, Into::into, i32::wrapping_add);
        for r in 0..R {
            *out[r] = sums[r];
        }
    }
}

struct Scaled<'a, T> {
    cubes: &'a [&'a [T]],
    row_scale: &'a [f32],
    col_scale: &'a [f32],
    first: bool,
}

impl<T: Copy + Into<i32>, const C: usize> Atoms<f32, C> for Scaled<'_, T> {
    #[inline(always)]
    fn run<const R: usize>(&self, at: usize, i: usize, j: usize, out: [&mut [f32; C]; R]) {
        let mut col = [0f32; C];
        match self.col_scale[j..].first_chunk() {
            Some(whole) => col = *whole,
            None => col[..self.col_scale.len() - j].copy_from_slice(&self.col_scale[j..]),
        }
        let row: &[f32; R] = factors(self.row_scale, i);
        let sums: [[i32; C]; R] = sum(self.cubes, at, 0, Into::into, i32::wrapping_add);
        for r in 0..R {
            for c in 0..C {
                let x = (row[r] * col[c]) * sums[r][c] as f32;
                out[r][c] = if self.first { x } else { out[r][c] + x };
            }
        }
    }
}

/// fp16 results of one step: `rows[i][j] = cube * scale[i]`, or the value itself without `scale`.
/// Widening is exact; the product is rounded once (npu-rk3588 5.2).
pub fn store_f16(cube: &[f16], m: usize, rows: &mut [&mut [f32]], scale: Option<&[f32]>) {
    select::store_f16(cube, m, rows, scale);
}

/// [`store_f16`] with a machine's way of widening an atom.
#[inline(always)]
pub(super) fn store_f16_by(
    cube: &[f16],
    m: usize,
    rows: &mut [&mut [f32]],
    scale: Option<&[f32]>,
    widen: impl Fn(&[f16; 8]) -> [f32; 8],
) {
    each(m, rows, &StoreF16(cube, scale, widen));
}

/// Any machine's way, with nothing that keeps a compiler from using vectors: the exponent moves by
/// a multiplication, which makes subnormal halves normal too.
#[cfg(any(test, not(target_arch = "aarch64")))]
#[inline(always)]
pub(super) fn widen(atom: &[f16; 8]) -> [f32; 8] {
    atom.map(|h| {
        let h = u32::from(h.to_bits());
        let size = f32::from_bits((h & 0x7fff) << 13) * f32::from_bits((254 - 15) << 23);
        let special = if h & 0x7c00 == 0x7c00 { 0x7f80_0000 } else { 0 };
        // A NaN becomes a quiet one, as processors make it.
        let quiet = if h & 0x7fff > 0x7c00 { 0x0040_0000 } else { 0 };
        f32::from_bits(size.to_bits() | special | quiet | (h & 0x8000) << 16)
    })
}

/// fp32 results: the sum over the steps in fp64, in step order, narrowed once to fp32 and then
/// multiplied with `scale[i]` (npu-rk3588 7.3, 7.10).
pub fn sum_f32(cubes: &[&[f32]], m: usize, rows: &mut [&mut [f32]], scale: Option<&[f32]>) {
    each(m, rows, &SumF32(cubes, scale));
}

/// int32 results: the sum over the steps, which wraps. `rows` need no zeroing.
pub fn sum_i32(cubes: &[&[i32]], m: usize, rows: &mut [&mut [i32]]) {
    each::<_, 4>(m, rows, &SumInt(cubes));
}

/// int16 results of int4 products, summed as [`sum_i32`] does (npu-rk3588 5.3).
pub fn sum_i16(cubes: &[&[i16]], m: usize, rows: &mut [&mut [i32]]) {
    each::<_, 8>(m, rows, &SumInt(cubes));
}

/// One quantization group of int8 operands (npu-rk3588 7.6): `(row_scale[i] * col_scale[j]) * sum`
/// where `sum` is the integer sum over the steps of the group. `first` stores it in `rows[i][j]`,
/// else it is added. In fp32, each operation rounded.
///
/// # Panics
/// When there are fewer scales than rows or columns.
pub fn scaled_i32(
    cubes: &[&[i32]],
    m: usize,
    rows: &mut [&mut [f32]],
    row_scale: &[f32],
    col_scale: &[f32],
    first: bool,
) {
    check_scales(rows, row_scale, col_scale);
    each::<_, 4>(m, rows, &Scaled { cubes, row_scale, col_scale, first });
}

/// As [`scaled_i32`] for the int16 results of int4 operands.
///
/// # Panics
/// When there are fewer scales than rows or columns.
pub fn scaled_i16(
    cubes: &[&[i16]],
    m: usize,
    rows: &mut [&mut [f32]],
    row_scale: &[f32],
    col_scale: &[f32],
    first: bool,
) {
    check_scales(rows, row_scale, col_scale);
    each::<_, 8>(m, rows, &Scaled { cubes, row_scale, col_scale, first });
}

fn check_scales(rows: &[&mut [f32]], row_scale: &[f32], col_scale: &[f32]) {
    let cols = rows.iter().map(|r| r.len()).max().unwrap_or(0);
    assert!(
        rows.len() <= row_scale.len() && cols <= col_scale.len(),
        "{} x {cols} results, scales for {} x {}",
        rows.len(),
        row_scale.len(),
        col_scale.len()
    );
}
