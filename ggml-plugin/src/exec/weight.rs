//! A stored weight, decoded row by row while it is packed: there is no F16 copy of the matrix.
#![allow(unsafe_code)]

use super::scale::{F16_MAX, MIN_WEIGHT_ROW, max_abs};
use crate::abi::host::ToFloat;
use crate::route::Dtype;
use half::slice::{HalfBitsSliceExt, HalfFloatSliceExt};
use half::{bf16, f16};
use rocket_runtime::matmul::Weights;
use std::cell::RefCell;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

/// How rows become numbers.
#[derive(Debug, Clone, Copy)]
pub enum Decode {
    /// F16 as it is.
    F16,
    /// F32 as it is.
    F32,
    /// By the host's own decoder: exactly the values its CPU backend sees (ggml-abi 2.8).
    Host(ToFloat),
}

impl Decode {
    /// Of a type, with the host's decoder for it; `None` when it has none and needs one.
    pub fn of(dtype: Dtype, to_float: Option<ToFloat>) -> Option<Decode> {
        match dtype {
            Dtype::F16 => Some(Decode::F16),
            Dtype::F32 => Some(Decode::F32),
            _ => to_float.map(Decode::Host),
        }
    }
}

/// `n` rows of `k` elements.
#[derive(Debug, Clone, Copy)]
pub struct Weight<'a> {
    data: &'a [u8],
    n: usize,
    k: usize,
    row_bytes: usize,
    decode: Decode,
}

impl<'a> Weight<'a> {
    /// `n` rows of `k` elements, each `row_bytes` long, without gaps. `None` when the bytes are
    /// not exactly those, or not aligned as plain floats must be.
    ///
    /// # Safety
    /// A host decoder reads `row_bytes` of a row of `k` elements, and writes `k` floats.
    pub unsafe fn new(
        data: &'a [u8],
        [n, k]: [usize; 2],
        row_bytes: usize,
        decode: Decode,
    ) -> Option<Weight<'a>> {
        let element = match decode {
            Decode::F16 => 2,
            Decode::F32 => 4,
            Decode::Host(_) => 1,
        };
        let whole = row_bytes.checked_mul(n) == Some(data.len());
        let plain = element == 1 || row_bytes == k * element;
        let aligned = data.as_ptr().addr().is_multiple_of(element);
        (whole && plain && aligned).then_some(Weight { data, n, k, row_bytes, decode })
    }

    /// A matrix of F32.
    ///
    /// # Panics
    /// When the shape is not the slice's.
    #[cfg(any(test, feature = "test-engine"))]
    pub fn of_f32(data: &'a [f32], n: usize, k: usize) -> Weight<'a> {
        assert_eq!(data.len(), n * k);
        Weight { data: bytemuck::cast_slice(data), n, k, row_bytes: k * 4, decode: Decode::F32 }
    }

    /// Rows.
    pub fn n(&self) -> usize {
        self.n
    }

    /// Elements of a row.
    pub fn k(&self) -> usize {
        self.k
    }

    /// The stored bytes.
    pub fn bytes(&self) -> &'a [u8] {
        self.data
    }

    /// Row `n` in F32.
    pub fn decode_row(&self, n: usize, dst: &mut [f32]) {
        let row = &self.data[n * self.row_bytes..][..self.row_bytes];
        assert_eq!(dst.len(), self.k);
        match self.decode {
            Decode::F16 => halves(row).convert_to_f32_slice(dst),
            Decode::F32 => dst.copy_from_slice(bytemuck::cast_slice(row)),
            // SAFETY: the row's bytes and room for K floats, as `new` was promised.
            Decode::Host(f) => unsafe {
                f(row.as_ptr().cast(), dst.as_mut_ptr(), dst.len() as i64)
            },
        }
    }
}

/// How the rows of a matrix are stored, wherever they lie.
#[derive(Debug, Clone, Copy)]
pub struct Form {
    shape: [usize; 2],
    row_bytes: usize,
    decode: Decode,
}

impl Form {
    /// N rows of K elements, each `row_bytes` long.
    ///
    /// # Safety
    /// As [`Weight::new`].
    pub unsafe fn new(shape: [usize; 2], row_bytes: usize, decode: Decode) -> Form {
        Form { shape, row_bytes, decode }
    }

    /// Bytes of all rows; `None` when nobody can count them.
    pub fn bytes(&self) -> Option<usize> {
        self.shape[0].checked_mul(self.row_bytes)
    }

