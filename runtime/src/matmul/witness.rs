//! Proof that a job ran: a value the NPU never stores, put where it must store.
//!
//! The driver reports neither rejected nor timed-out jobs (kernel-and-uapi A.4, A.5). The tasks
//! of a job run in order and stop at the first that fails, so the output of a job's last task
//! tells of the whole job, if that output is a place no other job writes. The marks are a NaN
//! with its quiet bit clear: no float unit delivers one.

/// A signalling NaN of binary16.
const MARK16: u16 = 0xFDA5;
/// A signalling NaN of binary32.
const MARK32: u32 = 0xFFA5_A5A5;

/// An output element type with its mark.
pub(super) trait Marked: Copy + Eq {
    const MARK: Self;
    /// Elements of a 16-byte atom.
    const ATOM: usize = 16 / size_of::<Self>();
}

impl Marked for u16 {
    const MARK: u16 = MARK16;
}

impl Marked for u32 {
    const MARK: u32 = MARK32;
}

/// Atoms that are marked: the first and the last row of every surface, so that a task that was
/// stopped half way shows too, whatever order the writer goes in.
fn atoms<T: Marked>(rows: usize, columns: usize) -> impl Iterator<Item = std::ops::Range<usize>> {
    (0..columns.div_ceil(T::ATOM)).flat_map(move |plane| {
        [0, rows - 1].map(|r| {
            let at = (plane * rows + r) * T::ATOM;
            at..at + T::ATOM
        })
    })
}

/// Marks an output cube of `rows` x `columns`.
pub(super) fn mark<T: Marked>(cube: &mut [T], rows: usize, columns: usize) {
    for atom in atoms::<T>(rows, columns) {
        cube[atom].fill(T::MARK);
    }
}

/// Whether every marked atom of the cube was written over.
pub(super) fn written<T: Marked>(cube: &[T], rows: usize, columns: usize) -> bool {
    atoms::<T>(rows, columns).all(|atom| cube[atom].iter().any(|x| *x != T::MARK))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_surface_left_out_shows() {
        for missing in 0..4 {
            let mut cube = vec![0u16; 8 * 32];
            mark(&mut cube, 8, 32);
            assert!(!written(&cube, 8, 32));
            for plane in (0..4).filter(|p| *p != missing) {
                cube[plane * 64..][..64].fill(0x3C00);
            }
            assert!(!written(&cube, 8, 32));
            cube[missing * 64..][..64].fill(0x7E00);
            assert!(written(&cube, 8, 32), "a quiet NaN is a result");
        }
    }
    /// Within a surface the writer goes one way or the other; a task stopped on its way leaves
    /// the last row or the first.
    #[test]
    fn a_row_left_out_shows() {
        for missing in [0, 7] {
            let mut cube = vec![0u32; 8 * 16];
            mark(&mut cube, 8, 16);
            for (row, atom) in cube.chunks_exact_mut(4).enumerate() {
                if row != 2 * 8 + missing {
                    atom.fill(0x3F80_0000);
                }
            }
            assert!(!written(&cube, 8, 16), "row {missing}");
        }
    }
}
