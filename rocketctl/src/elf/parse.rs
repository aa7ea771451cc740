//! From the bytes of a file to the evidence that checks use (ggml-abi 7.1).

use goblin::elf::dynamic::{DF_1_PIE, DT_FLAGS_1, DT_VERNEED};
use goblin::elf::header::{ELFCLASS64, ET_DYN, ET_EXEC};
use goblin::elf::program_header::PT_INTERP;
use goblin::elf::sym::{STB_LOCAL, STB_WEAK, STT_SECTION};
use goblin::elf::{Elf as Parsed, symver};
use memchr::memmem;
use std::collections::BTreeMap;
use std::fmt;

/// Most symbols, versions and names that are taken from one file. A host's largest library has some 20000.
const MOST: usize = 1 << 18;

/// Words of more than one bit pattern a register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    Bits32,
    Bits64,
}

/// What the dynamic linker can do with a file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// `dlopen` takes it.
    Library,
    /// Position-independent or not.
    Program,
    /// An object file, a core.
    Other,
}

/// Texts that are looked for, because their presence or absence says something of a host or plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Text {
    /// The loader honours the variable (ggml-abi 3: since 2025-01).
    BackendPath,
    /// A command line has the switch against repacking (ggml-abi 6.1).
    NoRepack,
    /// The same for `llama-bench`, and as a variable.
    RepackVariable,
    /// The image encoder's device can be named (ggml-abi 6.1).
    MmprojVariable,
    /// Of every CPU backend that can repack (ggml-abi 6.2): the buffer type's name, or its former one.
    CpuRepack,
    CpuAarch64,
    /// Of builds for aarch64 with repacking, as a string of its own (ggml-abi 7.1, 5).
    Repack,
    /// What this suite's plugin begins its lines with.
    Ours,
}

impl Text {
    /// All of them, and the bytes that stand for them.
    const ALL: [(Text, &'static [u8]); 8] = [
        (Text::BackendPath, b"GGML_BACKEND_PATH"),
        (Text::NoRepack, b"--no-repack"),
        (Text::RepackVariable, b"LLAMA_ARG_REPACK"),
        (Text::MmprojVariable, b"MTMD_BACKEND_DEVICE"),
        (Text::CpuRepack, b"CPU_REPACK"),
        (Text::CpuAarch64, b"CPU_AARCH64"),
        (Text::Repack, b"\0REPACK\0"),
        (Text::Ours, b"ggml-rocket: "),
    ];
}

/// A symbol that somebody else must have.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Import {
    pub name: String,
    /// The version and the library that is to have it, as in `GLIBC_2.38` of `libc.so.6`.
    pub version: Option<(String, String)>,
    /// It may be missing.
    pub weak: bool,
}

/// What was found in one file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Elf {
    pub class: Class,
    pub machine: u16,
    pub kind: Kind,
    /// The program that loads it: glibc's or musl's loader.
    pub interpreter: Option<String>,
    pub soname: Option<String>,
    /// Libraries that are loaded with it.
    pub needed: Vec<String>,
    /// Folders searched before all others, where there is no [`Elf::runpath`].
    pub rpath: Vec<String>,
    /// Folders for its own libraries.
    pub runpath: Vec<String>,
    /// Symbols that others find here, and their versions.
    pub exports: BTreeMap<String, Option<String>>,
    pub imports: Vec<Import>,
    /// Versions that it needs of a library: none of them, and not known which, where the file hides its tables.
    pub needs: Option<Vec<(String, String)>>,
    /// Versions that it defines.
    pub versions: Vec<String>,
    /// Processor features by its GNU property note, in words: `x86-64-v3`, `BTI`.
    pub features: Vec<&'static str>,
    /// Texts that it holds.
    pub texts: Vec<Text>,
}

impl Elf {
    /// Whether others find this symbol here.
    pub fn exports(&self, name: &str) -> bool {
        self.exports.contains_key(name)
    }

    /// Whether it takes this symbol from elsewhere.
    pub fn imports(&self, name: &str) -> bool {
        self.imports.iter().any(|i| i.name == name)
    }

    /// Whether it holds this text.
    pub fn has(&self, text: Text) -> bool {
        self.texts.contains(&text)
    }

