//! What a model file says of itself, from its header alone: GGUF, split or whole, and whisper.cpp's format.
//! The weights' bytes are never read.

mod gguf;
mod source;
mod split;
#[cfg(test)]
mod tests;
mod whisper;
#[cfg(test)]
pub(crate) mod write;

pub use source::Source;

use ggml_rocket::route::Dtype;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Seek};
use std::path::{Path, PathBuf};

/// Most tensors of a file; the largest models have a few thousand.
const MOST_TENSORS: u64 = 1 << 16;
/// Longest name of a tensor; hosts take 63 bytes.
const LONGEST_NAME: u64 = 256;
/// Dimensions of a tensor (ggml-abi 2.6).
const MOST_DIMS: u32 = 4;

/// Why there is no header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Error {
    /// It ends before its header does, or before its last tensor.
    Truncated(String),
    /// It is none of the formats.
    Unknown(String),
    /// It breaks a rule of its format, or a limit of this reader.
    Invalid(String),
    /// It cannot be read.
    Unreadable(String),
    /// A part of a split model is not beside the first.
    MissingPart(String),
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Error::Truncated(why) => write!(f, "the file ends too early: {why}"),
            Error::Unknown(why) => write!(f, "no model file: {why}"),
            Error::Invalid(why) => write!(f, "not a valid model file: {why}"),
            Error::Unreadable(why) => f.write_str(why),
            Error::MissingPart(why) => write!(f, "a part is missing: {why}"),
        }
    }
}

impl std::error::Error for Error {}

/// The result of reading.
pub type Result<T> = std::result::Result<T, Error>;

/// What the file is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Format {
    /// GGUF of this version.
    Gguf(u32),
    /// whisper.cpp's.
    Whisper,
}

/// A value among a file's keys. What is longer than a forecast needs is counted and left out.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    /// A whole number, or a truth value as 0 or 1.
    Number(i64),
    /// A number with a fraction.
    Float(f64),
    /// A text, perhaps cut.
    Text(String),
    /// Whole numbers, one a layer most often.
    Numbers(Vec<i64>),
    /// So many of something else.
    Other(u64),
}

/// One tensor.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tensor {
    /// As the file names it.
    pub name: String,
    /// Elements per dimension, the contiguous one first, filled up with ones.
    pub ne: [u64; 4],
    /// How many of them the file gives.
    pub dims: u32,
    /// Element type.
    pub dtype: Dtype,
}

impl Tensor {
    /// Checks sizes: no product of them overflows, and rows are whole blocks.
    fn new(name: String, dims: &[u64], dtype: Dtype) -> Result<Tensor> {
        let mut ne = [1; 4];
        for (to, &from) in ne.iter_mut().zip(dims) {
            *to = from;
        }
        let all = ne.iter().try_fold(1u64, |p, &n| p.checked_mul(n));
        if all.is_none_or(|n| n > 1 << 56) {
            return Err(Error::Invalid(format!("{name} has more elements than there can be")));
        }
        let t = Tensor { name, ne, dims: dims.len() as u32, dtype };
        if let Some(block) = dtype.block()
            && !t.ne[0].is_multiple_of(block.elements as u64)
        {
            let (name, n) = (&t.name, t.ne[0]);
            return Err(Error::Invalid(format!("{name}: a row of {n} is no whole blocks")));
        }
        Ok(t)
    }

    /// Elements.
    pub fn elements(&self) -> u64 {
        self.ne.iter().product()
    }

    /// Bytes in the file; `None` for a type whose sizes are not known here.
    pub fn bytes(&self) -> Option<u64> {
        let block = self.dtype.block()?;
        (self.elements() / block.elements as u64).checked_mul(block.bytes as u64)
    }

    /// Number of the block in names such as `blk.7.attn_q.weight`.
    pub fn layer(&self) -> Option<usize> {
        let mut parts = self.name.split('.');
        let number = |p: Option<&str>| p?.parse().ok();
        match parts.by_ref().find(|p| matches!(*p, "blk" | "blocks")) {
            Some(_) => number(parts.next()),
            None => None,
        }
    }
}

/// A file's header, or those of all its parts.
#[derive(Debug, Clone, PartialEq)]
pub struct Header {
    /// What it is.
    pub format: Format,
    /// What computes with it: `general.architecture`, or `whisper`.
    pub architecture: String,
    /// The keys.
    pub keys: BTreeMap<String, Value>,
    /// The tensors, in the file's order.
    pub tensors: Vec<Tensor>,
    /// Bytes of all parts.
    pub bytes: u64,
    /// Parts that there are.
    pub parts: usize,
}

impl Header {
    /// The whole number under the architecture's key with this ending, or under the key itself.
    pub fn number(&self, ending: &str) -> Option<u64> {
        match self.value(ending)? {
            Value::Number(n) => u64::try_from(*n).ok(),
            _ => None,
        }
    }

    /// The same where every layer may have its own.
    pub fn number_of(&self, ending: &str, layer: usize) -> Option<u64> {
        match self.value(ending)? {
            Value::Number(n) => u64::try_from(*n).ok(),
            Value::Numbers(list) => u64::try_from(*list.get(layer)?).ok(),
            _ => None,
        }
    }

    /// The text under a key.
    pub fn text(&self, key: &str) -> Option<&str> {
        match self.value(key)? {
            Value::Text(text) => Some(text),
            _ => None,
        }
    }

    /// The value under the architecture's key with this ending, or under the key itself.
    pub fn value(&self, ending: &str) -> Option<&Value> {
        let own = format!("{}.{ending}", self.architecture);
        self.keys.get(&own).or_else(|| self.keys.get(ending))
    }

    /// The tensor of this name.
    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.name == name)
    }

    /// Layers.
    pub fn blocks(&self) -> usize {
        self.tensors.iter().filter_map(Tensor::layer).max().map_or(0, |n| n.saturating_add(1))
    }
}

/// Reads a header.
///
/// # Errors
/// Why there is none.
pub fn parse<R: Read + Seek>(from: R) -> Result<Header> {
    let mut source = Source::new(from)?;
    match source.array()? {
        gguf::MAGIC => gguf::parse(source),
        whisper::MAGIC => whisper::parse(source),
        other if other == gguf::MAGIC_BIG => Err(Error::Unknown(
            "a GGUF of big-endian numbers, which no host of a board takes".into(),
        )),
        other => Err(Error::Unknown(format!(
            "it begins with {other:02x?}, neither GGUF nor whisper.cpp's ggml"
        ))),
    }
}

/// Reads a file's header, and those of the parts beside it.
///
/// # Errors
/// Why there is none.
pub fn open(path: &Path) -> Result<Header> {
    let first = read(path)?;
    split::join(first, path, &read)
}

fn read(path: &Path) -> Result<Header> {
    let shown = path.display();
    let unreadable = |e: std::io::Error| Error::Unreadable(format!("{shown}: {e}"));
    // A pipe would wait for a writer, and has no size.
    let plain = std::fs::metadata(path).map_err(unreadable)?.is_file();
    if !plain {
        return Err(Error::Unreadable(format!("{shown}: not a plain file; name the model's file")));
    }
    parse(BufReader::with_capacity(1 << 16, File::open(path).map_err(unreadable)?))
}

/// The file that a host is to be given: the first, of a model in parts.
pub fn first(header: &Header, path: &Path) -> PathBuf {
    split::paths(path, header.parts).into_iter().next().unwrap_or_else(|| path.to_owned())
}
