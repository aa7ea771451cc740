//! GGUF 2 and 3: magic, version, counts, key-values, tensor infos; the data begin at a multiple of
//! the alignment.

use super::{
    Error, Format, Header, LONGEST_NAME, MOST_DIMS, MOST_TENSORS, Result, Source, Tensor, Value,
};
use ggml_rocket::route::Dtype;
use std::collections::BTreeMap;
use std::io::{Read, Seek};

pub(super) const MAGIC: [u8; 4] = *b"GGUF";
pub(super) const MAGIC_BIG: [u8; 4] = *b"FUGG";

/// Most keys; models have about a hundred.
const MOST_KEYS: u64 = 4096;
/// Longest name of a key, by the format.
const LONGEST_KEY: u64 = (1 << 16) - 1;
/// Of a text value so much is kept: enough for names.
const KEPT_TEXT: u64 = 1024;
/// Numbers of an array that are kept: one a layer.
const KEPT_NUMBERS: u64 = 1024;
/// Arrays of arrays; no model has any.
const DEEPEST: u32 = 4;
/// Where the data begin, unless `general.alignment` says otherwise.
const ALIGNMENT: u64 = 32;

/// What follows the magic.
pub(super) fn parse<R: Read + Seek>(mut s: Source<R>) -> Result<Header> {
    let version = s.u32()?;
    match version {
        2 | 3 => {}
        1 => {
            return Err(Error::Unknown(
                "GGUF 1, which hosts no longer take: convert it anew".into(),
            ));
        }
        v if matches!(v.swap_bytes(), 1..=3) => {
            return Err(Error::Unknown(
                "a GGUF of big-endian numbers, which no host of a board takes".into(),
            ));
        }
        v => return Err(Error::Unknown(format!("GGUF version {v}; 2 and 3 are known"))),
    }
    let (tensors, keys) = (s.u64()?, s.u64()?);
    if tensors > MOST_TENSORS || keys > MOST_KEYS {
        return Err(Error::Invalid(format!("{tensors} tensors and {keys} keys")));
    }
    let mut pairs = BTreeMap::new();
    for _ in 0..keys {
        let len = s.u64()?;
        if len > LONGEST_KEY {
            return Err(Error::Invalid(format!("a key of {len} bytes")));
        }
        let name = s.text(len, KEPT_TEXT)?;
        let kind = s.u32()?;
        let value = value(&mut s, kind, 0)?;
        pairs.insert(name, value);
    }
    let alignment = match pairs.get("general.alignment") {
        None => ALIGNMENT,
        Some(Value::Number(n @ 8..=0x10_0000)) if n.count_ones() == 1 => *n as u64,
        Some(other) => return Err(Error::Invalid(format!("general.alignment {other:?}"))),
    };
    let mut list = Vec::new();
    let mut end = 0;
    for _ in 0..tensors {
        let (tensor, offset) = info(&mut s)?;
        if offset % alignment != 0 {
            return Err(Error::Invalid(format!(
                "{} does not begin at a multiple of {alignment}",
                tensor.name
            )));
        }
        // Of a type without sizes at least a byte.
        let last = offset.checked_add(tensor.bytes().unwrap_or(1));
        end = end
            .max(last.ok_or_else(|| Error::Invalid(format!("{} ends beyond 2^64", tensor.name)))?);
        list.push(tensor);
    }
    let begin = s.at().next_multiple_of(alignment);
    match begin.checked_add(end) {
        // A part without tensors may end with its header.
        Some(needed) if needed <= s.len() || end == 0 => {}
        needed => {
            let (have, parts) = (s.len(), needed.unwrap_or(u64::MAX));
            return Err(Error::Truncated(format!(
                "its tensors reach to byte {parts} and it has {have}; download it again"
            )));
        }
    }
    let architecture = match pairs.get("general.architecture") {
        Some(Value::Text(name)) => name.clone(),
        _ => String::new(),
    };
    let (bytes, format) = (s.len(), Format::Gguf(version));
    Ok(Header { format, architecture, keys: pairs, tensors: list, bytes, parts: 1 })
}

fn info<R: Read + Seek>(s: &mut Source<R>) -> Result<(Tensor, u64)> {
    let len = s.u64()?;
    if len > LONGEST_NAME {
        return Err(Error::Invalid(format!("a tensor's name of {len} bytes")));
    }
    let name = s.text(len, LONGEST_NAME)?;
    let dims = s.count("dimensions:", MOST_DIMS)?;
    let mut shape = Vec::new();
    for _ in 0..dims {
        shape.push(s.u64()?);
    }
    let dtype = s.u32()?;
    let dtype =
        i32::try_from(dtype).map_err(|_| Error::Invalid(format!("{name}: type {dtype}")))?;
    let tensor = Tensor::new(name, &shape, Dtype(dtype))?;
    Ok((tensor, s.u64()?))
}

/// Bytes of a value of fixed size; `None` for texts and arrays.
fn width(kind: u32) -> Result<Option<u64>> {
    match kind {
        0 | 1 | 7 => Ok(Some(1)),
        2 | 3 => Ok(Some(2)),
        4..=6 => Ok(Some(4)),
        10..=12 => Ok(Some(8)),
        8 | 9 => Ok(None),
        other => Err(Error::Invalid(format!("a value of type {other}"))),
    }
}

fn value<R: Read + Seek>(s: &mut Source<R>, kind: u32, depth: u32) -> Result<Value> {
    width(kind)?;
    Ok(match kind {
        0 | 7 => Value::Number(i64::from(s.array::<1>()?[0])),
        1 => Value::Number(i64::from(i8::from_le_bytes(s.array()?))),
        2 => Value::Number(i64::from(u16::from_le_bytes(s.array()?))),
        3 => Value::Number(i64::from(i16::from_le_bytes(s.array()?))),
        4 => Value::Number(i64::from(s.u32()?)),
        5 => Value::Number(i64::from(i32::from_le_bytes(s.array()?))),
        6 => Value::Float(f64::from(f32::from_le_bytes(s.array()?))),
        8 => {
            let len = s.u64()?;
            Value::Text(s.text(len, KEPT_TEXT)?)
        }
        9 => array(s, depth)?,
        // Beyond 2^63 there is nothing that counts anything.
        10 => Value::Number(i64::try_from(s.u64()?).unwrap_or(i64::MAX)),
        11 => Value::Number(i64::from_le_bytes(s.array()?)),
        _ => Value::Float(f64::from_le_bytes(s.array()?)),
    })
}

fn array<R: Read + Seek>(s: &mut Source<R>, depth: u32) -> Result<Value> {
    if depth >= DEEPEST {
        return Err(Error::Invalid(format!("arrays {DEEPEST} deep")));
    }
    let (kind, count) = (s.u32()?, s.u64()?);
    match width(kind)? {
        Some(_) if count <= KEPT_NUMBERS && !matches!(kind, 6 | 12) => {
            let mut list = Vec::new();
            for _ in 0..count {
                if let Value::Number(n) = value(s, kind, depth)? {
                    list.push(n);
                }
            }
            return Ok(Value::Numbers(list));
        }
        Some(width) => {
            let bytes = count.checked_mul(width);
            s.skip(bytes.ok_or_else(|| Error::Invalid(format!("an array of {count}")))?)?;
        }
        // Each takes eight bytes at least, so the file's size bounds them.
        None if kind == 8 => {
            for _ in 0..count {
                let len = s.u64()?;
                s.skip(len)?;
            }
        }
        None => {
            for _ in 0..count {
                array(s, depth + 1)?;
            }
        }
    }
    Ok(Value::Other(count))
}
