//! Buffers and backend instances.

use super::{Context, Device, Graph, Host, Node};
use anyhow::{Result, bail};
use ggml_rocket::abi::host::Object;
use std::marker::PhantomData;
use std::mem::transmute;
use std::ptr::{NonNull, null};

/// Usage of a buffer that holds weights (ggml-abi 2.4).
const USAGE_WEIGHTS: i32 = 1;
const ALIGNMENT: usize = 64;

/// Memory of our own, so that tensors can be put at an address of choice.
#[derive(Debug)]
#[repr(align(64))]
#[derive(Clone, Copy)]
struct Line(#[allow(dead_code)] [u8; ALIGNMENT]);

/// See [`Buffer::around`].
#[derive(Debug)]
pub struct Region(Vec<Line>);

impl Region {
    /// So many bytes, rounded up.
    pub fn new(bytes: usize) -> Region {
        Region(vec![Line([0; ALIGNMENT]); bytes.div_ceil(ALIGNMENT)])
    }
}

/// A buffer of the plain CPU type.
#[derive(Debug)]
pub struct Buffer<'a> {
    host: &'static Host,
    ptr: Object,
    /// The tensors' context, or the memory.
    _holds: PhantomData<&'a ()>,
}

impl<'a> Buffer<'a> {
    /// Memory for every tensor of a context that has none, views included.
    ///
    /// # Errors
    /// No memory, or nothing to allocate.
    pub fn of(context: &'a Context, weights: bool) -> Result<Buffer<'a>> {
        let host = context.host;
        // SAFETY: a live context and the host's CPU type.
        let ptr = unsafe { (host.f.alloc_tensors)(context.ptr, (host.f.cpu_buffer_type)()) };
        Buffer::made(host, ptr, weights)
    }

    /// A buffer around memory of our own; its tensors are placed with [`Buffer::place`].
    ///
    /// # Errors
    /// No memory.
    pub fn around(
        host: &'static Host,
        memory: &'a mut Region,
        weights: bool,
    ) -> Result<Buffer<'a>> {
        let bytes = memory.0.len() * ALIGNMENT;
        // SAFETY: so many bytes that are borrowed for as long as the buffer lives.
        let ptr = unsafe { (host.f.cpu_buffer_from_ptr)(memory.0.as_mut_ptr().cast(), bytes) };
        Buffer::made(host, ptr, weights)
    }

    fn made(host: &'static Host, ptr: Object, weights: bool) -> Result<Buffer<'a>> {
        if ptr.is_null() {
            bail!("the host made no buffer");
        }
        if weights {
            // SAFETY: a live buffer.
            unsafe { (host.f.buffer_set_usage)(ptr, USAGE_WEIGHTS) };
        }
        Ok(Buffer { host, ptr, _holds: PhantomData })
    }

    /// Puts a tensor without memory at an offset.
    ///
    /// # Errors
    /// It does not fit there.
    pub fn place(&self, node: Node<'_>, offset: usize) -> Result<()> {
        let (base, bytes) = self.range();
        let t = node.tensor();
        if !offset.is_multiple_of(ALIGNMENT)
            || offset + node.bytes(self.host) > bytes
            || !t.data.is_null()
        {
            bail!("{} does not fit at {offset}", t.name());
        }
        // SAFETY: inside the buffer, and the tensor has no memory yet.
        let status = unsafe {
            (self.host.f.tensor_alloc)(self.ptr, node.as_ptr(), (base + offset) as Object)
        };
        if status != 0 { bail!("status {status}") } else { Ok(()) }
    }

    /// First byte and size.
    pub fn range(&self) -> (usize, usize) {
        // SAFETY: a live buffer.
        unsafe {
            ((self.host.f.buffer_base)(self.ptr) as usize, (self.host.f.buffer_size)(self.ptr))
        }
    }

    fn holds(&self, node: Node<'_>) -> bool {
        let (base, bytes) = self.range();
        let first = node.tensor().data as usize;
        node.tensor().buffer == self.ptr
            && first >= base
            && first + node.bytes(self.host) <= base + bytes
    }

    /// Fills a tensor, whose bytes lie without gaps.
    ///
    /// # Errors
    /// The tensor is elsewhere or of another size.
    pub fn write(&self, node: Node<'_>, bytes: &[u8]) -> Result<()> {
        if !self.holds(node) || node.bytes(self.host) != bytes.len() {
            bail!("{} bytes do not fill {}", bytes.len(), node.tensor().name());
        }
        // SAFETY: so many bytes inside the live buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(bytes.as_ptr(), node.tensor().data.cast(), bytes.len());
        }
        Ok(())
    }

