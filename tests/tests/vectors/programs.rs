//! Programs, chains and refusals, word by word.

use crate::Ran;
use crate::json::{File, list, number, u32_of, words};
use rocket_runtime::dtype::DType;
use rocket_runtime::program::matmul::bank_split;
use rocket_runtime::program::{Ew, MatmulTask, Operand, Reuse, Word, chain};
use serde_json::Value;

fn dtype(v: &Value) -> DType {
    let name = v["dtype"].as_str().expect("dtype");
    DType::from_name(name).unwrap_or_else(|| panic!("unknown dtype {name}"))
}

/// The task that a program or exec vector describes.
pub fn task(v: &Value) -> MatmulTask {
    let flags = &v["flags"];
    let op = match flags["ew"].as_str() {
        Some("add") => Some(Ew::Add),
        Some("mul") => Some(Ew::Mul),
        Some("max") => Some(Ew::Max),
        Some("min") => Some(Ew::Min),
        _ => None,
    };
    MatmulTask {
        dtype: dtype(v),
        m: u32_of(&v["M"]),
        k: u32_of(&v["K"]),
        n: u32_of(&v["N"]),
        input: u32_of(&v["dma"]["input"]),
        weights: u32_of(&v["dma"]["weights"]),
        output: u32_of(&v["dma"]["output"]),
        operand: op.map(|op| Operand { op, iova: u32_of(&v["dma"]["add"]) }),
        reuse: match (&flags["data_reuse"], &flags["weight_reuse"]) {
            (Value::Bool(true), _) => Reuse::Data,
            (_, Value::Bool(true)) => Reuse::Weights,
            _ => Reuse::None,
        },
    }
}

pub fn assert_words(ours: &[Word], theirs: &[u64], what: &dyn std::fmt::Display) {
    assert_eq!(ours.len(), theirs.len(), "{what}: length");
    for (i, (a, &b)) in ours.iter().zip(theirs).enumerate() {
        assert_eq!(*a, Word(b), "{what}: word {i}");
    }
}

pub fn program(file: &File) -> Ran {
    let t = task(&file.value);
    let ours = t.encode().unwrap_or_else(|e| panic!("{file}: refused: {e}"));
    assert_words(&ours, &file.words(), file);
    let (data, weight) = bank_split(t.dtype, t.m, t.k).expect("encodable");
    let derived = &file.value["derived"];
    assert_eq!((data, weight), (u32_of(&derived["data_bank"]), u32_of(&derived["weight_bank"])));
    Ran::new(format!("program {}", t.dtype.info().name), 1)
}

pub fn reject(file: &File) -> Ran {
    let cases = list(&file.value["cases"]);
    for case in cases {
        let refused = bank_split(dtype(case), u32_of(&case["M"]), u32_of(&case["K"]))
            .expect_err(&format!("{file}: {case} was accepted"));
        assert_eq!(
            i64::from(refused.code()),
            case["rc"].as_i64().expect("rc"),
            "{case}: {refused}"
        );
    }
    Ran::new("reject", cases.len())
}

pub fn chain(file: &File) -> Ran {
    let v = &file.value;
    let programs: Vec<_> = list(&v["segments"])
        .iter()
        .map(|s| {
            let at = |key: &str, default| s["opts"].get(key).map_or(default, u32_of);
            let accumulates = s["opts"].get("acc").is_some_and(|a| number(a) != 0);
            MatmulTask {
                dtype: dtype(s),
                m: u32_of(&s["M"]),
                k: u32_of(&s["K"]),
                n: u32_of(&s["N"]),
                input: at("i", 0x0010_0000),
                weights: at("w", 0x0040_0000),
                output: at("o", 0x0080_0000),
                operand: accumulates.then(|| Operand { op: Ew::Add, iova: at("add", 0) }),
                reuse: Reuse::None,
            }
            .encode()
            .expect("encodable")
        })
        .collect();
    let base = u32_of(&v["regcmd_iova"]);
    let linked = chain::link(&programs, base);
    assert_words(&linked, &file.words(), file);
    for (i, (task, links)) in list(&v["tasks"]).iter().zip(list(&v["links"])).enumerate() {
        let offset = i * chain::stride(126);
        assert_eq!(u32_of(&task["regcmd"]), base + offset as u32);
        assert_words(&linked[offset / 8 + 122..][..4], &words(links), file);
    }
    Ran::new("chain", programs.len())
}

pub fn chain_of_ops(file: &File) -> Ran {
    let (shape, dma) = (&file.value["shape"], &file.value["dma"]);
    let step = u32_of(&dma["per_task_step"]);
    let programs: Vec<_> = (0..u32_of(&shape["tasks"]))
        .map(|i| {
            MatmulTask {
                dtype: DType::Fp16,
                m: u32_of(&shape["m"]),
                k: u32_of(&shape["k"]),
                n: u32_of(&shape["n"]),
                input: u32_of(&dma["input"]),
                weights: u32_of(&dma["weights_base"]) + i * step,
                output: u32_of(&dma["output_base"]) + i * step,
                operand: None,
                reuse: Reuse::None,
            }
            .encode()
            .expect("encodable")
        })
        .collect();
    assert_words(&chain::link(&programs, u32_of(&dma["regcmd"])), &file.words(), file);
    Ran::new("chain", programs.len())
}
