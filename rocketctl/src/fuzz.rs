//! The parsers of outside bytes, for fuzz targets. Each also asserts what must hold of whatever it took.

use crate::change::journal;
use crate::clock::{options, rate};

/// A journal of changes: what is taken is taken again when it is written out.
pub fn journal(data: &[u8]) {
    let Ok(Some(read)) = journal::parse(data) else { return };
    let mut text = String::new();
    let begin = std::iter::once(journal::Record::Begin(read.begin.clone()));
    let deeds = read.deeds.iter().cloned().map(journal::Record::Do);
    for record in begin.chain(deeds).chain(read.ended.then_some(journal::Record::End)) {
        match journal::line(&record) {
            Ok(line) => text += &line,
            Err(e) => panic!("{e}: {record:?}"),
        }
    }
    assert_eq!(journal::parse(text.as_bytes()), Ok(Some(read)));
}

/// Modprobe's options: a value that is set is found again, and taken out again.
pub fn modprobe_options(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let parameter = crate::clock::PARAMETER;
    let new = options::with(&text, parameter, Some("7"));
    assert!(new.len() > 1 << 20 || options::value(&new, parameter) == Some("7"));
    assert_eq!(options::value(&options::with(&new, parameter, None), parameter), None);
}

/// A rate: what is allowed is one of three.
pub fn clock_rate(data: &[u8]) {
    let Ok(hz) = rate::parse(&String::from_utf8_lossy(data)) else { return };
    assert!(rate::allowed(hz).is_err() || [0, 200_000_000, 600_000_000].contains(&hz));
}

/// `/proc/interrupts`: no core without a name, and no more than there are lines.
pub fn interrupts(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let cores = crate::selftest::cores::interrupts(&text);
    assert!(cores.len() <= text.lines().count());
    assert!(cores.iter().all(|c| c.name.ends_with(".npu")));
}

/// A patch: what is taken changes at least one file, at a path within the tree.
pub fn patch(data: &[u8]) {
    let Ok(files) = crate::patch::diff::parse(data) else { return };
    for file in &files {
        assert!(!file.path.starts_with('/') && !file.path.split('/').any(|p| p == ".."));
        let text = String::from_utf8_lossy(data);
        // Whether it fits is not asked; it ends, and a new file is never put over another.
        let fits = file.apply(Some(&text)).is_ok();
        assert!(!(fits && file.is_new));
    }
}

/// A kernel module: one that is taken has a machine.
pub fn modinfo(data: &[u8]) {
    if let Ok(info) = crate::patch::module::modinfo(data) {
        assert!(info.contains_key("machine"));
    }
}

/// A shape of `bench`: what is taken is taken again when it is written out.
pub fn shape(data: &[u8]) {
    if let Ok(shape) = String::from_utf8_lossy(data).parse::<crate::bench::Shape>() {
        assert_eq!(shape.to_string().parse(), Ok(shape));
    }
}

/// A file that is said to be the plugin.
pub fn plugin_file(data: &[u8]) {
    let both =
        crate::setup::is_plugin(data, true).is_ok() && crate::setup::is_plugin(data, false).is_ok();
    assert!(!both, "for one machine alone");
}
