//! Model files for tests, written by the formats' descriptions.

use std::fs::File;
use std::path::Path;

/// A GGUF to be: header and a hole where the data would be.
#[derive(Debug, Clone)]
pub struct Gguf {
    pub version: u32,
    pub keys: Vec<(String, Vec<u8>)>,
    pub tensors: Vec<(String, Vec<u64>, u32)>,
}

/// Elements and bytes of a block, of the types that tests use.
fn block(kind: u32) -> (u64, u64) {
    match kind {
        0 => (1, 4),
        1 | 30 => (1, 2),
        2 => (32, 18),
        8 => (32, 34),
        6 => (32, 22),
        12 => (256, 144),
        14 => (256, 210),
        39 => (32, 17),
        other => panic!("no size of type {other}"),
    }
}

fn text(to: &mut Vec<u8>, s: &str) {
    to.extend((s.len() as u64).to_le_bytes());
    to.extend(s.as_bytes());
}

impl Gguf {
    pub fn new(architecture: &str) -> Gguf {
        let g = Gguf { version: 3, keys: Vec::new(), tensors: Vec::new() };
        g.text("general.architecture", architecture)
    }

    pub fn raw(mut self, key: &str, kind: u32, value: impl AsRef<[u8]>) -> Gguf {
        self.keys.push((key.into(), [&kind.to_le_bytes()[..], value.as_ref()].concat()));
        self
    }

    pub fn text(self, key: &str, value: &str) -> Gguf {
        let mut bytes = Vec::new();
        text(&mut bytes, value);
        self.raw(key, 8, bytes)
    }

    pub fn number(self, key: &str, value: u32) -> Gguf {
        self.raw(key, 4, value.to_le_bytes())
    }

    pub fn tensor(mut self, name: impl Into<String>, shape: &[u64], kind: u32) -> Gguf {
        self.tensors.push((name.into(), shape.into(), kind));
        self
    }

    /// Header, and how many bytes there are with the data.
    pub fn head(&self) -> (Vec<u8>, u64) {
        let mut out = b"GGUF".to_vec();
        out.extend(self.version.to_le_bytes());
        out.extend((self.tensors.len() as u64).to_le_bytes());
        out.extend((self.keys.len() as u64).to_le_bytes());
        for (key, value) in &self.keys {
            text(&mut out, key);
            out.extend(value);
        }
        let mut at = 0u64;
        for (name, shape, kind) in &self.tensors {
            text(&mut out, name);
            out.extend((shape.len() as u32).to_le_bytes());
            shape.iter().for_each(|n| out.extend(n.to_le_bytes()));
            out.extend(kind.to_le_bytes());
            out.extend(at.to_le_bytes());
            let (elements, bytes) = block(*kind);
            at += (shape.iter().product::<u64>() / elements * bytes).next_multiple_of(32);
        }
        let begin = (out.len() as u64).next_multiple_of(32);
        (out, begin + at)
    }

    /// The file, with a hole for data.
    pub fn write(&self, path: &Path) {
        let (head, bytes) = self.head();
        std::fs::write(path, head).unwrap();
        File::options().write(true).open(path).unwrap().set_len(bytes).unwrap();
    }

    /// The file's bytes, for small ones.
    pub fn bytes(&self) -> Vec<u8> {
        let (mut head, bytes) = self.head();
        head.resize(bytes as usize, 0);
        head
    }
}

/// A llama of `layers`, with matrices of the given types in turn and norms in F32.
pub fn llama(layers: u64, kinds: &[u32]) -> Gguf {
    let (width, inner, kv, words) = (2048, 5632, 256, 32000);
    let mut g = Gguf::new("llama")
        .number("llama.block_count", layers as u32)
        .number("llama.embedding_length", width as u32)
        .number("llama.attention.head_count", 32)
        .number("llama.attention.head_count_kv", 4)
        .number("llama.context_length", 4096)
        .tensor("token_embd.weight", &[width, words], kinds[0])
        .tensor("output_norm.weight", &[width], 0)
        .tensor("output.weight", &[width, words], *kinds.last().unwrap());
    let mut next = kinds.iter().cycle();
    for i in 0..layers {
        g = g.tensor(format!("blk.{i}.attn_norm.weight"), &[width], 0);
        for (name, shape) in [
            ("attn_q", [width, width]),
            ("attn_k", [width, kv]),
            ("attn_v", [width, kv]),
            ("attn_output", [width, width]),
            ("ffn_gate", [width, inner]),
            ("ffn_up", [width, inner]),
            ("ffn_down", [inner, width]),
        ] {
            g = g.tensor(format!("blk.{i}.{name}.weight"), &shape, *next.next().unwrap());
        }
        g = g.tensor(format!("blk.{i}.ffn_norm.weight"), &[width], 0);
    }
    g
}

/// A whisper.cpp file of the sizes of `base`, or of any: settings as in the format.
pub fn whisper(settings: [i32; 11], tensors: &[(&str, &[i32], u32)]) -> Vec<u8> {
    let mut out = 0x6767_6d6c_u32.to_le_bytes().to_vec();
    settings.iter().for_each(|n| out.extend(n.to_le_bytes()));
    out.extend(2i32.to_le_bytes());
    out.extend(3i32.to_le_bytes());
    out.extend([0; 24]);
    out.extend(2i32.to_le_bytes());
    for word in ["a", "word"] {
        out.extend((word.len() as u32).to_le_bytes());
        out.extend(word.as_bytes());
    }
    for (name, shape, kind) in tensors {
        for n in [shape.len() as i32, name.len() as i32, *kind as i32] {
            out.extend(n.to_le_bytes());
        }
        shape.iter().for_each(|n| out.extend(n.to_le_bytes()));
        out.extend(name.as_bytes());
        let (elements, bytes) = block(*kind);
        let n = shape.iter().map(|n| *n as u64).product::<u64>() / elements * bytes;
        out.resize(out.len() + n as usize, 7);
    }
    out
}
