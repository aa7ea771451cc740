//! Task sequences of whole GEMMs. Ours are the reference's, or better by a count.

use crate::Ran;
use crate::json::{File, list, number, u32_of, usize_of};
use rocket_runtime::plan::jobs::Tile;
use rocket_runtime::plan::{Sequence, Shape, Summation};
use rocket_runtime::program::Reuse;
use serde_json::Value;

/// A reference task: extents and reuse, with operand offsets turned into tile identities.
struct Theirs {
    extent: Shape,
    reuse: Reuse,
    input: u64,
    weights: u64,
    output: u64,
    add: Option<u64>,
}

fn theirs(t: &Value) -> Theirs {
    let flag = |key: &str| number(&t[key]) != 0;
    Theirs {
        extent: Shape { m: usize_of(&t["M"]), k: usize_of(&t["K"]), n: usize_of(&t["N"]) },
        reuse: match (flag("dreuse"), flag("wreuse")) {
            (true, _) => Reuse::Data,
            (_, true) => Reuse::Weights,
            _ => Reuse::None,
        },
        input: number(&t["in"]),
        weights: number(&t["wt"]),
        output: number(&t["out"]),
        add: flag("acc").then(|| number(&t["add"])),
    }
}

fn fetched(t: &Theirs) -> u64 {
    let rows = match t.reuse {
        Reuse::None => t.extent.m + t.extent.n,
        Reuse::Data => t.extent.n,
        Reuse::Weights => t.extent.m,
    };
    (rows * t.extent.k * 2) as u64
}

pub fn jobs(file: &File) -> Ran {
    let v = &file.value;
    let all: Vec<Vec<Theirs>> =
        list(&v["jobs"]).iter().map(|j| list(&j["tasks"]).iter().map(theirs).collect()).collect();
    let cases = all.iter().map(Vec::len).sum();
    let dtype = file.text("dtype").expect("dtype");
    if dtype != "fp16" {
        // No driver for these types yet; their plans and programs are compared elsewhere.
        return Ran::new(format!("jobs {dtype} (read only)"), cases);
    }
    let shape = Shape {
        m: u32_of(&v["M"]) as usize,
        k: u32_of(&v["K"]) as usize,
        n: u32_of(&v["N"]) as usize,
    };
    let ours = Sequence::new(shape, Summation::OnChip).expect("plans");
    if equal(&ours, &all) {
        return Ran::new("jobs fp16", cases);
    }
    // Not equal: then it must move fewer bytes, both into the CBUF and back to the host. The
    // one known case is a short last M tile, which the reference sums on the host without reuse.
    let their_bytes: u64 = all.iter().flatten().map(fetched).sum();
    let their_readback: u64 = all
        .iter()
        .flatten()
        .filter(|t| t.add.is_none())
        .map(|t| (t.extent.m * t.extent.n * 2) as u64)
        .sum();
    println!(
        "  {file}: fetches {} bytes (reference {their_bytes}), reads back {} ({their_readback})",
        ours.fetched_bytes(),
        ours.readback_bytes()
    );
    assert!(ours.fetched_bytes() < their_bytes && ours.readback_bytes() < their_readback, "{file}");
    Ran::new("jobs fp16", cases)
}

/// Same jobs, extents and reuse bits; the same tiles wherever an operand offset repeats; each
/// accumulating task reads what the same tile of the step before wrote.
fn equal(ours: &Sequence, theirs: &[Vec<Theirs>]) -> bool {
    let jobs: Vec<&[Tile]> = ours.jobs().map(|j| j.tiles.as_slice()).collect();
    if jobs.len() != theirs.len() {
        return false;
    }
    let mut names = std::collections::HashMap::new();
    let mut places = std::collections::HashMap::new();
    let mut last_output = std::collections::HashMap::new();
    for (a, b) in jobs.iter().zip(theirs) {
        if a.len() != b.len() {
            return false;
        }
        for (t, r) in a.iter().zip(b) {
            let [mi, ki, ni] = t.at;
            let same_operand = *names.entry(("in", r.input)).or_insert((mi, ki)) == (mi, ki)
                && *names.entry(("wt", r.weights)).or_insert((ni, ki)) == (ni, ki)
                // And the other way: one tile is one place.
                && *places.entry(("in", mi, ki)).or_insert(r.input) == r.input
                && *places.entry(("wt", ni, ki)).or_insert(r.weights) == r.weights;
            let before = last_output.insert((mi, ni), r.output);
            if t.extent != r.extent || t.reuse != r.reuse || !same_operand || before != r.add {
                return false;
            }
        }
    }
    true
}
