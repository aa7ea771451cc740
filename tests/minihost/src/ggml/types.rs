//! Weight types: names, sizes, the host's encoder and decoder.

use super::Host;
use anyhow::{Context as _, Result, bail};
use ggml_rocket::abi::host::{Object, TypeTraits};
use std::ffi::CStr;

/// A type of tensors.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Type(pub i32);

/// Types that the host's encoder makes, with the version since which they are in its table: a
/// number beyond it must not be looked up (ggml-abi 2.9). Q8_1 and Q8_K are of activations only.
const ENCODED: &[(i32, [u32; 2])] = &[
    (0, [0, 0]),
    (1, [0, 0]),
    (30, [0, 0]),
    (2, [0, 0]),
    (3, [0, 0]),
    (6, [0, 0]),
    (7, [0, 0]),
    (8, [0, 0]),
    (10, [0, 0]),
    (11, [0, 0]),
    (12, [0, 0]),
    (13, [0, 0]),
    (14, [0, 0]),
    (16, [0, 0]),
    (17, [0, 0]),
    (18, [0, 0]),
    (19, [0, 0]),
    (20, [0, 0]),
    (21, [0, 0]),
    (22, [0, 0]),
    (23, [0, 0]),
    (29, [0, 0]),
    (34, [0, 0]),
    (35, [0, 0]),
    (39, [0, 9]),
    (40, [0, 10]),
    (41, [0, 10]),
    (42, [0, 16]),
];

impl Type {
    /// 32-bit float.
    pub const F32: Type = Type(0);
    /// 16-bit float.
    pub const F16: Type = Type(1);
    /// bfloat16.
    pub const BF16: Type = Type(30);
    /// Integers of 32 bits; not of weights.
    pub const I32: Type = Type(26);
    /// Blocks of 32 of 4 bits with a scale.
    pub const Q4_0: Type = Type(2);
    /// 4-bit floats with an exponent for 32 of them, of newer hosts.
    pub const MXFP4: Type = Type(39);
    /// Blocks of 32 with a scale.
    pub const Q8_0: Type = Type(8);
    /// The common 4-bit type.
    pub const Q4_K: Type = Type(12);

    /// Whether the host's encoder builds large tables first, which takes it seconds: IQ2_XXS,
    /// IQ2_XS, IQ1_S, IQ2_S, IQ1_M.
    pub fn is_slow_to_encode(self) -> bool {
        matches!(self.0, 16 | 17 | 19 | 22 | 29)
    }
}

impl Host {
    /// Every type whose weights this host can make.
    pub fn encoded_types(&self) -> Vec<Type> {
        let version = self.version();
        let mut parts = version.split(['.', '-']).map(|p| p.parse::<u32>().unwrap_or(0));
        let version = [parts.next().unwrap_or(0), parts.next().unwrap_or(0)];
        ENCODED.iter().filter(|(_, since)| version >= *since).map(|(n, _)| Type(*n)).collect()
    }

    fn traits(&self, t: Type) -> Result<&'static TypeTraits> {
        // SAFETY: only numbers of the table above that this version has; the table is static.
        unsafe { (self.f.type_traits)(t.0).as_ref() }.context("no such type")
    }

    /// As ggml writes it.
    ///
    /// # Errors
    /// The host has no such type.
    pub fn type_name(&self, t: Type) -> Result<String> {
        let traits = self.traits(t)?;
        if traits.type_name.is_null() {
            bail!("type {} has no name", t.0);
        }
        // SAFETY: a static string of the host.
        Ok(unsafe { CStr::from_ptr(traits.type_name) }.to_string_lossy().into_owned())
    }

    /// Elements of a block.
    ///
    /// # Errors
    /// The host has no such type.
    pub fn block(&self, t: Type) -> Result<usize> {
        Ok(usize::try_from(self.traits(t)?.blck_size)?)
    }

    /// Bytes of a row of `k` elements.
    ///
    /// # Errors
    /// They are not whole blocks.
    pub fn row_bytes(&self, t: Type, k: usize) -> Result<usize> {
        let traits = self.traits(t)?;
        let block = usize::try_from(traits.blck_size)?;
        if block == 0 || !k.is_multiple_of(block) {
            bail!("{k} elements are not whole blocks of {block}");
        }
        Ok(k / block * traits.type_size)
    }

    /// Rows of `k` floats in the form of a type.
    ///
    /// # Errors
    /// They are not whole blocks.
    pub fn encode(&self, t: Type, values: &[f32], k: usize) -> Result<Vec<u8>> {
        let rows = values.len() / k;
        let mut out = vec![0u8; self.row_bytes(t, k)? * rows];
        // The types of 1 and 2 bits insist on an importance of every column.
        let importance = vec![1f32; k];
        // SAFETY: `rows` rows of `k` floats, room for their encoded form, `k` importances; the
        // type is one that the encoder knows.
        let written = unsafe {
            (self.f.quantize)(
                t.0,
                values.as_ptr(),
                out.as_mut_ptr().cast(),
                0,
                rows as i64,
                k as i64,
                importance.as_ptr(),
            )
        };
        if written != out.len() {
            bail!("the host wrote {written} bytes of {}", out.len());
        }
        Ok(out)
    }

    /// What the CPU backend sees of encoded rows.
    ///
    /// # Errors
    /// The host has no decoder for the type.
    pub fn decode(&self, t: Type, bytes: &[u8], k: usize) -> Result<Vec<f32>> {
        let each = self.row_bytes(t, k)?;
        if t == Type::F32 {
            let words = bytes.as_chunks::<4>().0;
            return Ok(words.iter().map(|b| f32::from_le_bytes(*b)).collect());
        }
        let decode = self.traits(t)?.to_float.context("the host cannot decode this type")?;
        let mut out = vec![0f32; bytes.len() / each * k];
        // An aligned copy: decoders read words.
        let mut row = vec![0u64; each.div_ceil(8)];
        for (src, dst) in bytes.chunks_exact(each).zip(out.chunks_exact_mut(k)) {
            // SAFETY: the copy has room for a row, and `dst` for its `k` floats.
            unsafe {
                std::ptr::copy_nonoverlapping(src.as_ptr(), row.as_mut_ptr().cast(), each);
                decode(row.as_ptr() as Object, dst.as_mut_ptr(), k as i64);
            }
        }
        Ok(out)
    }
}
