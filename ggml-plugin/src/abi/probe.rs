//! Measuring the host's tables (ggml-abi 5.2): its accessors are called on fake objects whose
//! words are sentinels or trampolines. Deciding what the numbers mean is [`super::verdict`].
#![allow(unsafe_code)]

use super::symbols::Resolve;
use super::{BackendTable, Generation, trampoline};
use std::ffi::{CStr, c_char, c_void};

/// What was measured. `None` means the accessor is missing or returned nothing of ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Probes {
    /// P1: slots of the backend table.
    pub backend_slots: Option<usize>,
    /// P2: slots of the device table.
    pub device_slots: Option<usize>,
    /// P8: slots of the buffer-type table.
    pub buft_slots: Option<usize>,
    /// P6: bytes of the device properties.
    pub props_bytes: Option<usize>,
    /// P7: the API version of a backend the host has already accepted.
    pub host_api: Option<i32>,
    /// `ggml_backend_tensor_set_2d_async` is exported.
    pub has_2d: bool,
    /// `ggml_backend_buft_alloc_buffer_n` is exported.
    pub has_buffer_n: bool,
    /// P3 to P5: accessor and the slot it reads, in the order of [`SLOTS`]. Empty when the pure
    /// loads already showed an unknown layout: then nothing more is called.
    pub slots: Vec<(&'static str, Option<usize>)>,
}

/// An accessor whose slot is checked, and in which table.
#[derive(Debug)]
pub struct SlotProbe {
    /// The host's function.
    pub symbol: &'static CStr,
    /// Name in messages.
    pub name: &'static str,
    /// The slot number this plugin would fill.
    pub slot: Slot,
}

/// A slot of one of the three tables.
#[derive(Debug, Clone, Copy)]
pub enum Slot {
    /// Of the instance: guid, then the table. It depends on the generation.
    Backend(fn(&BackendTable) -> usize),
    /// Of the device: the table from word 0.
    Device(usize),
    /// Of the registration record: API version, then the table.
    Reg(usize),
}

impl SlotProbe {
    /// The slot in a host of this generation.
    pub fn expected(&self, g: &Generation) -> usize {
        match self.slot {
            Slot::Backend(of) => of(&g.backend),
            Slot::Device(n) | Slot::Reg(n) => n,
        }
    }
}

const fn probe(symbol: &'static CStr, name: &'static str, slot: Slot) -> SlotProbe {
    SlotProbe { symbol, name, slot }
}

/// P3, P4, P5: the slots that an exported function reaches with nothing but the object. Those of
/// the instance come first, in this order.
pub const SLOTS: &[SlotProbe] = {
    use super::slot::{device, reg};
    use Slot::{Backend, Device, Reg};
    &[
        probe(c"ggml_backend_name", "name", Backend(|t| t.get_name)),
        probe(c"ggml_backend_free", "free", Backend(|t| t.free)),
        probe(c"ggml_backend_synchronize", "synchronize", Backend(|t| t.synchronize)),
        probe(c"ggml_backend_graph_compute_async", "graph_compute", Backend(|t| t.graph_compute)),
        probe(c"ggml_backend_dev_name", "dev_name", Device(device::GET_NAME)),
        probe(c"ggml_backend_dev_description", "dev_description", Device(device::GET_DESCRIPTION)),
        probe(c"ggml_backend_dev_memory", "dev_memory", Device(device::GET_MEMORY)),
        probe(c"ggml_backend_dev_type", "dev_type", Device(device::GET_TYPE)),
        probe(c"ggml_backend_dev_init", "dev_init", Device(device::INIT_BACKEND)),
        probe(c"ggml_backend_dev_buffer_type", "dev_buffer_type", Device(device::GET_BUFFER_TYPE)),
        probe(
            c"ggml_backend_dev_buffer_from_host_ptr",
            "dev_buffer_from_host_ptr",
            Device(device::BUFFER_FROM_HOST_PTR),
        ),
        probe(c"ggml_backend_dev_supports_op", "dev_supports_op", Device(device::SUPPORTS_OP)),
        probe(
            c"ggml_backend_dev_supports_buft",
            "dev_supports_buft",
            Device(device::SUPPORTS_BUFT),
        ),
        probe(c"ggml_backend_dev_offload_op", "dev_offload_op", Device(device::OFFLOAD_OP)),
        probe(c"ggml_backend_reg_name", "reg_name", Reg(reg::GET_NAME)),
        probe(c"ggml_backend_reg_dev_count", "reg_dev_count", Reg(reg::GET_DEVICE_COUNT)),
        probe(c"ggml_backend_reg_dev_get", "reg_dev_get", Reg(reg::GET_DEVICE)),
        probe(
            c"ggml_backend_reg_get_proc_address",
            "reg_get_proc_address",
            Reg(reg::GET_PROC_ADDRESS),
        ),
    ]
};

/// Words of a fake object: more than any generation's.
const WORDS: usize = 40;
/// Sentinels are small odd numbers: distinct, and no valid address in case one is followed.
const SENTINEL: usize = 0x1001;

