//! Where results go: one kind of output an accumulation scheme.

use crate::dtype::DType;
use crate::kernels;
use crate::plan::{ResultTile, Sequence};
use half::f16;

/// A worker's columns of each output row, and how cubes become them.
#[derive(Debug)]
pub(super) enum Out<'a> {
    /// Floats, each row times its scale.
    Float { rows: Vec<&'a mut [f32]>, scale: Option<&'a [f32]> },
    /// Exact integers.
    Exact { rows: Vec<&'a mut [i32]> },
    /// Integer sums of each group times the scales of their row and column.
    Scaled { rows: Vec<&'a mut [f32]>, scales: Groups<'a> },
}

/// Scales of one worker: group by group, in each one a row or a column.
#[derive(Debug, Clone, Copy)]
pub(super) struct Groups<'a> {
    /// groups x M.
    pub rows: &'a [f32],
    /// groups x N of the whole GEMM.
    pub columns: &'a [f32],
    /// M and N of the whole GEMM, and this worker's first column.
    pub m: usize,
    pub n: usize,
    pub first: usize,
    /// Channels of a group.
    pub len: usize,
}

impl Out<'_> {
    /// Delivers one finished tile; `cube` finds the bytes of its `i`-th cube.
    pub(super) fn deliver<'c>(
        &mut self,
        s: &Sequence,
        tile: &ResultTile,
        cube: impl Fn(usize) -> &'c [u8],
    ) {
        let (m0, n0) = (tile.origin.m, tile.origin.n);
        let (m, n) = (tile.extent.m, tile.extent.n);
        let dtype = s.request.dtype;
        match self {
            Out::Float { rows, scale } => {
                let mut rows = segments(rows, m0, m, n0, n);
                let scale = scale.map(|x| &x[m0..][..rows.len()]);
                if dtype == DType::Fp16 {
                    kernels::store_f16(
                        bytemuck::cast_slice::<u8, f16>(cube(0)),
                        m,
                        &mut rows,
                        scale,
                    );
                } else {
                    kernels::sum_f32(&cubes(tile, cube), m, &mut rows, scale);
                }
            }
            Out::Exact { rows } => {
                let mut rows = segments(rows, m0, m, n0, n);
                if dtype == DType::Int4 {
                    kernels::sum_i16(&cubes(tile, cube), m, &mut rows);
                } else {
                    kernels::sum_i32(&cubes(tile, cube), m, &mut rows);
                }
            }
            Out::Scaled { rows, scales } => {
                let mut rows = segments(rows, m0, m, n0, n);
                let width = rows.first().map_or(0, |r| r.len());
                let steps = scales.len.div_ceil(s.plan.kt);
                let (i32s, i16s);
                (i32s, i16s) = match dtype {
                    DType::Int4 => (Vec::new(), cubes::<i16>(tile, cube)),
                    _ => (cubes::<i32>(tile, cube), Vec::new()),
                };
                for g in 0..tile.cubes.len().div_ceil(steps) {
                    let part = g * steps..((g + 1) * steps).min(tile.cubes.len());
                    let row_scale = &scales.rows[g * scales.m + m0..][..rows.len()];
                    let column_scale = &scales.columns[g * scales.n + scales.first + n0..][..width];
                    let first = g == 0;
                    if dtype == DType::Int4 {
                        let cubes = &i16s[part];
                        kernels::scaled_i16(cubes, m, &mut rows, row_scale, column_scale, first);
                    } else {
                        let cubes = &i32s[part];
                        kernels::scaled_i32(cubes, m, &mut rows, row_scale, column_scale, first);
                    }
                }
            }
        }
    }
}

fn cubes<'c, T: bytemuck::Pod>(
    tile: &ResultTile,
    cube: impl Fn(usize) -> &'c [u8],
) -> Vec<&'c [T]> {
    (0..tile.cubes.len()).map(|i| bytemuck::cast_slice(cube(i))).collect()
}

