//! One product with experts, by our device and by the host's CPU.

use super::case::{Batch, Expect, Stack};
use crate::ggml::{Backend, Buffer, Context, Device, Host, Node, Type};
use anyhow::{Result, ensure};

/// What the device made of a batch.
#[derive(Debug)]
pub enum Got {
    Declined,
    /// The graph failed.
    Failed,
    Computed {
        ours: Vec<f32>,
        /// Where the host has a kernel for it, and the op a meaning.
        cpu: Option<Vec<f32>>,
    },
}

/// A stack in the host's memory, and the devices that compute with it.
#[derive(Debug)]
pub struct Loaded<'a> {
    pub host: &'static Host,
    pub stack: &'a Stack,
    pub node: Node<'a>,
    pub buffer: &'a Buffer<'a>,
    /// `None` to compute without having asked: a device that has been given up takes nothing, and
    /// what came before it was computed.
    pub ask: Option<Device>,
    pub ours: &'a Backend,
    pub cpu: &'a Backend,
}

/// Hands a stack with these bytes to `work`, and unloads it. All stacks have one name.
///
/// # Errors
/// Those of the host and of `work`.
pub fn with_stack<R>(
    host: &'static Host,
    stack: &Stack,
    bytes: &[u8],
    work: impl FnOnce(Node<'_>, &Buffer<'_>) -> Result<R>,
) -> Result<R> {
    let context = Context::new(host, 1)?;
    let ne = [stack.k, stack.n, stack.experts, 1].map(|n| n as i64);
    let node = context.tensor(stack.dtype, ne, "blk.0.ffn_exps.weight")?;
    let buffer = Buffer::of(&context, stack.kept)?;
    buffer.write(node, bytes)?;
    work(node, &buffer)
}

/// The operands and the op of a batch, in this context.
///
/// # Errors
/// Those of the host.
pub fn build<'c>(
    context: &'c Context,
    stack: Node<'c>,
    batch: &Batch,
    name: &str,
) -> Result<[Node<'c>; 3]> {
    let k = stack.ne()[0];
    let (rows, tokens, used) = (batch.rows() as i64, batch.tokens as i64, batch.used as i64);
    let (row_gap, id_gap) = (batch.row_gap as i64, batch.id_gap as i64);
    let whole = context.tensor(Type::F32, [k + row_gap, rows, tokens, 1], "activation")?;
    let mut activation = whole;
    if row_gap > 0 {
        let nb = whole.nb();
        activation = context.view(whole, [k, rows, tokens, 1], [nb[1], nb[2], nb[3]], 0)?;
    }
    // As where the best are the first of a sorted list.
    let sorted = context.tensor(Type::I32, [used + id_gap, tokens, 1, 1], "ids")?;
    let mut ids = sorted;
    if id_gap > 0 {
        let nb = sorted.nb();
        ids = context.view(sorted, [used, tokens, 1, 1], [nb[1], nb[2], nb[3]], 0)?;
    }
    Ok([whole, sorted, context.mul_mat_id(stack, activation, ids, name)?])
}

/// Rows with so many elements of `filler` after each.
fn with_gaps<T: Copy>(rows: &[T], len: usize, gap: usize, filler: T) -> Vec<T> {
    rows.chunks_exact(len)
        .flat_map(|row| row.iter().copied().chain(std::iter::repeat_n(filler, gap)))
        .collect()
}

impl Loaded<'_> {
    /// Computes a batch.
    ///
    /// # Errors
    /// Those of the host.
    pub fn compute(&self, batch: &Batch, activation: &[f32], name: &str) -> Result<Got> {
        let Stack { k, experts, .. } = *self.stack;
        let context = Context::new(self.host, 6)?;
        let [whole, sorted, result] = build(&context, self.node, batch, name)?;
        // Asked before anything has memory, as schedulers do; the answer must not change.
        let supports =
            |device, buffers: &[&Buffer<'_>]| self.host.supports(device, result, buffers);
        let early = self.ask.map(|device| supports(device, &[self.buffer])).transpose()?;
        let buffer = Buffer::of(&context, false)?;
        let buffers = [self.buffer, &buffer];
        if let Some((device, early)) = self.ask.zip(early) {
            ensure!(early == supports(device, &buffers)?, "the answer changed");
            if !early {
                return Ok(Got::Declined);
            }
        }
        buffer.write_floats(whole, &with_gaps(activation, k, batch.row_gap, f32::NAN))?;
        // What lies between the ids in use names experts as well.
        let ids = with_gaps(&batch.ids(experts), batch.used, batch.id_gap, 1);
        let bytes: Vec<u8> = ids.iter().flat_map(|id| id.to_le_bytes()).collect();
        buffer.write(sorted, &bytes)?;
        let graph = context.graph(&[result])?;
        let compute = |backend: &Backend| -> Result<Vec<f32>> {
            buffer.write_floats(result, &vec![f32::NAN; result.bytes(self.host) / 4])?;
            backend.compute(&graph, &buffers)?;
            buffer.read_floats(result)
        };
        let ours = match (compute(self.ours), batch.expect) {
            (Ok(ours), _) => ours,
            (Err(e), Expect::Fails) if e.to_string().contains("returned") => {
                return Ok(Got::Failed);
            }
            (Err(e), _) => return Err(e),
        };
        // The CPU's kernels end the process at an id beyond the stack.
        let meant = !matches!(batch.expect, Expect::Fails | Expect::Anything);
        let meant = meant && supports(self.host.cpu(), &buffers)?;
        let cpu = meant.then(|| compute(self.cpu)).transpose()?;
        Ok(Got::Computed { ours, cpu })
    }
}
