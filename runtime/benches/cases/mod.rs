//! The kernels on the sizes of a real product, for the speed bench and for counting instructions.

use half::{bf16, f16};
use rocket_runtime::kernels::{self, Bytes, convert, hadamard, quant};
use std::hint::black_box;

/// What a kernel is run on.
#[derive(Clone, Copy)]
pub struct Shape {
    /// Rows and columns of a tile of results, and columns of the whole result.
    m: usize,
    n: usize,
    wide: usize,
    /// Bytes of a row of a tile of operands and of all its tiles, and rows of the activations.
    kt: usize,
    k: usize,
    rows: usize,
    /// Elements of a row that is converted, and such rows.
    row: usize,
    count: usize,
}

/// A share of a product of 512 x 4096 fp16 activations with 1024 kernels, in tiles of 256 rows.
#[allow(dead_code)] // the bench's
pub const REAL: Shape =
    Shape { m: 256, n: 128, wide: 1024, kt: 1024, k: 8192, rows: 512, row: 4096, count: 64 };

/// Just enough for a count: an emulator is slow.
#[allow(dead_code)] // the example's
pub const SMALL: Shape =
    Shape { m: 32, n: 128, wide: 128, kt: 1024, k: 1024, rows: 32, row: 1024, count: 1 };

/// One kernel on one shape.
#[allow(dead_code)] // not every program reads every field
pub struct Case {
    /// Elements of one call, and the bytes that it reads and writes.
    pub elements: usize,
    pub read: usize,
    pub written: usize,
    /// Call `i` takes place `i` of the buffers, which hold this many.
    pub places: usize,
    pub run: Box<dyn FnMut(usize)>,
}

/// Names of all, in order.
pub const NAMES: [&str; 21] = [
    "feature fp16",
    "feature int8",
    "weight_group fp16",
    "weight_group int8",
    "weight_group int4",
    "store_f16",
    "store_f16 scaled",
    "sum_f32 1 step",
    "sum_f32 4 steps",
    "sum_i32 4 steps",
    "sum_i16 4 steps",
    "scaled_i32 4 steps",
    "scaled_i16 4 steps",
    "f32_to_f16",
    "f16_to_f32",
    "f32_to_bf16",
    "split_i16",
    "nibbles",
    "quantize_row",
    "rotate 4096",
    "rotate 3840",
];

/// Memory from the start of a page, as the device's buffers are.
pub struct Paged<T>(Vec<T>, usize);

impl<T: Copy> Paged<T> {
    pub fn new(n: usize, value: impl Fn(usize) -> T) -> Paged<T> {
        let pad = 4096 / size_of::<T>();
        let data: Vec<T> = (0..n + pad).map(value).collect();
        let at = data.as_ptr().align_offset(4096).min(pad);
        Paged(data, at)
    }

    pub fn get(&mut self) -> &mut [T] {
        &mut self.0[self.1..]
    }
}

fn bytes(n: usize) -> Paged<u8> {
    Paged::new(n, |i| (i * 31 + i / 251) as u8)
}

fn float(i: usize) -> f32 {
    (i % 251) as f32 / 256.0 - 0.5
}

fn feature(size: usize, s: Shape, sets: usize) -> Case {
    let (mut src, mut dst) = (bytes(sets * s.rows * s.k), bytes(sets * s.rows * s.k));
    let tile = s.m * s.kt;
    let places = sets * s.rows * s.k / tile;
    let run = move |i: usize| {
        let (set, part) = (i / (places / sets), i % (places / sets));
        let (mi, ki) = (part / (s.k / s.kt), part % (s.k / s.kt));
        let all = Bytes::new(&src.get()[set * s.rows * s.k..], s.rows, s.k, s.k);
        let part = all.slice_rows(mi * s.m, s.m).slice_bytes(ki * s.kt, s.kt);
        kernels::feature(part, s.m, black_box(&mut dst.get()[i * tile..][..tile]));
    };
    Case { elements: tile / size, read: tile, written: tile, places, run: Box::new(run) }
}

/// A group of kernels of `bits` bits.
fn weight(bits: usize, group: usize, s: Shape, sets: usize) -> Case {
    let row = s.k / 2 * bits / 8;
    let len = group * row;
    let places = (sets * s.count * 16 / group).max(1);
    let (mut src, mut dst) = (bytes(places * len), bytes(places * len));
    let run = move |i: usize| {
        let part = Bytes::new(&src.get()[i * len..][..len], group, row, row);
        kernels::weight_group(part, group, black_box(&mut dst.get()[i * len..][..len]));
    };
    Case { elements: group * s.k / 2, read: len, written: len, places, run: Box::new(run) }
}

