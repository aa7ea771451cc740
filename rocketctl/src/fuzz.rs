//! The parsers of outside bytes, for fuzz targets. Each also asserts what must hold of whatever it took.

use crate::change::journal;
use crate::clock::{options, rate};
use crate::doctor::{Case, Options, findings};
use crate::{forecast, model};
use rocket_runtime::board::{Root, parse_log};
use std::cell::RefCell;
use std::io::Cursor;

/// A target: its name, and what it does with bytes.
pub type Target = (&'static str, fn(&[u8]));

/// Every target: each has a corpus of its name, which `tests/corpus.rs` replays.
pub const ALL: &[Target] = &[
    ("boot_configuration", boot_configuration),
    ("clk_summary", clk_summary),
    ("clock_rate", clock_rate),
    ("dmesg", dmesg),
    ("elf", elf),
    ("fdinfo", fdinfo),
    ("fdt", fdt),
    ("gguf", model),
    ("interrupts", interrupts),
    ("journal", journal),
    ("kernel_config", kernel_config),
    ("ld_so_conf", ld_so_conf),
    ("load_test", load_test),
    ("modinfo", modinfo),
    ("modprobe_options", modprobe_options),
    ("patch", patch),
    ("plugin_file", plugin_file),
    ("report", report),
    ("shape", shape),
    ("small_texts", small_texts),
    ("unit_file", unit_file),
    ("whisper", model),
];

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

/// Kernel configurations, packed or not: an option is on, off, or has a value.
pub fn kernel_config(data: &[u8]) {
    use rocket_runtime::board::kconfig;
    let text =
        kconfig::unpacked(data).unwrap_or_else(|_| String::from_utf8_lossy(data).into_owned());
    let Ok(options) = kconfig::parse(&text) else { return };
    assert!(!options.is_empty() && options.keys().all(|name| !name.contains('=')));
}

/// `clk_summary`: every row has a name without blanks.
pub fn clk_summary(data: &[u8]) {
    let Ok(clocks) = rocket_runtime::board::clocks::parse(&String::from_utf8_lossy(data)) else {
        return;
    };
    assert!(clocks.iter().all(|c| !c.name.is_empty() && !c.name.contains(char::is_whitespace)));
}

/// fdinfo: what has a value names its driver.
pub fn fdinfo(data: &[u8]) {
    let Some(info) = rocket_runtime::board::fdinfo::parse(&String::from_utf8_lossy(data)) else {
        return;
    };
    assert!(!info.driver.is_empty());
}

/// `/proc/interrupts`: a count for each processor.
pub fn interrupts(data: &[u8]) {
    let Ok(lines) = rocket_runtime::board::irq::parse(&String::from_utf8_lossy(data)) else {
        return;
    };
    assert!(lines.windows(2).all(|two| two[0].counts.len() == two[1].counts.len()));
}

/// The kernel's log: the doctor has an answer of it.
pub fn dmesg(data: &[u8]) {
    thread_local! {
        /// Of a machine with nothing to read.
        static CASE: RefCell<Option<Case>> = const { RefCell::new(None) };
    }
    CASE.with_borrow_mut(|case| {
        if case.is_none() {
            let Ok(dir) = tempfile::tempdir() else { return };
            let Ok(root) = Root::open(dir.path()) else { return };
            *case = Case::read(&root, &Options::default()).ok();
        }
        let Some(case) = case else { return };
        case.facts.log = Ok(parse_log(&String::from_utf8_lossy(data)));
        let report = findings(case);
        assert!(report.text(false, false).lines().count() > 1);
    });
}

/// What extlinux boots, lists of processors, C libraries: nothing but an answer.
pub fn small_texts(data: &[u8]) {
    use rocket_runtime::board::{boot, cpu};
    let text = String::from_utf8_lossy(data);
    let _ = (cpu::parse_list(&text), cpu::parse_features(&text), cpu::parse_glibc(data));
    assert!(boot::default_kernel(&text).is_none_or(|k| text.contains(k)));
    assert_eq!(boot::by_version(&text, &text), std::cmp::Ordering::Equal);
}

/// Reports: nothing lies outside the folder.
pub fn report(data: &[u8]) {
    let Ok(dir) = tempfile::tempdir() else { return };
    let inner = dir.path().join("in");
    if std::fs::create_dir(&inner).is_err() {
        return;
    }
    let _ = crate::report::unpack_from(data, &inner);
    assert_eq!(std::fs::read_dir(dir.path()).map(Iterator::count).ok(), Some(1));
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

/// A model's header and its forecast: what is read adds up, and no size of it is beyond the file's.
pub fn model(data: &[u8]) {
    if let Ok(header) = model::parse(Cursor::new(data)) {
        assert_eq!(header.bytes, data.len() as u64);
        // Each has a type and a name's length in the file.
        assert!(header.tensors.len() * 8 <= data.len());
        let bytes = header.tensors.iter().filter_map(model::Tensor::bytes);
        assert!(bytes.max().unwrap_or(0) <= header.bytes);
        forecast::adds_up(&header);
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
