//! What the rules need to know of an op.

use serde::Serialize;

/// A type number (ggml-abi 2.9: bound to the file format, safe to compile in).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Dtype(pub i32);

/// How a type stores a row: blocks of so many elements in so many bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Block {
    /// Elements of a block; 1 for the plain types.
    pub elements: usize,
    /// Bytes of a block.
    pub bytes: usize,
}

impl Block {
    /// Bytes of a row of `k` elements; `None` when it is not whole blocks.
    pub fn row_bytes(self, k: usize) -> Option<usize> {
        (self.elements > 0 && k.is_multiple_of(self.elements))
            .then(|| (k / self.elements).checked_mul(self.bytes))
            .flatten()
    }
}

/// Number, name, elements and bytes of a block. A type without sizes here is taken from the host
/// alone; one with sizes must agree with the host (ggml-abi 5.4).
const TYPES: &[(i32, &str, usize, usize)] = &[
    (0, "f32", 1, 4),
    (1, "f16", 1, 2),
    (2, "q4_0", 32, 18),
    (3, "q4_1", 32, 20),
    (6, "q5_0", 32, 22),
    (7, "q5_1", 32, 24),
    (8, "q8_0", 32, 34),
    (9, "q8_1", 32, 36),
    (10, "q2_K", 256, 84),
    (11, "q3_K", 256, 110),
    (12, "q4_K", 256, 144),
    (13, "q5_K", 256, 176),
    (14, "q6_K", 256, 210),
    (15, "q8_K", 256, 292),
    (16, "iq2_xxs", 256, 66),
    (17, "iq2_xs", 256, 74),
    (18, "iq3_xxs", 256, 98),
    (19, "iq1_s", 256, 50),
    (20, "iq4_nl", 32, 18),
    (21, "iq3_s", 256, 110),
    (22, "iq2_s", 256, 82),
    (23, "iq4_xs", 256, 136),
    (29, "iq1_m", 256, 56),
    (30, "bf16", 1, 2),
    (34, "tq1_0", 256, 54),
    (35, "tq2_0", 256, 66),
    (39, "mxfp4", 32, 17),
    (40, "nvfp4", 0, 0),
    (41, "q1_0", 0, 0),
    (42, "q2_0", 0, 0),
];

impl Dtype {
    /// 32-bit float.
    pub const F32: Dtype = Dtype(0);
    /// 16-bit float.
    pub const F16: Dtype = Dtype(1);
    /// 32-bit integer.
    pub const I32: Dtype = Dtype(26);
    /// bfloat16.
    pub const BF16: Dtype = Dtype(30);

    fn row(self) -> Option<&'static (i32, &'static str, usize, usize)> {
        TYPES.iter().find(|(n, ..)| *n == self.0)
    }

    /// Whether this version knows what the number means. Newer ones are declined, never decoded.
    pub fn is_known(self) -> bool {
        self.row().is_some()
    }

    /// Every known type.
    pub fn all() -> impl Iterator<Item = Dtype> {
        TYPES.iter().map(|(n, ..)| Dtype(*n))
    }

    /// The block, of types whose sizes are compiled in.
    pub fn block(self) -> Option<Block> {
        let (_, _, elements, bytes) = *self.row()?;
        (elements > 0).then_some(Block { elements, bytes })
    }

    /// Neither F32, F16 nor BF16.
    pub fn is_quantized(self) -> bool {
        !matches!(self, Dtype::F32 | Dtype::F16 | Dtype::BF16)
    }

    /// Name as ggml writes it, or the number.
    pub fn name(self) -> String {
        self.row().map_or_else(|| format!("type{}", self.0), |(_, name, ..)| (*name).to_owned())
    }
}

/// Shape and layout of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorFacts {
    /// Element type.
    pub dtype: Dtype,
    /// Its blocks on this host; `None` when the host cannot decode it or disagrees about them.
    pub block: Option<Block>,
    /// Elements per dimension, the contiguous one first.
    pub ne: [i64; 4],
    /// Strides in bytes; the first is of a block.
    pub nb: [usize; 4],
}

impl TensorFacts {
    /// A contiguous tensor, as a file's header describes one.
    pub fn contiguous(dtype: Dtype, ne: [i64; 4]) -> TensorFacts {
        let block = dtype.block();
        let mut nb = [block.map_or(1, |b| b.bytes); 4];
        for i in 1..4 {
            let count = usize::try_from(ne[i - 1]).unwrap_or(0);
            let blocks = if i == 1 { count / block.map_or(1, |b| b.elements) } else { count };
            nb[i] = nb[i - 1].saturating_mul(blocks);
        }
        TensorFacts { dtype, block, ne, nb }
    }

    /// Whether the elements of a row lie without gaps.
    pub fn rows_are_dense(&self) -> bool {
        self.block.is_some_and(|b| self.ne[0] == 1 || self.nb[0] == b.bytes)
    }

    /// Whether the elements lie without gaps in row order. A stride over a dimension of one
    /// element says nothing, so it is not looked at.
    pub fn is_contiguous(&self) -> bool {
        let Some(block) = self.block else { return false };
        let row = usize::try_from(self.ne[0]).ok().and_then(|k| block.row_bytes(k));
        let Some(mut expected) = row else { return false };
        if self.ne[0] != block.elements as i64 && self.nb[0] != block.bytes {
            return false;
        }
        self.ne[1..].iter().zip(&self.nb[1..]).all(|(&ne, &nb)| {
            let fits = ne == 1 || nb == expected;
            match usize::try_from(ne).ok().and_then(|ne| expected.checked_mul(ne)) {
                Some(next) => {
                    expected = next;
                    fits
                }
                None => false,
            }
        })
    }
}

