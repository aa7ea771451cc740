//! Hosts in process: every row of ggml-abi 5.2 and 5.3, and hosts that must be refused.
#![allow(unsafe_code)]

use super::*;
use crate::abi::probe::{measure, version};
use crate::abi::symbols::Resolve;
use std::collections::HashMap;
use std::ffi::{CStr, c_char, c_void};
use std::ptr::NonNull;

/// Returns word `N` of the object.
extern "C" fn load<const N: usize>(object: *const usize) -> usize {
    // SAFETY: the probes pass fakes of 40 words.
    unsafe { *object.add(N) }
}

/// Calls word `N` of the object, as the accessors do.
extern "C" fn call<const N: usize>(object: *const usize, a: *mut c_void) -> usize {
    // SAFETY: the word is a trampoline.
    unsafe {
        let f: extern "C" fn(*const usize, *mut c_void) -> usize =
            std::mem::transmute(*object.add(N));
        f(object, a)
    }
}

/// Clears `BYTES` of the properties, then asks the device.
extern "C" fn props<const BYTES: usize>(object: *const usize, out: *mut u8) {
    // SAFETY: the probe passes 128 bytes.
    unsafe { out.write_bytes(0, BYTES) };
    call::<4>(object, out.cast());
}

extern "C" fn one() -> usize {
    1
}

extern "C" fn none() -> usize {
    0
}

static API: [i32; 5] = [0, 1, 2, 3, 7];
extern "C" fn registered<const API_INDEX: usize>(_: usize) -> *const i32 {
    &raw const API[API_INDEX]
}

extern "C" fn version_string() -> *const c_char {
    c"0.31.0".as_ptr()
}
extern "C" fn commit_string() -> *const c_char {
    c"abc1234".as_ptr()
}