    /// These bytes as a weight, as [`Weight::new`].
    pub fn weight<'a>(&self, data: &'a [u8]) -> Option<Weight<'a>> {
        // SAFETY: as `new` was promised.
        unsafe { Weight::new(data, self.shape, self.row_bytes, self.decode) }
    }
}

fn halves(row: &[u8]) -> &[f16] {
    bytemuck::cast_slice::<u8, u16>(row).reinterpret_cast()
}

/// Rows that were multiplied by a power of two to fit F16, so that the columns of the result have
/// to be divided by it; almost always none.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Columns {
    /// Column and factor, ascending.
    factors: Vec<(usize, f32)>,
    /// An element is infinite or not a number: nothing of the result can be used.
    unfit: bool,
}

impl Columns {
    /// Of a weight that holds something that is not finite.
    pub fn unfit() -> Columns {
        Columns { unfit: true, ..Columns::default() }
    }

    /// Whether every weight was finite.
    pub fn fit(&self) -> bool {
        !self.unfit
    }

    /// Applies the factors to the columns of `out`, `n` a row.
    pub fn apply(&self, out: &mut [f32], n: usize) {
        if self.factors.is_empty() {
            return;
        }
        for row in out.chunks_exact_mut(n) {
            for &(column, factor) in &self.factors {
                row[column] *= factor;
            }
        }
    }
}

/// The weight as the runtime packs it, with a note of every row that had to be scaled.
#[derive(Debug)]
pub struct Source<'a> {
    weight: Weight<'a>,
    scaled: Mutex<Vec<(usize, f32)>>,
    unfit: AtomicBool,
}

thread_local! {
    /// A decoded row: packing threads decode many.
    static ROW: RefCell<Vec<f32>> = const { RefCell::new(Vec::new()) };
}

impl<'a> Source<'a> {
    /// Of a weight.
    pub fn new(weight: Weight<'a>) -> Source<'a> {
        Source { weight, scaled: Mutex::default(), unfit: AtomicBool::new(false) }
    }

    /// What was noted while the rows were loaded.
    pub fn columns(self) -> Columns {
        let mut factors = self.scaled.into_inner().unwrap_or_else(PoisonError::into_inner);
        // A row is loaded again when a lost job is repeated.
        factors.sort_by_key(|(column, _)| *column);
        factors.dedup_by_key(|(column, _)| *column);
        Columns { factors, unfit: self.unfit.into_inner() }
    }

    /// `row` in F16, multiplied by a power of two if its largest magnitude asks for it.
    fn narrow(&self, n: usize, row: &mut [f32], dst: &mut [f16]) {
        match max_abs(row) {
            None => self.unfit.store(true, Ordering::Relaxed),
            Some(max) if max != 0.0 && !(MIN_WEIGHT_ROW..=F16_MAX).contains(&max) => {
                let power = power_of(max);
                // Divided, for the power's reciprocal may be beyond F32.
                row.iter_mut().for_each(|x| *x /= power);
                let mut scaled = self.scaled.lock().unwrap_or_else(PoisonError::into_inner);
                scaled.push((n, power));
            }
            Some(_) => {}
        }
        dst.convert_from_f32_slice(row);
    }
}

/// The power of two that divides `max` (finite, not 0) to between 1 and 2.
fn power_of(max: f32) -> f32 {
    f32::from_bits(max.to_bits() & 0x7f80_0000).max(f32::MIN_POSITIVE)
}

impl Weights for Source<'_> {
    fn n(&self) -> usize {
        self.weight.n
    }

    fn k(&self) -> usize {
        self.weight.k
    }

    fn load(&self, n: usize, dst: &mut [f16]) {
        let w = &self.weight;
        if let Decode::F16 = w.decode {
            let row = halves(&w.data[n * w.row_bytes..][..w.row_bytes]);
            let bits = row.iter().fold(0u16, |max, x| max.max(x.to_bits() & 0x7fff));
            if bits >= 0x7c00 {
                self.unfit.store(true, Ordering::Relaxed);
            }
            dst.copy_from_slice(row);
            return;
        }
        ROW.with_borrow_mut(|row| {
            row.resize(w.k, 0.0);
            w.decode_row(n, row);
            self.narrow(n, row, dst);
        });
    }
}

/// The weight in BF16.
#[derive(Debug)]
pub struct WideSource<'a> {
    weight: Weight<'a>,
    unfit: AtomicBool,
}

impl<'a> WideSource<'a> {
    /// Of a weight.
    pub fn new(weight: Weight<'a>) -> WideSource<'a> {
        WideSource { weight, unfit: AtomicBool::new(false) }
    }

    /// Whether every row that was loaded is finite in BF16.
    pub fn fit(&self) -> bool {
        !self.unfit.load(Ordering::Relaxed)
    }
}

impl Weights<bf16> for WideSource<'_> {
    fn n(&self) -> usize {
        self.weight.n
    }

