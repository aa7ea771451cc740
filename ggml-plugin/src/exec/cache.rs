//! K and V of other types than F16, decoded row by row by the host's own decoder.
#![allow(unsafe_code)]

use super::weight::Decode;
use rocket_runtime::ops::attention;

/// Rows over three dimensions, each with a stride in bytes.
#[derive(Debug, Clone, Copy)]
pub struct HostRows<'a> {
    data: &'a [u8],
    /// Stream, head, position.
    strides: [usize; 3],
    len: usize,
    row_bytes: usize,
    decode: Decode,
}

impl<'a> HostRows<'a> {
    /// Rows of `len` elements in `row_bytes` bytes; strides of stream, head and position.
    ///
    /// # Safety
    /// A host decoder reads `row_bytes` of a row of `len` elements, wherever it begins, and writes
    /// `len` floats.
    pub unsafe fn new(
        data: &'a [u8],
        strides: [usize; 3],
        len: usize,
        row_bytes: usize,
        decode: Decode,
    ) -> HostRows<'a> {
        HostRows { data, strides, len, row_bytes, decode }
    }

    /// Bytes from the first of the first row to the last of the last.
    pub fn extent(counts: [usize; 3], strides: [usize; 3], row_bytes: usize) -> Option<usize> {
        counts.iter().zip(strides).try_fold(row_bytes, |sum, (&n, stride)| {
            sum.checked_add(n.checked_sub(1)?.checked_mul(stride)?)
        })
    }
}

impl attention::Decode for HostRows<'_> {
    fn holds(&self, counts: [usize; 3], len: usize) -> bool {
        let extent = HostRows::extent(counts, self.strides, self.row_bytes);
        len == self.len && extent.is_some_and(|bytes| bytes <= self.data.len())
    }

    fn decode(&self, at: [usize; 3], dst: &mut [f32]) {
        let first: usize = at.iter().zip(self.strides).map(|(i, s)| i * s).sum();
        let row = &self.data[first..][..self.row_bytes];
        assert_eq!(dst.len(), self.len);
        match self.decode {
            Decode::F32 => dst.iter_mut().zip(row.as_chunks::<4>().0).for_each(|(d, b)| {
                *d = f32::from_ne_bytes(*b);
            }),
            Decode::F16 => dst.iter_mut().zip(row.as_chunks::<2>().0).for_each(|(d, b)| {
                *d = half::f16::from_ne_bytes(*b).to_f32();
            }),
            // SAFETY: the row's bytes and room for its elements, as `new` was promised.
            Decode::Host(f) => unsafe {
                f(row.as_ptr().cast(), dst.as_mut_ptr(), dst.len() as i64);
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rocket_runtime::ops::attention::Decode as _;
    use std::ffi::c_void;

    /// Two elements a byte: the byte, and its negative.
    unsafe extern "C" fn pairs(src: *const c_void, dst: *mut f32, n: i64) {
        for i in 0..n as usize {
            // SAFETY: a byte for two elements, and room for all.
            unsafe {
                let x = f32::from(*src.cast::<u8>().add(i / 2));
                *dst.add(i) = if i % 2 == 0 { x } else { -x };
            }
        }
    }

    #[test]
    fn rows_by_their_strides() {
        let data: Vec<u8> = (0..60).collect();
        // SAFETY: two bytes hold four of those elements.
        let rows = unsafe { HostRows::new(&data, [30, 7, 2], 4, 2, Decode::Host(pairs)) };
        let mut row = [0f32; 4];
        rows.decode([1, 2, 3], &mut row);
        assert_eq!(row, [50.0, -50.0, 51.0, -51.0]);
        assert!(rows.holds([2, 2, 11], 4) && !rows.holds([2, 2, 12], 4) && !rows.holds([1; 3], 6));
        assert!(!rows.holds([0, 1, 1], 4));
        let floats: Vec<u8> = [1.5f32, -2.0, 3.25].iter().flat_map(|x| x.to_ne_bytes()).collect();
        // SAFETY: no decoder.
        let rows = unsafe { HostRows::new(&floats, [0, 0, 4], 1, 4, Decode::F32) };
        rows.decode([0, 0, 2], &mut row[..1]);
        assert_eq!(row[0], 3.25);
    }
}
