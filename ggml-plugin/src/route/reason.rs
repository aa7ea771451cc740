//! Why an op stays on the CPU: a stable name and a sentence each, in one table.

use serde::{Serialize, Serializer};

macro_rules! reasons {
    ($($variant:ident $name:literal $sentence:literal;)*) => {
        /// Why an op was declined.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Reason { $(#[doc = $sentence] $variant,)* }

        /// Every reason.
        pub const REASONS: &[Reason] = &[$(Reason::$variant,)*];

        impl Reason {
            /// Stable name, the same in counters, reports, tools and documents.
            pub fn name(self) -> &'static str {
                match self { $(Reason::$variant => $name,)* }
            }

            /// For people.
            pub fn sentence(self) -> &'static str {
                match self { $(Reason::$variant => $sentence,)* }
            }
        }
    };
}

reasons! {
    OpNotSupported "op_not_supported"
        "this operation has no NPU route.";
    NoEngine "no_engine"
        "nothing in this process can run NPU jobs.";
    TooFewRows "too_few_rows"
        "fewer rows than ROCKET_MIN_M (ROCKET_MIN_M_QUANT for quantized weights): the CPU is faster.";
    KTooSmall "k_too_small"
        "the inner dimension is below 64: not worth the transfer.";
    NTooSmall "n_too_small"
        "the weight has fewer than 64 rows: not worth the transfer.";
    TooLarge "too_large"
        "a matrix has more than 2^30 elements, beyond the NPU's address window.";
    Empty "empty"
        "a dimension is empty.";
    ShapeMismatch "shape_mismatch"
        "the shapes of weight, activation and result do not belong together.";
    WeightNotLeaf "weight_not_leaf"
        "the left operand is computed, not a stored weight.";
    WeightNotInHostMemory "weight_not_in_host_memory"
        "the weight lies in memory only its owner understands (CPU_REPACK or a GPU); `-nr` keeps repacked weights plain.";
    WeightType "weight_type"
        "the weight's type is newer than this plugin, or the host cannot decode it.";
    ActivationType "activation_type"
        "the activation is not F32.";
    ResultType "result_type"
        "the result is not F32.";
    NotContiguous "not_contiguous"
        "the weight or the result has gaps, or the activation has gaps inside its rows.";
    AccumulatorPrecision "accumulator_precision"
        "the model asks for an accumulator finer than F16.";
    ActivationPrecision "activation_precision"
        "the model asks for activations finer than F16.";
    Hinted "hinted"
        "the operation carries a hint that changes its meaning.";
    UnknownParameter "unknown_parameter"
        "the operation carries a parameter this version does not know.";
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}
