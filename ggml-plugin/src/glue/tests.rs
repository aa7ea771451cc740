//! The border, with an in-process host: the records are called as the host calls them, slot by
//! slot.
#![allow(unsafe_code)]

use super::guard;
use super::plugin::{Plugin, Runner, Unit};
use crate::abi::host::{Host, InitParams, Object, ToFloat, TypeTraits};
use crate::abi::ops::tests::current;
use crate::abi::props::{CapsA, PropsA, PropsB};
use crate::abi::symbols::Resolve;
use crate::abi::tensor::{FLAG_COMPUTE, Tensor, tests::tensor};
use crate::abi::{Generation, SUPPORTED};
use crate::exec::test_engine::TestEngine;
use crate::knobs::{self, Knobs};
use std::cell::RefCell;
use std::ffi::{CStr, CString, c_char, c_void};
use std::ptr::{self, NonNull, null_mut};
use std::sync::{Arc, OnceLock};

#[test]
fn a_panic_becomes_the_fallback() {
    assert_eq!(guard("test", -1, || 7), 7);
    assert_eq!(guard("test", -1, || -> i32 { panic!("on purpose") }), -1);
    assert_eq!(guard("test", -1, || -> i32 { std::panic::panic_any(3u8) }), -1);
}

thread_local! {
    /// Nodes that reached the host's CPU backend.
    static ON_CPU: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

/// A buffer type is "host" when it is the object 1 in this process.
const HOST_BUFT: Object = 1 as Object;
const DEVICE_BUFT: Object = 2 as Object;

extern "C" fn is_host(buft: Object) -> bool {
    buft == HOST_BUFT
}
extern "C" fn same(x: Object) -> Object {
    x
}
extern "C" fn weights(_: Object) -> i32 {
    1
}
extern "C" fn cpu_type() -> Object {
    HOST_BUFT
}
extern "C" fn wrap(p: Object, _: usize) -> Object {
    p
}
extern "C" fn n_nodes(graph: Object) -> i32 {
    // SAFETY: the tests' graphs are vectors of pointers.
    unsafe { (*graph.cast::<Vec<*mut Tensor>>()).len() as i32 }
}
extern "C" fn node(graph: Object, i: i32) -> *mut Tensor {
    // SAFETY: as above.
    unsafe { (&*graph.cast::<Vec<*mut Tensor>>())[i as usize] }
}
extern "C" fn add_node(graph: Object, node: *const Tensor) {
    // SAFETY: as above.
    unsafe { (*graph.cast::<Vec<*mut Tensor>>()).push(node.cast_mut()) }
}
extern "C" fn overhead(_: usize, _: bool) -> usize {
    64
}
extern "C" fn new_graph(context: Object, _: usize, _: bool) -> Object {
    context
}
extern "C" fn context(_: InitParams) -> Object {
    Box::into_raw(Box::new(Vec::<*mut Tensor>::new())).cast()
}
extern "C" fn free_context(c: Object) {
    // SAFETY: made by `context`.
    drop(unsafe { Box::from_raw(c.cast::<Vec<*mut Tensor>>()) });
}
extern "C" fn by_type(kind: i32) -> Object {
    assert_eq!(kind, 0);
    HOST_BUFT
}
extern "C" fn dev_init(d: Object, _: *const c_char) -> Object {
    d
}
extern "C" fn no_proc(_: Object, _: *const c_char) -> Object {
    null_mut()
}
/// The CPU's result is 42 everywhere.
extern "C" fn compute(_: Object, graph: Object) -> i32 {
    assert_eq!(n_nodes(graph), 1);
    // SAFETY: one node of the test, with room for its elements if it has data.
    unsafe {
        let t = &*node(graph, 0);
        let len = t.ne.iter().product::<i64>() as usize;
        if let Some(out) = t.elements_mut::<f32>(len) {
            out.fill(42.0);
        }
        ON_CPU.with_borrow_mut(|v| v.push(t.name()));
    }
    0
}
extern "C" fn nothing(_: Object) {}
extern "C" fn tensor_overhead() -> usize {
    368
}

extern "C" fn buft_name(_: Object) -> *const c_char {
    c"CPU_REPACK".as_ptr()
}
/// Bytes less 100, in blocks of 32 that are stored as Q8_0's size says.
unsafe extern "C" fn decode(src: *const c_void, dst: *mut f32, k: i64) {
    for i in 0..k as usize {
        // SAFETY: 34 bytes for 32 elements.
        unsafe { *dst.add(i) = f32::from(*src.cast::<u8>().add(i / 32 * 34 + 2 + i % 32)) - 100.0 };
    }
}
struct Shared(TypeTraits);
// SAFETY: plain data.
unsafe impl Sync for Shared {}
const fn stored(blck_size: i64, type_size: usize, to_float: Option<ToFloat>) -> Shared {
    Shared(TypeTraits {
        type_name: c"t".as_ptr(),
        blck_size,
        blck_size_interleave: 0,
        type_size,
        is_quantized: blck_size > 1,
        to_float,
        from_float_ref: 0,
    })
}
extern "C" fn traits(dtype: i32) -> *const TypeTraits {
    static F32: Shared = stored(1, 4, None);
    static F16: Shared = stored(1, 2, Some(decode));
    static Q8_0: Shared = stored(32, 34, Some(decode));
    static OTHER: Shared = stored(32, 7, Some(decode));
    match dtype {
        0 => &raw const F32.0,
        1 => &raw const F16.0,
        8 => &raw const Q8_0.0,
        _ => &raw const OTHER.0,
    }
}

struct Fake;
impl Resolve for Fake {
    fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let f: *const () = match name.to_str().unwrap() {
            "ggml_backend_buft_is_host" => is_host as _,
            "ggml_backend_buffer_get_type"
            | "ggml_backend_buffer_get_base"
            | "ggml_backend_dev_backend_reg" => same as _,
            "ggml_backend_buffer_get_usage" => weights as _,
            "ggml_backend_cpu_buffer_type" => cpu_type as _,
            "ggml_backend_cpu_buffer_from_ptr" => wrap as _,
            "ggml_graph_n_nodes" => n_nodes as _,
            "ggml_graph_node" => node as _,
            "ggml_graph_add_node" => add_node as _,
            "ggml_graph_overhead_custom" => overhead as _,
            "ggml_new_graph_custom" => new_graph as _,
            "ggml_init" => context as _,
            "ggml_free" => free_context as _,
            "ggml_backend_dev_by_type" => by_type as _,
            "ggml_backend_dev_init" => dev_init as _,
            "ggml_backend_reg_get_proc_address" => no_proc as _,
            "ggml_backend_graph_compute" => compute as _,
            "ggml_backend_free" => nothing as _,
            "ggml_tensor_overhead" => tensor_overhead as _,
            "ggml_get_type_traits" => traits as _,
            "ggml_backend_buft_name" => buft_name as _,
            "ggml_type_size" | "ggml_blck_size" => tensor_overhead as _,
            _ => return None,
        };
        NonNull::new(f.cast_mut().cast())
    }
}

