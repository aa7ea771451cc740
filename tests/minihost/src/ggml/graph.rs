//! Contexts, tensors, graphs. A tensor lives as long as its context.

use super::{Host, Type};
use anyhow::{Context as _, Result, bail};
use ggml_rocket::abi::host::{InitParams, Object};
use ggml_rocket::abi::tensor::Tensor;
use std::ffi::CString;
use std::marker::PhantomData;
use std::ptr::{NonNull, null_mut};

/// Where tensors are made; without data. What is built from a tensor of another context lives no
/// longer than either.
#[derive(Debug)]
pub struct Context {
    pub(super) host: &'static Host,
    pub(super) ptr: Object,
    room: usize,
    made: std::cell::Cell<usize>,
}

/// A tensor.
#[derive(Debug, Clone, Copy)]
pub struct Node<'c> {
    pub(super) ptr: NonNull<Tensor>,
    pub(super) context: PhantomData<&'c Context>,
}

/// Operands of an attention.
#[derive(Debug)]
pub struct FlashAttn<'c> {
    pub q: Node<'c>,
    pub k: Node<'c>,
    pub v: Node<'c>,
    pub mask: Option<Node<'c>>,
    pub sinks: Option<Node<'c>>,
    /// Scale, ALiBi bias, soft-cap.
    pub numbers: [f32; 3],
}

/// Nodes in the order of their computation.
#[derive(Debug)]
pub struct Graph<'c> {
    pub(super) host: &'static Host,
    pub(super) ptr: Object,
    context: PhantomData<&'c Context>,
}

impl Context {
    /// With room for so many tensors and a graph of them.
    ///
    /// # Errors
    /// No memory.
    pub fn new(host: &'static Host, tensors: usize) -> Result<Context> {
        // Graphs hash their tensors: room for sources as well.
        // SAFETY: plain functions.
        let bytes = unsafe {
            tensors * (host.f.tensor_overhead)() + (host.f.graph_overhead)(4 * tensors, false)
        };
        let params = InitParams { mem_size: bytes + 4096, mem_buffer: null_mut(), no_alloc: true };
        // SAFETY: as declared in the public header.
        let ptr = unsafe { (host.f.init)(params) };
        if ptr.is_null() {
            bail!("ggml_init failed");
        }
        Ok(Context { host, ptr, room: tensors, made: std::cell::Cell::new(0) })
    }

