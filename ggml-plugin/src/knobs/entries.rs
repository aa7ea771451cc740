//! Every variable. Names and meanings of the groups from Operating to Diagnostics are the
//! reference's (ggml-plugin-behaviour 10); defaults that differ from its say why.

use super::table::{Group, Kind, Knob, MAX_MB, Status};

/// Smallest row count that is ever accepted: below it even batched decode is slower on the NPU
/// (ggml-plugin-behaviour 3.5).
pub const MIN_M_FLOOR: u64 = 8;
const MAX_ROWS: u64 = 1 << 20;

const MB: Kind = Kind::Int { min: 0, max: MAX_MB };
const AUTO_OR_MB: Kind = Kind::IntOr { word: "auto", min: 0, max: MAX_MB };
const ROWS: Kind = Kind::Int { min: MIN_M_FLOOR, max: MAX_ROWS };

macro_rules! knobs {
    (@status) => { Status::Now };
    (@status $why:literal) => { Status::Later($why) };
    ($($group:ident { $($id:ident: $kind:expr, $default:literal $(, later $why:literal)?, $help:literal;)* })*) => {
        $($(
            pub(super) const $id: Knob = Knob {
                name: concat!("ROCKET_", stringify!($id)),
                kind: $kind,
                default: $default,
                help: $help,
                group: Group::$group,
                status: knobs!(@status $($why)?),
            };
        )*)*
        /// The table.
        pub const KNOBS: &[Knob] = &[$($($id,)*)*];
    };
}

use Kind::{Cores, Flag, Folder, Int, IntOr, Name, Path, Presence, Real, Residency, Word};

