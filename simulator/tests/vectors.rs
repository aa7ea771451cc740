//! Golden vectors (npu-rk3588 Appendix D) through the Node interface.

#![allow(clippy::unwrap_used)]

mod common;

use common::*;
use rocket_runtime::device::JobRef;
use rocket_runtime::uapi::{JOB_BATCHED, Task};
use rocket_sim::{Arithmetic, Config, DriverProfile};

fn unhex(v: &serde_json::Value) -> Vec<u8> {
    let s = v.as_str().unwrap().as_bytes();
    let digit = |c: u8| (c as char).to_digit(16).unwrap() as u8;
    s.chunks(2).map(|p| digit(p[0]) << 4 | digit(p[1])).collect()
}

#[test]
fn exec_vectors_to_the_byte() {
    let Some(dir) = vectors() else { return };
    let found = files(&dir, "exec-fp16");
    assert_eq!(found.len(), 9);
    for arithmetic in [Arithmetic::Exact, Arithmetic::Fast] {
        for path in &found {
            let v = json(path);
            let rig = Rig::new(Config { arithmetic, ..Config::default() });
            // A guard, so that no buffer lies at address zero and a forgotten patch shows.
            let _guard = rig.buf(5 * 4096);
            let memory = &v["memory"];
            let input = rig.with(&unhex(&memory["input"]["hex"]));
            let weights = rig.with(&unhex(&memory["weights"]["hex"]));
            let want = unhex(&memory["output"]["hex"]);
            let output = rig.with(&vec![SENTINEL; want.len()]);
            let mut words = words_of(&v);
            set(&mut words, FEATURE, input.iova());
            set(&mut words, WEIGHTS, weights.iova());
            set(&mut words, DST, output.iova());
            let mut reads = vec![&input, &weights];
            let operand = memory["add"]["hex"].is_string().then(|| {
                let add = rig.with(&unhex(&memory["add"]["hex"]));
                let old = hex(&v["dma"]["add"]) as u32;
                for reg in [SRC, EW] {
                    let offset = get(&words, reg) - old;
                    set(&mut words, reg, add.iova() + offset);
                }
                add
            });
            reads.extend(&operand);
            let program = rig.words(&words);
            reads.push(&program);
            rig.submit(&[task(&program, words.len())], &reads, &[&output]).unwrap();
            rig.wait(&output);
            assert_eq!(rig.board.explanations(), [], "{}", path.display());
            assert!(output.take(0, want.len()) == want, "{arithmetic:?} {}", path.display());
        }
    }
}

#[test]
fn encoder_of_these_tests_matches_vectors() {
    let Some(dir) = vectors() else { return };
    let found = files(&dir, "prog-fp16");
    assert!(found.len() > 10);
    for path in found {
        let v = json(&path);
        let size = |name: &str| v[name].as_u64().unwrap() as u32;
        let flag = |name: &str| v["flags"][name].as_bool().unwrap();
        let shape = Shape {
            m: size("M"),
            k: size("K"),
            n: size("N"),
            wide: v["out_type"] == "fp32",
            ew: match v["flags"]["ew"].as_str() {
                Some("add") => Some(EW_ADD),
                Some("mul") => Some(EW_MUL),
                Some("max") => Some(EW_MAX),
                Some("min") => Some(EW_MIN),
                _ => None,
            },
            data_reuse: flag("data_reuse"),
            weight_reuse: flag("weight_reuse"),
        };
        let dma =
            |name: &str| if v["dma"][name].is_null() { 0 } else { hex(&v["dma"][name]) as u32 };
        let addr = ["input", "weights", "output", "add"].map(dma);
        assert_eq!(encode(&shape, addr), words_of(&v), "{}", path.display());
    }
}

#[test]
fn chain_vectors_run_as_one_kick() {
    let Some(dir) = vectors() else { return };
    let v = json(&dir.join("chain-3xfp16.json"));
    let profile = DriverProfile::V1_1;
    let rig = Rig::new(Config { profile, ..Config::default() });
    let s = Shape::new(64, 256, 128);
    let mut words = words_of(&v);
    let count = words.len() / 3;
    assert_eq!(count, 126);
    let setups: Vec<Setup> = (0..3).map(|_| Setup::new(&rig, s)).collect();
    let (b0, b1) = (&setups[0].output, &setups[1].output);
    let program = rig.buf(words.len() * 8);
    let base = hex(&v["regcmd_iova"]) as u32;
    for (i, segment) in words.chunks_mut(count).enumerate() {
        set(segment, FEATURE, setups[i].input.iova());
        set(segment, WEIGHTS, setups[i].weights.iova());
        let (to, from) = if i % 2 == 0 { (b0, b1) } else { (b1, b0) };
        set(segment, DST, to.iova());
        if i > 0 {
            set(segment, SRC, from.iova());
            set(segment, EW, from.iova() + 16 * 64);
        }
        if i < 2 {
            // The link moves with the buffer.
            let link = (segment[count - 4] >> 16) as u32 - base + program.iova();
            segment[count - 4] = word(0x10, link);
        }
    }
    program.put(0, bytemuck::cast_slice(&words));
    rig.node.fini_bo(program.handle()).unwrap();
    let tasks: Vec<Task> =
        (0..3).map(|i| Task { regcmd: program.iova() + i * 1008, regcmd_count: 126 }).collect();
    let mut reads: Vec<u32> =
        setups.iter().flat_map(|s| [s.input.handle(), s.weights.handle()]).collect();
    reads.push(program.handle());
    let writes = [b0.handle(), b1.handle()];
    let job = JobRef { tasks: &tasks, reads: &reads, writes: &writes, flags: JOB_BATCHED };
    rig.node.submit(&[job]).unwrap();
    rig.wait(b0);
    assert_eq!(rig.board.explanations(), []);
    let c = rig.board.counters();
    assert_eq!((c.kicks, c.tasks, c.jobs), (1, 3, 1));
    assert_eq!(c.dma_read_regcmd, 3 * 126 * 8);
    assert_eq!(c.macs, 3 * 64 * 256 * 128);
    let one = setups[0].expected();
    let three: Vec<f32> = one.iter().map(|x| 3.0 * x).collect();
    assert_eq!(unpack(&b0.take(0, 64 * 128 * 2), 64, 128, false), three);
}
