//! The hash in a weight's identity.

use std::hash::Hasher;
use std::ops::Range;
use twox_hash::XxHash3_64;

/// Bytes looked at together: a cache line.
const LINE: usize = 64;
/// Lines of a large weight that are hashed; below so many all of them are.
const LINES: usize = 1024;

/// Hash of a weight's contents: all bytes up to 64 KiB, else up to 1024 evenly spread cache lines, the
/// first and the last among them.
///
/// It is taken at every use, so that a model that takes the place of another one in memory is
/// noticed before its first product. Two weights that agree in type, shape, place and 64 KiB
/// of samples are the same file.
pub fn hash(bytes: &[u8]) -> u64 {
    let mut state = XxHash3_64::new();
    looked_at(bytes.len()).for_each(|part| state.write(&bytes[part]));
    state.finish()
}

/// The same of `len` bytes that `read` finds at an offset.
///
/// # Errors
/// The first of `read`.
pub fn hash_of<E>(
    len: usize,
    mut read: impl FnMut(usize, &mut [u8]) -> Result<(), E>,
) -> Result<u64, E> {
    let mut state = XxHash3_64::new();
    let mut line = [0; LINE];
    for part in looked_at(len) {
        let line = &mut line[..part.len()];
        read(part.start, line)?;
        state.write(line);
    }
    Ok(state.finish())
}

/// The parts of so many bytes that are hashed.
fn looked_at(len: usize) -> impl Iterator<Item = Range<usize>> {
    let lines = len.div_ceil(LINE);
    // Rounded up, so that the steps reach the end; the last line is taken in any case.
    let step = lines.div_ceil(LINES).max(1);
    let last = (step > 1).then(|| len - LINE..len);
    let line = move |i: usize| i * LINE..((i + 1) * LINE).min(len);
    (0..lines).step_by(step).map(line).chain(last)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// However the bytes are come by, and as it has been computed since crossovers were kept.
    #[test]
    fn both_ways_agree() {
        for len in [0, 1, 63, 64, 65, 4096, LINE * LINES, LINE * LINES * 3 + 70] {
            let bytes: Vec<u8> = (0..len).map(|i| (i * 7 % 251) as u8).collect();
            let read = |at: usize, to: &mut [u8]| {
                to.copy_from_slice(&bytes[at..][..to.len()]);
                Ok::<_, ()>(())
            };
            assert_eq!(hash_of(len, read), Ok(hash(&bytes)), "{len}");
        }
        assert_eq!(hash_of(9, |_, _| Err("gone")), Err("gone"));
    }

    /// One bit anywhere in a small weight, and in any line that is looked at of a large one.
    #[test]
    fn a_changed_bit_changes_the_hash() {
        for len in [1, 63, 64, 65, 4096, LINE * LINES] {
            let zeros = vec![0u8; len];
            for at in [0, len / 2, len - 1] {
                let mut other = zeros.clone();
                other[at] ^= 0x10;
                assert_ne!(hash(&zeros), hash(&other), "byte {at} of {len}");
            }
        }
        // Four lines a step, and a last line that no step reaches.
        let large = vec![7u8; LINE * LINES * 3 + LINE + 5];
        for at in [0, LINE * 4, large.len() - 1] {
            let mut other = large.clone();
            other[at] ^= 1;
            assert_ne!(hash(&large), hash(&other), "byte {at}");
        }
        // What a sample cannot see: a byte between the lines. Documented, and the price of taking
        // it at every use.
        let mut other = large.clone();
        other[LINE] ^= 1;
        assert_eq!(hash(&large), hash(&other));
    }

    /// F32 made from BF16 has zeros in every other half word; only the others differ.
    #[test]
    fn either_half_of_f32_is_seen() {
        let words = |high: u8| -> Vec<u8> { [0, 0, high, 0x3f].repeat(1 << 20) };
        assert_ne!(hash(&words(0x80)), hash(&words(0x81)));
    }
}
