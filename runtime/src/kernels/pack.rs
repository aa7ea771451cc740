//! Operands into cubes.

use super::{Bytes, select};

/// Bytes of an atom, and of the pieces that move together: a cache line.
const ATOM: usize = 16;
const LINE: usize = 64;

/// Bytes of a weight block, of any dtype (npu-rk3588 3.1).
const BLOCK: usize = 1024;

/// Rows and planes that are walked together. A line of the cube is four atoms of a plane, written at
/// once; the planes of a band are two lines of each row, so both sides are few streams of whole
/// lines. Rows in bands keep the pages in use few; the sizes were found by measuring.
const QUAD: usize = LINE / ATOM;
const BAND_ROWS: usize = 64;
const BAND_PLANES: usize = 8;

/// Packs `src` into the feature cube `dst` of `m` rows (npu-rk3588 3.2): planes of one 16-byte
/// atom of each row, `dst.len() / (16 * m)` of them. Rows and bytes that `src` does not have
/// become zero (3.8), those that the cube has no room for are left out.
///
/// # Panics
/// When `dst` is not whole planes.
pub fn feature(src: Bytes<'_>, m: usize, dst: &mut [u8]) {
    assert!(m > 0 && dst.len().is_multiple_of(ATOM * m), "{} bytes for {m} rows", dst.len());
    let src = src.slice_rows(0, m).slice_bytes(0, dst.len() / m);
    select::feature_atoms(src, m, dst);
    let rows = src.rows();
    // The missing rows; the ragged atom and the missing planes.
    let whole = src.row_bytes() / ATOM;
    let (_, beyond) = dst.split_at_mut(whole * m * ATOM);
    for (p, plane) in beyond.chunks_exact_mut(m * ATOM).enumerate() {
        plane.fill(0);
        if p == 0 && src.row_bytes() > whole * ATOM {
            for (r, atom) in plane.as_chunks_mut::<ATOM>().0.iter_mut().take(rows).enumerate() {
                let tail = &src.row(r)[whole * ATOM..];
                atom[..tail.len()].copy_from_slice(tail);
            }
        }
    }
    if rows < m {
        for plane in dst.chunks_exact_mut(m * ATOM).take(whole) {
            plane[rows * ATOM..].fill(0);
        }
    }
}

/// A row's share of a band.
pub(super) type Share = [u8; BAND_PLANES * ATOM];

/// The whole atoms of `src`, band by band. `quad` copies a band's share of four rows: atom p of row i
/// to atom i of line `p * step` of its destination.
#[inline(always)]
pub(super) fn bands(
    src: Bytes<'_>,
    m: usize,
    dst: &mut [u8],
    quad: impl Fn([&Share; QUAD], &mut [[u8; LINE]], usize),
) {
    let (rows, planes) = (src.rows(), src.row_bytes() / ATOM);
    // Programs have a multiple of four rows; only then atoms of a quad are one line.
    let quads = if m.is_multiple_of(QUAD) { rows / QUAD * QUAD } else { 0 };
    let banded = planes / BAND_PLANES * BAND_PLANES;
    for r1 in (0..quads).step_by(BAND_ROWS) {
        for p in (0..banded).step_by(BAND_PLANES) {
            for r in (r1..quads.min(r1 + BAND_ROWS)).step_by(QUAD) {
                // Always there: all of it lies in the row.
                let share = |i| src.piece(r + i, p * ATOM);
                if let (Some(a), Some(b), Some(c), Some(d)) =
                    (share(0), share(1), share(2), share(3))
                {
                    let lines = &mut dst[(p * m + r) * ATOM..];
                    quad([a, b, c, d], lines.as_chunks_mut().0, m / QUAD);
                }
            }
        }
    }
    for r in if banded < planes { 0..rows } else { quads..rows } {
        let done = if r < quads { banded } else { 0 };
        for (p, atom) in src.row(r).as_chunks::<ATOM>().0.iter().enumerate().skip(done) {
            dst[(p * m + r) * ATOM..][..ATOM].copy_from_slice(atom);
        }
    }
}

/// [`bands`]' `quad`, for any machine.
#[inline(always)]
pub(super) fn quad([a, b, c, d]: [&Share; QUAD], lines: &mut [[u8; LINE]], step: usize) {
    for p in 0..BAND_PLANES {
        let line = &mut lines[p * step];
        let atom = p * ATOM..(p + 1) * ATOM;
        line[..16].copy_from_slice(&a[atom.clone()]);
        line[16..32].copy_from_slice(&b[atom.clone()]);
        line[32..48].copy_from_slice(&c[atom.clone()]);
        line[48..].copy_from_slice(&d[atom]);
    }
}

/// Packs the kernels of `src`, one a row, into one kernel group of a weight cube (npu-rk3588 3.3).
/// `group` is the dtype's `n_group`; a block takes `1024 / group` bytes of each kernel, and `dst` is
/// `group` times the bytes of a kernel. Kernels and bytes that `src` does not have become zero
/// (3.8), those that the group has no room for are left out.
///
/// # Panics
/// When `group` is not 16, 32 or 64, or `dst` is not whole blocks.
pub fn weight_group(src: Bytes<'_>, group: usize, dst: &mut [u8]) {
    assert!(dst.len().is_multiple_of(BLOCK), "{} bytes are no whole blocks", dst.len());
    let src = src.slice_rows(0, group).slice_bytes(0, dst.len() / group.max(1));
    match group {
        16 => pieces::<64>(src, dst),
        32 => pieces::<32>(src, dst),
        64 => pieces::<16>(src, dst),
        _ => panic!("no dtype has groups of {group} kernels"),
    }
}

/// `P` bytes of each kernel to a block.
fn pieces<const P: usize>(src: Bytes<'_>, dst: &mut [u8]) {
    // As many blocks at once as share the source's lines.
    let whole = src.row_bytes() / LINE * LINE;
    let rows = src.rows();
    let together = LINE / P * BLOCK;
    for (c, blocks) in dst.chunks_exact_mut(together).take(whole / LINE).enumerate() {
        let pieces = blocks.as_chunks_mut::<P>().0;
        for r in 0..rows {
            let Some(line) = src.piece::<LINE>(r, c * LINE) else { break };
            for (b, piece) in line.as_chunks::<P>().0.iter().enumerate() {
                pieces[b * (BLOCK / P) + r] = *piece;
            }
        }
    }
    if rows == BLOCK / P && whole == dst.len() / rows {
        return;
    }
    for (b, block) in dst.chunks_exact_mut(BLOCK).enumerate() {
        let (held, missing) = block.split_at_mut(rows * P);
        missing.fill(0);
        if b * P >= whole {
            for (r, piece) in held.chunks_exact_mut(P).enumerate() {
                let row = src.row(r);
                let tail = &row[(b * P).min(row.len())..((b + 1) * P).min(row.len())];
                piece[..tail.len()].copy_from_slice(tail);
                piece[tail.len()..].fill(0);
            }
        }
    }
}
