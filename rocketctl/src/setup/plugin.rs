//! The plugin: which file, whether it is one for this machine, and where it goes.

use crate::change::{State, Step};
use goblin::elf::header::{EM_AARCH64, EM_X86_64};
use goblin::elf::{Elf, sym::STB_GLOBAL};
use rocket_runtime::board::Root;
use std::fs::File;
use std::io::Read;
use std::path::{Path, PathBuf};

/// Where the distribution's package has it.
pub const PACKAGED: &str = "/usr/lib/ggml-rocket/libggml-rocket.so";
/// Where `setup` puts one that comes from no package.
pub const LOCAL: &str = "/usr/local/lib/ggml-rocket/libggml-rocket.so";
/// As it is packed, and as cargo names it.
const NAMES: [&str; 2] = ["libggml-rocket.so", "libggml_rocket.so"];
/// Longest file that is taken for one.
const LIMIT: u64 = 128 << 20;

/// The step, and the path that hosts are to be given.
pub fn step(root: &Root, arm: bool, named: Option<&Path>) -> (Step, Option<&'static str>) {
    let new =
        || Step::new("plugin", "The plugin for ggml", "Stock llama.cpp and whisper.cpp load it.");
    let there = |path: &str| root.exists(path) == Ok(true);
    let found = named.map(Path::to_path_buf).or_else(|| beside(arm));
    match found {
        None if there(PACKAGED) => (new().given(State::Done), Some(PACKAGED)),
        None if there(LOCAL) => (new().given(State::Done), Some(LOCAL)),
        None => {
            let why = "no libggml-rocket.so is beside rocketctl; name it with --plugin FILE, or install the package \
                       ggml-rocket";
            (new().given(State::Cannot(why.into())).optional(), None)
        }
        Some(path) => match read(&path).and_then(|b| is_plugin(&b, arm).map(|()| b)) {
            Ok(bytes) => (new().write(LOCAL, bytes, 0o644), Some(LOCAL)),
            Err(e) => (new().given(State::Cannot(format!("{}: {e}", path.display()))), None),
        },
    }
}

/// What somebody named is what they want; what lies about is looked at first: it may be for another machine.
fn beside(arm: bool) -> Option<PathBuf> {
    let me = std::env::current_exe().ok()?;
    let fits = |p: &PathBuf| read(p).is_ok_and(|bytes| is_plugin(&bytes, arm).is_ok());
    NAMES.iter().map(|n| me.with_file_name(n)).find(fits)
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    let file = File::open(path).map_err(|e| e.to_string())?;
    if !file.metadata().map_err(|e| e.to_string())?.is_file() {
        return Err("is no file".into());
    }
    let mut bytes = Vec::new();
    file.take(LIMIT + 1).read_to_end(&mut bytes).map_err(|e| e.to_string())?;
    match bytes.len() as u64 > LIMIT {
        true => Err(format!("is longer than {} MiB", LIMIT >> 20)),
        false => Ok(bytes),
    }
}

/// Whether these bytes are a backend for ggml's loader and for this machine.
pub fn is_plugin(bytes: &[u8], arm: bool) -> Result<(), String> {
    let elf = Elf::parse(bytes).map_err(|_| "is no ELF file")?;
    let machine = elf.header.e_machine;
    let (wanted, name) = if arm { (EM_AARCH64, "aarch64") } else { (EM_X86_64, "x86-64") };
    if machine != wanted || !elf.is_64 {
        return Err(format!("is not for this machine, which is {name}"));
    }
    let exports = |s: &goblin::elf::Sym| s.st_bind() == STB_GLOBAL && s.st_shndx != 0;
    let name = |s: goblin::elf::Sym| elf.dynstrtab.get_at(s.st_name);
    let mut names = elf.dynsyms.iter().filter(exports).filter_map(name);
    match names.any(|n| n == "ggml_backend_init") {
        true => Ok(()),
        false => Err("exports no ggml_backend_init, so ggml does not take it for a backend".into()),
    }
}
