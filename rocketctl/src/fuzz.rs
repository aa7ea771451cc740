//! Parsers of outside bytes, for fuzz targets: each takes anything and asserts what must hold of the answer.

/// `/proc/interrupts`: no core without a name, and no more than there are lines.
pub fn interrupts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let cores = crate::selftest::cores::interrupts(&text);
    assert!(cores.len() <= text.lines().count());
    assert!(cores.iter().all(|c| c.name.ends_with(".npu")));
}