    fn node(&self, ptr: *mut Tensor) -> Result<Node<'_>> {
        Ok(Node { ptr: NonNull::new(ptr).context("no tensor")?, context: PhantomData })
    }

    /// The host aborts when a context is full.
    fn take(&self) -> Result<()> {
        if self.made.get() >= self.room {
            bail!("a context of {} tensors is full", self.room);
        }
        self.made.set(self.made.get() + 1);
        Ok(())
    }

    /// A tensor of a name.
    ///
    /// # Errors
    /// The context is full, or the rows are not whole blocks.
    pub fn tensor(&self, t: Type, ne: [i64; 4], name: &str) -> Result<Node<'_>> {
        self.take()?;
        self.host.row_bytes(t, usize::try_from(ne[0])?)?;
        // SAFETY: a live context with room, four sizes, whole blocks.
        let ptr = unsafe { (self.host.f.new_tensor)(self.ptr, t.0, 4, ne.as_ptr()) };
        let node = self.node(ptr)?;
        self.name(node, name)?;
        Ok(node)
    }

    /// Names a tensor.
    ///
    /// # Errors
    /// The name has a zero byte.
    pub fn name(&self, node: Node<'_>, name: &str) -> Result<()> {
        let name = CString::new(name)?;
        // SAFETY: a live tensor; the host copies the text.
        unsafe { (self.host.f.set_name)(node.as_ptr(), name.as_ptr()) };
        Ok(())
    }

    /// `weight` times `activation`.
    ///
    /// # Errors
    /// The shapes do not belong together (the host would abort), or the context is full.
    pub fn mul_mat<'c>(
        &'c self,
        weight: Node<'c>,
        activation: Node<'c>,
        name: &str,
    ) -> Result<Node<'c>> {
        self.take()?;
        let (w, a) = (weight.ne(), activation.ne());
        if w[0] != a[0] || a[2] % w[2] != 0 || a[3] % w[3] != 0 || weight.is_transposed() {
            bail!("a weight of {w:?} does not multiply {a:?}");
        }
        // SAFETY: live tensors of shapes that belong together.
        let node = self.node(unsafe {
            (self.host.f.mul_mat)(self.ptr, weight.as_ptr(), activation.as_ptr())
        })?;
        self.name(node, name)?;
        Ok(node)
    }

    /// `activation` times those of a stack of weights that `ids` names.
    ///
    /// # Errors
    /// The shapes do not belong together (the host would abort), or the context is full.
    pub fn mul_mat_id<'c>(
        &'c self,
        stack: Node<'c>,
        activation: Node<'c>,
        ids: Node<'c>,
        name: &str,
    ) -> Result<Node<'c>> {
        self.take()?;
        let [w, a, i] = [stack, activation, ids].map(|t| t.ne());
        let plain = w[3] == 1 && a[3] == 1 && i[2..] == [1, 1];
        let belongs = w[0] == a[0] && a[2] == i[1] && i[0] % a[1] == 0;
        if !plain || !belongs || Type(ids.tensor().dtype) != Type::I32 || stack.is_transposed() {
            bail!("a stack of {w:?} does not multiply {a:?} by {i:?}");
        }
        let (w, a, i) = (stack.as_ptr(), activation.as_ptr(), ids.as_ptr());
        // SAFETY: live tensors of shapes that belong together.
        let node = self.node(unsafe { (self.host.f.mul_mat_id)(self.ptr, w, a, i) })?;
        self.name(node, name)?;
        Ok(node)
    }

    /// Flash attention, with F32 as its declared precision, as llama.cpp has it.
    ///
    /// # Errors
    /// The shapes do not belong together (the host would abort), it knows no sinks, or the context
    /// is full.
    pub fn flash_attn<'c>(&'c self, op: &FlashAttn<'c>, name: &str) -> Result<Node<'c>> {
        self.take()?;
        let [q, k, v] = [op.q, op.k, op.v].map(|t| t.ne());
        let streams = k[3] == q[3] && v[3] == q[3];
        if k[0] != q[0] || k[1] != v[1] || k[2] != v[2] || q[2] % k[2] != 0 || !streams {
            bail!("attention of {q:?}, {k:?} and {v:?}");
        }
        if let Some(m) = op.mask.map(|m| m.ne())
            && (m[0] != k[1] || m[1] < q[1] || q[2] % m[2] != 0 || q[3] % m[3] != 0)
        {
            bail!("a mask of {m:?} for {q:?} and {k:?}");
        }
        let [scale, max_bias, softcap] = op.numbers;
        let mask = op.mask.map_or(null_mut(), Node::as_ptr);
        let (q, k, v) = (op.q.as_ptr(), op.k.as_ptr(), op.v.as_ptr());
        // SAFETY: live tensors of shapes that belong together.
        let node = self.node(unsafe {
            (self.host.f.flash_attn)(self.ptr, q, k, v, mask, scale, max_bias, softcap)
        })?;
        // SAFETY: an attention.
        unsafe { (self.host.f.flash_prec)(node.as_ptr(), 10) };
        if let Some(sinks) = op.sinks {
            let add = self.host.add_sinks.context("this host knows no sinks")?;
            if sinks.ne() != [op.q.ne()[2], 1, 1, 1] || sinks.tensor().dtype != 0 {
                bail!("sinks of {:?}", sinks.ne());
            }
            // SAFETY: an attention without sinks, and as many floats as it has heads.
            unsafe { add(node.as_ptr(), sinks.as_ptr()) };
        }
        self.name(node, name)?;
        Ok(node)
    }

    /// The sum of two tensors of one shape.
    ///
    /// # Errors
    /// The shapes differ, or the context is full.
    pub fn add<'c>(&'c self, a: Node<'c>, b: Node<'c>) -> Result<Node<'c>> {
        self.take()?;
        if a.ne() != b.ne() {
            bail!("shapes differ");
        }
        // SAFETY: live tensors of one shape.
        self.node(unsafe { (self.host.f.add)(self.ptr, a.as_ptr(), b.as_ptr()) })
    }

    /// Rows divided by their root mean square.
    ///
    /// # Errors
    /// The context is full.
    pub fn rms_norm<'c>(&'c self, a: Node<'c>) -> Result<Node<'c>> {
        self.take()?;
        // SAFETY: a live tensor.
        self.node(unsafe { (self.host.f.rms_norm)(self.ptr, a.as_ptr(), 1e-5) })
    }

    /// A part of a tensor: sizes, the strides of dimensions 1 to 3 in bytes, and an offset.
    ///
    /// # Errors
    /// It reaches beyond the tensor, or the context is full.
    pub fn view<'c>(
        &'c self,
        t: Node<'c>,
        ne: [i64; 4],
        nb: [usize; 3],
        offset: usize,
    ) -> Result<Node<'c>> {
        self.take()?;
        let whole = t.bytes(self.host);
        let row = self.host.row_bytes(Type(t.tensor().dtype), usize::try_from(ne[0])?)?;
        if t.is_transposed() {
            bail!("a view of rows with gaps between elements");
        }
        let last: usize = ne[1..].iter().zip(nb).map(|(&n, s)| (n - 1) as usize * s).sum();
        if ne.iter().any(|&n| n < 1) || offset + last + row > whole {
            bail!("a view of {ne:?} by {nb:?} from {offset} is beyond {whole} bytes");
        }
        // SAFETY: inside the tensor.
        self.node(unsafe {
            (self.host.f.view_4d)(
                self.ptr,
                t.as_ptr(),
                ne[0],
                ne[1],
                ne[2],
                ne[3],
                nb[0],
                nb[1],
                nb[2],
                offset,
            )
        })
    }

    /// Dimension `i` becomes dimension `to[i]`.
    ///
    /// # Errors
    /// That is no permutation, or the context is full.
    pub fn permute<'c>(&'c self, t: Node<'c>, to: [i32; 4]) -> Result<Node<'c>> {
        self.take()?;
        if (0..4).any(|i| !to.contains(&i)) {
            bail!("{to:?} is no permutation");
        }
        // SAFETY: a live tensor and a permutation.
        self.node(unsafe {
            (self.host.f.permute)(self.ptr, t.as_ptr(), to[0], to[1], to[2], to[3])
        })
    }

    /// The graph that ends in these nodes. One for each context.
    ///
    /// # Errors
    /// No room.
    pub fn graph<'c>(&'c self, ends: &[Node<'c>]) -> Result<Graph<'c>> {
        // SAFETY: a live context with room for one graph, live nodes.
        let ptr = unsafe {
            let graph = (self.host.f.new_graph)(self.ptr, 4 * self.room, false);
            if graph.is_null() {
                bail!("no room for a graph");
            }
            ends.iter().for_each(|n| (self.host.f.build_forward)(graph, n.as_ptr()));
            graph
        };
        Ok(Graph { host: self.host, ptr, context: PhantomData })
    }
}

