use std::fmt;

/// What a broken rule leads to (npu-rk3588 4.5).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Class {
    /// The job does not complete; the driver times it out.
    Hang,
    /// The job completes with wrong data.
    Garbage,
    /// The job completes and stores nothing, or only a part.
    Silent,
    /// Works here, but must not be relied on.
    Note,
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Class::Hang => "hang",
            Class::Garbage => "garbage",
            Class::Silent => "nothing stored",
            Class::Note => "note",
        })
    }
}
