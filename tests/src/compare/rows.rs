//! The products that are compared.

use crate::reference::{Kind, Residency, Sequence, Share, split};
use rocket_runtime::dtype::DType;
use rocket_runtime::plan::Shape;
use std::fmt;
use std::path::Path;

/// Where the reference's sequence comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Origin {
    /// A recorded run, on one file.
    Recorded(Box<Sequence>),
    /// Built from npu-rk3588 7.
    Reconstructed,
}

/// One product.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Row {
    /// As asked; the reference pads it.
    pub shape: Shape,
    /// What is multiplied.
    pub kind: Kind,
    /// Where the reference's sequence comes from.
    pub origin: Origin,
}

impl fmt::Display for Row {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Shape { m, k, n } = self.shape;
        write!(f, "{m}x{k}x{n} {}", self.kind)
    }
}

impl Row {
    /// One whose sequence is built.
    pub fn of(shape: [usize; 3], kind: Kind) -> Row {
        let [m, k, n] = shape;
        Row { shape: Shape { m, k, n }, kind, origin: Origin::Reconstructed }
    }

    /// Files of both sides, where the row says: recorded runs had one.
    pub fn workers(&self) -> Option<usize> {
        matches!(self.origin, Origin::Recorded(_)).then_some(1)
    }

    /// The reference's share of each worker.
    pub fn shares(&self, workers: usize, residency: Residency) -> Option<Vec<Share>> {
        match &self.origin {
            Origin::Recorded(sequence) => Some(vec![Share::whole((**sequence).clone(), residency)]),
            Origin::Reconstructed => split(self.kind, self.shape, workers, residency),
        }
    }
}

/// The kinds of the table.
pub const KINDS: [Kind; 8] = [
    Kind::plain(DType::Fp16),
    Kind::plain(DType::Int8),
    Kind::grouped(DType::Int8, 128),
    Kind::plain(DType::Int4),
    Kind::INT4_EXACT,
    Kind::grouped(DType::Int4, 128),
    Kind::plain(DType::Bf16),
    Kind::plain(DType::Tf32),
];

/// Shapes of the table, M x K x N, with where they come from.
pub const SHAPES: [([usize; 3], &str); 20] = [
    ([64, 256, 256], "npu-rk3588 8.2, small"),
    ([512, 1024, 1024], "8.2, small"),
    ([512, 3840, 4096], "8.2"),
    ([512, 15360, 3840], "8.2, FFN down"),
    ([512, 3840, 15360], "8.5, FFN up"),
    ([512, 2048, 2048], "8.5"),
    ([512, 2048, 4096], "8.5"),
    ([512, 8192, 2048], "8.5"),
    ([512, 4096, 4096], "8.5"),
    ([1024, 4096, 4096], "8.5"),
    ([512, 3072, 8192], "Llama-3.2-3B, FFN up"),
    ([512, 8192, 3072], "Llama-3.2-3B, FFN down"),
    ([512, 3072, 1024], "Llama-3.2-3B, K and V"),
    ([512, 4096, 14336], "Ministral-8B, FFN up"),
    ([512, 14336, 4096], "Ministral-8B, FFN down"),
    ([512, 2880, 2880], "gpt-oss-20b"),
    ([1500, 512, 2048], "Whisper base, FFN up"),
    ([1500, 2048, 512], "Whisper base, FFN down"),
    ([729, 1152, 4304], "SigLIP-SO400M, FFN up"),
    ([729, 4304, 1152], "SigLIP-SO400M, FFN down"),
];

/// The recorded runs below `folder`, in order of name.
///
/// # Errors
/// Which file cannot be read, and why.
pub fn recorded(folder: &Path) -> Result<Vec<Row>, String> {
    let told = |path: &Path, e: &dyn fmt::Display| format!("{}: {e}", path.display());
    let entries = std::fs::read_dir(folder).map_err(|e| told(folder, &e))?;
    let mut paths: Vec<_> = entries
        .filter_map(|e| e.ok().map(|e| e.path()))
        .filter(|p| {
            let name = p.file_name().unwrap_or_default().to_string_lossy().into_owned();
            name.starts_with("jobs-") && name.ends_with(".json")
        })
        .collect();
    paths.sort();
    paths
        .iter()
        .map(|path| {
            let text = std::fs::read_to_string(path).map_err(|e| told(path, &e))?;
            let value = serde_json::from_str(&text).map_err(|e| told(path, &e))?;
            let sequence = Sequence::recorded(&value).map_err(|e| told(path, &e))?;
            let (shape, kind) = (sequence.shape, Kind::plain(sequence.dtype));
            Ok(Row { shape, kind, origin: Origin::Recorded(Box::new(sequence)) })
        })
        .collect()
}