/// The output segments a tile covers. Padding has none.
fn segments<'r, T>(
    rows: &'r mut [&mut [T]],
    m0: usize,
    m: usize,
    n0: usize,
    n: usize,
) -> Vec<&'r mut [T]> {
    rows.iter_mut()
        .skip(m0)
        .take(m)
        .map(|row| {
            let end = (n0 + n).min(row.len());
            &mut row[n0..end]
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::output_index;
    use crate::plan::{Request, Shape};

    const SHAPE: Shape = Shape { m: 300, k: 256, n: 300 };

    /// What each K step left for an element: small whole numbers, so that any order of adding is
    /// exact.
    fn value(step: usize, m: usize, n: usize) -> i32 {
        ((step * 7 + m * 3 + n * 5) % 13) as i32 - 6
    }

    /// Several tiles each way and several K steps, delivered from cubes of 4-byte elements.
    fn deliver(request: Request, out: &mut Out<'_>, bytes: impl Fn(i32) -> [u8; 4]) -> usize {
        let s = Sequence::new(Request { most: 32, ..request }).unwrap();
        assert!(s.plan.n_mt > 1 && s.plan.n_nt > 1 && s.plan.n_kt == 8, "{:?}", s.plan);
        for tile in s.groups.iter().flat_map(|g| &g.results) {
            let (m, n) = (tile.extent.m, tile.extent.n);
            let cubes: Vec<Vec<u32>> = (0..tile.cubes.len())
                .map(|step| {
                    let mut cube = vec![0; m * n];
                    for (r, c) in (0..m).flat_map(|r| (0..n).map(move |c| (r, c))) {
                        let x = value(step, tile.origin.m + r, tile.origin.n + c);
                        cube[output_index(4, m, r, c)] = u32::from_ne_bytes(bytes(x));
                    }
                    cube
                })
                .collect();
            out.deliver(&s, tile, |i| bytemuck::cast_slice(&cubes[i]));
        }
        s.plan.n_kt
    }

    fn sum(steps: std::ops::Range<usize>, i: usize, j: usize) -> f32 {
        steps.map(|step| value(step, i, j)).sum::<i32>() as f32
    }

    /// A worker in the middle: every element meets the scales of its group, row and column.
    #[test]
    fn each_group_has_scales_of_its_own() {
        let Shape { m, n: width, .. } = SHAPE;
        let (first, n, len) = (40, 400, 64);
        let row = |g: usize, i: usize| ((g * 5 + i * 3) % 7 + 1) as f32;
        let column = |g: usize, j: usize| ((g * 2 + j * 4) % 11 + 1) as f32;
        let rows: Vec<f32> = (0..4 * m).map(|x| row(x / m, x % m)).collect();
        let columns: Vec<f32> = (0..4 * n).map(|x| column(x / n, x % n)).collect();
        let mut c = vec![f32::NAN; m * width];
        let scales = Groups { rows: &rows, columns: &columns, m, n, first, len };
        let mut out = Out::Scaled { rows: c.chunks_mut(width).collect(), scales };
        let request = Request { group: Some(len), ..Request::new(DType::Int8, SHAPE) };
        deliver(request, &mut out, i32::to_ne_bytes);
        for (x, ours) in c.iter().enumerate() {
            let (i, j) = (x / width, x % width);
            let part = |g: usize| row(g, i) * column(g, first + j) * sum(2 * g..2 * g + 2, i, j);
            assert_eq!(*ours, (0..4).map(part).sum::<f32>(), "row {i}, column {j}");
        }
    }

    #[test]
    fn each_row_has_a_scale_of_its_own() {
        let Shape { m, n, .. } = SHAPE;
        let scale: Vec<f32> = (0..m).map(|i| (i % 17 + 1) as f32).collect();
        let mut c = vec![f32::NAN; m * n];
        let mut out = Out::Float { rows: c.chunks_mut(n).collect(), scale: Some(&scale) };
        let steps =
            deliver(Request::new(DType::Bf16, SHAPE), &mut out, |x| (x as f32).to_ne_bytes());
        for (x, ours) in c.iter().enumerate() {
            let (i, j) = (x / n, x % n);
            assert_eq!(*ours, scale[i] * sum(0..steps, i, j), "row {i}, column {j}");
        }
    }
}
