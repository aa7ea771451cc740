//! Products of one activation with biases and copies between them, in the memory that a host gives them:
//! what is not read any more is the next one's place.

use super::*;
use crate::exec::{Done, Engine, MatMul};
use half::f16;
use std::sync::Mutex;

const M: usize = 128;
const K: usize = 64;

/// The reference engine, which notes how many products each call had.
#[derive(Debug, Default)]
struct Counting(Mutex<Vec<usize>>);

impl Engine for Counting {
    fn mul_mat(&self, job: MatMul<'_>) -> Result<Done, rocket_runtime::Error> {
        self.0.lock().unwrap().push(1);
        TestEngine::Reference.mul_mat(job)
    }

    fn mul_mat_together(&self, jobs: Vec<MatMul<'_>>) -> Result<Vec<Done>, rocket_runtime::Error> {
        self.0.lock().unwrap().push(jobs.len());
        jobs.into_iter().map(|j| TestEngine::Reference.mul_mat(j)).collect()
    }
}

fn counting(fuse: bool) -> (&'static Plugin, Arc<Counting>) {
    let engine = Arc::new(Counting::default());
    let unit = Unit::test(Runner::Engine(engine.clone()), c"TEST NPU");
    let host = Host::for_tests(&Fake, current());
    let knobs = Knobs { fuse, ..quiet() };
    (Plugin::with_unit(host, knobs, Some(unit), OnceLock::from(std::process::id())), engine)
}

/// Tensors, at addresses that stay.
#[derive(Default)]
#[allow(clippy::vec_box)]
struct Graph {
    leaves: Vec<Box<Tensor>>,
    nodes: Vec<Box<Tensor>>,
}

impl Graph {
    fn leaf<T>(&mut self, data: &mut [T], ne: [usize; 2]) -> *mut Tensor {
        let mut t = tensor(0, size_of::<T>(), [ne[0] as i64, ne[1] as i64, 1, 1]);
        t.buffer = HOST_BUFT;
        t.data = data.as_mut_ptr().cast();
        self.leaves.push(Box::new(t));
        &raw mut **self.leaves.last_mut().unwrap()
    }

    fn node(
        &mut self,
        op: i32,
        place: *mut c_void,
        half: bool,
        ne: [usize; 2],
        src: [*mut Tensor; 2],
    ) -> *mut Tensor {
        let (dtype, bytes) = if half { (1, 2) } else { (0, 4) };
        let mut t = tensor(dtype, bytes, [ne[0] as i64, ne[1] as i64, 1, 1]);
        t.op = op;
        t.flags = FLAG_COMPUTE;
        t.data = place;
        t.src[..2].copy_from_slice(&src);
        self.nodes.push(Box::new(t));
        &raw mut **self.nodes.last_mut().unwrap()
    }

    /// Nodes that the CPU had.
    fn run(&mut self, p: &'static Plugin) -> usize {
        ON_CPU.take();
        let backend = slot!(p.records().device, 5, fn(*const c_char) -> *const usize, ptr::null());
        let mut graph: Vec<*mut Tensor> = self.nodes.iter_mut().map(|n| &raw mut **n).collect();
        for _ in 0..2 {
            let status = slot!(backend, 1 + 12, fn(Object) -> i32, (&raw mut graph).cast());
            assert_eq!(status, 0);
        }
        slot!(backend, 1 + 1, fn() -> (),);
        ON_CPU.take().len()
    }
}

const MUL_MAT: i32 = 29;
const ADD: i32 = 2;
const CPY: i32 = 35;

/// An encoder's layer as whisper.cpp builds it: K goes to a cache in F16, V too, after its bias, and Q
/// stays; all three are computed in the same place, one after the other.
#[test]
fn a_layer_whose_results_follow_one_another_in_one_place() {
    const N: usize = 96;
    let row: Vec<f32> = (0..N).map(|n| n as f32).collect();
    let mut results = Vec::new();
    for fuse in [true, false] {
        let (plugin, engine) = counting(fuse);
        let mut g = Graph::default();
        let mut weights = [0.5f32, 0.25, 1.0].map(|x| vec![x; N * K]);
        let (mut a, mut biases) =
            (vec![2f32; M * K], [row.clone(), row.iter().map(|x| x / 2.0).collect()]);
        let (mut place, mut cache) = (vec![0f32; M * N], vec![f16::ZERO; 2 * M * N]);
        let [wk, wv, wq] = weights.each_mut().map(|w| g.leaf(w, [K, N]));
        let [bv, bq] = biases.each_mut().map(|b| g.leaf(b, [N, 1]));
        let a = g.leaf(&mut a, [K, M]);
        let (at, none) = (place.as_mut_ptr().cast(), null_mut());
        let (k_cache, v_cache) = cache.split_at_mut(M * N);
        let k = g.node(MUL_MAT, at, false, [N, M], [wk, a]);
        g.node(CPY, k_cache.as_mut_ptr().cast(), true, [M * N, 1], [k, none]);
        let v = g.node(MUL_MAT, at, false, [N, M], [wv, a]);
        let v = g.node(ADD, at, false, [N, M], [v, bv]);
        g.node(CPY, v_cache.as_mut_ptr().cast(), true, [M * N, 1], [v, none]);
        let q = g.node(MUL_MAT, at, false, [N, M], [wq, a]);
        g.node(ADD, at, false, [N, M], [q, bq]);
        assert_eq!(g.run(plugin), 0, "all are the plugin's");
        assert!(k_cache.iter().all(|x| x.to_f32() == 64.0), "{}", k_cache[0]);
        for (v, q) in v_cache.chunks_exact(N).zip(place.chunks_exact(N)) {
            assert!(v.iter().zip(&row).all(|(v, b)| v.to_f32() == 32.0 + b), "{v:?}");
            assert!(q.iter().zip(&row).all(|(q, b)| *q == 128.0 + b / 2.0), "{q:?}");
        }
        let calls = engine.0.lock().unwrap().clone();
        assert_eq!(calls, if fuse { vec![3, 3] } else { vec![1; 6] });
        results.push((place, cache));
    }
    assert!(results[0] == results[1], "the same bits");
}

/// A copy that changes the activation: what follows it reads the copy.
#[test]
fn a_copy_over_the_activation_ends_the_group() {
    let (plugin, engine) = counting(true);
    let mut g = Graph::default();
    let mut weights = [0.5f32, 0.25].map(|x| vec![x; K * K]);
    let mut values = vec![2f32; M * K];
    let mut places = [vec![0f32; M * K], vec![0f32; M * K]];
    let [first, second] = weights.each_mut().map(|w| g.leaf(w, [K, K]));
    let a = g.leaf(&mut values, [K, M]);
    let [one, two] = places.each_mut().map(|p| p.as_mut_ptr().cast());
    let k = g.node(MUL_MAT, one, false, [K, M], [first, a]);
    g.node(CPY, values.as_mut_ptr().cast(), false, [K, M], [k, null_mut()]);
    g.node(MUL_MAT, two, false, [K, M], [second, a]);
    assert_eq!(g.run(plugin), 0);
    assert_eq!(*engine.0.lock().unwrap(), [1; 4]);
    // Twice over: 2, 64, 2048; a quarter of 64 times the last.
    assert!(places[1].iter().all(|&x| x == 2048.0 * 16.0), "{}", places[1][0]);
}