fn plugin(unit: Option<Unit>) -> &'static Plugin {
    opened_by(std::process::id(), unit)
}

fn opened_by(pid: u32, unit: Option<Unit>) -> &'static Plugin {
    let host = Host::for_tests(&Fake, current());
    Plugin::with_unit(host, quiet(), unit, OnceLock::from(pid))
}

/// Defaults, without a file of counters in the machine's own folders.
fn quiet() -> Knobs {
    Knobs { counters: knobs::Counters::Off, ..Knobs::read(|_| None) }
}

fn with_engine(e: TestEngine) -> &'static Plugin {
    plugin(Some(Unit::test(Runner::Engine(Arc::new(e)), c"TEST NPU")))
}

/// The plugin as a host of this generation gets it.
fn on_host_of(generation: Generation) -> &'static Plugin {
    // No host of the old properties marks the nodes to compute (ggml-abi 2.6).
    let marks_compute = generation.props_bytes != 40;
    let host = Host { generation, marks_compute, ..Host::for_tests(&Fake, current()) };
    let unit = Unit::test(Runner::Engine(Arc::new(TestEngine::Reference)), c"TEST NPU");
    Plugin::with_unit(host, quiet(), Some(unit), OnceLock::from(std::process::id()))
}

/// The function in word `slot` of a record, of the type the caller names.
fn function<F: Copy>(record: *const usize, slot: usize) -> F {
    assert_eq!(size_of::<F>(), size_of::<usize>());
    // SAFETY: records of ours, longer than any slot number here; the word is the address of a
    // function of type F, as each test states.
    unsafe { std::mem::transmute_copy(&*record.add(slot)) }
}

