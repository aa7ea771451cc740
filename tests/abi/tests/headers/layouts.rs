//! The plugin's numbers, beside clang's.

use crate::clang::Headers;
use ggml_rocket::abi::constants::{USAGE_WEIGHTS, level, status};
use ggml_rocket::abi::host::{InitParams, TypeTraits};
use ggml_rocket::abi::props::{CapsA, CapsB, PropsA, PropsB};
use ggml_rocket::abi::tensor::{FLAG_COMPUTE, MAX_DIMS, MAX_NAME, Tensor};
use ggml_rocket::abi::{Generation, slot};
use ggml_rocket::route::Dtype;
use std::mem::offset_of;

const WORD: usize = size_of::<usize>();

/// What, ours, clang's.
pub type Difference = (String, i64, Option<i64>);

/// A field as bindgen writes it (words of Rust get an underscore) and its offset, or an empty name
/// and the size.
pub type Fields = Vec<(&'static str, usize)>;

#[derive(Debug, Default)]
struct Findings(Vec<Difference>);

impl Findings {
    fn check(&mut self, what: impl Into<String>, ours: impl TryInto<i64>, clang: Option<i64>) {
        let ours = ours.try_into().ok().expect("fits");
        if clang != Some(ours) {
            self.0.push((what.into(), ours, clang));
        }
    }

    fn size(&mut self, h: &Headers, name: &str, ours: usize) {
        self.check(format!("size of {name}"), ours, h.size(name).map(|n| n as i64));
    }

    fn offset(&mut self, h: &Headers, field: &str, ours: usize) {
        self.check(field, ours, h.offset(field).map(|n| n as i64));
    }

    fn slots(&mut self, h: &Headers, table: &str, slots: &[(&str, usize)]) {
        for (name, slot) in slots {
            self.offset(h, &format!("{table}::{name}"), slot * WORD);
        }
    }

    fn constant(&mut self, h: &Headers, name: &str, ours: i32) {
        self.check(name, ours, h.constant(name));
    }
}

/// A struct's fields and size.
pub fn fields(h: &Headers, name: &str, fields: &Fields) -> Vec<Difference> {
    let mut f = Findings::default();
    for (field, offset) in fields {
        if field.is_empty() {
            f.size(h, name, *offset);
        } else {
            f.offset(h, &format!("{name}::{field}"), *offset);
        }
    }
    f.0
}

macro_rules! layout {
    ($t:ty: $($field:ident = $theirs:literal),*) => {
        vec![("", size_of::<$t>()), $(($theirs, offset_of!($t, $field))),*]
    };
}

pub fn tensor() -> Fields {
    layout!(Tensor: dtype = "type_", buffer = "buffer", ne = "ne", nb = "nb", op = "op",
        op_params = "op_params", flags = "flags", src = "src", view_src = "view_src",
        view_offs = "view_offs", data = "data", name = "name", extra = "extra")
}

pub fn init_params() -> Fields {
    layout!(InitParams: mem_size = "mem_size", mem_buffer = "mem_buffer", no_alloc = "no_alloc")
}

pub fn limits(h: &Headers) -> Vec<Difference> {
    let mut f = Findings::default();
    f.check("GGML_MAX_DIMS", MAX_DIMS, h.constant("GGML_MAX_DIMS"));
    f.check("GGML_MAX_NAME", MAX_NAME, h.constant("GGML_MAX_NAME"));
    // The arrays of the struct.
    f.check("GGML_MAX_SRC", 10, h.constant("GGML_MAX_SRC"));
    f.check("GGML_MAX_OP_PARAMS", 64, h.constant("GGML_MAX_OP_PARAMS"));
    f.0
}

/// Everything that the generations differ in, and the tables around it.
pub fn generation(h: &Headers, g: &Generation) -> Vec<Difference> {
    let mut f = Findings::default();
    f.constant(h, "GGML_BACKEND_API_VERSION", g.api);

    let t = &g.backend;
    f.size(h, "ggml_backend_i", t.slots * WORD);
    f.slots(
        h,
        "ggml_backend_i",
        &[
            ("get_name", t.get_name),
            ("free", t.free),
            ("synchronize", t.synchronize),
            ("graph_compute", t.graph_compute),
        ],
    );
    f.size(h, "ggml_backend", t.words() * WORD);
    f.offset(h, "ggml_backend::guid", 0);
    f.offset(h, "ggml_backend::iface", WORD);
    f.offset(h, "ggml_backend::device", t.device() * WORD);
    f.offset(h, "ggml_backend::context", t.context() * WORD);

    f.size(h, "ggml_backend_device_i", g.device_slots * WORD);
    use slot::device as d;
    f.slots(
        h,
        "ggml_backend_device_i",
        &[
            ("get_name", d::GET_NAME),
            ("get_description", d::GET_DESCRIPTION),
            ("get_memory", d::GET_MEMORY),
            ("get_type", d::GET_TYPE),
            ("get_props", d::GET_PROPS),
            ("init_backend", d::INIT_BACKEND),
            ("get_buffer_type", d::GET_BUFFER_TYPE),
            ("get_host_buffer_type", d::GET_HOST_BUFFER_TYPE),
            ("buffer_from_host_ptr", d::BUFFER_FROM_HOST_PTR),
            ("supports_op", d::SUPPORTS_OP),
            ("supports_buft", d::SUPPORTS_BUFT),
            ("offload_op", d::OFFLOAD_OP),
        ],
    );
    f.size(h, "ggml_backend_device", (g.device_slots + 2) * WORD);
    f.offset(h, "ggml_backend_device::iface", 0);
    f.offset(h, "ggml_backend_device::reg", g.device_slots * WORD);
    f.offset(h, "ggml_backend_device::context", (g.device_slots + 1) * WORD);

    use slot::reg as r;
    f.slots(
        h,
        "ggml_backend_reg_i",
        &[
            ("get_name", r::GET_NAME),
            ("get_device_count", r::GET_DEVICE_COUNT),
            ("get_device", r::GET_DEVICE),
            ("get_proc_address", r::GET_PROC_ADDRESS),
        ],
    );
    f.size(h, "ggml_backend_reg_i", 4 * WORD);
    f.offset(h, "ggml_backend_reg::api_version", 0);
    f.offset(h, "ggml_backend_reg::iface", WORD);

    f.size(h, "ggml_backend_buffer_type_i", g.buft_slots * WORD);
    f.0.extend(public(h, g));
    f.0
}

/// The part of a generation that shows in the public headers.
pub fn public(h: &Headers, g: &Generation) -> Vec<Difference> {
    let mut f = Findings::default();
    f.constant(h, "GGML_BACKEND_DEVICE_TYPE_ACCEL", g.accel);
    for (function, ours) in [
        ("ggml_backend_tensor_set_2d_async", g.has_2d),
        ("ggml_backend_buft_alloc_buffer_n", g.has_buffer_n),
    ] {
        f.check(function, i32::from(ours), Some(h.text.contains(function).into()));
    }
    const PROPS: &str = "ggml_backend_dev_props";
    f.size(h, PROPS, g.props_bytes);
    let ours: Fields = if g.props_bytes == size_of::<PropsA>() {
        layout!(PropsA: name = "name", description = "description", memory_free = "memory_free",
            memory_total = "memory_total", kind = "type_", caps = "caps")
    } else {
        layout!(PropsB: name = "name", description = "description", memory_free = "memory_free",
            memory_total = "memory_total", kind = "type_", device_id = "device_id", caps = "caps")
    };
    f.0.extend(fields(h, PROPS, &ours));
    const CAPS: &str = "ggml_backend_dev_caps";
    let mut caps: Fields = layout!(CapsA: is_async = "async_", host_buffer = "host_buffer",
        buffer_from_host_ptr = "buffer_from_host_ptr", events = "events");
    // The fifth came within B2, into what was padding before.
    if h.offset("ggml_backend_dev_caps::mmap_support").is_some() {
        caps[0].1 = size_of::<CapsB>();
        caps.push(("mmap_support", offset_of!(CapsB, mmap_support)));
    }
    f.0.extend(fields(h, CAPS, &caps));
    f.0
}

/// Type traits, and those of ggml-cpu.h as ggml-abi has them.
pub fn traits(h: &Headers) -> Vec<Difference> {
    let base = layout!(TypeTraits: type_name = "type_name", blck_size = "blck_size",
        blck_size_interleave = "blck_size_interleave", type_size = "type_size",
        is_quantized = "is_quantized", to_float = "to_float", from_float_ref = "from_float_ref");
    let cpu: Fields = vec![("from_float", 0), ("vec_dot", 8), ("vec_dot_type", 16)];
    let mut all = fields(h, "ggml_type_traits", &base);
    all.extend(fields(h, "ggml_type_traits_cpu", &cpu));
    all
}

/// Enums that are the same everywhere.
pub fn numbers(h: &Headers) -> Vec<Difference> {
    let mut f = Findings::default();
    f.constant(h, "GGML_BACKEND_DEVICE_TYPE_CPU", 0);
    f.constant(h, "GGML_STATUS_SUCCESS", status::SUCCESS);
    f.constant(h, "GGML_STATUS_FAILED", status::FAILED);
    f.constant(h, "GGML_LOG_LEVEL_DEBUG", level::DEBUG);
    f.constant(h, "GGML_LOG_LEVEL_INFO", level::INFO);
    f.constant(h, "GGML_LOG_LEVEL_WARN", level::WARN);
    f.constant(h, "GGML_LOG_LEVEL_ERROR", level::ERROR);
    f.constant(h, "GGML_BACKEND_BUFFER_USAGE_WEIGHTS", USAGE_WEIGHTS);
    // The flag and this function came together (ggml-abi 2.6).
    if h.text.contains("ggml_build_forward_select") {
        f.constant(h, "GGML_TENSOR_FLAG_COMPUTE", FLAG_COMPUTE);
    } else if let Some(other) = h.constant("GGML_TENSOR_FLAG_COMPUTE") {
        f.0.push(("COMPUTE without forward_select".to_owned(), 0, Some(other)));
    }
    f.0
}

#[derive(Debug)]
pub struct Types {
    /// Numbers that both sides have a name for.
    pub compared: usize,
    pub differences: Vec<Difference>,
}

/// The names the plugin has for type numbers.
pub fn types(h: &Headers) -> Types {
    let mut t = Types { compared: 0, differences: Vec::new() };
    for (name, number) in h.constants("GGML_TYPE_").filter(|(n, _)| *n != "COUNT") {
        let ours = Dtype(i32::try_from(number).expect("small")).name();
        // A number the plugin has no name for is written as such.
        if ours.starts_with("type") {
            continue;
        }
        t.compared += 1;
        if !ours.eq_ignore_ascii_case(name) {
            t.differences.push((format!("{ours} is called {name}"), number, None));
        }
    }
    t
}
