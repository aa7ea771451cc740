//! The routing contract as text for people: `docs/routing.md`.

use super::{Codes, Numerics, REASONS};
use crate::exec::redo::REDOS;
use crate::knobs::PREFIX;
use std::fmt::Write;

/// The command that prints [`markdown`].
pub const COMMAND: &str = "cargo run -p ggml-rocket --example routing";

/// A route as it is documented.
#[derive(Debug, Clone, Copy)]
pub struct Entry {
    /// Stable name, as counters and reports print it.
    pub name: &'static str,
    /// The op, as ggml writes it.
    pub op: &'static str,
    /// What is taken.
    pub when: &'static str,
    /// How it is computed.
    pub how: &'static str,
    /// Settings that decide, without the common prefix.
    pub knobs: &'static [&'static str],
}

const CODES: Codes = Codes { group: 32, rotate: true };

/// Every route; a product takes the first whose condition holds.
pub const ENTRIES: &[Entry] = &[
    Entry {
        name: Numerics::Bf16.name(),
        op: "MUL_MAT",
        when: "unquantized weights, where it is asked for",
        how: "both operands in bf16, fp32 results of each K step added up in binary64",
        knobs: &["BF16", "MIN_M"],
    },
    Entry {
        name: Numerics::Int8(CODES).name(),
        op: "MUL_MAT",
        when: "unquantized weights, where it is asked for",
        how: "codes of 8 bits with a scale a row of either operand, exact integer sums",
        knobs: &["INT8", "INT8_HADAMARD", "MIN_M"],
    },
    Entry {
        name: Numerics::Int4(CODES).name(),
        op: "MUL_MAT",
        when: "unquantized weights, where it is asked for",
        how: "codes of 4 bits with a scale a group of channels, exact integer sums",
        knobs: &["INT4", "INT4_GROUP", "INT4_HADAMARD", "MIN_M"],
    },
    Entry {
        name: Numerics::Native(CODES).name(),
        op: "MUL_MAT",
        when: "quantized weights, where fp16 copies of all do not fit and int8 ones do",
        how: "both operands rotated, codes of 8 bits with a scale a group of channels, exact integer sums",
        knobs: &["QUANT_INT8", "MIN_M_QUANT"],
    },
    Entry {
        name: Numerics::Fp16.name(),
        op: "MUL_MAT",
        when: "weights of every type that the host decodes",
        how: "each row of activations divided by a power of two, fp16 operands, K steps added up on chip in fp16; products of one activation run together",
        knobs: &["MIN_M", "MIN_M_QUANT", "NO_FUSE"],
    },
    Entry {
        name: "bias",
        op: "ADD",
        when: "a bias for the rows of a product that is taken",
        how: "in fp32 on the CPU, by this plugin, so that an encoder's projections run together; counted nowhere",
        knobs: &["MIN_M"],
    },
    Entry {
        name: "copy",
        op: "CPY",
        when: "a contiguous copy, in F16 or F32, of a product that is taken or of its sum with a bias",
        how: "on the CPU, by this plugin, for the same reason; counted nowhere",
        knobs: &["MIN_M"],
    },
    Entry {
        name: "experts-int8",
        op: "MUL_MAT_ID",
        when: "quantized stacks that have room as a whole, above the thresholds",
        how: "experts resident as codes of 8 bits with a scale a group of channels: MXFP4 as it is, scaled by powers of two, other types rotated and rounded once; exact integer sums. Packed beside the host, whose CPU computes meanwhile, and kept on disk",
        knobs: &[
            "MOE",
            "MOE_NATIVE",
            "MOE_MIN_TOKENS",
            "MOE_M_BUCKET",
            "MOE_MIN_WORK",
            "MOE_CACHE_MB",
            "MOE_WAIT",
            "PACKED_DIR",
        ],
    },
    Entry {
        name: "experts-fp16",
        op: "MUL_MAT_ID",
        when: "unquantized stacks, and quantized ones without `ROCKET_MOE_NATIVE`, where it is asked for",
        how: "as `fp16`, an expert at a time",
        knobs: &["MOE", "MOE_NATIVE", "MIN_M"],
    },
    Entry {
        name: "attention",
        op: "FLASH_ATTN_EXT",
        when: "contexts and micro-batches above the thresholds; any cache type, mask, sinks, ALiBi, soft-cap, head size and number of streams",
        how: "fp16 products with fp32 results, logits and softmax in fp32 on the CPU; what a mask hides from a block is left out",
        knobs: &["FLASH_ATTN", "FLASH_ATTN_MIN_KV", "FLASH_ATTN_MIN_T", "FLASH_ATTN_UNMASKED"],
    },
];

