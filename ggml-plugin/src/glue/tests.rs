//! The border without a host.

use super::device::meminfo;
use super::guard;

#[test]
fn a_panic_becomes_the_fallback() {
    assert_eq!(guard("test", -1, || 7), 7);
    assert_eq!(guard("test", -1, || -> i32 { panic!("on purpose") }), -1);
    assert_eq!(guard("test", -1, || -> i32 { std::panic::panic_any(3u8) }), -1);
}

#[test]
fn memory_figures() {
    let text = "MemTotal:       16303428 kB\nMemFree: 1 kB\nMemAvailable:   9000000 kB\n";
    assert_eq!(meminfo(text, "MemTotal:"), 16_303_428 << 10);
    assert_eq!(meminfo(text, "MemAvailable:"), 9_000_000 << 10);
    assert_eq!(meminfo("", "MemTotal:"), 0);
    assert_eq!(meminfo("MemTotal: many kB", "MemTotal:"), 0);
}
