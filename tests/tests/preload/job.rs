//! Files for `node`: a register program, its operands and what it stores.

use half::f16;
use rocket_runtime::dtype::DType;
use rocket_runtime::program::{Ew, MatmulTask, Operand, Reuse};
use serde_json::Value;
use std::path::{Path, PathBuf};

/// A program with the addresses it was made for.
pub struct Job {
    pub name: String,
    task: MatmulTask,
    words: Vec<u64>,
    /// Input, weights, perhaps the elementwise operand, and last the output with its result.
    areas: Vec<(u32, Vec<u8>)>,
}

/// Every row of ones against every column of twos: 32 products of 2, whatever the layout.
pub fn constant() -> Job {
    let task = MatmulTask {
        dtype: DType::Fp16,
        m: 4,
        k: 32,
        n: 16,
        input: 0x1000,
        weights: 0x2000,
        output: 0x3000,
        operand: None,
        reuse: Reuse::None,
    };
    let of = |value: f32, count: usize| f16::from_f32(value).to_le_bytes().repeat(count);
    Job {
        name: "constant".to_owned(),
        words: words(&task),
        areas: vec![
            (task.input, of(1.0, 4 * 32)),
            (task.weights, of(2.0, 32 * 16)),
            (task.output, of(64.0, 4 * 16)),
        ],
        task,
    }
}

fn words(task: &MatmulTask) -> Vec<u64> {
    task.encode().expect("encodable").iter().map(|w| w.0).collect()
}

/// The golden vectors of whole matrix products, if they are beside this clone.
pub fn vectors() -> Vec<Job> {
    let named = std::env::var_os("ROCKET_VECTORS").filter(|v| !v.is_empty()).map(PathBuf::from);
    let beside = Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../../shared/vectors"));
    let folder = named.unwrap_or_else(|| beside.to_owned()).join("rk3588-matmul");
    let Ok(entries) = std::fs::read_dir(folder) else { return Vec::new() };
    let mut paths: Vec<PathBuf> = entries.map(|e| e.expect("an entry").path()).collect();
    paths.retain(|p| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("exec-")));
    paths.sort();
    paths.iter().map(|p| vector(p)).collect()
}

fn number(v: &Value) -> u32 {
    match v {
        Value::String(s) => u32::from_str_radix(s.trim_start_matches("0x"), 16).expect("hex"),
        other => u32::try_from(other.as_u64().expect("a number")).expect("32 bits"),
    }
}

fn vector(path: &Path) -> Job {
    let name = path.file_stem().expect("a name").to_string_lossy().into_owned();
    let v: Value =
        serde_json::from_slice(&std::fs::read(path).expect("readable")).expect("a vector");
    let ew = match v["flags"]["ew"].as_str() {
        Some("add") => Some(Ew::Add),
        Some("mul") => Some(Ew::Mul),
        Some("max") => Some(Ew::Max),
        Some("min") => Some(Ew::Min),
        _ => None,
    };
    let [m, k, n] = ["M", "K", "N"].map(|key| number(&v[key]));
    let dma = |key: &str| number(&v["dma"][key]);
    let dtype = DType::from_name(v["dtype"].as_str().expect("a type")).expect("known");
    let task = MatmulTask {
        dtype,
        m,
        k,
        n,
        input: dma("input"),
        weights: dma("weights"),
        output: dma("output"),
        operand: ew.map(|op| Operand { op, iova: dma("add") }),
        reuse: Reuse::None,
    };
    let areas = ["input", "weights", "add", "output"].into_iter().filter_map(|key| {
        let area = &v["memory"][key];
        let hex = area["hex"].as_str()?;
        let byte = |i| u8::from_str_radix(&hex[i..i + 2], 16).expect("hex");
        Some((number(&area["iova"]), (0..hex.len()).step_by(2).map(byte).collect()))
    });
    let word = |w: &Value| {
        u64::from_str_radix(w.as_str().expect("hex").trim_start_matches("0x"), 16).expect("hex")
    };
    Job {
        name,
        areas: areas.collect(),
        words: v["words"].as_array().expect("words").iter().map(word).collect(),
        task,
    }
}

impl Job {
    /// Words whose value is an address in an area: those that change as it moves.
    fn patches(&self) -> Vec<(usize, usize)> {
        let here = words(&self.task);
        (0..self.areas.len())
            .flat_map(|area| {
                const FAR: u32 = 0x0100_0000;
                let mut t = self.task;
                match (area, &mut t.operand) {
                    (0, _) => t.input += FAR,
                    (1, _) => t.weights += FAR,
                    (2, Some(operand)) => operand.iova += FAR,
                    _ => t.output += FAR,
                }
                let moved = words(&t);
                let differ = here.iter().zip(&moved).enumerate().filter(|(_, (a, b))| a != b);
                let at: Vec<_> = differ.map(|(i, (a, b))| (i, b - a)).collect();
                assert!(!at.is_empty(), "area {area} has no address");
                assert!(at.iter().all(|(_, by)| *by == u64::from(FAR) << 16));
                at.into_iter().map(move |(word, _)| (word, area))
            })
            .collect()
    }

    /// Writes the file as `struct head` of node.c has it.
    pub fn write(&self, folder: &Path) -> PathBuf {
        let patches = self.patches();
        let mut bytes = b"RKTJOB1\0".to_vec();
        let counts = [self.words.len(), patches.len(), self.areas.len(), self.areas.len() - 1];
        let pairs = self.areas.iter().map(|(iova, data)| [*iova as usize, data.len()]);
        let numbers = |list: &[usize]| -> Vec<u8> {
            list.iter().flat_map(|n| (*n as u32).to_le_bytes()).collect()
        };
        bytes.extend(numbers(&counts));
        bytes.extend(numbers(pairs.flatten().collect::<Vec<_>>().as_slice()));
        bytes.extend(self.words.iter().flat_map(|w| w.to_le_bytes()));
        bytes.extend(patches.iter().flat_map(|(word, area)| numbers(&[*word, *area])));
        self.areas.iter().for_each(|(_, data)| bytes.extend(data));
        let path = folder.join(format!("{}.job", self.name));
        std::fs::write(&path, bytes).expect("writes");
        path
    }
}
