//! Cheap checks after the decision (ggml-abi 5.4): constants compiled into this plugin against
//! the host's own answers.
#![allow(unsafe_code)]

use super::host::Functions;
use super::tensor::Tensor;

/// `sizeof(struct ggml_object)`, which `ggml_tensor_overhead` includes.
const OBJECT: usize = 32;

/// Type number, name, bytes and elements of a block (ggml-abi 2.9): the types whose memory is
/// read here.
const TYPES: &[(i32, &str, usize, i64)] = &[(0, "F32", 4, 1), (1, "F16", 2, 1)];

/// Compares.
///
/// # Errors
/// The first disagreement, in words.
pub fn check(f: &Functions) -> Result<(), String> {
    // SAFETY: takes nothing, returns a size.
    let overhead = unsafe { (f.tensor_overhead)() };
    tensor_size(overhead)?;
    for &(number, name, bytes, elements) in TYPES {
        // SAFETY: both numbers are in the table of every host; the functions only index it.
        let found = unsafe { ((f.type_size)(number), (f.blck_size)(number)) };
        if found != (bytes, elements) {
            return Err(format!(
                "type {name} has {} bytes for {} elements on this host, not {bytes} for {elements}",
                found.0, found.1
            ));
        }
    }
    Ok(())
}

fn tensor_size(overhead: usize) -> Result<(), String> {
    let ours = size_of::<Tensor>();
    match overhead.checked_sub(OBJECT) {
        Some(bytes) if bytes == ours => Ok(()),
        found => Err(format!(
            "the host's tensor has {} bytes, not {ours} (a changed GGML_MAX_NAME?)",
            found.map_or_else(|| "fewer".to_owned(), |b| b.to_string())
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_longer_name_is_noticed() {
        assert_eq!(tensor_size(368), Ok(()));
        assert!(tensor_size(368 + 64).unwrap_err().contains("400 bytes"));
        assert!(tensor_size(16).is_err());
    }
}
