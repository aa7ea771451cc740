use thiserror::Error;

/// Why a file holds no program that can be listed.
#[derive(Debug, Clone, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ListingError {
    /// Nothing in it.
    #[error("the file holds no command words; {ACCEPTED}")]
    Empty,
    /// Neither text nor whole words.
    #[error("{0} bytes that are not text, and no multiple of 8 either; {ACCEPTED}")]
    NotWords(usize),
    /// A line of hex text that is no word.
    #[error("line {line}: {text:?} is no word of up to 16 hex digits; {ACCEPTED}")]
    Line {
        /// The line, from one.
        line: usize,
        /// What stands there, shortened.
        text: String,
    },
    /// It begins like JSON.
    #[error("begins like JSON, but: {0}; {ACCEPTED}")]
    Json(String),
    /// JSON without a program.
    #[error("JSON without a list of words under \"words\" or \"program\"; {ACCEPTED}")]
    NoProgram,
    /// A list of words with something else in it.
    #[error("{program}: entry {entry} is no hex string of up to 64 bits; {ACCEPTED}")]
    Entry {
        /// The program's name.
        program: String,
        /// The entry, from zero.
        entry: usize,
    },
    /// A chain whose parts are not in its words.
    #[error("{0}: its words are fewer than its tasks say; {ACCEPTED}")]
    Chain(String),
}

/// Closes every message.
const ACCEPTED: &str = "accepted are little-endian 64-bit words, hex text of one word a line with \
                        # comments, and JSON as that of the golden vectors";
