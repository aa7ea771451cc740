//! whisper.cpp's format: magic, eleven settings, mel filters, vocabulary, then each tensor's header
//! before its data.

use super::{
    Error, Format, Header, LONGEST_NAME, MOST_DIMS, MOST_TENSORS, Result, Source, Tensor, Value,
};
use ggml_rocket::route::Dtype;
use std::collections::BTreeMap;
use std::io::{Read, Seek};

/// "ggml" as a number.
pub(super) const MAGIC: [u8; 4] = 0x6767_6d6c_u32.to_le_bytes();

/// The settings in the file's order.
pub const SETTINGS: [&str; 11] = [
    "vocab",
    "audio_ctx",
    "audio_state",
    "audio_head",
    "audio_layer",
    "text_ctx",
    "text_state",
    "text_head",
    "text_layer",
    "mels",
    "ftype",
];

/// No setting of any model is near it.
const MOST: u32 = 1 << 20;

/// What follows the magic.
pub(super) fn parse<R: Read + Seek>(mut s: Source<R>) -> Result<Header> {
    let mut keys = BTreeMap::new();
    for name in SETTINGS {
        let n = s.count(name, MOST)?;
        keys.insert(format!("whisper.{name}"), Value::Number(i64::from(n)));
    }
    let (mels, bins) = (s.count("mel filters", MOST)?, s.count("bins", MOST)?);
    s.skip(4 * u64::from(mels) * u64::from(bins))?;
    for _ in 0..s.count("words", MOST)? {
        let bytes = s.u32()?;
        s.skip(u64::from(bytes))?;
    }
    let mut tensors = Vec::new();
    while !s.is_at_end() {
        if tensors.len() as u64 >= MOST_TENSORS {
            return Err(Error::Invalid(format!("more than {MOST_TENSORS} tensors")));
        }
        let tensor = tensor(&mut s)?;
        let bytes = tensor.bytes().ok_or_else(|| {
            Error::Invalid(format!(
                "{}: type {}, whose size is not known",
                tensor.name, tensor.dtype.0
            ))
        })?;
        s.skip_data(bytes)?;
        tensors.push(tensor);
    }
    let (bytes, architecture) = (s.len(), "whisper".to_owned());
    Ok(Header { format: Format::Whisper, architecture, keys, tensors, bytes, parts: 1 })
}

fn tensor<R: Read + Seek>(s: &mut Source<R>) -> Result<Tensor> {
    let dims = s.count("dimensions:", MOST_DIMS)?;
    let len = s.count("bytes of a name:", LONGEST_NAME as u32)?;
    let dtype = s.count("a type", i32::MAX as u32)?;
    let mut shape = Vec::new();
    for _ in 0..dims {
        shape.push(u64::from(s.count("elements:", i32::MAX as u32)?));
    }
    let name = s.text(u64::from(len), LONGEST_NAME)?;
    Tensor::new(name, &shape, Dtype(dtype as i32))
}
