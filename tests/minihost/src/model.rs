//! A "model": a few weights of one shape in a buffer of weights, and an activation for them.

use crate::ggml::{Backend, Buffer, Context, Host, Node, Region, Type};
use crate::values::{Deviation, Values, product};
use anyhow::Result;

/// Sizes of a model.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// Rows of the activation.
    pub m: usize,
    /// Inner dimension.
    pub k: usize,
    /// Rows of a weight.
    pub n: usize,
    /// Weights.
    pub weights: usize,
}

/// Values of a model: all of a shape have the same names, those of different seeds other numbers.
#[derive(Debug)]
pub struct Model {
    pub shape: Shape,
    /// Encoded weights.
    weights: Vec<Vec<u8>>,
    /// What the CPU sees of them.
    decoded: Vec<Vec<f32>>,
    activation: Vec<f32>,
    dtype: Type,
}

/// Where a model's weights are put.
#[derive(Debug)]
pub enum Place<'a> {
    /// Wherever the host allocates.
    Anywhere,
    /// At the start of this memory, one after another.
    At(&'a mut Region),
}

impl Model {
    /// From a seed.
    ///
    /// # Errors
    /// Those of the host's encoder.
    pub fn new(host: &Host, dtype: Type, shape: Shape, seed: u64) -> Result<Model> {
        let mut values = Values::new(seed);
        let mut encode = || host.encode(dtype, &values.take(shape.k * shape.n), shape.k);
        let weights: Vec<Vec<u8>> = (0..shape.weights).map(|_| encode()).collect::<Result<_>>()?;
        let decoded =
            weights.iter().map(|w| host.decode(dtype, w, shape.k)).collect::<Result<_>>()?;
        // The same for every seed: only the weights tell models apart.
        let activation = Values::new(7).take(shape.m * shape.k);
        Ok(Model { shape, weights, decoded, activation, dtype })
    }

    /// Bytes that each weight takes in a place, aligned.
    fn pitch(&self) -> usize {
        self.weights.first().map_or(0, Vec::len).next_multiple_of(64)
    }

    /// Memory that holds it.
    pub fn region(&self) -> Region {
        Region::new(self.pitch() * self.weights.len())
    }

    /// Loads the model, hands it to `work`, and unloads it.
    ///
    /// # Errors
    /// Those of the host and of `work`.
    pub fn loaded<R>(
        &self,
        host: &'static Host,
        place: Place<'_>,
        work: impl FnOnce(&Loaded<'_>) -> Result<R>,
    ) -> Result<R> {
        let Shape { k, n, .. } = self.shape;
        let context = Context::new(host, self.weights.len())?;
        let name = |i| format!("blk.{i}.weight");
        let nodes: Vec<Node<'_>> = (0..self.weights.len())
            .map(|i| context.tensor(self.dtype, [k as i64, n as i64, 1, 1], &name(i)))
            .collect::<Result<_>>()?;
        let buffer = match place {
            Place::Anywhere => Buffer::of(&context, true)?,
            Place::At(region) => {
                let buffer = Buffer::around(host, region, true)?;
                for (i, node) in nodes.iter().enumerate() {
                    buffer.place(*node, i * self.pitch())?;
                }
                buffer
            }
        };
        for (node, bytes) in nodes.iter().zip(&self.weights) {
            buffer.write(*node, bytes)?;
        }
        work(&Loaded { host, model: self, nodes, buffer: &buffer })
    }

    /// How far results are off those of another model of the same shape (or of this one).
    pub fn deviation(&self, results: &[Vec<f32>]) -> Deviation {
        let Shape { m, k, n, .. } = self.shape;
        let mut total = Deviation { worst: 0.0, control: f64::INFINITY, beyond: 1.0 };
        if results.len() != self.decoded.len() {
            total.worst = f64::NAN;
        }
        for (got, w) in results.iter().zip(&self.decoded) {
            // Every column of the first and the last row: a wrong weight shows in all rows.
            for row in [0, m - 1] {
                let wanted = product(&self.activation[row * k..][..k], w, k);
                let d = Deviation::of(&got[row * n..][..n], &wanted, n);
                let worse = d.worst > total.worst || d.worst.is_nan();
                total.worst = if worse { d.worst } else { total.worst };
                total.control = total.control.min(d.control);
                total.beyond = total.beyond.min(d.beyond);
            }
        }
        total
    }
}

/// A model in the host's memory.
#[derive(Debug)]
pub struct Loaded<'a> {
    host: &'static Host,
    model: &'a Model,
    nodes: Vec<Node<'a>>,
    buffer: &'a Buffer<'a>,
}

impl Loaded<'_> {
    /// Every weight times the activation, in one graph.
    ///
    /// # Errors
    /// Those of the host.
    pub fn compute(&self, backend: &Backend) -> Result<Vec<Vec<f32>>> {
        let Shape { m, k, .. } = self.model.shape;
        let context = Context::new(self.host, self.nodes.len() + 1)?;
        let a = context.tensor(Type::F32, [k as i64, m as i64, 1, 1], "activation")?;
        let results: Vec<Node<'_>> = self
            .nodes
            .iter()
            .enumerate()
            .map(|(i, w)| context.mul_mat(*w, a, &format!("blk.{i}.out")))
            .collect::<Result<_>>()?;
        let buffer = Buffer::of(&context, false)?;
        buffer.write_floats(a, &self.model.activation)?;
        let graph = context.graph(&results)?;
        backend.compute(&graph, &[self.buffer, &buffer])?;
        results.iter().map(|r| buffer.read_floats(*r)).collect()
    }

    /// First byte of its buffer.
    pub fn base(&self) -> usize {
        self.buffer.range().0
    }
}
