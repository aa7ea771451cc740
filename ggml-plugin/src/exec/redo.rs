//! Why an accepted op was computed by the CPU after all: a stable name, a sentence and who mends it.

macro_rules! redos {
    (@mends) => { None };
    (@mends $check:literal) => { Some($check) };
    ($($variant:ident $name:literal $sentence:literal $(=> $check:literal)?;)*) => {
        /// Why the CPU did it.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub enum Redo { $(#[doc = $sentence] $variant,)* }

        /// Every one.
        pub const REDOS: &[Redo] = &[$(Redo::$variant,)*];

        impl Redo {
            /// Stable name.
            pub fn name(self) -> &'static str {
                match self { $(Redo::$variant => $name,)* }
            }

            /// For people.
            pub fn sentence(self) -> &'static str {
                match self { $(Redo::$variant => $sentence,)* }
            }

            /// The check of `rocketctl doctor` that tells more, where one does. None of these is as it should be.
            pub fn mends(self) -> Option<&'static str> {
                match self { $(Redo::$variant => redos!(@mends $($check)?),)* }
            }

            /// The one with this name.
            pub fn named(name: &str) -> Option<Redo> {
                REDOS.iter().copied().find(|r| r.name() == name)
            }
        }
    };
}

redos! {
    ActivationNotFinite "activation_not_finite"
        "an activation is infinite or not a number.";
    ActivationRange "activation_range"
        "an activation is beyond the largest power of two of F32.";
    WeightNotFinite "weight_not_finite"
        "a weight is infinite or not a number.";
    CacheNotFinite "cache_not_finite"
        "a key or value is infinite or not a number.";
    ResultNotFinite "result_not_finite"
        "the NPU's result is infinite or not a number.";
    ResultOverflow "result_overflow"
        "the NPU's result reached the largest F16 value.";
    ExpertsPacking "experts_packing"
        "the experts are still being packed for the NPU.";
    ExpertsNotResident "experts_not_resident"
        "there was no room for the experts when they were to be packed."
        => "model.fit";
    ExpertOutOfRange "expert_out_of_range"
        "a token asks for an expert that does not exist.";
    EngineError "engine_error"
        "the NPU job failed."
        => "kernel.log";
    EnginePanic "engine_panic"
        "a defect of this plugin was caught while it ran the job.";
    Mismatch "mismatch"
        "the NPU's result differs from the CPU's beyond rounding."
        => "kernel.log";
    GivenUp "given_up"
        "the NPU is left alone after failures, until this process ends."
        => "kernel.log";
    Forked "forked"
        "the process was forked after the NPU was opened.";
    Overlap "overlap"
        "the result overlaps an operand.";
    NoData "no_data"
        "an operand or the result has no aligned memory.";
    NotRouted "not_routed"
        "the graph held an op that would have been declined.";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_distinct() {
        let names: std::collections::HashSet<_> = REDOS.iter().map(|r| r.name()).collect();
        assert_eq!(names.len(), REDOS.len());
        assert!(REDOS.iter().all(|r| r.sentence().ends_with('.')));
    }
}
