//! Whole models with generated weights: files that a stock host loads, of shapes that real models
//! have and of architectures for which no real weights can be had.
//!
//! A [`Recipe`] says everything about a file: its keys, and for each tensor the shape, the type and
//! how its values are drawn. Values depend on the tensor's name alone, so that the same recipe is the
//! same file everywhere, and a copy with some tensors decoded ([`Recipe::decoded`]) has the same
//! weights. Deviations are those that keep activations of order one through the layers, and logits
//! spread widely enough that a rounding in the last matrix is seen in a divergence.

mod draw;
mod families;
mod file;
mod hybrid;
mod llama;
mod mla;
mod oss;
mod siglip;
#[cfg(test)]
mod tests;
mod vocabulary;

use std::fs::File;
use std::hash::Hasher;
use std::io::BufWriter;
use std::path::{Path, PathBuf};

pub use draw::Kind;
pub use families::family;
pub use file::Value;
pub use hybrid::hybrid;
pub use llama::{dense, tiny};
pub use mla::mla;
pub use oss::oss;
pub use siglip::{image, siglip};
pub use vocabulary::{TOKENS, text_of, token_of};

/// Grows with every change of what a recipe makes.
const VERSION: u64 = 3;

/// How the values of a tensor are drawn.
#[derive(Debug, Clone, PartialEq)]
pub enum Values {
    /// Nearly normal, of this standard deviation.
    Normal(f32),
    /// This value.
    All(f32),
    /// One, and so many times that in a few channels: activations with outliers.
    Outliers(f32),
    /// From the first to the second.
    Ramp(f32, f32),
}

/// One tensor of a file.
#[derive(Debug, Clone)]
pub struct Tensor {
    pub name: String,
    /// Fastest first.
    pub shape: Vec<usize>,
    pub kind: Kind,
    pub values: Values,
    /// Written as F32, with the values that `kind` has.
    pub decoded: bool,
    /// So many significant bits of them only; for controls.
    pub bits: Option<u32>,
}

/// All of a file.
#[derive(Debug, Clone)]
pub struct Recipe {
    /// Of the file; for people.
    pub name: String,
    pub keys: Vec<(String, Value)>,
    pub tensors: Vec<Tensor>,
}

impl Recipe {
    pub(crate) fn new(name: &str) -> Recipe {
        Recipe { name: name.into(), keys: Vec::new(), tensors: Vec::new() }
    }

    pub(crate) fn key(&mut self, key: impl Into<String>, value: impl Into<Value>) {
        self.keys.push((key.into(), value.into()));
    }

    /// `general.architecture`, and numbers of it.
    pub(crate) fn architecture(&mut self, name: &str, numbers: &[(&str, u32)]) {
        self.key("general.architecture", name);
        self.key("general.name", self.name.clone());
        for (key, n) in numbers {
            self.key(format!("{name}.{key}"), *n);
        }
    }

    pub(crate) fn tensor(&mut self, name: String, shape: &[usize], kind: Kind, values: Values) {
        self.tensors.push(Tensor {
            name,
            shape: shape.into(),
            kind,
            values,
            decoded: false,
            bits: None,
        });
    }

    /// A matrix whose product with activations of order one is of order `gain`.
    pub(crate) fn matrix(&mut self, name: String, shape: &[usize], kind: Kind, gain: f32) {
        let deviation = gain / (shape[0] as f32).sqrt();
        self.tensor(format!("{name}.weight"), shape, kind, Values::Normal(deviation));
    }

    /// What is not multiplied with: norms, biases, small tables.
    pub(crate) fn vector(&mut self, name: String, shape: &[usize], values: Values) {
        self.tensor(name, shape, Kind::F32, values);
    }

    /// The same weights, those named in F32.
    pub fn decoded(&self, which: impl Fn(&Tensor) -> bool) -> Recipe {
        let mut copy = self.clone();
        copy.name += "-decoded";
        for t in &mut copy.tensors {
            t.decoded = t.kind != Kind::F32 && which(t);
        }
        copy
    }

    /// A coarser copy: plain weights with so many significant bits.
    pub fn with_rounding(&self, bits: u32) -> Recipe {
        let mut copy = self.clone();
        copy.name += "-coarse";
        copy.tensors.iter_mut().filter(|t| t.kind == Kind::F16).for_each(|t| t.bits = Some(bits));
        copy
    }

    /// Writes the file.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn write(&self, to: &Path) -> std::io::Result<()> {
        file::write(self, BufWriter::with_capacity(1 << 20, File::create(to)?))
    }

    /// The file in the folder, written if it is not there yet.
    ///
    /// # Errors
    /// Those of the file system.
    pub fn in_folder(&self, folder: &Path) -> std::io::Result<PathBuf> {
        std::fs::create_dir_all(folder)?;
        let mut hash = draw::Fnv::default();
        hash.write(format!("{VERSION} {self:?}").as_bytes());
        let path = folder.join(format!("{}-{:016x}.gguf", self.name, hash.finish()));
        if !path.exists() {
            // Whole or not at all, whoever else writes it at the same time.
            let part = path.with_extension(format!("part-{}", std::process::id()));
            self.write(&part)?;
            std::fs::rename(part, &path)?;
        }
        Ok(path)
    }
}
