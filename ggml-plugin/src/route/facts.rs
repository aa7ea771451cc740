//! What the rules need to know of an op.

use super::OpKind;
use serde::Serialize;

/// A type number (ggml-abi 2.9: bound to the file format, safe to compile in).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize)]
pub struct Dtype(pub i32);

impl Dtype {
    /// 32-bit float.
    pub const F32: Dtype = Dtype(0);
    /// 16-bit float.
    pub const F16: Dtype = Dtype(1);
    /// bfloat16.
    pub const BF16: Dtype = Dtype(30);

    /// Bytes of an element, of the types that can be computed with here.
    pub fn element_bytes(self) -> Option<usize> {
        match self {
            Dtype::F32 => Some(4),
            Dtype::F16 => Some(2),
            _ => None,
        }
    }

    /// Name as ggml writes it, or the number.
    pub fn name(self) -> String {
        const NAMES: &[(i32, &str)] = &[
            (0, "f32"),
            (1, "f16"),
            (2, "q4_0"),
            (3, "q4_1"),
            (6, "q5_0"),
            (7, "q5_1"),
            (8, "q8_0"),
            (10, "q2_K"),
            (11, "q3_K"),
            (12, "q4_K"),
            (13, "q5_K"),
            (14, "q6_K"),
            (20, "iq4_nl"),
            (23, "iq4_xs"),
            (30, "bf16"),
            (39, "mxfp4"),
        ];
        NAMES
            .iter()
            .find(|(n, _)| *n == self.0)
            .map_or_else(|| format!("type{}", self.0), |(_, s)| (*s).to_owned())
    }
}

/// Shape and layout of one tensor.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TensorFacts {
    /// Element type.
    pub dtype: Dtype,
    /// Elements per dimension, the contiguous one first.
    pub ne: [i64; 4],
    /// Strides in bytes.
    pub nb: [usize; 4],
}

impl TensorFacts {
    /// A contiguous tensor, as a file's header describes one.
    pub fn contiguous(dtype: Dtype, ne: [i64; 4]) -> TensorFacts {
        let mut nb = [dtype.element_bytes().unwrap_or(1); 4];
        for i in 1..4 {
            nb[i] = nb[i - 1].saturating_mul(usize::try_from(ne[i - 1]).unwrap_or(0));
        }
        TensorFacts { dtype, ne, nb }
    }

    /// Whether the elements lie without gaps in row order. A stride over a dimension of one
    /// element says nothing, so it is not looked at.
    pub fn is_contiguous(&self) -> bool {
        let Some(mut expected) = self.dtype.element_bytes() else { return false };
        self.ne.iter().zip(self.nb).all(|(&ne, nb)| {
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

/// One op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OpFacts {
    /// What it is.
    pub kind: OpKind,
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