#[rustfmt::skip]
knobs! {
    Plugin {
        DEVICE: Word(&["sim", "none"]), "", "which NPU to use: unset for the board's own, sim for a simulated one, none for no NPU";
        STATS: Flag, "0", "print routes, times, CPU redos and decline reasons to stderr when a context ends";
        COUNTERS: Folder, "1", "live counters for tools: 1 in the first of /run/rocket, $XDG_RUNTIME_DIR/rocket and /dev/shm that takes them, 0 for none, or in this folder";
        REPORT: Path, "", "write a JSON report of every op to this file when a context ends";
        CONFIG: Path, "", "configuration file; unset for the first that exists of the user's and the system's, none for no file";
        PROFILE: Name, "", "profile of the configuration file to apply, besides those whose model pattern matches";
        VERIFY: Word(&["auto", "0", "1"]), "auto", "check the first product of each weight type and shape class against the CPU; auto does so on a real board only";
        CALIBRATE: Word(&["auto", "0", "1", "force"]), "auto", "measure from how many rows the NPU is faster: auto once on a real board, 0 never, 1 on any board, force again although it was measured";
        ABI: Word(&["adapt"]), "", "adapt to work with an unknown ggml interface if all its probes agree, at your own risk";
    }
    Operating {
        N_THREADS: Int { min: 1, max: 8 }, "5", "worker files opened on the NPU node; each feeds one core at a time";
        CPU_AFFINITY: Cores, "auto", "CPUs that workers and decoding threads run on: auto for the big cores, off for any";
        WAIT_MS: Int { min: 100, max: 600_000 }, "8000", later "choosing how long to wait, which follows from the jobs", "milliseconds to wait for a job before it counts as lost";
        LOG_STDERR: Flag, "0", "copy the plugin's lines to stderr, for hosts that mute their log";
        LOG_LEVEL: Word(&["error", "warn", "info", "debug"]), "info", "least important lines that are still written";
        KACC: Flag, "1", later "choosing where partial sums are added", "add partial sums along K on the NPU in fp16; 0 adds them on the CPU in fp32";
        NO_KACC: Flag, "0", later "choosing where partial sums are added", "the same as ROCKET_KACC=0";
        REUSE: Int { min: 0, max: 2 }, "2", later "choosing what the NPU reuses", "operand kept on chip between tasks: 0 none, 1 weights, 2 activations";
        MM_ASYM: Flag, "1", later "choosing the shape of tiles", "tiles of unequal height and width";
    }
    Routing {
        // The floor is above the reference's 4: beam search with 5 rows lost 1.40x (3.5).
        MIN_M: ROWS, "32", "rows (tokens of a micro-batch) from which a product with F16, F32 or BF16 weights runs on the NPU";
        // The reference's 512 pays a decode per micro-batch; resident weights do not.
        MIN_M_QUANT: ROWS, "128", "the same for quantized weights, not below ROCKET_MIN_M";
        DEQUANT_THREADS: IntOr { word: "auto", min: 1, max: 64 }, "auto", "threads that convert activations; weights are decoded by the workers of ROCKET_N_THREADS; auto for as many as there are big cores";
        NO_PREPACK: Flag, "0", "keep no weight resident: every product packs its weights again";
        NO_FUSE: Flag, "0", "do not run products that share an activation together, as Q, K and V or gate and up";
        NO_STREAM: Flag, "0", later "choosing how streamed weights are packed", "use no persistent buffers for streamed weights";
        FORCE_PREPACK: Flag, "0", later "choosing residency by K", "keep F16 weights of any K resident";
        BF16: Flag, "0", "multiply unquantized weights in bf16, for models whose activations or results leave the range of F16";
        INT8: Flag, "0", "multiply unquantized weights in int8 with a scale for each row of either operand: half the memory of F16, less exact";
        INT8_HADAMARD: Flag, "0", "rotate both operands along K before rounding to int8";
        INT8_RESIDENT: Flag, "0", later "a switch of their own: they are resident within ROCKET_F16_RESIDENT", "keep int8 weights on the NPU only";
        INT4: Flag, "0", "multiply unquantized weights in int4: a quarter of the memory of F16, far less exact";
        INT4_RESIDENT: Flag, "0", later "a switch of their own: they are resident within ROCKET_F16_RESIDENT", "keep int4 weights on the NPU only";
        INT4_GROUP: Int { min: 0, max: 1 << 16 }, "128", "elements of K that share a scale; 0 for one scale per channel";
        QUANT_INT8: Word(&["auto", "0", "1"]), "auto", "multiply quantized weights in int8 with a scale for each group of K, which takes half the memory of F16: auto where F16 copies of all do not fit the budget and int8 ones do, 1 always, 0 never";
        INT4_HADAMARD: Flag, "1", "rotate both operands along K before rounding to int4";
    }
    Memory {
        CACHE_MB: MB, "", "megabytes of packed weights kept resident, 0 for no limit; unset for what memory allows";
        // Off in the reference, where it had to be asked for; the budget is ours to find.
        QUANT_RESIDENT: Residency, "auto", "keep quantized weights resident: auto or 1 within the budget, 0 not at all, or at most so many megabytes";
        F16_RESIDENT: Residency, "auto", "keep F16 and F32 weights resident: auto or 1 within the budget, 0 not at all, or at most so many megabytes";
        QUANT_RESIDENT_RESERVE_MB: AUTO_OR_MB, "auto", "megabytes of available memory left to everything else; auto for 25 % of RAM, at least 1024";
        INT8_CACHE_MB: MB, "4096", later "a budget for one format: ROCKET_CACHE_MB holds for all", "megabytes of int8 weights, 0 for no limit";
        INT4_CACHE_MB: MB, "4096", later "a budget for one format: ROCKET_CACHE_MB holds for all", "megabytes of int4 weights, 0 for no limit";
        BF16_CACHE_MB: MB, "", later "a budget for one format: ROCKET_CACHE_MB holds for all", "megabytes of decoded bf16 weights, 0 for no limit";
        DEQUANT_CACHE_MB: MB, "", later "experiments with decoded copies", "megabytes of decoded weights kept on the host, 0 for no limit";
        PREPACK_MADVISE: Flag, "0", later "giving back the file's pages", "drop the pages of a weight's file once it is resident; decode then reads them again";
    }
    Experts {
        MOE: Word(&["auto", "0", "1"]), "auto", "products with experts on the NPU: auto where it pays and the whole stack may stay, 1 always, 0 never";
        MOE_NATIVE: Flag, "1", "keep experts as int8 codes; with 0 they are in fp16, and only ROCKET_MOE=1 takes them";
        MOE_MIN_TOKENS: ROWS, "512", "tokens of a micro-batch from which experts run on the NPU";
        MOE_MIN_WORK: Int { min: 0, max: 1 << 20 }, "340", "millions of multiply-adds per expert from which it runs on the NPU; 0 for no limit";
        MOE_M_BUCKET: Int { min: 4, max: 4096 }, "64", "rows that an expert gets on average from which experts run on the NPU";
        MOE_GROUP: IntOr { word: "auto", min: 32, max: 1 << 16 }, "auto", "elements of K that share a scale";
        MOE_CACHE_MB: AUTO_OR_MB, "auto", "megabytes that whole stacks of experts may take, their part of the model file included, 0 for no limit; auto for the memory that is available, less 6144";
        MOE_WAIT: Flag, "0", "wait while experts are packed instead of computing on the CPU meanwhile";
        PACKED_DIR: Folder, "1", "keep packed experts for the next start: 1 in rocket-npu/packed of the user's cache, 0 not at all, or in this folder";
        PACKED_MB: AUTO_OR_MB, "auto", "megabytes of the disk that packed experts may take, 0 for no limit; auto for half of what is free";
        MOE_CHARGE_ALL_SOURCE: Flag, "0", later "charging a file for what is not used of it", "charge the whole mapped file once";
        MOE_COSINE: Flag, "0", later "this diagnostic: ROCKET_VERIFY compares the first of each kind", "compare one expert of each op with the CPU";
    }
    Attention {
        FLASH_ATTN: Flag, "1", "run flash attention on the NPU; the host must use it (llama.cpp: -fa on)";
        FLASH_ATTN_MIN_KV: Int { min: 1, max: MAX_ROWS }, "1024", "positions of the context from which flash attention runs on the NPU";
        FLASH_ATTN_MIN_T: Int { min: 1, max: MAX_ROWS }, "16", "tokens of a micro-batch from which flash attention runs on the NPU";
        FLASH_ATTN_UNMASKED: Flag, "0", "take flash attention without a mask as well, as encoders have it";
        FLASH_ATTN_NO_CTX: Flag, "0", later "choosing how attention keeps its buffers", "set everything up again for each call";
        FA_CHAIN: Flag, "1", later "choosing how heads are submitted", "submit several heads as one job";
        FA_QSCALE: Flag, "1", later "choosing where the scale is applied, which is where nothing overflows", "multiply Q by the scale before the product";
        FA_THREADS: Int { min: 1, max: 64 }, "1", later "threads of attention beside the workers of ROCKET_N_THREADS", "threads that gather and scatter heads";
        ATTN_HOST_SOFTMAX: Flag, "1", later "a softmax on the NPU", "compute the softmax on the CPU";
    }
    Rk3576 {
        RK3576_NCAL: Int { min: 1, max: 1000 }, "2", later "the RK3576", "products that calibrate a weight";
        RK3576_CALSAFE: Real { min: 1.0, max: 1000.0 }, "3", later "the RK3576", "safety divisor of calibrated scales";
        RK3576_BOOTMARGIN: Real { min: 1.0, max: 1000.0 }, "1.5", later "the RK3576", "slack while calibrating";
        RK3576_AROW: Int { min: 0, max: 2 }, "0", later "the RK3576", "activation scales: 0 one, 1 per row, 2 per row for split weights";
        RK3576_KSPLIT: Flag, "0", later "the RK3576", "split a large K";
        RK3576_KCHUNK: IntOr { word: "auto", min: 32, max: 1 << 16 }, "auto", later "the RK3576", "preferred part of a split K";
        RK3576_FORCESPLIT: Flag, "0", later "the RK3576", "split K even where it fits";
        RK3576_WSA: Flag, "1", later "the RK3576", "keep column sums of weights";
        RK3576_WDEV: Flag, "1", later "the RK3576", "keep a calibrated weight on the NPU";
        RK3576_CALSCAN: Int { min: 0, max: 2 }, "2", later "the RK3576", "form of the scan over columns";
        RK3576_CALROWS: Int { min: 0, max: MAX_ROWS }, "0", later "the RK3576", "rows looked at in the first pass, 0 for all";
        RK3576_CALMAP: Path, "", later "the RK3576", "write each column's calibration to this file";
        RK3576_PROF_CVT16: Flag, "0", later "the RK3576", "price a conversion to fp16";
    }
    Diagnostics {
        DEBUG: Presence, "", "write debug lines, as ROCKET_LOG_LEVEL=debug does";
        DEBUG_GRAPH: Presence, "", later "this diagnostic", "a line for each part of a graph";
        MM_PROFILE: Presence, "", later "this diagnostic", "time of each phase of products at exit";
        FA_TIMING: Presence, "", later "this diagnostic", "time of each phase of attention";
        FA_CHECKSUM: Int { min: 0, max: 3 }, "0", later "this diagnostic", "checksums of attention's operands";
        FA_DUMP_OP: Name, "", later "this diagnostic", "attention op whose operands are written to files";
        FA_DUMP_DIR: Path, "", later "this diagnostic", "folder of those files";
        CPU_FORWARD: Flag, "0", later "this diagnostic", "compute accepted ops on the CPU";
        TRACE: Flag, "0", later "this diagnostic", "a line for each op";
        AB: Presence, "", later "this diagnostic", "compare two ways of computing an op";
        DUMP: Presence, "", later "this diagnostic", "write operands to files";
    }
}
