//! Evidence from ELF files, which are read and never run: what a plugin needs and what a host offers.

mod parse;
mod search;
#[cfg(test)]
pub mod stubs;
#[cfg(test)]
mod tests;

pub use parse::{Class, Elf, Kind, Text, parse};
pub use search::{Conf, Search, conf};

use rocket_runtime::board::{Absent, Reading, Root, Why};
use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

/// Most bytes of a file that are read. A debug build of the plugin has room; a larger file is some GPU's kernels.
pub const LIMIT: u64 = 256 << 20;

/// The evidence of a file below a root.
pub fn read(root: &Root, path: &str) -> Reading<Elf> {
    let bytes = root.bytes_within(path, LIMIT)?;
    parse(&bytes).map_err(|e| Absent {
        path: format!("/{}", path.trim_start_matches('/')),
        why: Why::Malformed(e.to_string()),
    })
}

/// Files of one system, each read once.
#[derive(Debug)]
pub struct Files<'a> {
    pub root: &'a Root,
    seen: RefCell<BTreeMap<String, Reading<Rc<Elf>>>>,
}

impl<'a> Files<'a> {
    pub fn of(root: &'a Root) -> Files<'a> {
        Files { root, seen: RefCell::default() }
    }

    /// See [`read`].
    pub fn read(&self, path: &str) -> Reading<Rc<Elf>> {
        let mut seen = self.seen.borrow_mut();
        let entry = seen.entry(path.to_owned());
        entry.or_insert_with(|| read(self.root, path).map(Rc::new)).clone()
    }
}

/// What a machine is called where people meet it: by `uname -m`.
pub fn machine_name(machine: u16) -> String {
    use goblin::elf::header as h;
    match machine {
        h::EM_X86_64 => "x86_64".into(),
        h::EM_AARCH64 => "aarch64".into(),
        h::EM_ARM => "arm (32 bits)".into(),
        h::EM_386 => "x86 (32 bits)".into(),
        h::EM_RISCV => "riscv".into(),
        other => format!("ELF machine {other}"),
    }
}
