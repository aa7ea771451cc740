//! A whole prefill's products, ours against the reference.
//!
//! The reference decodes and packs every quantized weight at each micro-batch, so it is told to
//! use large ones (ggml-plugin-behaviour 4, 12.2, 13); ours keeps what it packed. What is compared
//! is what both do with the default settings, cold (the first prompt) and warm (the next).

use super::{REFERENCE_WORKERS, Row, Setting, counting, ours, reference_cost, sound};
use crate::meter::Cost;
use crate::reference::{Kind, Residency};
use rocket_runtime::dtype::DType;
use rocket_runtime::matmul::{Npu, Options};
use rocket_sim::DriverProfile;
use std::collections::BTreeMap;

/// Weights of a layer that share an activation and are multiplied one after another, in the order of
/// llama.cpp's graphs, where the rotation of Q keeps it apart: their K, and the N of each.
pub type Projections = (usize, &'static [usize]);

/// The weight products of a model.
#[derive(Debug, Clone, Copy)]
pub struct Model {
    /// Name and file type.
    pub name: &'static str,
    /// Layers of equal shape.
    pub layers: usize,
    /// What each has.
    pub projections: &'static [Projections],
    /// The file holds quantized weights.
    pub quantized: bool,
    /// Rows of the whole input of an encoder: frames or patches, one micro-batch always.
    pub encoder: Option<usize>,
}

const SMOLLM2: &[Projections] =
    &[(576, &[576]), (576, &[192, 192]), (576, &[576]), (576, &[1536, 1536]), (1536, &[576])];
const LLAMA_3B: &[Projections] = &[
    (3072, &[3072]),
    (3072, &[1024, 1024]),
    (3072, &[3072]),
    (3072, &[8192, 8192]),
    (8192, &[3072]),
];
const MINISTRAL_8B: &[Projections] = &[
    (4096, &[4096]),
    (4096, &[1024, 1024]),
    (4096, &[4096]),
    (4096, &[14336, 14336]),
    (14336, &[4096]),
];
/// Q, K and V in one matrix, gate and up in another.
const PHI_4_MINI: &[Projections] =
    &[(3072, &[5120]), (3072, &[3072]), (3072, &[16384]), (8192, &[3072])];
/// Q, K and V follow one another.
const WHISPER_BASE: &[Projections] =
    &[(512, &[512, 512, 512]), (512, &[512]), (512, &[2048]), (2048, &[512])];
const SIGLIP: &[Projections] =
    &[(1152, &[1152, 1152, 1152]), (1152, &[1152]), (1152, &[4304]), (4304, &[1152])];

/// Shapes from the models' published configurations; those of ggml-plugin-behaviour 12 among them.
pub const MODELS: &[Model] = &[
    model("SmolLM2-135M F16", 30, SMOLLM2, false),
    model("SmolLM2-135M Q4", 30, SMOLLM2, true),
    model("Llama-3.2-3B F16", 28, LLAMA_3B, false),
    model("Llama-3.2-3B Q4", 28, LLAMA_3B, true),
    model("Ministral-3-8B Q4", 34, MINISTRAL_8B, true),
    model("Phi-4-mini Q4", 32, PHI_4_MINI, true),
    Model { encoder: Some(1500), ..model("Whisper base F16", 6, WHISPER_BASE, false) },
    Model { encoder: Some(729), ..model("SigLIP-SO400M F16", 27, SIGLIP, false) },
];

const fn model(
    name: &'static str,
    layers: usize,
    projections: &'static [Projections],
    quantized: bool,
) -> Model {
    Model { name, layers, projections, quantized, encoder: None }
}

/// What a prefill costs.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Total {
    /// Bytes that the cores move.
    pub dma: u64,
    /// Bytes that cache syncs copy.
    pub sync: u64,
    /// SUBMIT calls.
    pub submits: u64,
    /// Weight elements that the CPU decodes.
    pub decoded: u64,
    /// Weight elements that the CPU packs, decoded ones among them.
    pub packed: u64,
    /// The busiest core, modelled at the nominal clock, in ns.
    pub npu_ns: u64,
}

impl Total {
    /// Adds another total, so many times.
    pub fn sum(&mut self, one: &Total, times: u64) {
        self.dma += one.dma * times;
        self.sync += one.sync * times;
        self.submits += one.submits * times;
        self.decoded += one.decoded * times;
        self.packed += one.packed * times;
        self.npu_ns += one.npu_ns * times;
    }

    /// Adds what was measured, so many times.
    pub(super) fn add(&mut self, cost: &Cost, times: u64) {
        self.dma += cost.dma() * times;
        self.sync += cost.counters.cpu_sync * times;
        self.submits += cost.counters.submits * times;
        self.npu_ns += cost.busiest_core_ns * times;
    }
}

impl Model {
    /// Micro-batches of a prompt: how many of which number of rows.
    fn batches(&self, tokens: usize, ubatch: usize) -> Vec<(usize, u64)> {
        if let Some(rows) = self.encoder {
            return vec![(rows, 1)];
        }
        let whole = (ubatch, (tokens / ubatch) as u64);
        let rest = (tokens % ubatch, u64::from(!tokens.is_multiple_of(ubatch)));
        [whole, rest].into_iter().filter(|(rows, count)| *rows > 0 && *count > 0).collect()
    }

    /// Elements of the weights whose K is chosen.
    fn elements(&self, chosen: impl Fn(usize) -> bool) -> u64 {
        let projections = self.projections.iter().filter(|(k, _)| chosen(*k));
        let of_layer: usize = projections.map(|(k, ns)| k * all(ns)).sum();
        (of_layer * self.layers) as u64
    }