/// Calls slot `$slot` (counted in words) of a record.
macro_rules! slot {
    ($record:expr, $slot:expr, fn($($t:ty),*) -> $r:ty, $($arg:expr),*) => {{
        let record = $record as *const usize;
        let f: extern "C" fn(*const usize, $($t),*) -> $r = function(record, $slot);
        f(record, $($arg),*)
    }};
}

// After the macro that they use.
mod attention;
mod counters;
mod together;

/// A product with its operands.
struct Product {
    node: Box<Tensor>,
    weight: Box<Tensor>,
    activation: Box<Tensor>,
    _data: (Vec<f32>, Vec<f32>),
    out: Vec<f32>,
}

const M: usize = 128;
const K: usize = 64;
const N: usize = 96;

fn product(name: &str) -> Product {
    let (m, k, n) = (M as i64, K as i64, N as i64);
    let (mut w, mut a) = (vec![0.5f32; N * K], vec![2.0f32; M * K]);
    let mut out = vec![0f32; M * N];
    let mut weight = Box::new(tensor(0, 4, [k, n, 1, 1]));
    let mut activation = Box::new(tensor(0, 4, [k, m, 1, 1]));
    let mut node = Box::new(tensor(0, 4, [n, m, 1, 1]));
    weight.data = w.as_mut_ptr().cast();
    weight.buffer = HOST_BUFT;
    activation.data = a.as_mut_ptr().cast();
    node.data = out.as_mut_ptr().cast();
    node.op = 29;
    node.flags = FLAG_COMPUTE;
    node.src[0] = &raw mut *weight;
    node.src[1] = &raw mut *activation;
    for (d, s) in node.name.iter_mut().zip(CString::new(name).unwrap().as_bytes_with_nul()) {
        *d = *s as c_char;
    }
    Product { node, weight, activation, _data: (w, a), out }
}

fn run(p: &'static Plugin, products: &mut [Product]) -> (i32, Vec<String>) {
    ON_CPU.take();
    let backend = slot!(p.records().device, 5, fn(*const c_char) -> *const usize, ptr::null());
    assert!(!backend.is_null());
    let mut graph: Vec<*mut Tensor> = products.iter_mut().map(|p| &raw mut *p.node).collect();
    // Backend tables begin after the guid.
    let status = slot!(backend, 1 + 12, fn(Object) -> i32, (&raw mut graph).cast());
    slot!(backend, 1 + 1, fn() -> (),);
    (status, ON_CPU.take())
}

#[test]
fn the_records_answer_as_the_host_asks() {
    let p = with_engine(TestEngine::Reference);
    let (reg, dev) = (p.records().reg, p.records().device);
    let name = slot!(reg, 1, fn() -> *const c_char,);
    let text = slot!(dev, 1, fn() -> *const c_char,);
    // SAFETY: both records are ours; names are static strings.
    unsafe {
        assert_eq!(*(reg as *const i32), 3);
        assert_eq!(CStr::from_ptr(name), c"ROCKET");
        assert_eq!(CStr::from_ptr(text), c"TEST NPU");
    }
    assert_eq!(slot!(reg, 2, fn() -> usize,), 1);
    assert_eq!(slot!(reg, 3, fn(usize) -> usize, 0), dev);
    assert_eq!(slot!(reg, 3, fn(usize) -> usize, 1), 0);
    let proc = |n: &CStr| slot!(reg, 4, fn(*const c_char) -> usize, n.as_ptr());
    assert_ne!(proc(c"ggml_backend_set_n_threads"), 0);
    assert_ne!(proc(c"ggml_backend_get_features"), 0);
    assert_eq!(proc(c"ggml_backend_split_buffer_type"), 0);
    assert_eq!(slot!(dev, 3, fn() -> i32,), 3);
    assert_eq!(slot!(dev, 6, fn() -> Object,), HOST_BUFT);
    assert!(slot!(dev, 10, fn(Object) -> bool, HOST_BUFT));
    assert!(!slot!(dev, 10, fn(Object) -> bool, DEVICE_BUFT));
    assert!(!slot!(dev, 10, fn(Object) -> bool, null_mut()));
    // SAFETY: seventeen words.
    let empty: Vec<_> = [7, 12, 13, 14].map(|i| unsafe { *(dev as *const usize).add(i) }).into();
    assert_eq!(empty, [0; 4], "optional slots stay null");
}