#[derive(Default, Clone)]
struct Fake(HashMap<&'static str, usize>);

impl Resolve for Fake {
    fn symbol(&self, name: &CStr) -> Option<NonNull<c_void>> {
        let word = self.0.get(name.to_str().unwrap()).copied()?;
        NonNull::new(word as *mut c_void)
    }
}

macro_rules! at {
    ($f:expr) => {
        $f as *const () as usize
    };
}

impl Fake {
    fn with(mut self, name: &'static str, word: usize) -> Fake {
        self.0.insert(name, word);
        self
    }
    fn without(mut self, name: &'static str) -> Fake {
        self.0.remove(name);
        self
    }

    /// What all generations share.
    fn base() -> Fake {
        Fake::default()
            .with("ggml_backend_dev_backend_reg", at!(load::<15>))
            .with("ggml_backend_name", at!(call::<1>))
            .with("ggml_backend_dev_name", at!(call::<0>))
            .with("ggml_backend_dev_description", at!(call::<1>))
            .with("ggml_backend_dev_memory", at!(call::<2>))
            .with("ggml_backend_dev_type", at!(call::<3>))
            .with("ggml_backend_dev_init", at!(call::<5>))
            .with("ggml_backend_dev_buffer_type", at!(call::<6>))
            .with("ggml_backend_dev_buffer_from_host_ptr", at!(call::<8>))
            .with("ggml_backend_dev_supports_op", at!(call::<9>))
            .with("ggml_backend_dev_supports_buft", at!(call::<10>))
            .with("ggml_backend_dev_offload_op", at!(call::<11>))
            .with("ggml_backend_reg_name", at!(call::<1>))
            .with("ggml_backend_reg_dev_count", at!(call::<2>))
            .with("ggml_backend_reg_dev_get", at!(call::<3>))
            .with("ggml_backend_reg_get_proc_address", at!(call::<4>))
            .with("ggml_backend_reg_count", at!(one))
            .with("ggml_version", at!(version_string))
            .with("ggml_commit", at!(commit_string))
    }

    fn api(self, n: usize) -> Fake {
        let get = match n {
            1 => at!(registered::<1>),
            2 => at!(registered::<2>),
            3 => at!(registered::<3>),
            _ => at!(registered::<4>),
        };
        self.with("ggml_backend_reg_get", get)
    }

    fn a2() -> Fake {
        Fake::base()
            .api(1)
            .with("ggml_backend_get_device", at!(load::<14>))
            .with("ggml_backend_synchronize", at!(call::<6>))
            .with("ggml_backend_graph_compute_async", at!(call::<11>))
            .with("ggml_backend_dev_get_props", at!(props::<40>))
            .with("ggml_backend_buft_get_device", at!(load::<6>))
    }
    fn a3() -> Fake {
        Fake::a2().with("ggml_backend_get_device", at!(load::<15>))
    }
    fn b1() -> Fake {
        Fake::a3().api(2).with("ggml_backend_dev_get_props", at!(props::<56>))
    }
    fn b2() -> Fake {
        Fake::b1()
            .with("ggml_backend_get_device", at!(load::<17>))
            .with("ggml_backend_synchronize", at!(call::<8>))
            .with("ggml_backend_graph_compute_async", at!(call::<13>))
            .with("ggml_backend_tensor_set_2d_async", at!(one))
    }
    fn c() -> Fake {
        Fake::b2()
            .api(3)
            .with("ggml_backend_buft_get_device", at!(load::<8>))
            .with("ggml_backend_buft_alloc_buffer_n", at!(one))
    }
}

fn verdict(host: &Fake) -> Result<(&'static str, i32), String> {
    decide(&measure(host, plausible)).map(|g| (g.name, g.api))
}

#[test]
fn the_two_supported_generations() {
    assert_eq!(verdict(&Fake::b2()), Ok(("B2", 2)));
    assert_eq!(verdict(&Fake::c()), Ok(("C", 3)));
}

#[test]
fn an_empty_registry_leaves_the_decision_to_the_other_probes() {
    for (host, name) in [(Fake::b2(), "B2"), (Fake::c(), "C")] {
        assert_eq!(verdict(&host.with("ggml_backend_reg_count", at!(none))).unwrap().0, name);
    }
    let bare = Fake::c().without("ggml_backend_reg_count").without("ggml_backend_reg_get");
    assert_eq!(verdict(&bare), Ok(("C", 3)));
}

#[test]
fn numbers_are_those_of_the_specs_table() {
    for (host, backend, buft, api, props) in [
        (Fake::a2(), 13, 6, 1, None),
        (Fake::a3(), 14, 6, 1, None),
        (Fake::b1(), 14, 6, 2, None),
        (Fake::b2(), 16, 6, 2, Some(56)),
        (Fake::c(), 16, 8, 3, Some(56)),
    ] {
        let p = measure(&host, plausible);
        assert_eq!((p.backend_slots, p.device_slots), (Some(backend), Some(15)));
        assert_eq!((p.buft_slots, p.host_api, p.props_bytes), (Some(buft), Some(api), props));
    }
}

#[test]
fn older_generations_are_refused_by_name() {
    for (host, name) in [(Fake::a2(), "A1/A2"), (Fake::a3(), "A3"), (Fake::b1(), "B1")] {
        let words = verdict(&host).unwrap_err();
        assert!(words.contains(name), "{words}");
        assert!(words.contains("update the host"), "{words}");
        assert!(words.contains("supports B2 (backend table 16 slots"), "{words}");
    }
}

/// Every way a host can differ: the verdict is a refusal that says so, never a guess.
#[test]
fn anything_else_is_refused() {
    let cases: &[(Fake, &str)] = &[
        (Fake::c().with("ggml_backend_get_device", at!(load::<19>)), "backend table 18 slots"),
        (Fake::c().with("ggml_backend_dev_backend_reg", at!(load::<16>)), "device table 16"),
        (Fake::c().with("ggml_backend_buft_get_device", at!(load::<10>)), "buffer-type table 10"),
        (Fake::c().with("ggml_backend_buft_get_device", at!(load::<7>)), "buffer-type table 7"),
        (Fake::c().with("ggml_backend_get_device", at!(none)), "backend table unknown"),
        (Fake::c().without("ggml_backend_get_device"), "backend table unknown"),
        (Fake::c().with("ggml_backend_dev_get_props", at!(props::<64>)), "64 bytes"),
        (Fake::c().with("ggml_backend_dev_get_props", at!(props::<40>)), "40 bytes"),
        (Fake::c().without("ggml_backend_dev_get_props"), "another size"),
        (Fake::c().api(2), "API version 2"),
        (Fake::b2().api(3), "API version 3"),
        (Fake::c().api(7), "API version 7"),
        (Fake::c().without("ggml_backend_buft_alloc_buffer_n"), "exported functions"),
        (Fake::b2().with("ggml_backend_buft_alloc_buffer_n", at!(one)), "exported functions"),
        (Fake::b2().without("ggml_backend_tensor_set_2d_async"), "exported functions"),
    ];
    for (host, part) in cases {
        let words = verdict(host).unwrap_err();
        assert!(words.contains(part), "{part:?} not in {words:?}");
        assert!(words.contains("this plugin supports") && !words.contains('\n'), "{words}");
    }
}

#[test]
fn a_moved_slot_is_refused_whichever_it_is() {
    for probe in SLOTS {
        let symbol = probe.symbol.to_str().unwrap();
        let moved = verdict(&Fake::c().with(symbol, at!(call::<20>))).unwrap_err();
        assert!(moved.contains(&format!("{} reads slot", probe.name)), "{moved}");
        let gone = verdict(&Fake::c().without(symbol)).unwrap_err();
        assert!(gone.contains(&format!("{} reads slot unknown", probe.name)), "{gone}");
    }
}

/// A host whose layout is unknown must not be made to call through our fakes.
#[test]
fn slots_are_probed_only_on_a_known_layout() {
    extern "C" fn explode() -> usize {
        std::process::abort()
    }
    let mut host = Fake::c().with("ggml_backend_get_device", at!(load::<19>));
    for probe in SLOTS {
        host = host.with(probe.symbol.to_str().unwrap(), at!(explode));
    }
    host = host.with("ggml_backend_dev_get_props", at!(explode));
    assert!(verdict(&host).unwrap_err().contains("unknown backend interface"));
}

#[test]
fn the_version_is_told_as_far_as_it_is_known() {
    assert_eq!(version(&Fake::c()), "ggml 0.31.0 (abc1234)");
    assert_eq!(version(&Fake::c().without("ggml_commit")), "ggml 0.31.0");
    assert!(version(&Fake::default()).contains("unknown version"));
}
