//! Running an accepted FLASH_ATTN_EXT.
#![allow(unsafe_code)]

use super::backend::Instance;
use super::compute::redo_is_news;
use super::plugin::Runner;
use crate::abi::host::Host;
use crate::abi::tensor::Tensor;
use crate::exec::cache::HostRows;
use crate::exec::weight::Decode;
use crate::exec::{OpRecord, Redo, attention};
use crate::log::{Level, line};
use crate::route::{AttentionShape, Dtype, attention_numbers};
use half::f16;
use rocket_runtime::ops::attention::{Attention, Cached, Mask, Strided};

/// # Errors
/// Why the CPU has to do the op.
pub(super) fn run(
    instance: &Instance,
    runner: &Runner,
    node: &Tensor,
    name: &str,
    shape: AttentionShape,
) -> Result<OpRecord, Redo> {
    let plugin = instance.plugin;
    let host = &plugin.host;
    let source = |i| node.source(i).ok_or(Redo::NotRouted);
    let (q, k, v) = (source(0)?, source(1)?, source(2)?);
    let (keys, values) = (Rows::of(host, k, shape.key)?, Rows::of(host, v, shape.value)?);
    let out = memory(node, shape.results() * 4);
    let queries = extent(q, [shape.streams, shape.heads, shape.tokens], shape.key * 4)?;
    let mask = node.source(3);
    let mask_bytes = mask.map(|m| {
        let counts = [wide(m.ne[3]), wide(m.ne[2]), shape.tokens];
        extent(m, counts, shape.n_kv * 2)
    });
    let mask_bytes = mask_bytes.transpose()?.unwrap_or(0);
    let sinks = node.source(4);
    let operands = [
        Some((q, queries)),
        Some((k, keys.bytes)),
        Some((v, values.bytes)),
        mask.map(|m| (m, mask_bytes)),
        sinks.map(|s| (s, shape.heads * 4)),
    ];
    for (tensor, bytes) in operands.into_iter().flatten() {
        let other = memory(tensor, bytes);
        if out.0 < other.1 && other.0 < out.1 {
            return Err(Redo::Overlap);
        }
    }
    // SAFETY: Q, mask and sinks reach as far as their strides say, the result is contiguous; all
    // lie in host memory that the host lets nobody touch while it waits for this graph, and the
    // result overlaps none of them.
    let (q_data, mask_data, sinks, out) = unsafe {
        (
            q.elements::<f32>(queries / 4).ok_or(Redo::NoData)?,
            mask.map(|m| m.elements::<f16>(mask_bytes / 2).ok_or(Redo::NoData)).transpose()?,
            sinks.map(|s| s.elements::<f32>(shape.heads).ok_or(Redo::NoData)).transpose()?,
            node.elements_mut::<f32>(shape.results()).ok_or(Redo::NoData)?,
        )
    };
    // SAFETY: likewise.
    let (k, v) = unsafe { (keys.open(k)?, values.open(v)?) };
    let [scale, max_bias, softcap] = attention_numbers(&node.op_params);
    let op = Attention {
        shape,
        q: Strided::new(q_data, strides(q).map(|s| s / 4)),
        k: k.cached(),
        v: v.cached(),
        mask: mask.zip(mask_data).map(|(m, data)| {
            let rows = Strided::new(data, strides(m).map(|s| s / 2));
            Mask::new(rows, wide(m.ne[3]), wide(m.ne[2]))
        }),
        sinks,
        scale,
        max_bias,
        softcap,
    };
    match runner {
        Runner::Engine(engine) => {
            attention::run(&**engine, &plugin.verify, name, op, out).map_err(|(redo, error)| {
                if let Some(e) = error
                    && redo_is_news(redo)
                {
                    line(Level::Warn, &format!("{name}: {e}. Redone on the CPU."));
                }
                redo
            })
        }
        #[cfg(feature = "test-engine")]
        Runner::HostCpu => {
            super::compute::on_cpu(instance, node).map_err(|_| Redo::EngineError)?;
            Ok(OpRecord { macs: shape.macs(), ..OpRecord::default() })
        }
    }
}

fn wide(n: i64) -> usize {
    usize::try_from(n).unwrap_or(0)
}

/// First byte, and the one behind the last.
fn memory(t: &Tensor, bytes: usize) -> (usize, usize) {
    let first = t.data as usize;
    (first, first.saturating_add(bytes))
}

/// Bytes between rows of dimension 3 (streams), 2 (heads) and 1; none over a dimension of one
/// element, whose stride says nothing.
fn strides(t: &Tensor) -> [usize; 3] {
    [3, 2, 1].map(|i| if t.ne[i] == 1 { 0 } else { t.nb[i] })
}

fn extent(t: &Tensor, counts: [usize; 3], row_bytes: usize) -> Result<usize, Redo> {
    HostRows::extent(counts, strides(t), row_bytes).ok_or(Redo::NotRouted)
}

/// How K or V is stored.
struct Rows {
    len: usize,
    row_bytes: usize,
    bytes: usize,
    decode: Decode,
}

/// K or V in memory.
enum Opened<'a> {
    Half(Strided<'a, f16>),
    Other(HostRows<'a>),
}

impl Rows {
    fn of(host: &Host, t: &Tensor, len: usize) -> Result<Rows, Redo> {
        let dtype = Dtype(t.dtype);
        let format = host.format(dtype).ok_or(Redo::NotRouted)?;
        let decode = Decode::of(dtype, format.to_float).ok_or(Redo::NotRouted)?;
        let row_bytes = format.block.row_bytes(len).ok_or(Redo::NotRouted)?;
        let counts = [wide(t.ne[3]), wide(t.ne[2]), wide(t.ne[1])];
        Ok(Rows { len, row_bytes, bytes: extent(t, counts, row_bytes)?, decode })
    }

    /// # Safety
    /// The tensor's rows lie in memory that nobody writes meanwhile.
    unsafe fn open<'a>(&self, t: &'a Tensor) -> Result<Opened<'a>, Redo> {
        let strides = strides(t);
        // SAFETY: as the caller promises, and as far as the strides say; the host's decoder of this
        // type is for rows of whole blocks.
        unsafe {
            Ok(match self.decode {
                Decode::F16 => {
                    let data = t.elements::<f16>(self.bytes / 2).ok_or(Redo::NoData)?;
                    Opened::Half(Strided::new(data, strides.map(|s| s / 2)))
                }
                decode => {
                    let data = t.elements::<u8>(self.bytes).ok_or(Redo::NoData)?;
                    let rows = HostRows::new(data, strides, self.len, self.row_bytes, decode);
                    Opened::Other(rows)
                }
            })
        }
    }
}

impl Opened<'_> {
    fn cached(&self) -> Cached<'_> {
        match self {
            Opened::Half(rows) => Cached::Half(*rows),
            Opened::Other(rows) => Cached::Decoded(rows),
        }
    }
}
