//! [`Key`]: what an image depends on. [`Content`]: the hash that stands for the source.

use super::format::VERSION;
use twox_hash::XxHash3_128;

/// What the bytes of an image depend on: two weights whose images could differ in one byte must
/// have keys that differ.
///
/// All of it is written into the file and compared at load; the file's name is only a hash of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Key {
    /// Hash of the weights the image was packed from, all of their bytes: see [`content`].
    pub content: u128,
    /// Dtype and variant of the image, e.g. `int8/g128`.
    pub format: &'static str,
    /// Rows of the weights (columns of the result).
    pub n: u64,
    /// Elements of a row.
    pub k: u64,
    /// How the image is cut: columns of a part, K steps, and whatever else the packer goes by.
    pub plan: String,
}

impl Key {
    /// The key as a file holds it. Lengths come first, so that no two keys are written alike.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(48 + self.format.len() + self.plan.len());
        out.extend(self.content.to_le_bytes());
        for number in [self.n, self.k, self.format.len() as u64, self.plan.len() as u64] {
            out.extend(number.to_le_bytes());
        }
        out.extend(self.format.as_bytes());
        out.extend(self.plan.as_bytes());
        out
    }

    /// The version is in the name: programs of two versions may share a directory.
    pub(super) fn file_name(&self) -> String {
        format!("{:032x}.rkw{VERSION}", XxHash3_128::oneshot(&self.bytes()))
    }
}

/// xxh3-128 of bytes that come in pieces; how they are cut makes no difference.
///
/// It is no cryptographic hash: it tells files apart that nobody made to look alike.
#[derive(Clone)]
pub struct Content(XxHash3_128);

impl Content {
    /// Of no bytes yet.
    #[expect(clippy::new_without_default, reason = "nobody needs it")]
    pub fn new() -> Content {
        Content(XxHash3_128::new())
    }

    /// Takes the next bytes in.
    pub fn update(&mut self, bytes: &[u8]) {
        self.0.write(bytes);
    }

    /// The hash of all bytes so far.
    pub fn finish(&self) -> u128 {
        self.0.finish_128()
    }
}

impl std::fmt::Debug for Content {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Content({:032x})", self.finish())
    }
}

/// The hash of bytes that lie in one piece: [`Content`] of all of them.
pub fn content(bytes: &[u8]) -> u128 {
    XxHash3_128::oneshot(bytes)
}