impl Drop for Context {
    fn drop(&mut self) {
        // SAFETY: made by ggml_init, and every tensor borrowed it.
        unsafe { (self.host.f.free)(self.ptr) };
    }
}

impl Node<'_> {
    pub(super) fn as_ptr(self) -> *mut Tensor {
        self.ptr.as_ptr()
    }

    pub(super) fn tensor(&self) -> &Tensor {
        // SAFETY: the context lives, and nothing else writes its tensors meanwhile: a context and
        // its tensors stay on one thread.
        unsafe { self.ptr.as_ref() }
    }

    /// Sizes.
    pub fn ne(&self) -> [i64; 4] {
        self.tensor().ne
    }

    /// Strides.
    pub fn nb(&self) -> [usize; 4] {
        self.tensor().nb
    }

    /// Whether it is a matrix product.
    pub fn is_product(&self, host: &Host) -> bool {
        // SAFETY: the number came with a tensor of this host.
        let name = unsafe { (host.f.op_name)(self.tensor().op) };
        // SAFETY: a static string of the host.
        !name.is_null() && unsafe { std::ffi::CStr::from_ptr(name) } == c"MUL_MAT"
    }

    fn is_transposed(&self) -> bool {
        self.nb()[0] > self.nb()[1]
    }

    /// Bytes from the first element to the last.
    pub fn bytes(&self, host: &Host) -> usize {
        // SAFETY: a live tensor.
        unsafe { (host.f.nbytes)(self.as_ptr()) }
    }
}

impl Graph<'_> {
    /// The nodes, in order.
    pub fn nodes(&self) -> Vec<Node<'_>> {
        // SAFETY: a live graph, asked inside its count.
        let at = |i| NonNull::new(unsafe { (self.host.f.graph_node)(self.ptr, i) });
        // SAFETY: a live graph.
        let count = unsafe { (self.host.f.graph_n_nodes)(self.ptr) };
        let node = |ptr| Node { ptr, context: PhantomData };
        (0..count).filter_map(at).map(node).collect()
    }
}