/// What a host of one generation expects, from ggml-abi 1, 2.3 and 2.5 and not from the tables
/// under test.
struct Expected {
    name: &'static str,
    api: i32,
    accel: i32,
    props: usize,
    compute: usize,
    words: usize,
}

const EXPECTED: [Expected; 5] = [
    Expected { name: "A1/A2", api: 1, accel: 2, props: 40, compute: 10, words: 16 },
    Expected { name: "A3", api: 1, accel: 2, props: 40, compute: 10, words: 17 },
    Expected { name: "B1", api: 2, accel: 3, props: 56, compute: 10, words: 17 },
    Expected { name: "B2", api: 2, accel: 3, props: 56, compute: 12, words: 19 },
    Expected { name: "C", api: 3, accel: 3, props: 56, compute: 12, words: 19 },
];

/// Every generation as its hosts do it: enumerate, ask, open, compute, close.
#[test]
fn a_product_on_a_host_of_every_generation() {
    assert_eq!(SUPPORTED.iter().map(|g| g.name).collect::<Vec<_>>(), EXPECTED.map(|e| e.name));
    // All live at once: nothing of one may be the other's.
    let plugins = SUPPORTED.iter().map(|g| (on_host_of(**g), g)).collect::<Vec<_>>();
    for ((p, g), e) in plugins.iter().zip(&EXPECTED) {
        let (reg, name) = (p.records().reg, g.name);
        // SAFETY: the record begins with its version.
        assert_eq!(unsafe { *(reg as *const i32) }, e.api, "{name}");
        assert_eq!(slot!(reg, 2, fn() -> usize,), 1, "{name}");
        let dev = slot!(reg, 3, fn(usize) -> usize, 0);
        assert_eq!(slot!(dev, 3, fn() -> i32,), e.accel, "{name}: type");
        let mut x = product("x");
        x.node.flags = if e.api == 1 { 0 } else { FLAG_COMPUTE };
        assert!(slot!(dev, 9, fn(*const Tensor) -> bool, &raw const *x.node), "{name}");

        let backend = slot!(dev, 5, fn(*const c_char) -> *const usize, ptr::null());
        assert!(!backend.is_null(), "{name}");
        // SAFETY: the record has so many words, the last two the device and the context.
        let words = unsafe { std::slice::from_raw_parts(backend, e.words) };
        assert_eq!(words[e.words - 2], dev, "{name}: device");
        let filled: Vec<usize> =
            (1..e.words - 2).filter(|&i| words[i] != 0).map(|i| i - 1).collect();
        assert_eq!(filled, [0, 1, e.compute], "{name}: get_name, free, graph_compute");
        let text = slot!(backend, 1, fn() -> *const c_char,);
        // SAFETY: a static string.
        assert_eq!(unsafe { CStr::from_ptr(text) }, c"ROCKET", "{name}");

        let mut graph: Vec<*mut Tensor> = vec![&raw mut *x.node];
        let graph: Object = (&raw mut graph).cast();
        assert_eq!(slot!(backend, 1 + e.compute, fn(Object) -> i32, graph), 0, "{name}");
        assert!(x.out.iter().all(|&v| v == K as f32), "{name}");
        slot!(backend, 1 + 1, fn() -> (),);
    }
}

/// The caller's struct, to the byte: what lies behind it is somebody else's.
#[test]
fn properties_fill_the_hosts_struct_and_no_byte_more() {
    const CANARY: u8 = 0xA5;
    for (g, e) in SUPPORTED.iter().zip(&EXPECTED) {
        let dev = on_host_of(**g).records().device;
        let mut area = [CANARY; 96];
        // Hosts clear the struct first.
        area[16..16 + e.props].fill(0);
        let at = area[16..].as_mut_ptr();
        slot!(dev, 4, fn(*mut u8) -> (), at);
        assert!(area[..16].iter().all(|&b| b == CANARY), "{}", g.name);
        assert!(area[16 + e.props..].iter().all(|&b| b == CANARY), "{}: overrun", g.name);
        let caps = CapsA {
            is_async: false,
            host_buffer: false,
            buffer_from_host_ptr: true,
            events: false,
        };
        // SAFETY: the struct of this size was written, and holds plain data.
        let (kind, name, found) = unsafe {
            if e.props == 40 {
                let p = at.cast::<PropsA>().read_unaligned();
                (p.kind, p.name, p.caps)
            } else {
                let p = at.cast::<PropsB>().read_unaligned();
                assert!(p.device_id.is_null() && p.caps.mmap_support, "{}", g.name);
                (p.kind, p.name, p.caps.base)
            }
        };
        assert_eq!((kind, found), (e.accel, caps), "{}", g.name);
        // SAFETY: a static string.
        assert_eq!(unsafe { CStr::from_ptr(name) }, c"ROCKET");
    }
}

