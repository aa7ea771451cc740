//! A view of row-major bytes.

/// A row-major byte matrix, perhaps part of a wider one: `rows` rows of `row_bytes` bytes that
/// begin `stride` bytes apart.
#[derive(Debug, Clone, Copy)]
pub struct Bytes<'a> {
    data: &'a [u8],
    rows: usize,
    row_bytes: usize,
    stride: usize,
}

impl<'a> Bytes<'a> {
    /// Whether these are the same rows in memory.
    pub(crate) fn is(&self, other: &Bytes<'_>) -> bool {
        std::ptr::eq(self.data, other.data)
            && (self.rows, self.row_bytes, self.stride)
                == (other.rows, other.row_bytes, other.stride)
    }

    /// `rows` rows of `row_bytes` bytes, `stride` bytes apart. The last row needs its own bytes
    /// only, no whole stride.
    ///
    /// # Panics
    /// When rows overlap or `data` does not hold the last one.
    pub fn new(data: &'a [u8], rows: usize, row_bytes: usize, stride: usize) -> Bytes<'a> {
        let held = rows == 0 || data.len() >= (rows - 1) * stride + row_bytes;
        assert!(row_bytes <= stride && held, "{} bytes are too few", data.len());
        Bytes { data, rows, row_bytes, stride }
    }

    /// Rows.
    pub fn rows(&self) -> usize {
        self.rows
    }

    /// Bytes of a row.
    pub fn row_bytes(&self) -> usize {
        self.row_bytes
    }

    /// Row `r`.
    ///
    /// # Panics
    /// When there is no such row.
    pub fn row(&self, r: usize) -> &'a [u8] {
        assert!(r < self.rows, "row {r} of {}", self.rows);
        &self.data[r * self.stride..][..self.row_bytes]
    }

    /// `N` bytes of row `r` from `first` on, if they are there. Not held to the row's end.
    #[inline(always)]
    pub(super) fn piece<const N: usize>(&self, r: usize, first: usize) -> Option<&'a [u8; N]> {
        self.data.get(r * self.stride + first..)?.first_chunk()
    }

    /// The rows from `first` on, at most `count`: those beyond the end are absent.
    pub fn slice_rows(&self, first: usize, count: usize) -> Bytes<'a> {
        let rows = count.min(self.rows.saturating_sub(first));
        let data = self.data.get(first.saturating_mul(self.stride)..).unwrap_or_default();
        Bytes { data: if rows == 0 { &[] } else { data }, rows, ..*self }
    }

    /// The bytes from `first` on of every row, at most `count`: those beyond the end are absent.
    pub fn slice_bytes(&self, first: usize, count: usize) -> Bytes<'a> {
        let row_bytes = count.min(self.row_bytes.saturating_sub(first));
        if row_bytes == 0 || self.rows == 0 {
            return Bytes { data: &[], row_bytes, stride: row_bytes, ..*self };
        }
        Bytes { data: &self.data[first..], row_bytes, ..*self }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn slices_are_parts_of_the_matrix(
            rows in 0usize..6, len in 0usize..9, pad in 0usize..3,
            r0 in 0usize..8, rn in 0usize..8, b0 in 0usize..12, bn in 0usize..12,
        ) {
            let stride = len + pad;
            let data: Vec<u8> = (0..(rows * stride).saturating_sub(pad)).map(|i| i as u8).collect();
            let all = Bytes::new(&data, rows, len, stride);
            for part in [
                all.slice_rows(r0, rn).slice_bytes(b0, bn),
                all.slice_bytes(b0, bn).slice_rows(r0, rn),
            ] {
                prop_assert_eq!(part.rows(), rn.min(rows.saturating_sub(r0)));
                prop_assert_eq!(part.row_bytes(), bn.min(len.saturating_sub(b0)));
                for r in 0..part.rows() {
                    let want: Vec<u8> =
                        (b0..len.min(b0 + bn)).map(|b| ((r0 + r) * stride + b) as u8).collect();
                    prop_assert_eq!(part.row(r), &want[..]);
                }
            }
        }
    }

    #[test]
    #[should_panic(expected = "too few")]
    fn a_short_last_row_is_refused() {
        let _ = Bytes::new(&[0; 13], 2, 6, 8);
    }
}
