//! `struct ggml_tensor`, 336 bytes in every generation (ggml-abi 2.6), read and never written.
#![allow(unsafe_code)]

use crate::route::{Block, Dtype, TensorFacts};
use std::ffi::{CStr, c_char, c_void};
use std::mem::offset_of;

/// Dimensions of a tensor.
pub const MAX_DIMS: usize = 4;
/// Bytes of a name, terminator included.
pub const MAX_NAME: usize = 64;
/// Flag of a node that this evaluation computes (ggml-abi 2.6).
pub const FLAG_COMPUTE: i32 = 16;

/// The host's tensor.
#[repr(C)]
#[derive(Debug)]
pub struct Tensor {
    /// Type number (ggml-abi 2.9).
    pub dtype: i32,
    /// The buffer it lives in, or null.
    pub buffer: *mut c_void,
    /// Elements per dimension, the contiguous one first.
    pub ne: [i64; MAX_DIMS],
    /// Strides in bytes.
    pub nb: [usize; MAX_DIMS],
    /// Op number: meaningful only through [`super::ops::Ops`].
    pub op: i32,
    /// Op parameters.
    pub op_params: [i32; 16],
    /// Flags.
    pub flags: i32,
    /// Sources.
    pub src: [*mut Tensor; 10],
    /// The tensor this is a view of.
    pub view_src: *mut Tensor,
    /// Offset into it.
    pub view_offs: usize,
    /// First element, or null before allocation.
    pub data: *mut c_void,
    /// Name, zero-terminated.
    pub name: [c_char; MAX_NAME],
    /// Owned by the backend of the buffer.
    pub extra: *mut c_void,
    _padding: [u8; 8],
}

const _: () = assert!(size_of::<Tensor>() == 336);
const _: () = assert!(offset_of!(Tensor, dtype) == 0);
const _: () = assert!(offset_of!(Tensor, buffer) == 8);
const _: () = assert!(offset_of!(Tensor, ne) == 16);
const _: () = assert!(offset_of!(Tensor, nb) == 48);
const _: () = assert!(offset_of!(Tensor, op) == 80);
const _: () = assert!(offset_of!(Tensor, op_params) == 84);
const _: () = assert!(offset_of!(Tensor, flags) == 148);
const _: () = assert!(offset_of!(Tensor, src) == 152);
const _: () = assert!(offset_of!(Tensor, view_src) == 232);
const _: () = assert!(offset_of!(Tensor, view_offs) == 240);
const _: () = assert!(offset_of!(Tensor, data) == 248);
const _: () = assert!(offset_of!(Tensor, name) == 256);
const _: () = assert!(offset_of!(Tensor, extra) == 320);

impl Tensor {
    /// A tensor behind a pointer the host handed out.
    ///
    /// # Safety
    /// `ptr` is null or points to a tensor of the host that outlives the use of the reference
    /// and that nobody writes meanwhile.
    pub unsafe fn from_ptr<'a>(ptr: *const Tensor) -> Option<&'a Tensor> {
        // SAFETY: as the caller promises.
        unsafe { ptr.as_ref() }
    }

    /// Source `index`, if it has one.
    pub fn source(&self, index: usize) -> Option<&Tensor> {
        let ptr = *self.src.get(index)?;
        // SAFETY: the host keeps the sources of a live tensor alive, and only their data is
        // written while a graph is built or computed.
        unsafe { Self::from_ptr(ptr) }
    }

    /// Its name, as far as it is text.
    pub fn name(&self) -> String {
        let bytes = self.name.map(|c| c as u8);
        CStr::from_bytes_until_nul(&bytes)
            .map(|s| s.to_string_lossy().into_owned())
            .unwrap_or_default()
    }

    /// What the routing rules need to know of it; `block` is how the host stores its type.
    pub fn facts(&self, block: Option<Block>) -> TensorFacts {
        TensorFacts { dtype: Dtype(self.dtype), block, ne: self.ne, nb: self.nb }
    }

    /// The first `len` elements in memory as a slice; `None` when unallocated or misaligned.
    ///
    /// # Safety
    /// `len` elements of `T` can be read from the first on, gaps between strided rows included, and
    /// are not written while the slice lives.
    pub unsafe fn elements<T: Plain>(&self, len: usize) -> Option<&[T]> {
        let ptr = self.data.cast::<T>();
        if ptr.is_null() || !ptr.is_aligned() {
            return None;
        }
        // SAFETY: non-null, aligned, of `len` elements and not written, as the caller promises;
        // every bit pattern is a value of a Plain type.
        Some(unsafe { std::slice::from_raw_parts(ptr, len) })
    }

    /// The elements, to be overwritten.
    ///
    /// # Safety
    /// As [`Tensor::elements`], and nothing else refers to the data while the slice lives.
    #[allow(clippy::mut_from_ref)] // The data is not part of the struct that `self` borrows.
    pub unsafe fn elements_mut<T: Plain>(&self, len: usize) -> Option<&mut [T]> {
        let ptr = self.data.cast::<T>();
        if ptr.is_null() || !ptr.is_aligned() {
            return None;
        }
        // SAFETY: as above, and exclusive as the caller promises.
        Some(unsafe { std::slice::from_raw_parts_mut(ptr, len) })
    }
}

/// Element types for which every bit pattern is a value.
///
/// # Safety
/// Implement for such types only.
pub unsafe trait Plain: Copy {}
// SAFETY: every 32-bit pattern is an f32.
unsafe impl Plain for f32 {}
// SAFETY: plain data of its size.
unsafe impl Plain for i32 {}
// SAFETY: likewise.
unsafe impl Plain for u8 {}
// SAFETY: every 16-bit pattern is an f16.
unsafe impl Plain for half::f16 {}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;
    use std::ptr::null_mut;

    /// A contiguous tensor with no data.
    pub(crate) fn tensor(dtype: i32, elem: usize, ne: [i64; 4]) -> Tensor {
        let mut nb = [elem; 4];
        for i in 1..4 {
            nb[i] = nb[i - 1] * ne[i - 1] as usize;
        }
        Tensor {
            dtype,
            buffer: null_mut(),
            ne,
            nb,
            op: 0,
            op_params: [0; 16],
            flags: 0,
            src: [null_mut(); 10],
            view_src: null_mut(),
            view_offs: 0,
            data: null_mut(),
            name: [0; MAX_NAME],
            extra: null_mut(),
            _padding: [0; 8],
        }
    }

    #[test]
    fn names_stop_at_the_terminator_and_survive_its_absence() {
        let mut t = tensor(0, 4, [1; 4]);
        assert_eq!(t.name(), "");
        for (d, s) in t.name.iter_mut().zip(b"blk.0.ffn_up\0junk") {
            *d = *s as c_char;
        }
        assert_eq!(t.name(), "blk.0.ffn_up");
        t.name = [b'x' as c_char; MAX_NAME];
        assert_eq!(t.name(), "");
    }

    #[test]
    fn misaligned_or_missing_data_is_no_slice() {
        let mut t = tensor(0, 4, [2, 1, 1, 1]);
        let words = [1.0f32, 2.0, 3.0];
        // SAFETY: no data at all.
        assert!(unsafe { t.elements::<f32>(2) }.is_none());
        t.data = words.as_ptr().cast_mut().cast();
        // SAFETY: three floats live there.
        assert_eq!(unsafe { t.elements::<f32>(2) }, Some(&[1.0, 2.0][..]));
        t.data = t.data.wrapping_byte_add(1);
        // SAFETY: refused before it is read.
        assert!(unsafe { t.elements::<f32>(2) }.is_none());
    }
}
