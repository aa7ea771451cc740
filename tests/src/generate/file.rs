//! GGUF, version 3, little-endian: header, key-values, tensor infos, and the tensors' bytes each at
//! a multiple of 32.

use super::{Recipe, Tensor, draw};
use std::io::{Result, Write};

const ALIGNMENT: u64 = 32;

/// The value of a key.
#[derive(Debug, Clone, PartialEq)]
pub enum Value {
    U32(u32),
    F32(f32),
    Bool(bool),
    Text(String),
    Texts(Vec<String>),
    F32s(Vec<f32>),
    I32s(Vec<i32>),
}

macro_rules! from {
    ($($of:ty => $variant:ident),+) => {
        $(impl From<$of> for Value {
            fn from(v: $of) -> Value {
                Value::$variant(v.into())
            }
        })+
    };
}
from!(u32 => U32, f32 => F32, bool => Bool, String => Text, &str => Text,
    Vec<String> => Texts, Vec<f32> => F32s, Vec<i32> => I32s);

fn text(out: &mut impl Write, s: &str) -> Result<()> {
    out.write_all(&(s.len() as u64).to_le_bytes())?;
    out.write_all(s.as_bytes())
}

/// The number of an array, of its elements' type, and their count.
fn array(out: &mut impl Write, kind: u32, count: usize) -> Result<()> {
    out.write_all(&9u32.to_le_bytes())?;
    out.write_all(&kind.to_le_bytes())?;
    out.write_all(&(count as u64).to_le_bytes())
}

fn value(out: &mut impl Write, v: &Value) -> Result<()> {
    let tag = |out: &mut _, n: u32| Write::write_all(out, &n.to_le_bytes());
    match v {
        Value::U32(n) => {
            tag(out, 4)?;
            out.write_all(&n.to_le_bytes())
        }
        Value::F32(x) => {
            tag(out, 6)?;
            out.write_all(&x.to_le_bytes())
        }
        Value::Bool(b) => {
            tag(out, 7)?;
            out.write_all(&[u8::from(*b)])
        }
        Value::Text(s) => {
            tag(out, 8)?;
            text(out, s)
        }
        Value::Texts(list) => {
            array(out, 8, list.len())?;
            list.iter().try_for_each(|s| text(out, s))
        }
        Value::F32s(list) => {
            array(out, 6, list.len())?;
            list.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()))
        }
        Value::I32s(list) => {
            array(out, 5, list.len())?;
            list.iter().try_for_each(|x| out.write_all(&x.to_le_bytes()))
        }
    }
}

/// Bytes of a tensor, and how many zeros follow them.
fn bytes(t: &Tensor) -> (u64, u64) {
    let n = draw::stored(t).bytes(t.shape.iter().product()) as u64;
    (n, n.next_multiple_of(ALIGNMENT) - n)
}

pub(super) fn write(r: &Recipe, mut out: impl Write) -> Result<()> {
    // Counted, because the tensors begin at a multiple of the alignment too.
    let mut head = Vec::new();
    head.extend(b"GGUF");
    head.extend(3u32.to_le_bytes());
    head.extend((r.tensors.len() as u64).to_le_bytes());
    head.extend((r.keys.len() as u64).to_le_bytes());
    for (key, v) in &r.keys {
        text(&mut head, key)?;
        value(&mut head, v)?;
    }
    let mut at = 0u64;
    for t in &r.tensors {
        text(&mut head, &t.name)?;
        head.extend((t.shape.len() as u32).to_le_bytes());
        t.shape.iter().for_each(|&n| head.extend((n as u64).to_le_bytes()));
        head.extend(draw::stored(t).number().to_le_bytes());
        head.extend(at.to_le_bytes());
        let (n, zeros) = bytes(t);
        at += n + zeros;
    }
    head.resize(head.len().next_multiple_of(ALIGNMENT as usize), 0);
    out.write_all(&head)?;
    for t in &r.tensors {
        draw::tensor(t, &mut out)?;
        out.write_all(&vec![0; bytes(t).1 as usize])?;
    }
    out.flush()
}
