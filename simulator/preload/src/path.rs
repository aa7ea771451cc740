//! Which paths belong to the board, and where they lead.

use libc::c_char;
use std::ffi::{CStr, CString};
use std::sync::OnceLock;

/// Longest path that is looked at; longer ones are nobody's here.
const LONGEST: usize = libc::PATH_MAX as usize;

/// The folder that stands for `/`, without a slash at its end; none when no board was given.
pub fn root() -> Option<&'static [u8]> {
    static ROOT: OnceLock<Option<CString>> = OnceLock::new();
    let root = ROOT.get_or_init(|| {
        let name = CString::new(rocket_sim_wire::ROOT_VARIABLE).ok()?;
        // SAFETY: a C string; the result is copied before anybody can change the environment.
        let value = unsafe { libc::getenv(name.as_ptr()) };
        if value.is_null() {
            return None;
        }
        // SAFETY: getenv returns a C string.
        let value = unsafe { CStr::from_ptr(value) }.to_bytes();
        let value = value.strip_suffix(b"/").unwrap_or(value);
        value.starts_with(b"/").then(|| CString::new(value).ok())?
    });
    root.as_ref().map(|r| r.as_bytes())
}

/// A path in a buffer of its own, with room for its NUL.
pub struct Buffer {
    bytes: [u8; LONGEST],
    len: usize,
}

impl Buffer {
    const fn new() -> Buffer {
        Buffer { bytes: [0; LONGEST], len: 0 }
    }

    /// Appends as long as a NUL still fits behind.
    fn push(&mut self, bytes: &[u8]) -> bool {
        let end = self.len + bytes.len();
        let Some(to) = self.bytes.get_mut(self.len..end) else { return false };
        to.copy_from_slice(bytes);
        self.len = end;
        end < LONGEST
    }

    fn cut(&mut self, len: usize) {
        self.len = len;
        // What follows must not be part of the C string.
        self.bytes[len..].fill(0);
    }

    pub fn as_ptr(&self) -> *const c_char {
        self.bytes.as_ptr().cast()
    }
}

/// The path below the root, if `path` belongs to the board.
pub fn redirect(path: &[u8]) -> Option<Buffer> {
    let root = root()?;
    if !path.starts_with(b"/") || path.len() + root.len() >= LONGEST || !may_be_owned(path) {
        return None;
    }
    let mut plain = Buffer::new();
    let mut left_board = false;
    for name in path.split(|b| *b == b'/') {
        match name {
            b"" | b"." => {}
            b".." => {
                left_board |= rocket_sim_wire::owned(&plain.bytes[..plain.len]);
                let up = plain.bytes[..plain.len].iter().rposition(|b| *b == b'/');
                plain.cut(up.unwrap_or(0));
            }
            name if plain.push(b"/") && plain.push(name) => {}
            _ => return None,
        }
    }
    if !rocket_sim_wire::owned(&plain.bytes[..plain.len]) {
        // A way through a folder that only the board has leads nowhere but by name.
        return (left_board && (plain.len > 0 || plain.push(b"/"))).then_some(plain);
    }
    let plain = &plain.bytes[..plain.len];
    let mut full = Buffer::new();
    let slash: &[u8] = if path.ends_with(b"/") { b"/" } else { b"" };
    (full.push(root) && full.push(plain) && full.push(slash)).then_some(full)
}

/// A quick look before the path is taken apart: every owned path lies below one of these.
fn may_be_owned(path: &[u8]) -> bool {
    [b"dev".as_slice(), b"proc", b"sys"]
        .iter()
        .any(|top| path.split(|b| *b == b'/').any(|name| name == *top))
}

/// What a path below the root is called on the board.
pub fn strip(path: &[u8]) -> Option<&[u8]> {
    let rest = path.strip_prefix(root()?)?;
    rest.starts_with(b"/").then_some(rest)
}

/// Calls `f` with the path that `path` leads to.
///
/// # Safety
/// `path` must be null or a C string.
pub unsafe fn led<T>(path: *const c_char, f: impl FnOnce(*const c_char) -> T) -> T {
    // SAFETY: the caller's contract.
    match redirect(unsafe { crate::bytes(path) }) {
        Some(full) => f(full.as_ptr()),
        None => f(path),
    }
}

/// Whether the last name of a path is that of a node.
pub fn names_node(path: &[u8]) -> bool {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let number = name.strip_prefix(b"accel").unwrap_or_default();
    !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}
