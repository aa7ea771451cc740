//! Counters as others see them: by the functions that a program finds, and by the file.

use super::*;
use rocket_runtime::telemetry::{Life, Place, Row, Snapshot, scan};
use std::path::Path;

type RouteOps = extern "C" fn(*const c_char) -> u64;
type Fallbacks = extern "C" fn() -> u64;

/// The two functions, found as a program finds them.
fn functions(p: &Plugin) -> (RouteOps, Fallbacks) {
    let find = |name: &CStr| {
        let address = slot!(p.records().reg, 4, fn(*const c_char) -> usize, name.as_ptr());
        assert_ne!(address, 0, "{name:?}");
        address
    };
    let (ops, cpu) =
        (find(c"ggml_backend_rocket_route_ops"), find(c"ggml_backend_rocket_cpu_fallbacks"));
    // SAFETY: the prototypes of docs/using.md.
    unsafe {
        (std::mem::transmute::<usize, RouteOps>(ops), std::mem::transmute::<usize, Fallbacks>(cpu))
    }
}

#[test]
fn route_counters_by_their_address() {
    let p = with_engine(TestEngine::Reference);
    let (ops, cpu) = functions(p);
    let counts = || [ptr::null(), c"fp16".as_ptr(), c"cpu".as_ptr(), c"".as_ptr()].map(|r| ops(r));
    assert_eq!((counts(), cpu()), ([0; 4], 0));
    let mut g = [product("a"), product("b"), product("foreign")];
    g[2].node.op = 3;
    run(p, &mut g);
    assert_eq!((counts(), cpu()), ([2, 2, 0, 0], 1));
    run(p, &mut [product("c")]);
    assert_eq!((counts(), cpu()), ([3, 3, 0, 0], 1));

    let broken = with_engine(TestEngine::Fail);
    let (ops, cpu) = functions(broken);
    run(broken, &mut [product("a"), product("b")]);
    assert_eq!((ops(ptr::null()), cpu()), (0, 2));
    let absent = plugin(None);
    let name = c"ggml_backend_rocket_route_ops".as_ptr();
    assert_eq!(slot!(absent.records().reg, 4, fn(*const c_char) -> usize, name), 0);
}

/// Both numbers, either, or neither; what an engine without experts holds.
#[test]
fn expert_counters_by_their_address() {
    let p = with_engine(TestEngine::Reference);
    let name = c"ggml_backend_rocket_moe_stats".as_ptr();
    let address = slot!(p.records().reg, 4, fn(*const c_char) -> usize, name);
    assert_ne!(address, 0);
    // SAFETY: the prototype of docs/using.md.
    let stats: extern "C" fn(*mut u64, *mut u64) = unsafe { std::mem::transmute(address) };
    let (mut resident, mut streamed) = (9, 9);
    stats(null_mut(), &raw mut streamed);
    assert_eq!((resident, streamed), (9, 0));
    stats(&raw mut resident, null_mut());
    stats(null_mut(), null_mut());
    assert_eq!(resident, 0);
}

fn counting(dir: &Path, engine: TestEngine) -> &'static Plugin {
    let host = Host::for_tests(&Fake, current());
    let unit = Unit::test(Runner::Engine(Arc::new(engine)), c"TEST NPU");
    let knobs = Knobs { counters: knobs::Counters::In(dir.to_owned()), ..quiet() };
    Plugin::with_unit(host, knobs, Some(unit), OnceLock::from(std::process::id()))
}

/// The only file of a folder.
fn look(dir: &Path) -> Snapshot {
    let mut found = scan(&[dir.to_owned()]);
    assert_eq!(found.len(), 1, "{found:?}");
    let s = found.remove(0).figures.unwrap();
    assert_eq!((s.life.clone(), s.process.pid), (Life::Alive, std::process::id()));
    s
}

fn ask(p: &Plugin, op: &Tensor) -> bool {
    slot!(p.records().device, 9, fn(*const Tensor) -> bool, ptr::from_ref(op))
}

/// Multiply-accumulates of the tests' product.
const MACS: u64 = (M * K * N) as u64;

fn find(s: &Snapshot, place: Place) -> &Row {
    let mut rows = s.rows.iter().filter(|r| r.place == place);
    let row = rows.next().unwrap_or_else(|| panic!("{place:?}: {:?}", s.rows));
    assert!(rows.next().is_none(), "{:?}", s.rows);
    let shape = (row.op.as_str(), row.weight.as_str(), row.k, row.n);
    assert_eq!(shape, ("MUL_MAT", "f32", K as u64, N as u64));
    row
}