    /// Whether the library whose name begins so is loaded with it.
    pub fn needs_library(&self, prefix: &str) -> bool {
        self.needed.iter().any(|n| n.starts_with(prefix))
    }
}

/// Why there is no evidence.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum NotElf {
    /// What the file is instead, as far as its first bytes tell.
    Other(&'static str),
    /// It begins as one and does not hold what it says.
    Broken(String),
    /// More symbols than any file of this kind has.
    TooLarge,
}

impl fmt::Display for NotElf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotElf::Other(what) => write!(f, "is no library or program but {what}"),
            NotElf::Broken(why) => write!(f, "is damaged or cut short ({why})"),
            NotElf::TooLarge => write!(f, "has more than {MOST} symbols"),
        }
    }
}

/// Reads a file's bytes.
///
/// # Errors
/// It is no ELF file, or a damaged one.
pub fn parse(bytes: &[u8]) -> Result<Elf, NotElf> {
    if !bytes.starts_with(b"\x7fELF") {
        return Err(NotElf::Other(looks_like(bytes)));
    }
    let broken = |e: goblin::error::Error| NotElf::Broken(e.to_string());
    let elf = Parsed::parse(bytes).map_err(broken)?;
    if elf.dynsyms.len() > MOST || elf.libraries.len() > MOST {
        return Err(NotElf::TooLarge);
    }
    let own = |all: &[&str]| -> Vec<String> {
        let folders = all.iter().flat_map(|p| p.split(':')).filter(|p| !p.is_empty());
        folders.take(MOST).map(str::to_owned).collect()
    };
    let versions = Versions::of(&elf);
    let (exports, imports) = symbols(&elf, &versions);
    Ok(Elf {
        class: if elf.header.e_ident[4] == ELFCLASS64 { Class::Bits64 } else { Class::Bits32 },
        machine: elf.header.e_machine,
        kind: kind(&elf),
        interpreter: elf.interpreter.map(|i| i.trim_end_matches('\0').to_owned()),
        soname: elf.soname.map(str::to_owned),
        needed: elf.libraries.iter().map(|l| (*l).to_owned()).collect(),
        rpath: own(&elf.rpaths),
        runpath: own(&elf.runpaths),
        exports,
        imports,
        needs: versions.needs(&elf),
        versions: versions.defined.values().cloned().collect(),
        features: features(&elf, bytes),
        texts: Text::ALL
            .iter()
            .filter(|(_, needle)| memmem::find(bytes, needle).is_some())
            .map(|(text, _)| *text)
            .collect(),
    })
}

/// What a file that is no ELF file is, for people who named the wrong one.
fn looks_like(bytes: &[u8]) -> &'static str {
    match bytes {
        [] => "an empty file",
        [b'#', b'!', ..] => "a script",
        [b'G', b'G', b'U', b'F', ..] => "a GGUF model",
        [b'M', b'Z', ..] => "a Windows file",
        [0xcf, 0xfa, 0xed, 0xfe, ..] | [0xca, 0xfe, 0xba, 0xbe, ..] => "a macOS file",
        [0x1f, 0x8b, ..] | [b'P', b'K', ..] | [0xfd, b'7', b'z', ..] => "an archive",
        [b'!', b'<', b'a', b'r', b'c', b'h', ..] => "a static library or a package",
        _ => "some other file",
    }
}

fn kind(elf: &Parsed) -> Kind {
    let pie = elf.dynamic.iter().flat_map(|d| &d.dyns);
    let pie = pie.clone().any(|d| d.d_tag == DT_FLAGS_1 && d.d_val & DF_1_PIE != 0);
    let interpreted = elf.program_headers.iter().any(|h| h.p_type == PT_INTERP);
    match elf.header.e_type {
        ET_EXEC => Kind::Program,
        // libc.so.6 has an interpreter as well: it prints its version when it is run.
        ET_DYN if pie || (interpreted && elf.soname.is_none()) => Kind::Program,
        ET_DYN => Kind::Library,
        _ => Kind::Other,
    }
}

/// Symbol versions by their index.
struct Versions {
    needed: BTreeMap<u16, (String, String)>,
    defined: BTreeMap<u16, String>,
}