/// Runs the probes, the pure loads first. `plausible` is asked after them whether the slot probes,
/// which make the host call through our fake, may run. A registration record whose name is told by
/// the function at `own` is this plugin's, and proves nothing about the host.
pub fn measure(host: &dyn Resolve, own: usize, plausible: impl FnOnce(&Probes) -> bool) -> Probes {
    let mut p = Probes {
        backend_slots: sentinel(host, c"ggml_backend_get_device").and_then(|i| i.checked_sub(1)),
        device_slots: sentinel(host, c"ggml_backend_dev_backend_reg"),
        buft_slots: sentinel(host, c"ggml_backend_buft_get_device"),
        props_bytes: None,
        host_api: accepted_api(host, own),
        has_2d: host.symbol(c"ggml_backend_tensor_set_2d_async").is_some(),
        has_buffer_n: host.symbol(c"ggml_backend_buft_alloc_buffer_n").is_some(),
        slots: Vec::new(),
    };
    if plausible(&p) {
        p.props_bytes = props_bytes(host);
        p.slots = SLOTS.iter().map(|s| (s.name, slot_of(host, s))).collect();
    }
    p
}

/// P1, P2, P8: which word of the object `accessor` returns.
fn sentinel(host: &dyn Resolve, accessor: &CStr) -> Option<usize> {
    let f = host.symbol(accessor)?;
    let words: [usize; WORDS] = std::array::from_fn(|i| SENTINEL + 2 * i);
    // SAFETY: these accessors take one object pointer, load one word of it and return it
    // (ggml-abi 5.2); the fake is larger than any known object.
    let value = unsafe {
        let f: unsafe extern "C" fn(*const usize) -> usize = std::mem::transmute(f.as_ptr());
        f(words.as_ptr())
    };
    words.iter().position(|&w| w == value)
}

/// P6: how much of the caller's struct the host clears before it asks the device.
fn props_bytes(host: &dyn Resolve) -> Option<usize> {
    let f = host.symbol(c"ggml_backend_dev_get_props")?;
    const FILL: u8 = 0xAA;
    let mut props = [u64::from_ne_bytes([FILL; 8]); 16];
    let device = device_fake();
    // SAFETY: the accessor clears the struct, which is at most 56 bytes in any known generation
    // and has 128 here, and calls one slot of the device, which is a trampoline.
    unsafe {
        let f: unsafe extern "C" fn(*const usize, *mut c_void) = std::mem::transmute(f.as_ptr());
        f(device.as_ptr(), props.as_mut_ptr().cast());
    }
    let bytes = props.iter().flat_map(|w| w.to_ne_bytes());
    Some(bytes.take_while(|&b| b == 0).count())
}

/// P7: what the first record says that is not ours.
fn accepted_api(host: &dyn Resolve, own: usize) -> Option<i32> {
    let count = host.symbol(c"ggml_backend_reg_count")?;
    let get = host.symbol(c"ggml_backend_reg_get")?;
    // SAFETY: both are functions of the registry with these signatures in every generation; a
    // registration record is six words, the first half of the first its version, the second its
    // get_name (ggml-abi 2.1).
    unsafe {
        let count: unsafe extern "C" fn() -> usize = std::mem::transmute(count.as_ptr());
        let get: unsafe extern "C" fn(usize) -> *const usize = std::mem::transmute(get.as_ptr());
        let records = (0..count()).map(|i| get(i)).filter(|r| !r.is_null());
        let mut foreign = records.filter(|&r| *r.add(1) != own);
        foreign.next().map(|r| *r.cast::<i32>())
    }
}

fn device_fake() -> [usize; WORDS] {
    let table = trampoline::table();
    std::array::from_fn(|i| table.get(i).copied().unwrap_or(0))
}

/// P3, P4, P5: which slot `probe.symbol` calls.
fn slot_of(host: &dyn Resolve, probe: &SlotProbe) -> Option<usize> {
    let f = host.symbol(probe.symbol)?;
    let first = usize::from(!matches!(probe.slot, Slot::Device(_)));
    let table = trampoline::table();
    let fake: [usize; WORDS] = std::array::from_fn(|i| {
        i.checked_sub(first).and_then(|i| table.get(i)).copied().unwrap_or(0)
    });
    // Whatever the accessor passes on is our own memory: a name, or two numbers to write.
    let mut scratch = [0u64; 8];
    let second: *mut c_void = if probe.name == "reg_dev_get" {
        // An index that must be inside the device count the trampoline reported.
        std::ptr::null_mut()
    } else {
        scratch.as_mut_ptr().cast()
    };
    trampoline::called_by(|| {
        // SAFETY: each accessor in the table takes an object and at most three further words
        // (pointers or numbers), and does no more than call one slot with them (ggml-abi 5.2,
        // tried on every generation); surplus arguments are ignored by both calling conventions.
        unsafe {
            let f: unsafe extern "C" fn(*const usize, *mut c_void, *mut c_void, usize) -> usize =
                std::mem::transmute(f.as_ptr());
            f(fake.as_ptr(), second, scratch.as_mut_ptr().add(4).cast(), 0);
        }
    })
}

/// Version and commit of the host, as far as it tells.
pub fn version(host: &dyn Resolve) -> String {
    let text = |name: &CStr| {
        let f = host.symbol(name)?;
        // SAFETY: both functions take nothing and return a static string.
        unsafe {
            let f: unsafe extern "C" fn() -> *const c_char = std::mem::transmute(f.as_ptr());
            let s = f();
            (!s.is_null()).then(|| CStr::from_ptr(s).to_string_lossy().into_owned())
        }
    };
    match (text(c"ggml_version"), text(c"ggml_commit")) {
        (Some(v), Some(c)) => format!("ggml {v} ({c})"),
        (Some(v), None) => format!("ggml {v}"),
        (None, _) => "ggml of unknown version (before July 2025)".to_owned(),
    }
}
