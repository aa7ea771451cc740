//! Products that ggml's own test-backend-ops lacks, each with what should become of it.

use crate::ggml::{Host, Type};
use anyhow::Result;

/// How the activation lies in memory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Layout {
    /// Row after row.
    Dense,
    /// Rows with so many elements between them, starting after a third of those.
    Gaps(i64),
    /// Dimensions 1 and 2 exchanged, as attention heads are, with so many elements between rows.
    Heads(i64),
    /// Dimensions 0 and 1 exchanged: the elements of a row are apart.
    Transposed,
}

/// Where the weight comes from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Origin {
    /// A leaf in a buffer of weights.
    Weights,
    /// A leaf in some other buffer.
    Plain,
    /// A view of the upper rows of a larger weight.
    View,
}

/// What is special about the numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Numbers {
    /// In -1..1.
    Ordinary,
    /// The weight's rows times 1, 1e-9, 1e7, 1e-30 and 1e20 in turn.
    WildWeights,
    /// The whole weight times 1e-6.
    TinyWeights,
    /// One row of the activation times 3000.
    LargeRow,
    /// The activation's rows times 1e30, 1e-20 and 1 in turn.
    WildRows,
    /// An activation is not a number.
    NotANumber,
    /// A weight is infinite.
    InfiniteWeight,
    /// Sums beyond F16, all operands within.
    Overflow,
}