/// A layout that was measured and not known: more slots everywhere, all of them null.
#[test]
fn a_product_on_an_adapted_host() {
    let newest = **SUPPORTED.last().unwrap();
    let mut backend = newest.backend;
    (backend.slots, backend.graph_compute) = (20, 17);
    let p = on_host_of(Generation { backend, device_slots: 18, api: 9, ..newest });
    let (reg, dev) = (p.records().reg, p.records().device);
    // SAFETY: eighteen slots and the record; the registration record has room behind its slots.
    unsafe {
        let words = std::slice::from_raw_parts(dev as *const usize, 19);
        assert_eq!((&words[12..18], words[18]), (&[0; 6][..], reg));
        assert_eq!(std::slice::from_raw_parts((reg as *const usize).add(5), 8), [0; 8]);
    }
    let mut x = product("x");
    let backend = slot!(dev, 5, fn(*const c_char) -> *const usize, ptr::null());
    let mut graph: Vec<*mut Tensor> = vec![&raw mut *x.node];
    assert_eq!(slot!(backend, 1 + 17, fn(Object) -> i32, (&raw mut graph).cast()), 0);
    assert!(x.out.iter().all(|&v| v == K as f32));
    slot!(backend, 1 + 1, fn() -> (),);
}

#[test]
fn without_a_device_the_host_sees_none() {
    let p = plugin(None);
    let reg = p.records().reg;
    assert_eq!(slot!(reg, 2, fn() -> usize,), 0);
    assert_eq!(slot!(reg, 3, fn(usize) -> usize, 0), 0);
    assert_eq!(slot!(reg, 4, fn(*const c_char) -> usize, c"ggml_backend_get_features".as_ptr()), 0);
}

#[test]
fn acceptance_through_the_record() {
    let p = with_engine(TestEngine::Reference);
    let dev = p.records().device;
    let ask = |t: &Tensor| {
        let t = ptr::from_ref(t);
        (slot!(dev, 9, fn(*const Tensor) -> bool, t), slot!(dev, 11, fn(*const Tensor) -> bool, t))
    };
    let mut x = product("x");
    assert_eq!(ask(&x.node), (true, true));
    x.weight.buffer = DEVICE_BUFT;
    assert_eq!(ask(&x.node), (false, false));
    x.weight.buffer = null_mut();
    x.weight.op = 29;
    assert_eq!(ask(&x.node), (false, false));
    x.weight.op = 0;
    x.node.src[1] = null_mut();
    assert_eq!(ask(&x.node), (false, false), "a product without operands");
    // A leaf: supported, but nothing to offload.
    assert_eq!(ask(&x.weight), (true, false));
    assert!(!slot!(dev, 9, fn(*const Tensor) -> bool, ptr::null()));
}

#[test]
fn products_are_computed() {
    let mut g = [product("a"), product("b")];
    let (status, cpu) = run(with_engine(TestEngine::Reference), &mut g);
    assert_eq!((status, cpu.len()), (0, 0));
    assert!(g.iter().all(|p| p.out.iter().all(|&x| x == K as f32)));
}

/// A quantized weight is decoded by the host's own function, row by row.
#[test]
fn quantized_weights_are_decoded_by_the_host() {
    let mut p = product("q");
    let block = [&[0u8, 0][..], &[100 + 3; 32]].concat();
    let mut bytes = block.repeat(N * K / 32);
    // The last row is another one.
    let last = bytes.len() - K / 32 * 34;
    bytes[last..].iter_mut().for_each(|b| *b = 100);
    p.weight.dtype = 8;
    p.weight.nb = [34, 68, 68 * N, 68 * N];
    p.weight.data = bytes.as_mut_ptr().cast();
    let mut g = [p];
    let (status, cpu) = run(with_engine(TestEngine::Reference), &mut g);
    assert_eq!((status, cpu.len()), (0, 0));
    for row in g[0].out.chunks_exact(N) {
        assert!(row[..N - 1].iter().all(|&x| x == (3 * 2 * K) as f32) && row[N - 1] == 0.0);
    }
}

