//! Why an op stays on the CPU: a stable name, a sentence and who mends it, in one table.

use serde::{Serialize, Serializer};

macro_rules! reasons {
    (@mends) => { None };
    (@mends $check:literal) => { Some($check) };
    ($($variant:ident $name:literal $sentence:literal $(=> $check:literal)?;)*) => {
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

            /// The check of `rocketctl doctor` that tells how to mend it. Without one it is as it should be: the
            /// CPU is faster, a setting asks for it, or no NPU does such an op.
            pub fn mends(self) -> Option<&'static str> {
                match self { $(Reason::$variant => reasons!(@mends $($check)?),)* }
            }

            /// The one with this name.
            pub fn named(name: &str) -> Option<Reason> {
                REASONS.iter().copied().find(|r| r.name() == name)
            }
        }
    };
}

reasons! {
    OpNotSupported "op_not_supported"
        "this operation has no NPU route.";
    NoEngine "no_engine"
        "nothing in this process can run NPU jobs."
        => "access.node";
    TooFewRows "too_few_rows"
        "fewer rows than ROCKET_MIN_M (ROCKET_MIN_M_QUANT for quantized weights): the CPU is faster.";
    KTooSmall "k_too_small"
        "the inner dimension is below 64: not worth the transfer."
        => "model.shapes";
    NTooSmall "n_too_small"
        "the weight has fewer than 64 rows: not worth the transfer."
        => "model.shapes";
    TooLarge "too_large"
        "a matrix has more than 2^30 elements, beyond the NPU's address window."
        => "model.shapes";
    Empty "empty"
        "a dimension is empty.";
    ShapeMismatch "shape_mismatch"
        "the shapes of the operands and the result do not belong together.";
    WeightNotLeaf "weight_not_leaf"
        "the left operand is computed, not a stored weight.";
    WeightNotInHostMemory "weight_not_in_host_memory"
        "the weight lies in memory only its owner understands (CPU_REPACK or a GPU); `-nr` keeps repacked weights plain."
        => "host.repack";
    WeightType "weight_type"
        "the weight's type is newer than this plugin, or the host cannot decode it."
        => "model.types";
    ActivationType "activation_type"
        "the activation is not F32.";
    ResultType "result_type"
        "the result is not F32.";
    NotContiguous "not_contiguous"
        "the weight or the result has gaps, or another operand has gaps inside its rows.";
    AccumulatorPrecision "accumulator_precision"
        "the model asks for an accumulator finer than F16.";
    ActivationPrecision "activation_precision"
        "the model asks for activations finer than F16.";
    Hinted "hinted"
        "the operation carries a hint that changes its meaning.";
    UnknownParameter "unknown_parameter"
        "the operation carries a parameter this version does not know.";
    AttentionOff "attention_off"
        "attention on the NPU is off (ROCKET_FLASH_ATTN).";
    AttentionShortContext "attention_short_context"
        "fewer positions than ROCKET_FLASH_ATTN_MIN_KV: the CPU is as fast.";
    AttentionFewTokens "attention_few_tokens"
        "fewer tokens than ROCKET_FLASH_ATTN_MIN_T: the CPU is faster.";
    AttentionUnmasked "attention_unmasked"
        "attention without a mask is slower on the NPU at the sizes of encoders; ROCKET_FLASH_ATTN_UNMASKED=1 takes it.";
    AttentionQueryType "attention_query_type"
        "Q is not F32.";
    AttentionCacheType "attention_cache_type"
        "the type of K or V is newer than this plugin, or the host cannot decode it."
        => "model.types";
    AttentionMask "attention_mask"
        "the mask is not F16, has gaps inside its rows, or does not hold one for each token.";
    AttentionSinks "attention_sinks"
        "the sinks are not one F32 number a head.";
    AttentionNumbers "attention_numbers"
        "scale, bias or cap is infinite, negative or not a number, or there is a bias without a mask.";
    AttentionNotInHostMemory "attention_not_in_host_memory"
        "an operand lies in memory only its owner understands.";
    ExpertsOff "experts_off"
        "experts on the NPU are off (ROCKET_MOE).";
    ExpertsUnquantized "experts_unquantized"
        "the stack of experts is not quantized, or ROCKET_MOE_NATIVE is off: decoding it for each micro-batch is slower than the CPU; ROCKET_MOE=1 takes it.";
    ExpertsFewTokens "experts_few_tokens"
        "fewer tokens than ROCKET_MOE_MIN_TOKENS: the CPU is faster; `-ub 2048` makes larger micro-batches."
        => "model.ubatch";
    ExpertsFewRows "experts_few_rows"
        "fewer rows an expert than ROCKET_MOE_M_BUCKET: the CPU is faster; `-ub 2048` makes larger micro-batches."
        => "model.ubatch";
    ExpertsLittleWork "experts_little_work"
        "an expert has less work than ROCKET_MOE_MIN_WORK: the CPU is faster; `-ub 2048` makes larger micro-batches."
        => "model.ubatch";
    ExpertsIds "experts_ids"
        "the numbers of the experts are not I32 without gaps inside a token.";
    ExpertsNotKept "experts_not_kept"
        "the stack of experts is no weight that stays where it is, and packing it for each micro-batch is slower than the CPU.";
    ExpertsNoRoom "experts_no_room"
        "there is no room for the whole stack of experts (ROCKET_MOE_CACHE_MB): the CPU computes it."
        => "model.fit";
    AttentionSource "attention_source"
        "the operation has an operand that this version does not know.";
}

impl Serialize for Reason {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.serialize_str(self.name())
    }
}
