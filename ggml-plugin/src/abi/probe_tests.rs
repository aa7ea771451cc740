//! Hosts in process: every row of ggml-abi 5.2 and 5.3, and hosts that must be refused.
#![allow(unsafe_code)]

use super::*;
use crate::abi::generation::ADAPTED;
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

/// Address of this plugin's own get_name, as far as these tests go.
const OWN: usize = 0xabc;

/// Registration records: version, get_name.
static RECORDS: [[usize; 2]; 5] = [[9, OWN], [1, 1], [2, 1], [3, 1], [7, 1]];
extern "C" fn registered<const RECORD: usize>(_: usize) -> *const usize {
    RECORDS[RECORD].as_ptr()
}
/// Ours first, then a host's of version 3.
extern "C" fn ours_first(i: usize) -> *const usize {
    RECORDS[[0, 3][i]].as_ptr()
}
extern "C" fn two() -> usize {
    2
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
            .with("ggml_backend_free", at!(call::<2>))
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

/// One host of every generation, and its row of ggml-abi 1.
fn all() -> [(Fake, &'static str, i32); 5] {
    [
        (Fake::a2(), "A1/A2", 1),
        (Fake::a3(), "A3", 1),
        (Fake::b1(), "B1", 2),
        (Fake::b2(), "B2", 2),
        (Fake::c(), "C", 3),
    ]
}

fn judged(host: &Fake, adapt: bool) -> Result<Generation, String> {
    decide(&measure(host, OWN, |p| worth_probing(p, adapt)), adapt)
}

fn verdict(host: &Fake) -> Result<(&'static str, i32), String> {
    judged(host, false).map(|g| (g.name, g.api))
}

#[test]
fn every_generation_is_recognised() {
    for (host, name, api) in all() {
        assert_eq!(verdict(&host), Ok((name, api)));
        // The override changes nothing where the layout is known.
        assert_eq!(judged(&host, true), judged(&host, false));
    }
}

/// The rows against ggml-abi 1, 2.3 and 2.5.
#[test]
fn tables_are_those_of_the_spec() {
    let rows = [
        (13, [0, 1, 5, 10], [14, 15, 16], 40, 2),
        (14, [0, 1, 5, 10], [15, 16, 17], 40, 2),
        (14, [0, 1, 5, 10], [15, 16, 17], 56, 3),
        (16, [0, 1, 7, 12], [17, 18, 19], 56, 3),
        (16, [0, 1, 7, 12], [17, 18, 19], 56, 3),
    ];
    for ((host, name, _), (slots, numbers, words, props, accel)) in all().iter().zip(rows) {
        let g = judged(host, false).unwrap();
        let t = g.backend;
        assert_eq!((t.slots, g.props_bytes, g.accel), (slots, props, accel), "{name}");
        assert_eq!([t.get_name, t.free, t.synchronize, t.graph_compute], numbers, "{name}");
        assert_eq!([t.device(), t.context(), t.words()], words, "{name}");
        assert_eq!(g.device_slots, 15);
    }
}

#[test]
fn an_empty_registry_leaves_the_decision_to_the_other_probes() {
    for (host, name, api) in all() {
        let empty = host.clone().with("ggml_backend_reg_count", at!(none));
        assert_eq!(verdict(&empty), Ok((name, api)));
        let bare = host.without("ggml_backend_reg_count").without("ggml_backend_reg_get");
        assert_eq!(verdict(&bare), Ok((name, api)));
    }
}

#[test]
fn our_own_record_proves_nothing() {
    let own = |host: Fake| host.with("ggml_backend_reg_get", at!(registered::<0>));
    let p = measure(&own(Fake::c()), OWN, plausible);
    assert_eq!(p.host_api, None);
    assert_eq!(verdict(&own(Fake::c())), Ok(("C", 3)));
    // Control: the same record under another owner counts.
    assert_eq!(measure(&own(Fake::c()), OWN + 1, plausible).host_api, Some(9));
    let both = Fake::c()
        .with("ggml_backend_reg_count", at!(two))
        .with("ggml_backend_reg_get", at!(ours_first));
    assert_eq!(measure(&both, OWN, plausible).host_api, Some(3));
}

#[test]
fn numbers_are_those_of_the_specs_table() {
    for (host, backend, buft, api, props) in [
        (Fake::a2(), 13, 6, 1, 40),
        (Fake::a3(), 14, 6, 1, 40),
        (Fake::b1(), 14, 6, 2, 56),
        (Fake::b2(), 16, 6, 2, 56),
        (Fake::c(), 16, 8, 3, 56),
    ] {
        let p = measure(&host, OWN, plausible);
        assert_eq!((p.backend_slots, p.device_slots), (Some(backend), Some(15)));
        assert_eq!((p.buft_slots, p.host_api, p.props_bytes), (Some(buft), Some(api), Some(props)));
    }
}

/// A3 and B1 have the same tables and differ in nothing but the properties and what follows.
#[test]
fn the_properties_tell_a3_from_b1() {
    let mute = |h: Fake| h.with("ggml_backend_reg_count", at!(none));
    assert_eq!(verdict(&mute(Fake::a3())), Ok(("A3", 1)));
    assert_eq!(verdict(&mute(Fake::b1())), Ok(("B1", 2)));
    let words = verdict(&Fake::a3().api(2)).unwrap_err();
    assert!(words.contains("generation A3") && words.contains("API version differs"), "{words}");
    let words = verdict(&Fake::b1().with("ggml_backend_dev_get_props", at!(props::<48>)));
    let words = words.unwrap_err();
    assert!(words.contains("A3 (2025-09) or B1") && words.contains("48 bytes"), "{words}");
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
        (Fake::a2().with("ggml_backend_tensor_set_2d_async", at!(one)), "exported functions"),
        (Fake::b1().with("ggml_backend_tensor_set_2d_async", at!(one)), "exported functions"),
        (Fake::a2().with("ggml_backend_dev_get_props", at!(props::<56>)), "56 bytes"),
        (Fake::b2().with("ggml_backend_dev_get_props", at!(props::<40>)), "40 bytes"),
        (Fake::a2().with("ggml_backend_get_device", at!(load::<13>)), "backend table 12 slots"),
        (Fake::b2().with("ggml_backend_get_device", at!(load::<16>)), "backend table 15 slots"),
        (Fake::a2().with("ggml_backend_buft_get_device", at!(load::<8>)), "buffer-type table 8"),
        (Fake::a2().api(2), "API version 2"),
        (Fake::b1().api(1), "API version 1"),
    ];
    for (host, part) in cases {
        let words = verdict(host).unwrap_err();
        assert!(words.contains(part), "{part:?} not in {words:?}");
        assert!(words.contains("this plugin supports") && !words.contains('\n'), "{words}");
    }
}

#[test]
fn a_moved_slot_is_refused_whichever_it_is() {
    for (host, name, _) in all() {
        for probe in SLOTS {
            let symbol = probe.symbol.to_str().unwrap();
            let moved = verdict(&host.clone().with(symbol, at!(call::<20>))).unwrap_err();
            assert!(moved.contains(&format!("{} reads slot", probe.name)), "{name}: {moved}");
            let gone = verdict(&host.clone().without(symbol)).unwrap_err();
            assert!(gone.contains(&format!("{} reads slot unknown", probe.name)), "{moved}");
        }
    }
}

/// The slots of another generation under the length of this one.
#[test]
fn slots_of_another_generation_are_refused() {
    let compute = "ggml_backend_graph_compute_async";
    let words = verdict(&Fake::b1().with(compute, at!(call::<13>))).unwrap_err();
    assert!(words.contains("graph_compute reads slot 12 instead of 10"), "{words}");
    let words = verdict(&Fake::b2().with(compute, at!(call::<11>))).unwrap_err();
    assert!(words.contains("graph_compute reads slot 10 instead of 12"), "{words}");
}

extern "C" fn explode() -> usize {
    std::process::abort()
}

/// A host whose layout is unknown must not be made to call through our fakes.
#[test]
fn slots_are_probed_only_on_a_known_layout() {
    let mut host = Fake::c().with("ggml_backend_get_device", at!(load::<19>));
    for probe in SLOTS {
        host = host.with(probe.symbol.to_str().unwrap(), at!(explode));
    }
    host = host.with("ggml_backend_dev_get_props", at!(explode));
    assert!(verdict(&host).unwrap_err().contains("unknown backend interface"));
}

/// A host of no known generation: two more backend slots, two more device slots, API 7.
fn unknown_host() -> Fake {
    Fake::c()
        .api(4)
        .with("ggml_backend_get_device", at!(load::<19>))
        .with("ggml_backend_dev_backend_reg", at!(load::<17>))
        .with("ggml_backend_buft_get_device", at!(load::<10>))
        .with("ggml_backend_synchronize", at!(call::<9>))
        .with("ggml_backend_graph_compute_async", at!(call::<15>))
}

#[test]
fn an_unknown_layout_is_taken_as_measured_on_demand_only() {
    let words = judged(&unknown_host(), false).unwrap_err();
    assert!(words.contains("unknown backend interface"), "{words}");
    let g = judged(&unknown_host(), true).unwrap();
    assert_eq!((g.name, g.api, g.accel, g.props_bytes), (ADAPTED, 7, 3, 56));
    assert_eq!((g.device_slots, g.buft_slots), (17, 10));
    let t = g.backend;
    assert_eq!([t.slots, t.get_name, t.free, t.synchronize, t.graph_compute], [18, 0, 1, 8, 14]);
    // Known tables under a new number, the likeliest next step.
    let next = judged(&Fake::c().api(4), true).unwrap();
    assert_eq!((next.name, next.api, next.backend.graph_compute), (ADAPTED, 7, 12));
    let old = judged(&Fake::a2().api(4), true).unwrap();
    assert_eq!((old.props_bytes, old.accel), (40, 2));
}

#[test]
fn an_inconsistent_picture_is_refused_even_on_demand() {
    let no = |host: Fake| judged(&host, true).unwrap_err();
    let cases: &[(Fake, &str)] = &[
        (unknown_host().with("ggml_backend_reg_count", at!(none)), "shows the API version"),
        (unknown_host().with("ggml_backend_get_device", at!(none)), "length is unknown"),
        (unknown_host().with("ggml_backend_dev_backend_reg", at!(load::<14>)), "shorter"),
        (unknown_host().with("ggml_backend_dev_get_props", at!(props::<64>)), "unknown size"),
        (unknown_host().with("ggml_backend_synchronize", at!(call::<20>)), "reads slot 19 of 18"),
        (unknown_host().with("ggml_backend_free", at!(call::<1>)), "free reads slot 0 of 18"),
        (unknown_host().without("ggml_backend_graph_compute_async"), "graph_compute is unknown"),
        (unknown_host().with("ggml_backend_dev_supports_op", at!(call::<10>)), "10 instead of 9"),
        (unknown_host().with("ggml_backend_reg_dev_get", at!(call::<2>)), "1 instead of 2"),
    ];
    for (host, part) in cases {
        let words = no(host.clone());
        assert!(words.contains("ROCKET_ABI=adapt cannot help"), "{words}");
        assert!(words.contains(part) && !words.contains('\n'), "{part:?} not in {words:?}");
    }
}

#[test]
fn the_version_is_told_as_far_as_it_is_known() {
    assert_eq!(version(&Fake::c()), "ggml 0.31.0 (abc1234)");
    assert_eq!(version(&Fake::c().without("ggml_commit")), "ggml 0.31.0");
    assert!(version(&Fake::default()).contains("unknown version"));
}