/// One op, as far as the rules look at it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpFacts {
    /// A leaf or a view.
    Nothing,
    /// MUL_MAT.
    MulMat(ProductFacts),
    /// MUL_MAT_ID.
    MulMatId(ExpertsFacts),
    /// FLASH_ATTN_EXT.
    FlashAttn(AttentionFacts),
    /// ADD whose first source is a MUL_MAT.
    Bias(BiasFacts),
    /// CPY whose first source is a MUL_MAT or such an ADD.
    Copy(CopyFacts),
    /// Any other.
    Other,
}

/// ADD of a row to each row of a product.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BiasFacts {
    /// The product.
    pub product: ProductFacts,
    /// Source 1.
    pub bias: TensorFacts,
    /// The CPU can read the bias; `None` before it has a buffer.
    pub bias_in_host_memory: Option<bool>,
    /// The result.
    pub result: TensorFacts,
}

/// CPY of a product, with its bias or without one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CopyFacts {
    /// What is copied.
    pub of: Copied,
    /// The result: where the copy goes, in the type that it gets.
    pub result: TensorFacts,
    /// The CPU can write there; `None` before it has a buffer.
    pub result_in_host_memory: Option<bool>,
}

/// What a [`CopyFacts`] copies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Copied {
    /// MUL_MAT.
    Product(ProductFacts),
    /// ADD of a bias.
    Sum(BiasFacts),
}

impl Copied {
    /// The result of it.
    pub fn result(&self) -> &TensorFacts {
        match self {
            Copied::Product(p) => &p.result,
            Copied::Sum(b) => &b.result,
        }
    }
}

/// MUL_MAT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProductFacts {
    /// Source 0.
    pub weight: TensorFacts,
    /// The weight is a leaf (op NONE), not something computed.
    pub weight_is_leaf: bool,
    /// The CPU can read the weight's buffer; `None` before it has one.
    pub weight_in_host_memory: Option<bool>,
    /// Source 1.
    pub activation: TensorFacts,
    /// The result.
    pub result: TensorFacts,
    /// Op parameters (ggml-abi 2.6).
    pub op_params: [i32; 16],
}

/// MUL_MAT_ID: a product of each row with the weights of the experts chosen for its token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ExpertsFacts {
    /// The product without the choice: weight `K x N x experts`, activation `K x (1 or used) x
    /// tokens`, result `N x used x tokens`.
    pub product: ProductFacts,
    /// Source 2: the experts of each token, `used x tokens`.
    pub ids: TensorFacts,
}

/// FLASH_ATTN_EXT.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct AttentionFacts {
    /// Source 0: `head size x tokens x heads x batches`.
    pub q: TensorFacts,
    /// Source 1: `head size x n_kv x KV heads x batches`.
    pub k: TensorFacts,
    /// Source 2: `V head size x n_kv x KV heads x batches`.
    pub v: TensorFacts,
    /// Source 3, which may be absent: `n_kv x tokens (or more) x heads or 1 x batches or 1`.
    pub mask: Option<TensorFacts>,
    /// Source 4, which may be absent: one number a head.
    pub sinks: Option<TensorFacts>,
    /// The result: `V head size x heads x tokens x batches`.
    pub result: TensorFacts,
    /// It has a source beside these.
    pub more_sources: bool,
    /// The CPU can read every source that has a buffer.
    pub in_host_memory: bool,
    /// Op parameters (ggml-abi 2.6).
    pub op_params: [i32; 16],
}

/// What tells ops of one kind from others in counts and reports.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Label {
    /// Name of the op, as ggml writes it.
    pub op: &'static str,
    /// Type of the weight, or of K and V.
    pub dtype: Dtype,
    /// Inner dimension and columns of the weight; head size and n_kv.
    pub shape: [i64; 2],
}

impl OpFacts {
    /// The label; `None` for what nobody expects on an NPU.
    pub fn label(&self) -> Option<Label> {
        let of = |op, t: &TensorFacts| Label { op, dtype: t.dtype, shape: [t.ne[0], t.ne[1]] };
        match self {
            OpFacts::Nothing | OpFacts::Bias(_) | OpFacts::Copy(_) | OpFacts::Other => None,
            OpFacts::MulMat(p) => Some(of("MUL_MAT", &p.weight)),
            OpFacts::MulMatId(e) => Some(of("MUL_MAT_ID", &e.product.weight)),
            OpFacts::FlashAttn(a) => Some(of("FLASH_ATTN_EXT", &a.k)),
        }
    }

    /// Rows of activation: a few of them are decode.
    pub fn rows(&self) -> i64 {
        let count = |ne: &[i64]| ne.iter().fold(1i64, |p, &n| p.saturating_mul(n));
        match self {
            OpFacts::Nothing | OpFacts::Other => 0,
            OpFacts::Bias(b) => count(&b.result.ne[1..]),
            OpFacts::Copy(c) => count(&c.of.result().ne[1..]),
            OpFacts::MulMat(p) => count(&p.activation.ne[1..]),
            OpFacts::MulMatId(e) => e.ids.ne[1],
            OpFacts::FlashAttn(a) => a.q.ne[1],
        }
    }
}