    /// Fills a tensor of floats.
    ///
    /// # Errors
    /// As [`Buffer::write`].
    pub fn write_floats(&self, node: Node<'_>, values: &[f32]) -> Result<()> {
        let bytes: Vec<u8> = values.iter().flat_map(|x| x.to_le_bytes()).collect();
        self.write(node, &bytes)
    }

    /// The floats of a tensor without gaps.
    ///
    /// # Errors
    /// The tensor is elsewhere.
    pub fn read_floats(&self, node: Node<'_>) -> Result<Vec<f32>> {
        if !self.holds(node) || node.tensor().dtype != 0 {
            bail!("{} is no tensor of floats in this buffer", node.tensor().name());
        }
        let mut out = vec![0f32; node.bytes(self.host) / 4];
        // SAFETY: so many bytes inside the live buffer.
        unsafe {
            std::ptr::copy_nonoverlapping(node.tensor().data.cast(), out.as_mut_ptr(), out.len());
        }
        Ok(out)
    }
}

impl Drop for Buffer<'_> {
    fn drop(&mut self) {
        // SAFETY: made by the host, freed once.
        unsafe { (self.host.f.buffer_free)(self.ptr) };
    }
}

/// Whether these nodes and their sources lie in live buffers; or, if they need no memory, have none.
pub(super) fn check(nodes: &[Node<'_>], buffers: &[&Buffer<'_>], need: bool) -> Result<()> {
    for node in nodes {
        let sources = node.tensor().src.iter().filter_map(|&s| NonNull::new(s));
        for ptr in sources.chain([node.ptr]) {
            let t = Node { ptr, ..*node };
            let absent = t.tensor().buffer.is_null() && !need;
            if !absent && !buffers.iter().any(|b| b.holds(t)) {
                bail!("{} lies in none of the buffers", t.tensor().name());
            }
        }
    }
    Ok(())
}

/// An instance of a device.
#[derive(Debug)]
pub struct Backend {
    host: &'static Host,
    ptr: Object,
}

impl Backend {
    /// Opens a device, with one thread for what the CPU does.
    ///
    /// # Errors
    /// The device refused.
    pub fn new(host: &'static Host, device: Device) -> Result<Backend> {
        // SAFETY: a device of the registry; null parameters are allowed.
        let ptr = unsafe { (host.f.dev_init)(device.0 as Object, null()) };
        if ptr.is_null() {
            bail!("the device made no backend");
        }
        let name = c"ggml_backend_set_n_threads";
        // SAFETY: a device has a registration record; the name is terminated.
        let set = unsafe { (host.f.reg_proc)((host.f.dev_reg)(device.0 as Object), name.as_ptr()) };
        if !set.is_null() {
            // SAFETY: the extension of this name has this signature, and the instance is live.
            unsafe { transmute::<Object, unsafe extern "C" fn(Object, i32)>(set)(ptr, 1) };
        }
        Ok(Backend { host, ptr })
    }

    /// Computes a graph whose tensors all lie in these buffers.
    ///
    /// # Errors
    /// A tensor lies elsewhere, or the host's status.
    pub fn compute(&self, graph: &Graph<'_>, buffers: &[&Buffer<'_>]) -> Result<()> {
        check(&graph.nodes(), buffers, true)?;
        // SAFETY: a live instance, and a live graph whose tensors all have live memory.
        match unsafe { (self.host.f.graph_compute)(self.ptr, graph.ptr) } {
            0 => Ok(()),
            status => bail!("graph_compute returned {status}"),
        }
    }
}

impl Drop for Backend {
    fn drop(&mut self) {
        // SAFETY: made by the host, freed once.
        unsafe { (self.host.f.backend_free)(self.ptr) };
    }
}