/// Two weights, each for two of the four batches, and rows that lie apart.
#[test]
fn batched_weights_and_strided_rows() {
    let (share, w2) = (2, 2);
    let a2 = share * w2;
    let mut p = product("b");
    // Weight i is i + 1 everywhere; row r of batch b of the activation is r + 100 b.
    let mut weights: Vec<f32> = (0..w2 * N * K).map(|i| (i / (N * K) + 1) as f32).collect();
    let gap = K + 5;
    let mut rows = vec![f32::NAN; a2 * M * gap];
    for (i, row) in rows.chunks_exact_mut(gap).enumerate() {
        // Batches innermost: dimension 2 has the smaller stride.
        row[..K].fill((i / a2 + 100 * (i % a2)) as f32);
    }
    let mut out = vec![0f32; a2 * M * N];
    p.weight.ne = [K as i64, N as i64, w2 as i64, 1];
    p.weight.nb = [4, 4 * K, 4 * K * N, 4 * K * N * w2];
    p.weight.data = weights.as_mut_ptr().cast();
    p.activation.ne = [K as i64, M as i64, a2 as i64, 1];
    p.activation.nb = [4, 4 * gap * a2, 4 * gap, 4 * gap * a2 * M];
    p.activation.data = rows.as_mut_ptr().cast();
    p.node.ne = [N as i64, M as i64, a2 as i64, 1];
    p.node.nb = [4, 4 * N, 4 * N * M, 4 * N * M * a2];
    p.node.data = out.as_mut_ptr().cast();
    let mut g = [p];
    let (status, cpu) = run(with_engine(TestEngine::Reference), &mut g);
    assert_eq!((status, cpu.len()), (0, 0));
    for (i, row) in out.chunks_exact(N).enumerate() {
        let (r, batch) = (i % M, i / M);
        let want = ((r + 100 * batch) * (batch / share + 1) * K) as f32;
        assert!(row.iter().all(|&x| x == want), "batch {batch}, row {r}: {} {want}", row[0]);
    }
}

#[test]
fn whatever_an_engine_does_wrong_the_cpu_does_right() {
    for e in [TestEngine::Fail, TestEngine::Panic, TestEngine::Nan] {
        let mut g = [product("a")];
        let (status, cpu) = run(with_engine(e), &mut g);
        assert_eq!((status, cpu), (0, vec!["a".to_owned()]), "{e:?}");
        assert!(g[0].out.iter().all(|&x| x == 42.0));
    }
}

#[test]
fn unselected_nodes_and_foreign_ops() {
    let mut g = [product("skipped"), product("view"), product("foreign"), product("small")];
    g[0].node.flags = 0;
    g[1].node.op = 37;
    g[2].node.op = 3;
    g[3].node.op_params[0] = 10;
    let (status, cpu) = run(with_engine(TestEngine::Reference), &mut g);
    assert_eq!((status, cpu), (0, vec!["foreign".to_owned(), "small".to_owned()]));
    assert!(g[..2].iter().all(|p| p.out.iter().all(|&x| x == 0.0)));
}

#[test]
fn operands_that_overlap_or_lie_nowhere() {
    let mut g = [product("overlap"), product("odd")];
    g[0].weight.data = g[0].node.data;
    g[1].weight.data = g[1].weight.data.wrapping_byte_add(2);
    let (status, cpu) = run(with_engine(TestEngine::Reference), &mut g);
    assert_eq!((status, cpu), (0, vec!["overlap".to_owned(), "odd".to_owned()]));
}

#[test]
fn a_forked_child_does_not_touch_the_npu() {
    let engine = Runner::Engine(Arc::new(TestEngine::Reference));
    let parent = std::process::id() + 1;
    let p = opened_by(parent, Some(Unit::test(engine, c"TEST NPU")));
    let mut g = [product("a")];
    assert_eq!(run(p, &mut g), (0, vec!["a".to_owned()]));
}

