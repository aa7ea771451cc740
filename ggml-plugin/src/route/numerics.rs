//! In which numbers a product is computed.

use super::Dtype;

/// The formats of a product on the NPU (ggml-plugin-behaviour 4).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Numerics {
    /// F16 operands, each row of activations divided by a power of two.
    Fp16,
    /// BF16 operands, F32 results of each K step.
    Bf16,
    /// 8-bit codes.
    Int8(Codes),
    /// 4-bit codes.
    Int4(Codes),
    /// 8-bit codes whose scales are powers of two: a weight of 4-bit floats with a power of two a
    /// block keeps its values.
    Shifted(Codes),
    /// 8-bit codes of a weight that the file holds quantized: half the memory of F16, and no
    /// decoding at each micro-batch where F16 does not fit.
    Native(Codes),
}

/// How rows become codes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Codes {
    /// Elements of K that share a scale, in either operand.
    pub group: usize,
    /// Both operands are rotated along K first: outliers are spread over all codes.
    pub rotate: bool,
}

impl Codes {
    /// The same groups of rows as they are.
    pub(super) fn unrotated(self) -> Codes {
        Codes { rotate: false, ..self }
    }
}

/// Ranks of declared precision (ggml-abi 2.6): the coarsest representation a model allows.
pub(super) const UNDECLARED: i32 = 0;
pub(super) const RANK_F16: i32 = 20;
pub(super) const RANK_Q8: i32 = 30;
pub(super) const RANK_Q4: i32 = 40;

/// Longest group of the native route, in elements: what fits one K step of the hardware, so that
/// a group costs no result of its own.
const NATIVE_GROUP: usize = 576;
/// Groups are whole kernel channels (npu-rk3588 7.6).
const GRID: usize = 32;

impl Numerics {
    /// Stable name, as counters and reports print it.
    pub const fn name(self) -> &'static str {
        match self {
            Numerics::Fp16 => "fp16",
            Numerics::Bf16 => "bf16",
            Numerics::Int8(_) => "int8",
            Numerics::Int4(_) => "int4",
            Numerics::Native(_) => "int8-native",
            Numerics::Shifted(_) => "int8-shifted",
        }
    }

    /// The codes, of the formats that have them.
    pub fn codes(self) -> Option<Codes> {
        match self {
            Numerics::Fp16 | Numerics::Bf16 => None,
            Numerics::Int8(c) | Numerics::Int4(c) | Numerics::Native(c) | Numerics::Shifted(c) => {
                Some(c)
            }
        }
    }

    /// Bits of a packed element of the weight.
    pub fn bits(self) -> usize {
        match self {
            Numerics::Fp16 | Numerics::Bf16 => 16,
            Numerics::Int8(_) | Numerics::Native(_) | Numerics::Shifted(_) => 8,
            Numerics::Int4(_) => 4,
        }
    }

    /// The codes of a quantized weight with rows of `k` elements: rotated, for without it outliers take
    /// the codes from all else: on SmolLM2 ten times the divergence of the CPU's own 8-bit kernels,
    /// with it about theirs.
    pub(super) fn native(k: usize, group: Option<usize>) -> Codes {
        let given = |g: usize| g.next_multiple_of(GRID).min(k.max(1).next_multiple_of(GRID));
        Codes { group: group.map_or_else(|| native_group(k), given), rotate: true }
    }

    /// Whether a model that declares `rank` for its activations may be computed so.
    fn allowed(self, rank: i32) -> bool {
        match self {
            Numerics::Fp16 => matches!(rank, UNDECLARED | RANK_F16 | RANK_Q8 | RANK_Q4),
            Numerics::Bf16 | Numerics::Int8(_) | Numerics::Native(_) | Numerics::Shifted(_) => {
                matches!(rank, UNDECLARED | RANK_Q8 | RANK_Q4)
            }
            Numerics::Int4(_) => matches!(rank, UNDECLARED | RANK_Q4),
        }
    }
}

/// Which formats besides F16 are wanted.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Wanted {
    /// `ROCKET_BF16`: unquantized weights in BF16.
    pub bf16: bool,
    /// `ROCKET_INT8`: unquantized weights in int8, rotated first if so.
    pub int8: Option<bool>,
    /// `ROCKET_INT4`: unquantized weights in int4, with so many elements a group (0 for all of K),
    /// rotated first if so.
    pub int4: Option<(usize, bool)>,
    /// Quantized weights in int8.
    pub native: bool,
}

