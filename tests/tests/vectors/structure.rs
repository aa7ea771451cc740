//! Files whose op has no encoder here yet: their words must be programs as the program controller
//! reads them, so that a change of the word format or of the block table shows.

use crate::Ran;
use crate::json::{File, list, words};
use rocket_runtime::program::Word;
use rocket_runtime::program::word::Block;

/// Checks one program, then what it does.
pub fn and(file: &File, run: fn(&File) -> Ran) -> Ran {
    program(file);
    run(file)
}

/// Targets match pages, one barrier and enable at the end.
fn program(file: &File) {
    let words: Vec<Word> = words(&file.value["words"]).into_iter().map(Word).collect();
    if let Some(body) = words.len().checked_sub(4) {
        for w in words[..body].iter().filter(|w| **w != Word::NOP) {
            let block = Block::from_target(w.target()).unwrap_or_else(|| panic!("{file}: {w:?}"));
            assert_eq!(w.register() & 0xF000, block.page(), "{file}: {w:?}");
        }
        assert_eq!(words[body + 2], Word::BARRIER, "{file}");
        assert_eq!((words[body + 3].target(), words[body + 3].register()), (0x0081, 8), "{file}");
    }
}

/// Data for a part of the house that is not built yet: read, counted, not compared.
pub fn later(file: &File, kind: &str) -> Ran {
    let cases = file.value.get("cases").map_or(1, |c| list(c).len());
    Ran::new(format!("{kind} (read only)"), cases)
}