/// What should become of an op.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expect {
    /// It runs on the NPU.
    Npu,
    /// The NPU cannot, and the CPU does it for this reason.
    Redone(&'static str),
    /// It is not accepted, for this reason.
    Declined(&'static str),
}

/// One product.
#[derive(Debug, Clone)]
pub struct Case {
    /// Type of the weight.
    pub dtype: Type,
    /// Sizes of the weight: K, N, two batches.
    pub weight: [i64; 4],
    /// Sizes of the activation: K, M, two batches.
    pub activation: [i64; 4],
    /// The activation's.
    pub layout: Layout,
    /// The weight's.
    pub origin: Origin,
    /// Both operands'.
    pub numbers: Numbers,
    /// What should become of it.
    pub expect: Expect,
}

impl Case {
    fn new(dtype: Type, [m, k, n]: [i64; 3]) -> Case {
        Case {
            dtype,
            weight: [k, n, 1, 1],
            activation: [k, m, 1, 1],
            layout: Layout::Dense,
            origin: Origin::Weights,
            numbers: Numbers::Ordinary,
            expect: Expect::Npu,
        }
    }

    fn batches(self, weight: [i64; 2], activation: [i64; 2]) -> Case {
        let ([k, n, ..], [_, m, ..]) = (self.weight, self.activation);
        Case {
            weight: [k, n, weight[0], weight[1]],
            activation: [k, m, activation[0], activation[1]],
            ..self
        }
    }

    /// In words, without the type.
    pub fn describe(&self) -> String {
        let mut text = format!("weight {:?}, activation {:?}", self.weight, self.activation);
        if self.layout != Layout::Dense {
            text += &format!(", {:?}", self.layout);
        }
        if self.origin != Origin::Weights {
            text += &format!(", {:?}", self.origin);
        }
        if self.numbers != Numbers::Ordinary {
            text += &format!(", {:?}", self.numbers);
        }
        text
    }
}

/// The list. `small` leaves out what takes long under a sanitizer.
///
/// # Errors
/// The host's table of types is not as expected.
pub fn list(host: &Host, small: bool) -> Result<Vec<Case>> {
    use Expect::{Declined, Redone};
    let (f32, f16, bf16) = (Type::F32, Type::F16, Type::BF16);
    let mut cases = Vec::new();
    // Every type the host can make: few rows and more than one M tile; N is never a multiple of 16.
    for t in host.encoded_types() {
        if small && t.is_slow_to_encode() {
            continue;
        }
        let sizes: &[[i64; 3]] = match (small, host.block(t)?) {
            (true, _) => &[[9, 256, 67]],
            (false, 0..=64) => &[[8, 64, 67], [130, 448, 133]],
            (false, _) => &[[8, 256, 67], [130, 768, 133]],
        };
        cases.extend(sizes.iter().map(|&s| Case::new(t, s)));
    }
    // Odd sizes, up to the long rows of a vision tower.
    let sizes = [[8, 65, 65], [9, 67, 131], [31, 127, 64], [129, 385, 257], [257, 100, 1000]];
    for t in [f32, f16, bf16] {
        cases.extend(sizes.iter().map(|&s| Case::new(t, s)));
    }
    if !small {
        for [m, n] in [[8, 1152], [136, 161], [700, 72]] {
            cases.push(Case::new(f16, [m, 4304, n]));
        }
        cases.push(Case::new(Type::Q8_0, [128, 4320, 160]));
        cases.push(Case::new(Type::Q4_K, [128, 4608, 160]));
        cases.push(Case::new(f16, [1030, 96, 520]));
    }
    // Batches of activations against one weight: one long list of rows.
    let base = Case::new(f16, [12, 96, 80]);
    for (weight, activation) in [
        ([1, 1], [4, 1]),
        ([1, 1], [3, 5]),
        // As many weights, each its own.
        ([3, 1], [3, 1]),
        ([2, 3], [2, 3]),
        // Fewer weights: neighbours share one.
        ([2, 1], [6, 1]),
        ([2, 1], [4, 3]),
        ([1, 2], [3, 4]),
        ([2, 2], [4, 6]),
    ] {
        for layout in [Layout::Dense, Layout::Gaps(7), Layout::Heads(0), Layout::Heads(5)] {
            cases.push(Case { layout, ..base.clone().batches(weight, activation) });
        }
    }
    let shared = Case::new(Type::Q8_0, [16, 96, 80]).batches([2, 2], [4, 2]);
    cases.push(Case { layout: Layout::Heads(3), ..shared.clone() });
    cases.push(Case { dtype: f32, origin: Origin::Plain, ..shared });
    // Gaps alone, and weights outside of a buffer of weights: packed for each use.
    for t in [f32, f16, bf16, Type::Q8_0] {
        cases.push(Case { layout: Layout::Gaps(33), ..Case::new(t, [40, 192, 96]) });
        cases.push(Case { origin: Origin::Plain, ..Case::new(t, [40, 192, 97]) });
    }
    // Numbers far outside of F16.
    for origin in [Origin::Weights, Origin::Plain] {
        for (t, numbers) in [
            (f32, Numbers::WildWeights),
            (bf16, Numbers::WildWeights),
            (f32, Numbers::TinyWeights),
            (f16, Numbers::LargeRow),
            (Type::Q8_0, Numbers::LargeRow),
            (f16, Numbers::WildRows),
            (f32, Numbers::WildRows),
        ] {
            cases.push(Case { numbers, origin, ..Case::new(t, [40, 160, 100]) });
        }
        for (t, numbers, why) in [
            (f16, Numbers::NotANumber, "activation_not_finite"),
            (f32, Numbers::InfiniteWeight, "weight_not_finite"),
            (f16, Numbers::InfiniteWeight, "weight_not_finite"),
            (f16, Numbers::Overflow, "result_not_finite"),
        ] {
            let expect = Redone(why);
            cases.push(Case { numbers, origin, expect, ..Case::new(t, [40, 160, 100]) });
        }
    }
    // What stays on the CPU; each has a K and N of its own, by which its reason is found.
    let declined = [
        (Case::new(f16, [7, 128, 129]), "too_few_rows"),
        (Case::new(Type::Q8_0, [7, 128, 130]), "too_few_rows"),
        (Case::new(f16, [64, 63, 131]), "k_too_small"),
        (Case::new(Type::Q8_0, [64, 32, 132]), "k_too_small"),
        (Case::new(f16, [64, 133, 63]), "n_too_small"),
        (Case { origin: Origin::View, ..Case::new(f16, [64, 128, 134]) }, "weight_not_leaf"),
        (Case { layout: Layout::Transposed, ..Case::new(f16, [64, 128, 135]) }, "not_contiguous"),
    ];
    cases.extend(declined.map(|(case, why)| Case { expect: Declined(why), ..case }));
    Ok(cases)
}