impl Wanted {
    /// The format of a product whose weight has rows of `k` elements of this type, in a model that
    /// declares `rank` for its activations: the first that is wanted and allowed.
    pub fn choose(&self, weight: Dtype, k: usize, rank: i32) -> Numerics {
        let all = k.max(1).next_multiple_of(GRID);
        let of_k = |group: usize| match group {
            0 => all,
            g => g.next_multiple_of(GRID).min(all),
        };
        let candidates = if weight.is_quantized() {
            let codes = Numerics::native(k, None);
            [self.native.then_some(Numerics::Native(codes)), None, None]
        } else {
            [
                self.bf16.then_some(Numerics::Bf16),
                self.int8.map(|rotate| Numerics::Int8(Codes { group: all, rotate })),
                self.int4.map(|(g, rotate)| Numerics::Int4(Codes { group: of_k(g), rotate })),
            ]
        };
        let chosen = candidates.into_iter().flatten().find(|n| n.allowed(rank));
        chosen.unwrap_or(Numerics::Fp16)
    }
}

/// The largest divisor of K on the grid of at most [`NATIVE_GROUP`]; where a remainder cannot be
/// avoided, the longest.
fn native_group(k: usize) -> usize {
    let divides = |g: &usize| k.is_multiple_of(*g);
    (1..=NATIVE_GROUP / GRID)
        .rev()
        .map(|i| i * GRID)
        // Below a quarter of the longest, partial results outweigh what the weights save.
        .filter(|g| 4 * g >= NATIVE_GROUP)
        .find(divides)
        .unwrap_or(NATIVE_GROUP)
        .min(k.max(1).next_multiple_of(GRID))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// ggml-plugin-behaviour 8.4, and what models have.
    #[test]
    fn native_groups_divide_k() {
        for (k, group) in [
            (2880, 576),
            (2048, 512),
            (4096, 512),
            (576, 576),
            (1536, 512),
            (14336, 512),
            (64, 64),
            (65, 96),
            (4304, 576),
        ] {
            assert_eq!(native_group(k), group, "K = {k}");
        }
    }

    /// Declared ranks against formats, wanted all at once: the first that is allowed.
    #[test]
    fn a_declared_rank_leaves_the_formats_that_keep_it() {
        let wanted =
            Wanted { bf16: false, int8: Some(true), int4: Some((128, true)), native: true };
        let int8 = Numerics::Int8(Codes { group: 4096, rotate: true });
        let int4 = Numerics::Int4(Codes { group: 128, rotate: true });
        let native = Numerics::Native(Codes { group: 512, rotate: true });
        for (rank, float, quantized) in [
            (UNDECLARED, int8, native),
            (RANK_F16, Numerics::Fp16, Numerics::Fp16),
            (RANK_Q8, int8, native),
            (RANK_Q4, int8, native),
        ] {
            assert_eq!(wanted.choose(Dtype::F16, 4096, rank), float, "{rank}");
            assert_eq!(wanted.choose(Dtype(12), 4096, rank), quantized, "{rank}");
        }
        let four = Wanted { int8: None, ..wanted };
        assert_eq!(four.choose(Dtype::F32, 4096, UNDECLARED), int4);
        assert_eq!(four.choose(Dtype::F32, 4096, RANK_Q8), Numerics::Fp16);
        assert_eq!(Wanted { bf16: true, ..wanted }.choose(Dtype::BF16, 64, 0), Numerics::Bf16);
        assert_eq!(Wanted::default().choose(Dtype(8), 64, 0), Numerics::Fp16);
        // A group never reaches beyond K on its grid, and 0 is all of it.
        for (given, group) in [(0, 96), (128, 96), (33, 64), (32, 32)] {
            let w = Wanted { int4: Some((given, false)), ..Wanted::default() };
            let got = w.choose(Dtype::F16, 70, 0).codes().map(|c| c.group);
            assert_eq!(got, Some(group), "{given}");
        }
    }

    #[test]
    fn names_are_distinct() {
        let codes = Codes { group: 32, rotate: false };
        let all = [
            Numerics::Fp16,
            Numerics::Bf16,
            Numerics::Int8(codes),
            Numerics::Int4(codes),
            Numerics::Native(codes),
            Numerics::Shifted(codes),
        ];
        let names: std::collections::HashSet<_> = all.iter().map(|n| n.name()).collect();
        assert_eq!(names.len(), all.len());
    }
}
