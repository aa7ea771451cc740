//! Which paths belong to the board, and where they lead.

use libc::c_char;
use std::cell::UnsafeCell;
use std::ffi::CStr;
use std::sync::atomic::AtomicUsize;
use std::sync::atomic::Ordering::{Acquire, Release};

/// Longest path that is looked at; longer ones are nobody's here.
const LONGEST: usize = libc::PATH_MAX as usize;

/// The root, once it is known. Allocating here would be wrong: an allocator's own start may come
/// by (jemalloc reads a link), and so may a signal handler.
struct Root {
    bytes: UnsafeCell<[u8; LONGEST]>,
    /// Length of the root, or one of the two below.
    state: AtomicUsize,
}

const UNKNOWN: usize = usize::MAX;
const BEING_READ: usize = usize::MAX - 1;

// SAFETY: the bytes are written by whoever turns UNKNOWN into BEING_READ, and read only after that
// thread has stored their length.
unsafe impl Sync for Root {}

static ROOT: Root = Root { bytes: UnsafeCell::new([0; LONGEST]), state: AtomicUsize::new(UNKNOWN) };

/// The folder that stands for `/`, without a slash at its end; none when no board was given.
pub fn root() -> Option<&'static [u8]> {
    let mut state = ROOT.state.load(Acquire);
    if state == UNKNOWN {
        match ROOT.state.compare_exchange(UNKNOWN, BEING_READ, Acquire, Acquire) {
            // SAFETY: this thread has won, so the bytes are its own until it stores their length.
            Ok(_) => ROOT.state.store(read_root(unsafe { &mut *ROOT.bytes.get() }), Release),
            Err(_) => std::hint::spin_loop(),
        }
        state = ROOT.state.load(Acquire);
    }
    while state == BEING_READ {
        std::hint::spin_loop();
        state = ROOT.state.load(Acquire);
    }
    // SAFETY: the length is stored, after which nobody writes the bytes.
    let bytes = unsafe { &*ROOT.bytes.get() };
    bytes.get(..state).filter(|root| !root.is_empty())
}

/// Copies the variable, as programs may overwrite their environment; 0 when it names no folder.
fn read_root(to: &mut [u8]) -> usize {
    // SAFETY: a C string; the result is copied before anybody can change the environment.
    let value = unsafe { libc::getenv(ROOT_NAME.as_ptr()) };
    // SAFETY: getenv returns null or a C string.
    let value = unsafe { crate::bytes(value) };
    let value = value.strip_suffix(b"/").unwrap_or(value);
    match to.get_mut(..value.len()) {
        Some(to) if value.starts_with(b"/") => {
            to.copy_from_slice(value);
            value.len()
        }
        _ => 0,
    }
}

/// [`rocket_sim_wire::ROOT_VARIABLE`], as libc wants it.
const ROOT_NAME: &CStr = c"ROCKET_SIM_ROOT";
const _: () = {
    let (name, wire) = (ROOT_NAME.to_bytes(), rocket_sim_wire::ROOT_VARIABLE.as_bytes());
    assert!(name.len() == wire.len());
    let mut i = 0;
    while i < name.len() {
        assert!(name[i] == wire[i]);
        i += 1;
    }
};

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

/// Whether a path names the board's counters.
pub fn names_counters(path: &[u8]) -> bool {
    let name = rocket_sim_wire::COUNTERS.as_bytes().rsplit(|b| *b == b'/').next();
    path.rsplit(|b| *b == b'/').next() == name
}

/// Whether the last name of a path is that of a node.
pub fn names_node(path: &[u8]) -> bool {
    let name = path.rsplit(|b| *b == b'/').next().unwrap_or_default();
    let number = name.strip_prefix(b"accel").unwrap_or_default();
    !number.is_empty() && number.iter().all(u8::is_ascii_digit)
}