impl Versions {
    fn of(elf: &Parsed) -> Versions {
        let text = |at: usize| elf.dynstrtab.get_at(at).unwrap_or_default().to_owned();
        let mut needed = BTreeMap::new();
        let mut left = MOST;
        for need in elf.verneed.iter().flat_map(|v| v.iter()) {
            for aux in need.iter().take(left) {
                left -= 1;
                needed.insert(aux.vna_other, (text(aux.vna_name), text(need.vn_file)));
            }
        }
        let mut defined = BTreeMap::new();
        let defs = elf.verdef.iter().flat_map(|v| v.iter()).take(MOST);
        for def in defs.filter(|d| d.vd_flags & symver::VER_FLG_BASE == 0) {
            if let Some(aux) = def.iter().next() {
                defined.insert(def.vd_ndx, text(aux.vda_name));
            }
        }
        Versions { needed, defined }
    }

    /// The needed ones; not known where the file has a table that no section names.
    fn needs(&self, elf: &Parsed) -> Option<Vec<(String, String)>> {
        let table = elf.dynamic.iter().flat_map(|d| &d.dyns).any(|d| d.d_tag == DT_VERNEED);
        (elf.verneed.is_some() || !table).then(|| self.needed.values().cloned().collect())
    }
}

fn symbols(elf: &Parsed, versions: &Versions) -> (BTreeMap<String, Option<String>>, Vec<Import>) {
    let (mut exports, mut imports) = (BTreeMap::new(), Vec::new());
    for (i, symbol) in elf.dynsyms.iter().enumerate().take(MOST) {
        let name = elf.dynstrtab.get_at(symbol.st_name).unwrap_or_default();
        if name.is_empty() || symbol.st_bind() == STB_LOCAL || symbol.st_type() == STT_SECTION {
            continue;
        }
        let index = elf.versym.as_ref().and_then(|v| v.get_at(i)).map(|v| v.version());
        if symbol.is_import() || symbol.st_shndx == 0 {
            imports.push(Import {
                name: name.to_owned(),
                version: index.and_then(|i| versions.needed.get(&i)).cloned(),
                weak: symbol.st_bind() == STB_WEAK,
            });
        } else {
            let version = index.and_then(|i| versions.defined.get(&i)).cloned();
            exports.insert(name.to_owned(), version);
        }
    }
    (exports, imports)
}

/// The property note of x86 (ISA levels) and aarch64 (BTI, PAC): pairs of type and bits.
fn features(elf: &Parsed, bytes: &[u8]) -> Vec<&'static str> {
    const PT_GNU_PROPERTY: u32 = 0x6474_e553;
    const X86_ISA_NEEDED: u32 = 0xc000_8002;
    const AARCH64_FEATURE: u32 = 0xc000_0000;
    let note = elf.program_headers.iter().find(|h| h.p_type == PT_GNU_PROPERTY);
    let Some(note) = note.and_then(|h| bytes.get(h.file_range())) else { return Vec::new() };
    // name size, data size, type 5, "GNU\0", then the data.
    let word = |at: usize| -> Option<u32> {
        Some(u32::from_le_bytes(note.get(at..at + 4)?.try_into().ok()?))
    };
    if (word(0), word(8), note.get(12..16)) != (Some(4), Some(5), Some(b"GNU\0")) {
        return Vec::new();
    }
    let (mut found, mut at) = (Vec::new(), 16);
    while let (Some(kind), Some(size)) = (word(at), word(at + 4)) {
        let bits = word(at + 8).unwrap_or(0);
        let names: &[(u32, &'static str)] = match kind {
            X86_ISA_NEEDED => &[(8, "x86-64-v4"), (4, "x86-64-v3"), (2, "x86-64-v2")],
            AARCH64_FEATURE => &[(1, "BTI"), (2, "PAC")],
            _ => &[],
        };
        found.extend(names.iter().filter(|(bit, _)| bits & bit != 0).map(|(_, name)| *name));
        // Of 64-bit files alone: what has another alignment is not misread, but not read either.
        at += 8 + (size as usize).next_multiple_of(8);
    }
    found
}
