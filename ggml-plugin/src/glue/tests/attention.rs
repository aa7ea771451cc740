//! FLASH_ATTN_EXT by the records: K and V as views of a cache, V the beginning of K's rows.

use super::*;
use half::f16;

const TOKENS: usize = 16;
const N_KV: usize = 1024;
const HEADS: usize = 4;
const KEY: usize = 12;
const VALUE: usize = 8;

/// Every position holds its number's last bits, so that the result tells which ones were seen.
struct Op {
    node: Box<Tensor>,
    /// Q, K, V and mask.
    sources: [Box<Tensor>; 4],
    _data: (Vec<f32>, Vec<f16>, Vec<f16>),
    out: Vec<f32>,
}

/// Token t sees the positions of which it is the remainder by 16.
fn op(name: &str) -> Op {
    let mut q = vec![0f32; TOKENS * HEADS * KEY];
    let mut cache: Vec<f16> =
        (0..N_KV * KEY).map(|i| f16::from_f32((i / KEY % TOKENS) as f32)).collect();
    let mut mask = vec![f16::NEG_INFINITY; TOKENS * N_KV];
    for (i, m) in mask.iter_mut().enumerate() {
        if i % N_KV % TOKENS == i / N_KV {
            *m = f16::ZERO;
        }
    }
    let mut out = vec![0f32; TOKENS * HEADS * VALUE];
    let wide = |ne: [usize; 4]| ne.map(|n| n as i64);
    let mut sources = [
        Box::new(tensor(0, 4, wide([KEY, TOKENS, HEADS, 1]))),
        Box::new(tensor(1, 2, wide([KEY, N_KV, 1, 1]))),
        Box::new(tensor(1, 2, wide([VALUE, N_KV, 1, 1]))),
        Box::new(tensor(1, 2, wide([N_KV, TOKENS, 1, 1]))),
    ];
    // Q lies token by token; V's rows are K's.
    sources[0].nb = [4, HEADS * KEY * 4, KEY * 4, TOKENS * HEADS * KEY * 4];
    sources[2].nb[1] = KEY * 2;
    sources[0].data = q.as_mut_ptr().cast();
    sources[1].data = cache.as_mut_ptr().cast();
    sources[2].data = cache.as_mut_ptr().cast();
    sources[3].data = mask.as_mut_ptr().cast();
    let mut node = Box::new(tensor(0, 4, wide([VALUE, HEADS, TOKENS, 1])));
    node.data = out.as_mut_ptr().cast();
    node.op = 74;
    node.op_params[0] = 1f32.to_bits() as i32;
    node.op_params[3] = 10;
    node.flags = FLAG_COMPUTE;
    for (i, source) in sources.iter_mut().enumerate() {
        source.buffer = HOST_BUFT;
        node.src[i] = &raw mut **source;
    }
    for (d, s) in node.name.iter_mut().zip(CString::new(name).unwrap().as_bytes_with_nul()) {
        *d = *s as c_char;
    }
    Op { node, sources, _data: (q, cache, mask), out }
}

fn compute(p: &'static Plugin, op: &mut Op) -> (i32, Vec<String>) {
    ON_CPU.take();
    let backend = slot!(p.records().device, 5, fn(*const c_char) -> *const usize, ptr::null());
    let mut graph: Vec<*mut Tensor> = vec![&raw mut *op.node];
    let status = slot!(backend, 1 + 12, fn(Object) -> i32, (&raw mut graph).cast());
    slot!(backend, 1 + 1, fn() -> (),);
    (status, ON_CPU.take())
}

fn is_right(op: &Op) -> bool {
    let row = HEADS * VALUE;
    op.out.iter().enumerate().all(|(i, x)| (x - (i / row) as f32).abs() < 1e-4)
}

#[test]
fn an_attention_is_taken_and_computed() {
    let p = with_engine(TestEngine::Reference);
    let mut a = op("a");
    let asked = |slot: usize, a: &Op| {
        slot!(p.records().device, slot, fn(*const Tensor) -> bool, &raw const *a.node)
    };
    assert!(asked(9, &a), "supports_op");
    assert!(!asked(11, &a), "offload_op is for products");
    assert_eq!(compute(p, &mut a), (0, vec![]));
    assert!(is_right(&a));
    // The values begin one element later in each row: the position before shows through.
    a.out.fill(0.0);
    a.sources[2].nb[1] = KEY * 2 - 2;
    assert_eq!(compute(p, &mut a), (0, vec![]));
    assert!(!is_right(&a), "the control");
    // An operand that nobody knows.
    a.node.src[5] = &raw mut *a.sources[0];
    assert!(!asked(9, &a));
}

#[test]
fn what_the_engine_cannot_do_the_cpu_does() {
    for engine in [TestEngine::Fail, TestEngine::Nan, TestEngine::Panic] {
        let mut a = op("a");
        let (status, on_cpu) = compute(with_engine(engine), &mut a);
        assert_eq!((status, on_cpu), (0, vec!["a".to_owned()]), "{engine:?}");
        assert!(a.out.iter().all(|x| *x == 42.0));
    }
    // A result over an operand, and an operand without memory.
    let p = with_engine(TestEngine::Reference);
    for spoil in [
        |a: &mut Op| a.node.data = a.sources[0].data,
        |a: &mut Op| {
            a.sources[1].data = null_mut();
        },
    ] {
        let mut a = op("a");
        spoil(&mut a);
        assert_eq!(compute(p, &mut a), (0, vec!["a".to_owned()]));
    }
}