    /// Whether the reference keeps this weight resident with its defaults: F16 with K of at most
    /// 2048 (ggml-plugin-behaviour 4, route 5).
    fn reference_keeps(&self, k: usize) -> bool {
        !self.quantized && k <= 2048
    }
}

/// Which side.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Side {
    /// The reference: quantized weights and F16 ones of long K are decoded and packed for every
    /// micro-batch.
    Reference,
    /// Ours, with all weights resident.
    Ours,
}

fn all(ns: &[usize]) -> usize {
    ns.iter().sum()
}

/// Costs that were measured: of the reference by shape and residency, of ours by rows, K and all N.
#[derive(Debug, Default)]
pub struct Prices {
    reference: BTreeMap<([usize; 3], bool), Cost>,
    ours: BTreeMap<(usize, Projections), Cost>,
}

impl Prices {
    fn reference(&mut self, shape: [usize; 3], resident: bool) -> Result<Cost, String> {
        if let Some(cost) = self.reference.get(&(shape, resident)) {
            return Ok(*cost);
        }
        let residency = if resident { Residency::Resident } else { Residency::Streaming };
        let row = Row::of(shape, Kind::plain(DType::Fp16));
        let shares = row
            .shares(REFERENCE_WORKERS, residency)
            .ok_or_else(|| format!("the reference refuses {row}"))?;
        let setting = Setting { residency, ..Setting::default() };
        let cost = reference_cost(&shares, setting)?;
        self.reference.insert((shape, resident), cost);
        Ok(cost)
    }

    fn ours(&mut self, rows: usize, projections: Projections) -> Result<Cost, String> {
        if let Some(cost) = self.ours.get(&(rows, projections)) {
            return Ok(*cost);
        }
        let meter = counting(DriverProfile::Stock);
        let options = Options { budget: None, drain_on_signals: false, ..Options::default() };
        let (k, ns) = projections;
        let run = |begin: &mut dyn FnMut()| -> rocket_runtime::Result<Npu> {
            let npu = Npu::open(&meter, options)?;
            ours::together(&npu, rows, k, ns, begin)?;
            Ok(npu)
        };
        let (_npu, cost) = meter.measure(run).map_err(|e| e.to_string())?;
        sound(&meter, "ours")?;
        self.ours.insert((rows, projections), cost);
        Ok(cost)
    }

    /// What a prompt of so many tokens costs one side, in micro-batches of `ubatch`; `warm` when
    /// it is not the first.
    ///
    /// # Errors
    /// What the runtime or the board says.
    pub fn prefill(
        &mut self,
        model: &Model,
        side: Side,
        tokens: usize,
        ubatch: usize,
        warm: bool,
    ) -> Result<Total, String> {
        let mut total = Total::default();
        let pack = |total: &mut Total, elements: u64| {
            total.packed += elements;
            total.decoded += if model.quantized { elements } else { 0 };
        };
        for (rows, count) in model.batches(tokens, ubatch) {
            let times = count * model.layers as u64;
            for &(k, ns) in model.projections {
                if side == Side::Ours {
                    total.add(&self.ours(rows, (k, ns))?, times);
                    continue;
                }
                let resident = model.reference_keeps(k);
                // F16 weights of long K run as one of all N (6).
                let fused = [all(ns)];
                let products = if !model.quantized && k > 2048 { &fused[..] } else { ns };
                for n in products {
                    total.add(&self.reference([rows, k, *n], resident)?, times);
                }
                if !resident {
                    pack(&mut total, (k * all(ns)) as u64 * times);
                }
            }
        }
        if !warm {
            let kept = match side {
                Side::Ours => model.elements(|_| true),
                Side::Reference => model.elements(|k| model.reference_keeps(k)),
            };
            pack(&mut total, kept);
        }
        Ok(total)
    }
}

/// A value of a [`Total`].
pub type Value = fn(&Total) -> u64;

/// What is printed and compared: name, unit's divisor, decimals, value.
pub const VALUES: [(&str, f64, usize, Value); 6] = [
    ("DMA GB", 1e9, 2, |t| t.dma),
    ("sync GB", 1e9, 2, |t| t.sync),
    ("submits", 1.0, 0, |t| t.submits),
    ("decoded G", 1e9, 2, |t| t.decoded),
    ("packed G", 1e9, 2, |t| t.packed),
    ("NPU s", 1e9, 2, |t| t.npu_ns),
];

#[cfg(test)]
mod tests {
    use super::*;

    /// By hand: 300 tokens in micro-batches of 128 are 128, 128 and 44.
    #[test]
    fn micro_batches() {
        let m = MODELS[0];
        assert_eq!(m.batches(300, 128), [(128, 2), (44, 1)]);
        assert_eq!(m.batches(512, 512), [(512, 1)]);
        assert_eq!(m.batches(100, 512), [(100, 1)]);
        let encoder = MODELS.iter().find(|m| m.encoder.is_some()).unwrap();
        assert_eq!(encoder.batches(2048, 512).len(), 1);
    }

    /// The published numbers of parameters, without embeddings: SmolLM2 106 M, Llama-3.2-3B 2.8 G,
    /// Ministral 7.4 G.
    #[test]
    fn models_have_their_sizes() {
        for (name, billions) in [("SmolLM2", 0.106), ("Llama-3.2-3B", 2.82), ("Ministral", 7.42)] {
            let model = MODELS.iter().find(|m| m.name.starts_with(name)).unwrap();
            let got = model.elements(|_| true) as f64 / 1e9;
            assert!((got / billions - 1.0).abs() < 0.01, "{name}: {got}");
        }
    }
}
