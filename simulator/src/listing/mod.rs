//! Programs listed word by word, with the rules they break.
//!
//! [`parse`] reads a file, [`list()`] decodes one of its programs. A [`Listing`] shows as text and
//! serialises to JSON (schema version [`VERSION`]): words, raw values and offsets as hex strings,
//! everything else as plain numbers and strings.
//!
//! The rules are judged on the registers alone: without memory, on a core without a history. What
//! depends on memory, on the driver or on other jobs is not found here.
//!
//! ```
//! use rocket_sim::listing;
//!
//! let file = b"# nothing but a start\n0041_00000000_0000\n0x00810000001d0008\n";
//! let programs = listing::parse(file)?;
//! let listing = listing::list(&programs[0]);
//! assert_eq!(listing.findings[0].rule.id(), "mrdma-without-feed");
//! # Ok::<(), listing::ListingError>(())
//! ```

mod decode;
mod error;
mod findings;
mod json;
mod parse;
mod text;

pub use error::ListingError;
pub use findings::Finding;
pub use parse::parse;

use serde::{Serialize, Serializer};

/// Version of the JSON form of a [`Listing`]; a change that breaks readers raises it.
pub const VERSION: u32 = 1;

/// A program out of a file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct NamedProgram {
    /// What the file calls it, or made of what the file says about it.
    pub name: String,
    /// Its command words.
    pub words: Vec<u64>,
    /// Where it stands in its job.
    pub place: Place,
}

/// Where a program stands in its job, as far as its file says.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub enum Place {
    /// The first task of a job. Files that say nothing are taken so.
    #[default]
    First,
    /// Behind a task with the same operands: reuse bits find what they want (npu-rk3588 4.3).
    AfterSame,
    /// One of several programs in one kick (npu-rk3588 1.6).
    Chained {
        /// Its number, from zero.
        index: usize,
        /// How many there are.
        of: usize,
    },
}

/// A program, decoded.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Listing {
    /// [`VERSION`].
    pub version: u32,
    /// The program's name.
    pub name: String,
    /// All its words, in order.
    pub words: Vec<ListedWord>,
    /// The rules it breaks.
    pub findings: Vec<Finding>,
}

/// What a command word does (npu-rk3588 1.2).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
#[non_exhaustive]
pub enum WordKind {
    /// Writes a register of a block or of the program controller.
    Write,
    /// The barrier before the enable word.
    Barrier,
    /// Starts the blocks of a mask.
    Enable,
    /// The all-zero word.
    Nothing,
    /// No block takes it.
    Unknown,
}

/// One command word.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ListedWord {
    /// Its position, from zero.
    pub index: usize,
    /// All 64 bits.
    #[serde(serialize_with = "hex16")]
    pub raw: u64,
    /// What it does.
    pub kind: WordKind,
    /// The block it is for, by its target.
    pub block: Option<&'static str>,
    /// Bits 15 to 0: the register's offset.
    #[serde(serialize_with = "hex4")]
    pub offset: u16,
    /// The register's name, if any list has it.
    pub register: Option<&'static str>,
    /// Bits 47 to 16.
    #[serde(serialize_with = "hex8")]
    pub value: u32,
    /// The bit fields that the spec names.
    pub fields: Vec<ListedField>,
}

/// A bit field of a register's value.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct ListedField {
    /// Its name.
    pub name: &'static str,
    /// Highest bit.
    pub high: u32,
    /// Lowest bit.
    pub low: u32,
    /// Its value.
    pub value: u32,
}

/// Lists a program with the rules it breaks. Never fails: words that nobody decodes are listed as
/// such, and break a rule.
pub fn list(program: &NamedProgram) -> Listing {
    Listing {
        version: VERSION,
        name: program.name.clone(),
        words: program.words.iter().enumerate().map(|(i, w)| decode::word(i, *w)).collect(),
        findings: findings::of(program),
    }
}

fn hex16<S: Serializer>(v: &u64, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&format_args!("0x{v:016x}"))
}

fn hex8<S: Serializer>(v: &u32, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&format_args!("0x{v:08x}"))
}

fn hex4<S: Serializer>(v: &u16, s: S) -> Result<S::Ok, S::Error> {
    s.collect_str(&format_args!("0x{v:04x}"))
}