/// The whole page.
pub fn markdown() -> String {
    let mut out = String::from(INTRODUCTION);
    out.push_str("| route | op | taken | computed | settings |\n|---|---|---|---|---|\n");
    for e in ENTRIES {
        let knobs: Vec<String> = e.knobs.iter().map(|k| format!("`{PREFIX}{k}`")).collect();
        let _ = writeln!(
            out,
            "| `{}` | {} | {} | {} | {} |",
            e.name,
            e.op,
            e.when,
            e.how,
            knobs.join(", ")
        );
    }
    out.push_str(DECLINED);
    for r in REASONS {
        let _ = writeln!(out, "| `{}` | {} | {} |", r.name(), r.sentence(), check(r.mends()));
    }
    out.push_str(REDONE);
    for r in REDOS {
        let _ = writeln!(out, "| `{}` | {} | {} |", r.name(), r.sentence(), check(r.mends()));
    }
    out.push_str(WORKLOADS);
    out
}

fn check(id: Option<&str>) -> String {
    id.map(|id| format!("`{id}`")).unwrap_or_default()
}

const INTRODUCTION: &str = "\
# What runs where

<!-- Printed by `cargo run -p ggml-rocket --example routing`; a test compares. -->

The host asks about each operation before it computes a graph. What the plugin takes runs on the NPU,
everything else on the host's CPU backend, as without the plugin. The answer depends on the operation and
the settings alone and never changes while a process runs, unless the NPU keeps failing: then nothing is
taken any more. The names below are those of `ROCKET_STATS=1`, `ROCKET_REPORT` and the live counters.

## Routes

A product takes the first of these routes whose condition holds and whose precision its model allows.

";

const DECLINED: &str = "
## Why an operation stays on the CPU

What can be mended has the check that tells how: `rocketctl doctor --only CHECK`. The rest is as it should be.

| reason | in words | check |
|---|---|---|
";

const REDONE: &str = "
## Why the CPU does an operation after all

What was taken is redone by the host's own CPU backend, with the CPU's result, when:

| reason | in words | check |
|---|---|---|
";

const WORKLOADS: &str = "
## Settings by workload

| workload | settings |
|---|---|
| chat, short prompts | none |
| quantized model whose fp16 copy fits memory beside its file | none, but `-nr` (llama-bench: `--repack 0`), or the host packs weights for its CPU alone |
| quantized model whose fp16 copy does not fit | none: int8 copies where they fit, else as much as fits; `ROCKET_QUANT_INT8=0` for fp16 results at the price of decoding each micro-batch, then `-b 2048 -ub 2048` |
| mixture of experts | `-b 2048 -ub 2048`; the first prompt runs while experts are packed for the NPU, later starts take them from disk |
| long contexts | none; `-fa on` where the host does not choose it by itself |
| voice commands and other inputs of a few dozen rows | `ROCKET_MIN_M=16`, `OMP_WAIT_POLICY=PASSIVE` |
| pictures with llama.cpp's mtmd | `MTMD_BACKEND_DEVICE=ROCKET` |
| prefill only, such as embedding many documents | `taskset` to the big cores; not for chat, whose decoding uses all cores |

## What only a board can tell

Nobody has run this on silicon yet. The simulated board decides about numbers, layouts, traps and counts; it
cannot tell the row counts from which the NPU is faster (measured on a board, once: `ROCKET_CALIBRATE`),
whether attention pays at 1024 positions, at what memory pressure the kernel begins to stall, or whether
rounding on chip is as assumed (`ROCKET_VERIFY` compares the first product of each kind on a board).
";

#[cfg(test)]
mod tests {
    use super::*;
    use crate::knobs::KNOBS;
    use crate::route::{AttentionShape, ExpertsShape, Route};

    fn is_knob(name: &str) -> bool {
        KNOBS.iter().any(|k| k.name.strip_prefix(PREFIX) == Some(name))
    }

    #[test]
    fn the_page_is_printed_from_the_tables() {
        let stored = include_str!("../../../docs/routing.md");
        assert!(stored == markdown(), "docs/routing.md is stale: {COMMAND} > docs/routing.md");
        assert!(stored.contains(COMMAND));
    }

    /// Each route that the code has is an entry, each setting that an entry names exists.
    #[test]
    fn routes_and_settings_are_those_of_the_code() {
        let numerics = [
            Numerics::Fp16,
            Numerics::Bf16,
            Numerics::Int8(CODES),
            Numerics::Int4(CODES),
            Numerics::Native(CODES),
        ];
        let product = |numerics| Route::Product { numerics, m: 1, k: 1, n: 1, slices: 1 };
        let attention = Route::Attention(AttentionShape {
            streams: 1,
            heads: 1,
            kv_heads: 1,
            tokens: 1,
            n_kv: 1,
            key: 1,
            value: 1,
        });
        let shape = ExpertsShape { k: 1, n: 1, experts: 1, used: 1, tokens: 1, rows: 1 };
        let experts = [Numerics::Fp16, Numerics::Native(CODES)]
            .map(|numerics| Route::Experts { numerics, shape });
        let routes = numerics.map(product).into_iter().chain(experts).chain([
            attention,
            Route::Bias,
            Route::Copy,
        ]);
        let mut names: Vec<_> = routes.map(|r| r.name()).collect();
        let mut entries: Vec<_> = ENTRIES.iter().map(|e| e.name).collect();
        names.sort_unstable();
        entries.sort_unstable();
        assert_eq!(entries, names);
        for e in ENTRIES {
            assert!(e.knobs.iter().all(|k| is_knob(k)), "{e:?}");
        }
    }
}