/// The crossover is measured with the first op that is fit for it, kept, and used from the next
/// start on; never in the process that measured it.
#[test]
fn the_crossover_is_measured_once_and_used_by_the_next_process() {
    use crate::exec::crossover::{Class, Store, Thresholds};
    let home = tempfile::tempdir().unwrap();
    let start = || {
        let knobs = Knobs { calibrate: knobs::Calibrate::On, ..quiet() };
        let engine = Runner::Engine(Arc::new(TestEngine::Reference));
        let mut unit = Unit::test(engine, c"TEST NPU");
        unit.machine = "a board".to_owned();
        let home = home.path().as_os_str().to_owned();
        let env = move |name: &str| (name == "HOME").then(|| home.clone());
        let host = Host::for_tests(&Fake, current());
        let store = Store::of(env, unit.machine.clone());
        Plugin::with_store(host, knobs, Some(unit), OnceLock::from(std::process::id()), store)
    };
    let first = start();
    let before = first.policy();
    // Too small to say anything, then large enough.
    let mut g = [product("small"), wide("large"), wide("again")];
    let (status, cpu) = run(first, &mut g);
    assert_eq!(status, 0);
    // Two tries at each of the row counts that the product has, on its own memory.
    let tries = crate::exec::crossover::ROWS.iter().filter(|&&r| r <= M).count() * 2;
    assert_eq!(cpu, vec!["large".to_owned(); tries]);
    assert!(g[1].out.iter().all(|&x| x == K as f32), "the op's own result is not touched");
    assert_eq!(first.policy(), before, "answers must not change while a process runs");
    let kept: Thresholds = first.crossovers.load();
    // The reference engine on a large product is far slower than a CPU that writes a constant, or
    // not: whatever was found is what the next process works with.
    match kept.get(Class::Float) {
        Some(rows) => assert_eq!(start().policy().min_m, rows.max(8)),
        None => assert_eq!(start().policy().min_m, before.min_m),
    }
    first.crossovers.keep(Class::Float, 48).unwrap();
    assert_eq!((start().policy().min_m, start().policy().min_m_quant), (48, 128));
    first.crossovers.keep(Class::Float, 1).unwrap();
    assert_eq!(start().policy().min_m, 8, "never below the floor");
}

/// Rows of further batches need not lie where the first one's distance says: they are not measured
/// with, and nothing beyond the operand is read.
#[test]
fn a_crossover_is_measured_within_the_first_batch() {
    use crate::exec::crossover::Store;
    let (rows, batches) = (64, 8);
    let mut p = wide("permuted");
    let n = p.node.ne[0] as usize;
    let mut a = vec![2.0f32; rows * batches * K];
    p.activation.ne = [K as i64, rows as i64, batches as i64, 1];
    // Batches innermost: a row of the first batch lies `batches` rows from the next.
    p.activation.nb = [4, 4 * K * batches, 4 * K, 4 * K * batches * rows];
    p.activation.data = a.as_mut_ptr().cast();
    p.out = vec![0.0; rows * batches * n];
    p.node.ne = [n as i64, rows as i64, batches as i64, 1];
    p.node.nb = [4, 4 * n, 4 * n * rows, 4 * n * rows * batches];
    p.node.data = p.out.as_mut_ptr().cast();
    let knobs = Knobs { calibrate: knobs::Calibrate::On, ..quiet() };
    let unit = Unit::test(Runner::Engine(Arc::new(TestEngine::Reference)), c"TEST NPU");
    let host = Host::for_tests(&Fake, current());
    let store = Store::of(|_| None, String::new());
    let plugin =
        Plugin::with_store(host, knobs, Some(unit), OnceLock::from(std::process::id()), store);
    let mut g = [p];
    let (status, cpu) = run(plugin, &mut g);
    let tries = crate::exec::crossover::ROWS.iter().filter(|&&r| r <= rows).count() * 2;
    assert_eq!((status, cpu.len()), (0, tries));
    assert!(g[0].out.iter().all(|&x| x == K as f32));
}

/// A product whose weight is worth measuring with: as wide as a small model's head.
fn wide(name: &str) -> Product {
    let n = (1 << 18) / K;
    let mut p = product(name);
    p._data.0 = vec![0.5; n * K];
    p.out = vec![0.0; M * n];
    p.weight.ne[1] = n as i64;
    p.weight.nb = [4, 4 * K, 4 * K * n, 4 * K * n];
    p.weight.data = p._data.0.as_mut_ptr().cast();
    p.node.ne[0] = n as i64;
    p.node.nb = [4, 4 * n, 4 * n * M, 4 * n * M];
    p.node.data = p.out.as_mut_ptr().cast();
    p
}
