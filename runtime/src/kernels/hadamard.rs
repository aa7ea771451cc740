//! Orthonormal rotation of rows, which spreads outliers over all channels before quantization.
//!
//! The matrix is H / sqrt(length) with H a symmetric Hadamard matrix: the Kronecker product of a
//! 60-point block (for lengths that have the factor 15) and a Sylvester matrix. Symmetric and
//! orthogonal, it is its own inverse, and rotating both operands of a product changes it by
//! rounding only: (x H) (w H)^T = x w^T.

/// The 60-point block's prime: Paley's first construction gives a Hadamard matrix of order q + 1
/// for a prime q = 3 (mod 4).
const Q: usize = 59;
const BLOCK: usize = Q + 1;

/// Columns of the 60-point transform that are handled together.
const LANES: usize = 16;

/// Where the core of the block has -1: element (i, b) is negative when i + b (mod 59) is one of
/// these, namely 0 and the quadratic non-residues. In Paley's own matrix the difference takes the
/// place of the sum; the reversed order of rows makes the matrix symmetric.
static NEGATIVE: [u8; Q / 2 + 1] = {
    let mut residue = [false; Q];
    let mut i = 1;
    while i < Q {
        residue[i * i % Q] = true;
        i += 1;
    }
    let mut list = [0; Q / 2 + 1];
    let (mut at, mut i) = (0, 0);
    while i < Q {
        if !residue[i] {
            list[at] = i as u8;
            at += 1;
        }
        i += 1;
    }
    list
};

/// Whether [`rotate`] knows rows of `len` elements: 2^p or 60 * 2^p.
pub fn can_rotate(len: usize) -> bool {
    len.is_power_of_two() || (len.is_multiple_of(BLOCK) && (len / BLOCK).is_power_of_two())
}

/// Multiplies `row` with the orthonormal matrix of its length, in place and with no scratch memory
/// but the stack. False, and nothing done, for lengths that have none (see [`can_rotate`]).
pub fn rotate(row: &mut [f32]) -> bool {
    if !can_rotate(row.len()) {
        return false;
    }
    let mut part = row.len();
    if !part.is_power_of_two() {
        part /= BLOCK;
        paley(row, part);
    }
    let scale = (1.0 / (row.len() as f64).sqrt()) as f32;
    for part in row.chunks_exact_mut(part) {
        sylvester(part);
        part.iter_mut().for_each(|x| *x *= scale);
    }
    true
}

/// Unscaled transform of a power of two, two halvings at a time.
fn sylvester(x: &mut [f32]) {
    let mut half = 1;
    while 4 * half <= x.len() {
        match half {
            // Neighbours: the compiler loads every fourth element.
            1 => {
                for [a, b, c, d] in x.as_chunks_mut().0 {
                    [[*a], [*b], [*c], [*d]] = columns([[*a], [*b], [*c], [*d]]);
                }
            }
            4 => {
                for part in x.as_chunks_mut::<16>().0 {
                    let mut y = [[0f32; 4]; 4];
                    y.as_flattened_mut().copy_from_slice(part);
                    part.copy_from_slice(columns(y).as_flattened());
                }
            }
            _ => {
                for part in x.chunks_exact_mut(4 * half) {
                    let (ab, cd) = part.split_at_mut(2 * half);
                    let ((a, b), (c, d)) = (ab.split_at_mut(half), cd.split_at_mut(half));
                    halve_twice(a, b, c, d);
                }
            }
        }
        half *= 4;
    }
    if half < x.len() {
        let (a, b) = x.split_at_mut(half);
        for (a, b) in a.iter_mut().zip(b) {
            (*a, *b) = (*a + *b, *a - *b);
        }
    }
}

/// A function of its own, so that the compiler knows the four apart, and in whole vectors.
#[inline(never)]
fn halve_twice(a: &mut [f32], b: &mut [f32], c: &mut [f32], d: &mut [f32]) {
    let [a, b, c, d] = [a, b, c, d].map(|x| x.as_chunks_mut::<4>().0);
    for (((a, b), c), d) in a.iter_mut().zip(b).zip(c).zip(d) {
        [*a, *b, *c, *d] = columns([*a, *b, *c, *d]);
    }
}

/// Two halvings of each column.
#[inline(always)]
fn columns<const C: usize>([a, b, c, d]: [[f32; C]; 4]) -> [[f32; C]; 4] {
    let mut y = [[0f32; C]; 4];
    for l in 0..C {
        let (s, t, u, v) = (a[l] + b[l], a[l] - b[l], c[l] + d[l], c[l] - d[l]);
        (y[0][l], y[1][l], y[2][l], y[3][l]) = (s + u, t + v, s - u, t - v);
    }
    y
}

/// Unscaled 60-point transform of the elements that are `pitch` apart.
fn paley(x: &mut [f32], pitch: usize) {
    let mut column = 0;
    while column < pitch {
        let lanes = LANES.min(pitch - column);
        // The core twice over, so that an index modulo 59 needs no division.
        let mut core = [[0f32; LANES]; 2 * Q];
        let first = load(x, column, lanes);
        let mut total = [0f32; LANES];
        for b in 0..Q {
            core[b] = load(x, (b + 1) * pitch + column, lanes);
            core[b + Q] = core[b];
            total = add(total, core[b]);
        }
        let positive = add(first, total);
        store(x, column, lanes, positive);
        for i in 0..Q {
            // All signs positive, less twice the negative ones.
            let mut minus = [0f32; LANES];
            let core = &core[Q - i..][..Q];
            for d in &NEGATIVE {
                minus = add(minus, core[usize::from(*d)]);
            }
            let out = std::array::from_fn(|l| positive[l] - 2.0 * minus[l]);
            store(x, (i + 1) * pitch + column, lanes, out);
        }
        column += lanes;
    }
}

/// `lanes` elements from `at` on, in the common case all.
#[inline(always)]
fn load(x: &[f32], at: usize, lanes: usize) -> [f32; LANES] {
    match x[at..].first_chunk() {
        Some(all) if lanes == LANES => *all,
        _ => {
            let mut part = [0f32; LANES];
            part[..lanes].copy_from_slice(&x[at..][..lanes]);
            part
        }
    }
}

#[inline(always)]
fn store(x: &mut [f32], at: usize, lanes: usize, value: [f32; LANES]) {
    match x[at..].first_chunk_mut() {
        Some(all) if lanes == LANES => *all = value,
        _ => x[at..][..lanes].copy_from_slice(&value[..lanes]),
    }
}

fn add(a: [f32; LANES], b: [f32; LANES]) -> [f32; LANES] {
    std::array::from_fn(|l| a[l] + b[l])
}