/// A kernel of results: `steps` cubes of a tile into rows of a wider matrix.
fn result<T: Copy + 'static, O: Copy + Default + 'static>(
    steps: usize,
    (s, sets): (Shape, usize),
    value: impl Fn(usize) -> T,
    read_back: bool,
    kernel: impl Fn(&[&[T]], &mut [&mut [O]]) + 'static,
) -> Case {
    let (across, tile) = (s.wide / s.n, s.m * s.n);
    let places = sets * across;
    let mut cubes = Paged::new(places * steps * tile, value);
    let mut out = Paged::new(sets * s.m * s.wide, |_| O::default());
    let run = move |i: usize| {
        let steps: Vec<&[T]> =
            cubes.get()[i * steps * tile..][..steps * tile].chunks_exact(tile).collect();
        let (set, column) = (i / across, i % across * s.n);
        let mut rows: Vec<&mut [O]> = out.get()[set * s.m * s.wide..][..s.m * s.wide]
            .chunks_exact_mut(s.wide)
            .map(|row| &mut row[column..][..s.n])
            .collect();
        kernel(&steps, black_box(&mut rows));
    };
    let written = tile * size_of::<O>();
    let read = tile * steps * size_of::<T>() + if read_back { written } else { 0 };
    Case { elements: tile, read, written, places, run: Box::new(run) }
}

/// A kernel of one row, which becomes `out` elements.
fn row<S: Copy + 'static, D: Copy + 'static>(
    (s, sets): (Shape, usize),
    value: impl Fn(usize) -> S,
    (zero, out): (D, usize),
    kernel: impl Fn(&[S], &mut [D]) + 'static,
) -> Case {
    let places = sets * s.count;
    let mut src = Paged::new(places * s.row, value);
    let mut dst = Paged::new(places * out, |_| zero);
    let run = move |i: usize| {
        let from = &src.get()[i * s.row..][..s.row];
        kernel(from, black_box(&mut dst.get()[i * out..][..out]));
    };
    let (read, written) = (s.row * size_of::<S>(), out * size_of::<D>());
    Case { elements: s.row, read, written, places, run: Box::new(run) }
}

fn rotate(len: usize, s: Shape, sets: usize) -> Case {
    let places = sets * s.count;
    let mut rows = Paged::new(places * len, float);
    let run = move |i: usize| {
        black_box(hadamard::rotate(&mut rows.get()[i * len..][..len]));
    };
    Case { elements: len, read: len * 4, written: len * 4, places, run: Box::new(run) }
}

/// The kernel `name`, with buffers for `sets` products.
pub fn case(name: &str, s: Shape, sets: usize) -> Case {
    let half = |i: usize| f16::from_bits((i % 0x7b00) as u16);
    let single = |i: usize| (i % 1021) as f32 - 511.0;
    let int = |i: usize| (i * 77) as i32;
    let short = |i: usize| (i * 77) as i16;
    let scales = |n: usize| (0..n).map(float).collect::<Vec<f32>>();
    let (rs, cs) = (scales(s.m), scales(s.n));
    let (m, by, k) = (s.m, (s, sets), s.row);
    match name {
        "feature fp16" => feature(2, s, sets),
        "feature int8" => feature(1, s, sets),
        "weight_group fp16" => weight(16, 16, s, sets),
        "weight_group int8" => weight(8, 32, s, sets),
        "weight_group int4" => weight(4, 64, s, sets),
        "store_f16" => result(1, by, half, false, move |c, r| kernels::store_f16(c[0], m, r, None)),
        "store_f16 scaled" => result(1, by, half, false, move |c, r| {
            kernels::store_f16(c[0], m, r, Some(&rs));
        }),
        "sum_f32 1 step" => {
            result(1, by, single, false, move |c, r| kernels::sum_f32(c, m, r, None))
        }
        "sum_f32 4 steps" => {
            result(4, by, single, false, move |c, r| kernels::sum_f32(c, m, r, None))
        }
        "sum_i32 4 steps" => result(4, by, int, false, move |c, r| kernels::sum_i32(c, m, r)),
        "sum_i16 4 steps" => result(4, by, short, false, move |c, r| kernels::sum_i16(c, m, r)),
        "scaled_i32 4 steps" => result(4, by, int, true, move |c, r| {
            kernels::scaled_i32(c, m, r, &rs, &cs, false);
        }),
        "scaled_i16 4 steps" => result(4, by, short, true, move |c, r| {
            kernels::scaled_i16(c, m, r, &rs, &cs, false);
        }),
        "f32_to_f16" => row(by, float, (f16::ZERO, k), convert::f32_to_f16),
        "f16_to_f32" => row(by, half, (0f32, k), convert::f16_to_f32),
        "f32_to_bf16" => row(by, float, (bf16::ZERO, k), convert::f32_to_bf16),
        "split_i16" => row(by, short, (0i8, 2 * k), |s, d| {
            let (hi, lo) = d.split_at_mut(s.len());
            convert::split_i16(s, hi, lo);
        }),
        "nibbles" => row(
            by,
            |i| (i % 16) as i8 - 8,
            (0u8, k / 2),
            |s, d| {
                black_box(convert::nibbles(s, d));
            },
        ),
        "quantize_row" => row(by, float, (0i8, k), |s, d| {
            let mut scales = [0.0; 32];
            black_box(quant::quantize_row(s, 128, 127, d, &mut scales[..s.len() / 128]));
            black_box(scales);
        }),
        "rotate 4096" => rotate(4096, s, sets),
        "rotate 3840" => rotate(3840, s, sets),
        _ => panic!("no kernel called {name}"),
    }
}
