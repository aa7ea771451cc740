//! Golden vectors: every file of the vectors folder is run, by its schema or op, whatever its
//! name. Programs of a driver proven on silicon must be our programs to the word; layouts and
//! plans must be equal; the simulator must store the bytes they list.
//!
//! The folder comes from `ROCKET_VECTORS`, default `../shared/vectors` beside the repository. A
//! clone without it skips these tests (snapshots of our own programs guard them then); a
//! variable that names an unreadable folder fails.

mod bench;
mod charge;
mod conv;
mod exec;
mod json;
mod passes;
mod programs;
mod reference;
mod refused;
mod shapes;
mod structure;

use json::File;
use std::collections::BTreeMap;
use std::path::PathBuf;

/// What one file proved: a kind to count it under, and how many cases it held.
struct Ran {
    kind: String,
    cases: usize,
}

impl Ran {
    fn new(kind: impl Into<String>, cases: usize) -> Ran {
        Ran { kind: kind.into(), cases }
    }
}

fn folder() -> Option<PathBuf> {
    if let Some(dir) = std::env::var_os("ROCKET_VECTORS").filter(|v| !v.is_empty()) {
        let dir = PathBuf::from(dir);
        assert!(dir.is_dir(), "ROCKET_VECTORS names {dir:?}, which is not a readable folder");
        return Some(dir);
    }
    let dir = PathBuf::from(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/vectors"));
    dir.is_dir().then_some(dir)
}

/// Every file by its own words: the schema, or the op of the ops folder.
fn run(file: &File, files: &[File]) -> Ran {
    match (file.text("schema"), file.text("kind"), file.text("op")) {
        (Some("rk3588-regcmd/1"), Some("program"), _) => programs::program(file),
        (Some("rk3588-regcmd/1"), Some("reject"), _) => programs::reject(file),
        (Some("rk3588-regcmd/1"), Some("conv"), _)
            if file.text("dtype") == Some("int8") && file.value["depthwise"] == true =>
        {
            structure::and(file, conv::requant)
        }
        (Some("rk3588-regcmd/1"), Some("conv"), _) => structure::and(file, conv::exact),
        (Some("rk3588-regcmd/1"), Some("pool"), _) => structure::and(file, passes::pool),
        (Some("rk3588-regcmd/1"), Some("lut"), _) => structure::and(file, passes::lookup),
        (Some("rk3588-chain/1"), ..) => programs::chain(file),
        (Some("rk3588-layout/1"), ..) => shapes::layout(file),
        (Some("rk3588-plan/1"), ..) => shapes::plan(file),
        (Some("rk3588-jobs/1"), ..) => reference::jobs(file),
        (Some("rk3588-exec/1"), Some("exec"), _) => exec::exec(file),
        (Some("rk3588-exec/1"), Some("saturation"), _) => exec::saturation(file),
        (Some("rk3576-vec/1"), Some(kind), _) => structure::later(file, &format!("rk3576 {kind}")),
        (_, _, Some("chained_regcmd")) => programs::chain_of_ops(file),
        (_, _, Some(op @ ("eltwise_add" | "eltwise_mul" | "eltwise_max"))) => {
            exec::elementwise(file, op)
        }
        (_, _, Some("conv2d_fp16" | "conv2d_dw_fp16" | "conv2d_int8_direct_int32_out")) => {
            structure::and(file, conv::exact)
        }
        (_, _, Some("conv2d_act_fp16")) => structure::and(file, conv::fused),
        (_, _, Some("conv2d_dw_int8_requant")) => structure::and(file, conv::requant),
        (_, _, Some("conv2d_dw_int8_requant_hardware_samples")) => {
            let sibling = files.iter().find(|f| f.text("op") == Some("conv2d_dw_int8_requant"));
            conv::measured(file, sibling.expect("the program of the samples"))
        }
        (_, _, Some("pool_max_fp16" | "pool_avg_fp16")) => structure::and(file, passes::pool),
        (_, _, Some("dpu_lut")) => structure::and(file, passes::lookup),
        (schema, kind, op) => panic!("{file}: unknown schema {schema:?}, kind {kind:?}, op {op:?}"),
    }
}

#[test]
fn vectors_every_file_is_run() {
    let Some(dir) = folder() else {
        println!("no vectors beside this clone: skipped");
        return;
    };
    let files = json::files_below(&dir);
    let mut table: BTreeMap<String, (usize, usize)> = BTreeMap::new();
    for file in &files {
        let ran = run(file, &files);
        let entry = table.entry(ran.kind).or_default();
        *entry = (entry.0 + 1, entry.1 + ran.cases);
    }
    println!("{} vector files below {}", files.len(), dir.display());
    for (kind, (files, cases)) in &table {
        println!("  {kind:<36} {files:>3} files {cases:>6} cases");
    }
    // A folder that lost files, or a kind that stopped being run, must not pass in silence.
    for (kind, least_files, least_cases) in [
        ("program fp16", 15, 15),
        ("program fp16_f32out", 2, 2),
        ("program int8", 5, 5),
        ("chain", 2, 6),
        ("reject", 1, 11),
        ("layout fp16", 1, 252),
        ("plan", 1, 143),
        ("jobs fp16", 3, 50),
        ("jobs bf16", 1, 12),
        ("jobs int4", 1, 8),
        ("jobs int8", 1, 12),
        ("jobs tf32", 1, 1),
        ("exec fp16", 7, 2000),
        ("exec fp16_f32out", 2, 400),
        ("exec bf16", 2, 448),
        ("exec int4", 2, 1280),
        ("exec int8", 2, 640),
        ("exec int8_f32out", 1, 128),
        ("exec tf32", 2, 320),
        ("saturation", 1, 7),
        ("elementwise", 3, 1536),
        ("conv", 7, 10_176),
        ("conv depthwise", 2, 13_312),
        ("conv depthwise int8", 2, 8192),
        ("measured requantisation", 1, 78),
        ("conv with look-up", 1, 512),
        ("pool max", 3, 1184),
        ("pool average", 2, 384),
        ("look-up", 7, 835),
        ("look-up sigmoid", 1, 128),
    ] {
        let (files, cases) = table.get(kind).copied().unwrap_or_default();
        assert!(
            files >= least_files && cases >= least_cases,
            "{kind}: {files} files and {cases} cases; at least {least_files} and {least_cases} expected"
        );
    }
}
