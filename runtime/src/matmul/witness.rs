//! Proof that a job ran: a value the NPU never stores, put where it must store.
//!
//! The driver reports neither rejected nor timed-out jobs (kernel-and-uapi A.4, A.5). The tasks
//! of a job run in order and stop at the first that fails, so the output of a job's last task
//! tells of the whole job, if that output is a place no other task writes.

use crate::dtype::DType;
use std::ops::Range;

/// Bytes of an atom.
const ATOM: usize = 16;

/// An atom of the value that a program of that type never stores: of the floats a NaN with its
/// quiet bit clear; of the integers the most negative, which no sum of a planned K step reaches
/// (npu-rk3588 5.2, 5.3).
fn mark_of(dtype: DType) -> [u8; ATOM] {
    let half = |x: u16| -> [u8; ATOM] { std::array::from_fn(|i| x.to_le_bytes()[i % 2]) };
    let word = |x: u32| -> [u8; ATOM] { std::array::from_fn(|i| x.to_le_bytes()[i % 4]) };
    match dtype {
        DType::Fp16 => half(0xFDA5),
        DType::Int4 => half(0x8000),
        DType::Int8 | DType::Int16 => word(0x8000_0000),
        DType::Fp16F32Out | DType::Int8F32Out | DType::Bf16 | DType::Tf32 => word(0xFFA5_A5A5),
    }
}

/// Atoms that are marked: the first and the last row of every surface, so that a task that was
/// stopped half way shows too, whatever order the writer goes in.
fn atoms(dtype: DType, rows: usize, columns: usize) -> impl Iterator<Item = Range<usize>> {
    let planes = columns.div_ceil(dtype.info().c2_out);
    (0..planes).flat_map(move |plane| {
        [0, rows - 1].map(|r| {
            let at = (plane * rows + r) * ATOM;
            at..at + ATOM
        })
    })
}

/// Marks an output cube of `rows` x `columns`.
pub(super) fn mark(dtype: DType, cube: &mut [u8], rows: usize, columns: usize) {
    let mark = mark_of(dtype);
    for atom in atoms(dtype, rows, columns) {
        cube[atom].copy_from_slice(&mark);
    }
}

/// Whether every marked atom of the cube was written over.
pub(super) fn written(dtype: DType, cube: &[u8], rows: usize, columns: usize) -> bool {
    let mark = mark_of(dtype);
    let element = dtype.info().out_bytes;
    let any = |atom: &[u8]| atom.chunks(element).zip(mark.chunks(element)).any(|(a, b)| a != b);
    atoms(dtype, rows, columns).all(|atom| any(&cube[atom]))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn marked(dtype: DType, rows: usize, columns: usize) -> Vec<u8> {
        let mut cube = vec![0; rows * columns * dtype.info().out_bytes];
        mark(dtype, &mut cube, rows, columns);
        cube
    }

    /// A whole surface that is missing, of every type.
    #[test]
    fn a_surface_left_out_shows() {
        for dtype in DType::ALL {
            let columns = 4 * dtype.info().c2_out;
            for missing in 0..4 {
                let mut cube = marked(dtype, 8, columns);
                assert!(!written(dtype, &cube, 8, columns));
                for plane in (0..4).filter(|p| *p != missing) {
                    cube[plane * 128..][..128].fill(0x3C);
                }
                assert!(!written(dtype, &cube, 8, columns), "{dtype:?}");
                cube[missing * 128..][..128].fill(0x7E);
                assert!(written(dtype, &cube, 8, columns), "{dtype:?}");
            }
        }
    }

    /// Within a surface the writer goes one way or the other; a task stopped on its way leaves
    /// the last row or the first.
    #[test]
    fn a_row_left_out_shows() {
        for dtype in DType::ALL {
            for missing in [0, 7] {
                let columns = 4 * dtype.info().c2_out;
                let mut cube = marked(dtype, 8, columns);
                for (row, atom) in cube.chunks_exact_mut(ATOM).enumerate() {
                    if row != 2 * 8 + missing {
                        atom.fill(0x3F);
                    }
                }
                assert!(!written(dtype, &cube, 8, columns), "{dtype:?}, row {missing}");
            }
        }
    }

    /// Sums of a K step reach 32 767 in int4 (npu-rk3588 5.3) and 2^28 in int8, whose steps have at
    /// most 16 384 channels; a float that the hardware makes is a number or a quiet NaN.
    #[test]
    fn no_result_can_be_the_mark() {
        let signals =
            |bits: u32, infinity: u32, quiet: u32| bits & infinity == infinity && bits & quiet == 0;
        for dtype in DType::ALL {
            let mark = mark_of(dtype);
            let half = u16::from_le_bytes([mark[0], mark[1]]);
            let word = u32::from_le_bytes([mark[0], mark[1], mark[2], mark[3]]);
            let never = match dtype {
                DType::Fp16 => signals(half.into(), 0x7C00, 0x200) && half & 0x1FF != 0,
                DType::Int4 => (half as i16).unsigned_abs() > 32_767,
                DType::Int8 => (word as i32).unsigned_abs() > 16_384 * 128 * 128,
                DType::Int16 => word as i32 == i32::MIN,
                _ => signals(word, 0x7F80_0000, 0x40_0000) && word & 0x3F_FFFF != 0,
            };
            assert!(never, "{dtype:?} {mark:x?}");
        }
    }

    /// Zeros are results; so is one element that differs, the others equal to the mark by chance.
    #[test]
    fn a_result_is_not_taken_for_a_mark() {
        for dtype in DType::ALL {
            let columns = dtype.info().c2_out;
            assert!(written(dtype, &[0; 4 * ATOM], 4, columns));
            let mut cube = marked(dtype, 4, columns);
            for row in [0, 3] {
                cube[row * ATOM] ^= 1;
            }
            assert!(written(dtype, &cube, 4, columns));
        }
    }
}
