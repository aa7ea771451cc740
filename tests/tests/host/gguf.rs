//! The header of a GGUF file: tensor names, types and shapes, and the numbers among its keys.
//! Little-endian, version 3; other key-values are skipped by their type.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::Path;

pub struct Header {
    pub tensors: Vec<Tensor>,
    pub blocks: usize,
    /// Keys whose value is one whole number of up to 32 bits.
    numbers: BTreeMap<String, u32>,
}

pub struct Tensor {
    pub name: String,
    /// Fastest first.
    pub shape: Vec<usize>,
    pub kind: &'static str,
}

impl Header {
    /// The number under the only key with this ending.
    pub fn number(&self, ending: &str) -> usize {
        let mut found = self.numbers.iter().filter(|(k, _)| {
            k.strip_suffix(ending).is_some_and(|rest| rest.is_empty() || rest.ends_with('.'))
        });
        match (found.next(), found.next()) {
            (Some((_, n)), None) => *n as usize,
            (None, _) => panic!("no key ends with {ending}: {:?}", self.numbers),
            (Some(one), Some(other)) => panic!("{one:?} and {other:?} end with {ending}"),
        }
    }

    pub fn tensor(&self, name: &str) -> Option<&Tensor> {
        self.tensors.iter().find(|t| t.name == name)
    }

    /// How many matrices of the blocks there are of each type.
    pub fn kinds(&self) -> BTreeMap<&'static str, usize> {
        let mut kinds = BTreeMap::new();
        let matrices = self.tensors.iter().filter(|t| t.shape.len() == 2);
        for t in matrices.filter(|t| t.name.starts_with("blk.")) {
            *kinds.entry(t.kind).or_default() += 1;
        }
        kinds
    }
}

/// ggml's type numbers, which only ever grew at the end (ggml-abi 2.9).
fn kind(number: u32) -> &'static str {
    match number {
        0 => "F32",
        1 => "F16",
        2 => "Q4_0",
        3 => "Q4_1",
        6 => "Q5_0",
        7 => "Q5_1",
        8 => "Q8_0",
        12 => "Q4_K",
        13 => "Q5_K",
        14 => "Q6_K",
        20 => "IQ4_NL",
        23 => "IQ4_XS",
        30 => "BF16",
        39 => "MXFP4",
        other => panic!("tensor type {other} has no name here"),
    }
}

struct Reader<R>(R);

impl<R: Read> Reader<R> {
    fn bytes<const N: usize>(&mut self) -> [u8; N] {
        let mut b = [0; N];
        self.0.read_exact(&mut b).expect("a whole header");
        b
    }

    fn u32(&mut self) -> u32 {
        u32::from_le_bytes(self.bytes())
    }

    fn u64(&mut self) -> u64 {
        u64::from_le_bytes(self.bytes())
    }

    fn skip(&mut self, n: u64) {
        std::io::copy(&mut self.0.by_ref().take(n), &mut std::io::sink()).expect("reads");
    }

    fn string(&mut self) -> String {
        let mut b = vec![0; self.u64() as usize];
        self.0.read_exact(&mut b).expect("a whole header");
        String::from_utf8_lossy(&b).into_owned()
    }

    /// Reads a value; numbers of up to 32 bits come back.
    fn value(&mut self, kind: u32) -> Option<u32> {
        match kind {
            0 | 1 | 7 => return Some(u32::from(self.bytes::<1>()[0])),
            2 | 3 => return Some(u32::from(u16::from_le_bytes(self.bytes()))),
            4..=6 => return Some(self.u32()),
            8 => drop(self.string()),
            9 => {
                let (kind, count) = (self.u32(), self.u64());
                for _ in 0..count {
                    self.value(kind);
                }
            }
            10..=12 => self.skip(8),
            other => panic!("GGUF value type {other}"),
        }
        None
    }
}

pub fn read(path: &Path) -> Header {
    let mut r = Reader(BufReader::new(std::fs::File::open(path).expect("the model opens")));
    assert_eq!(&r.bytes(), b"GGUF");
    assert_eq!(r.u32(), 3, "GGUF version");
    let (tensors, pairs) = (r.u64(), r.u64());
    let mut numbers = BTreeMap::new();
    for _ in 0..pairs {
        let (key, kind) = (r.string(), r.u32());
        // A float's bits are no number of anything.
        if let Some(value) = r.value(kind).filter(|_| kind != 6) {
            numbers.insert(key, value);
        }
    }
    let blocks = numbers.iter().find(|(k, _)| k.ends_with(".block_count"));
    let blocks = blocks.map_or(0, |(_, &n)| n as usize);
    let tensors = (0..tensors)
        .map(|_| {
            let name = r.string();
            let dims = r.u32();
            let shape = (0..dims).map(|_| r.u64() as usize).collect();
            let kind = kind(r.u32());
            r.u64();
            Tensor { name, shape, kind }
        })
        .collect();
    Header { tensors, blocks, numbers }
}