    fn k(&self) -> usize {
        self.weight.k
    }

    fn load(&self, n: usize, dst: &mut [bf16]) {
        ROW.with_borrow_mut(|row| {
            row.resize(self.weight.k, 0.0);
            self.weight.decode_row(n, row);
            if max_abs(row).is_none_or(|max| max > bf16::MAX.to_f32()) {
                self.unfit.store(true, Ordering::Relaxed);
            }
            dst.convert_from_f32_slice(row);
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn load(data: &[f32], n: usize, k: usize) -> (Vec<f16>, Columns) {
        let source = Source::new(Weight::of_f32(data, n, k));
        let mut out = vec![f16::ZERO; n * k];
        for (i, row) in out.chunks_exact_mut(k).enumerate() {
            source.load(i, row);
            source.load(i, row);
        }
        (out, source.columns())
    }

    #[test]
    fn ordinary_rows_are_only_rounded() {
        let data = [0.0, -0.5, 65504.0, 1.0, MIN_WEIGHT_ROW, 1e-9];
        let (half, columns) = load(&data, 3, 2);
        assert_eq!(columns, Columns::default());
        let back: Vec<f32> = half.iter().map(|x| x.to_f32()).collect();
        assert_eq!(back[..5], data[..5]);
    }

    #[test]
    fn what_is_not_finite_is_noted() {
        for bad in [f32::NAN, f32::INFINITY, f32::NEG_INFINITY] {
            assert!(!load(&[1.0, bad], 1, 2).1.fit());
        }
        for bad in [f16::NAN, f16::NEG_INFINITY] {
            let data = [f16::ONE, bad];
            let bytes: &[u8] = bytemuck::cast_slice(data.reinterpret_cast());
            // SAFETY: no host decoder.
            let w = unsafe { Weight::new(bytes, [1, 2], 4, Decode::F16) }.unwrap();
            let source = Source::new(w);
            source.load(0, &mut [f16::ZERO; 2]);
            assert!(!source.columns().fit());
        }
    }

    /// A decoder that gives each byte's value.
    unsafe extern "C" fn bytes_as_floats(src: *const std::ffi::c_void, dst: *mut f32, k: i64) {
        for i in 0..k as usize {
            // SAFETY: K bytes and K floats.
            unsafe { *dst.add(i) = f32::from(*src.cast::<u8>().add(i)) };
        }
    }

    #[test]
    fn the_hosts_decoder_gets_each_row() {
        let data: Vec<u8> = (0..12).collect();
        // SAFETY: the decoder reads one byte an element.
        let w = unsafe { Weight::new(&data, [3, 4], 4, Decode::Host(bytes_as_floats)) }.unwrap();
        let source = Source::new(w);
        let mut row = [f16::ZERO; 4];
        source.load(2, &mut row);
        assert_eq!(row.map(|x| x.to_f32()), [8.0, 9.0, 10.0, 11.0]);
        // SAFETY: refused.
        unsafe {
            assert!(Weight::new(&data, [3, 4], 3, Decode::Host(bytes_as_floats)).is_none());
            assert!(Weight::new(&data, [3, 2], 4, Decode::F32).is_none());
        }
    }

    proptest! {
        /// Any finite row, however large or small, comes back within F16's rounding beside its
        /// own largest value.
        #[test]
        fn no_range_is_lost(
            row in prop::collection::vec(-1f32..1.0, 1..40),
            size in prop_oneof![Just(1f32), Just(1e-38), Just(1e-20), Just(1e20), Just(3e38)],
        ) {
            let row: Vec<f32> = row.iter().map(|x| x * size).collect();
            let k = row.len();
            let (half, columns) = load(&row, 1, k);
            prop_assert!(columns.fit());
            let largest = f64::from(row.iter().fold(0f32, |m, x| m.max(x.abs())));
            for (i, (h, x)) in half.iter().zip(&row).enumerate() {
                let mut out = vec![0f32; 1];
                out[0] = h.to_f32();
                columns.apply(&mut out, 1);
                let off = (f64::from(out[0]) - f64::from(*x)).abs();
                // F16 rounds to 2^-12 of a value and 2^-25 beside a row of at least 2^-10; an F32
                // below its own normal range to 2^-150.
                prop_assert!(off <= largest * 2f64.powi(-11) + 2f64.powi(-149), "{i}: {x} {h}");
            }
        }
    }
}
