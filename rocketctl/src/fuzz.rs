//! The parsers of outside bytes, for fuzz targets. Each also asserts what must hold of whatever it took.

use crate::change::journal;
use crate::clock::{options, rate};
use crate::model;
use std::io::Cursor;

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

/// A file that is said to be the plugin.
pub fn plugin_file(data: &[u8]) {
    let both =
        crate::setup::is_plugin(data, true).is_ok() && crate::setup::is_plugin(data, false).is_ok();
    assert!(!both, "for one machine alone");
}

/// Unit files: every line is at most one assignment, and what is written is read back.
pub fn unit_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let unit = crate::unit::parse::parse(&text);
    assert!(unit.entries.len() + unit.odd.len() <= text.lines().count());
    for entry in &unit.entries {
        let word = crate::unit::parse::quoted(&entry.value);
        let doubled = entry.value.replace('%', "%%");
        assert_eq!(crate::unit::parse::words(&word), [doubled], "quoting");
    }
    let _ = unit.environment();
}

/// Flattened device trees: a node can be found by its path.
pub fn fdt(data: &[u8]) {
    let Ok(tree) = rocket_runtime::board::fdt::parse(data) else { return };
    assert!(tree.nodes().iter().take(64).all(|(path, _)| tree.node(path).is_some()));
    let _ = tree.by_phandle(1);
}

/// What boot loaders are told by: what is added is there once, and goes again.
pub fn boot_configuration(data: &[u8]) {
    use crate::overlay::loader::{armbian, extlinux, menu};
    let text = String::from_utf8_lossy(data);
    let (name, path) = ("rocket-npu", "/boot/overlays/rocket-npu.dtbo");
    if let Ok(new) = armbian::add(&text, name) {
        assert!(armbian::has(&new, name) && !armbian::has(&armbian::remove(&new, name), name));
        assert_eq!(armbian::add(&new, name).ok().as_ref(), Some(&new));
    }
    if let Ok(new) = extlinux::add(&text, path) {
        assert!(extlinux::has(&new, path) && !extlinux::has(&extlinux::remove(&new, path), path));
        assert_eq!(extlinux::add(&new, path).ok().as_ref(), Some(&new));
    }
    if let Ok(new) = menu::add(&text, name) {
        assert_eq!(menu::add(&new, name).ok().as_ref(), Some(&new));
        assert!(!menu::has(&menu::remove(&new, name), name));
    }
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

/// A model's header: what is read adds up, and no size of it is beyond the file's.
pub fn model(data: &[u8]) {
    if let Ok(header) = model::parse(Cursor::new(data)) {
        assert_eq!(header.bytes, data.len() as u64);
        // Each has a type and a name's length in the file.
        assert!(header.tensors.len() * 8 <= data.len());
        let bytes = header.tensors.iter().filter_map(model::Tensor::bytes);
        assert!(bytes.max().unwrap_or(0) <= header.bytes);
    }
}

/// Evidence from an ELF file: what it takes from elsewhere has a name.
pub fn elf(data: &[u8]) {
    if let Ok(elf) = crate::elf::parse(data) {
        assert!(elf.imports.iter().all(|i| !i.name.is_empty()));
    }
}

/// Lines of the load test: one at most for each line of text.
pub fn load_test(data: &[u8]) {
    assert!(crate::load_test::lines(data).len() <= data.split(|b| *b == b'\n').count());
}

/// Lines of ld.so.conf: folders are absolute.
pub fn ld_so_conf(data: &[u8]) {
    for line in crate::elf::conf(&String::from_utf8_lossy(data)) {
        assert!(!matches!(line, crate::elf::Conf::Folder(f) if !f.starts_with('/')));
    }
}