#[test]
fn what_a_graph_leaves_in_the_file() {
    let dir = tempfile::tempdir().unwrap();
    let p = counting(dir.path(), TestEngine::Reference);
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0, "nothing while it is loaded");

    let mut g = [product("a"), product("b"), product("few")];
    g[2].activation.ne[1] = 9;
    g[2].node.ne[1] = 9;
    assert!(ask(p, &g[0].node));
    let s = look(dir.path());
    for (key, value) in [("device", "TEST NPU"), ("driver", "test"), ("simulated", "1")] {
        assert_eq!(s.fact(key), Some(value), "{key}");
    }
    assert_eq!(s.fact("plugin"), Some(env!("CARGO_PKG_VERSION")));
    let exe = std::env::current_exe().unwrap();
    assert_eq!(s.fact("program"), exe.file_name().unwrap().to_str());

    // Decode counts here as well.
    let mut decode = product("decode");
    decode.activation.ne[1] = 1;
    decode.node.ne[1] = 1;
    assert!(!ask(p, &decode.node));
    run(p, &mut g[..2]);
    assert!(!ask(p, &g[2].node) && !ask(p, &g[2].node));
    // What is due is written with the next thing that ends.
    run(p, &mut []);
    let s = look(dir.path());
    let npu = find(&s, Place::Npu);
    assert_eq!((npu.outcome.as_str(), npu.rows), ("fp16", [128, 511]));
    assert_eq!((npu.calls, npu.macs), (2, 2 * MACS));
    assert!(npu.ns > 0);
    let declined: Vec<_> = s
        .rows
        .iter()
        .filter(|r| r.place == Place::Declined)
        .map(|r| (r.outcome.as_str(), r.rows, r.calls, r.macs))
        .collect();
    let each = (K * N) as u64;
    let expected = [("too_few_rows", [1, 1], 1, each), ("too_few_rows", [2, 31], 2, 2 * 9 * each)];
    assert_eq!(declined, expected);
    for (name, value) in [
        ("ops.fp16", Some(2)),
        // By the engine's own word.
        ("npu.macs", Some(2 * MACS)),
        ("npu.jobs", Some(2)),
        ("npu.padding_macs", Some(0)),
        ("asked.accepted", Some(1)),
        ("asked.accepted_macs", Some(MACS)),
        ("asked.declined", Some(3)),
        ("asked.declined_macs", Some(19 * each)),
        // Nothing of these is known here, which is not 0.
        ("ops.cpu", None),
        ("bytes.dma", None),
        ("bytes.resident", None),
        ("workers", None),
    ] {
        assert_eq!(s.total(name), value, "{name}");
    }
    assert!(s.total("time.convert") > Some(0) && s.total("time.results") > Some(0));
    assert!(s.events.is_empty(), "{:?}", s.events);
}

#[test]
fn what_fails_is_a_row_and_one_event_a_kind() {
    let dir = tempfile::tempdir().unwrap();
    let p = counting(dir.path(), TestEngine::Fail);
    let mut g = [product("a"), product("b"), product("foreign")];
    g[2].node.op = 3;
    run(p, &mut g);
    let s = look(dir.path());
    let redone = find(&s, Place::Redone);
    assert_eq!((redone.outcome.as_str(), redone.calls, redone.macs), ("engine_error", 2, 2 * MACS));
    let totals = ["redo.engine_error", "redo.not_routed", "ops.cpu"].map(|n| s.total(n));
    assert_eq!(totals, [Some(2), Some(1), Some(3)]);
    assert_eq!(s.total("ops.fp16"), None);
    let codes: Vec<&str> = s.events.iter().map(|e| e.code.as_str()).collect();
    assert_eq!(codes.iter().filter(|c| **c == "engine_error").count(), 1, "{codes:?}");
}

/// Also of one that ends before the next copy is due: what it did takes a fraction of a copy's time.
#[test]
fn the_end_of_a_context_is_always_written() {
    let dir = tempfile::tempdir().unwrap();
    let p = counting(dir.path(), TestEngine::Reference);
    for n in 1..=50 {
        let mut g = [product("foreign")];
        g[0].node.op = 3;
        run(p, &mut g);
        assert_eq!(look(dir.path()).total("ops.cpu"), Some(n));
    }
}

#[test]
fn no_counters_are_no_error() {
    let dir = tempfile::tempdir().unwrap();
    for place in [dir.path().join("absent"), "/proc/self".into()] {
        let p = counting(&place, TestEngine::Reference);
        let mut g = [product("a")];
        assert!(ask(p, &g[0].node));
        assert_eq!(run(p, &mut g), (0, vec![]));
        assert!(g[0].out.iter().all(|&x| x == K as f32));
    }
    let p = with_engine(TestEngine::Reference);
    assert_eq!(run(p, &mut [product("a")]).0, 0);
    assert!(!p.stats.live.begin(), "ROCKET_COUNTERS=0");
}
