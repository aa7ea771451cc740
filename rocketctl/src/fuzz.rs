//! Entries for fuzz targets: each parser of outside bytes, with what must hold of its answer.

use crate::{forecast, model};
use std::io::Cursor;

/// A model's header and its forecast: what is read adds up, and no size of it is beyond the file's.
pub fn model(data: &[u8]) {
    if let Ok(header) = model::parse(Cursor::new(data)) {
        assert_eq!(header.bytes, data.len() as u64);
        // Each has a type and a name's length in the file.
        assert!(header.tensors.len() * 8 <= data.len());
        let bytes = header.tensors.iter().filter_map(model::Tensor::bytes);
        assert!(bytes.max().unwrap_or(0) <= header.bytes);
        forecast::adds_up(&header);
    }
}
