//! exec: a program that this library cannot enter is told so, instead of finding no node.

use crate::path::root;
use crate::real::{real, syscall, syscall_int};
use libc::{c_char, c_int, c_long, c_void};

const ELF: &[u8] = b"\x7fELF";
/// Program headers that are looked at; real programs have about a dozen.
const MOST_HEADERS: usize = 64;

/// Warns when `at` is a program without a dynamic loader.
///
/// # Safety
/// `at` must be null or a C string.
unsafe fn check(at: *const c_char) {
    if root().is_none() || at.is_null() {
        return;
    }
    let before = crate::errno();
    // SAFETY: the caller's contract.
    unsafe { check_file(at) };
    crate::fail(before);
}

/// As [`check`], for a program that is looked for in the folders of PATH.
///
/// # Safety
/// `name` must be null or a C string.
unsafe fn check_found(name: *const c_char) {
    // SAFETY: the caller's contract.
    let bytes = unsafe { crate::bytes(name) };
    if root().is_none() || bytes.is_empty() || bytes.contains(&b'/') {
        // SAFETY: the caller's contract.
        return unsafe { check(name) };
    }
    let before = crate::errno();
    // SAFETY: a C string; what it returns is a C string or null, and is used at once.
    let path = unsafe { crate::bytes(libc::getenv(c"PATH".as_ptr())) };
    for folder in path.split(|b| *b == b':').filter(|f| !f.is_empty()) {
        let mut at = [0u8; libc::PATH_MAX as usize];
        let parts = folder.iter().chain(b"/").chain(bytes);
        if folder.len() + bytes.len() + 2 > at.len() {
            continue;
        }
        at.iter_mut().zip(parts).for_each(|(to, from)| *to = *from);
        let at = at.as_ptr().cast();
        // SAFETY: a buffer that ends with a NUL.
        if unsafe { crate::files::access(at, libc::X_OK) } == 0 {
            // SAFETY: as above.
            unsafe { check_file(at) };
            break;
        }
    }
    crate::fail(before);
}

/// # Safety
/// `at` must be a C string.
unsafe fn check_file(at: *const c_char) {
    let flags = c_long::from(libc::O_RDONLY | libc::O_CLOEXEC);
    let dir = c_long::from(libc::AT_FDCWD);
    // SAFETY: a C string by the caller's contract.
    let fd = unsafe { syscall_int(libc::SYS_openat, [dir, at as c_long, flags, 0, 0, 0]) };
    if fd >= 0 {
        if is_static(fd) {
            // SAFETY: as above.
            let name = unsafe { crate::bytes(at) };
            for part in [
                b"rocket-sim: ".as_slice(),
                name,
                b" is linked statically: it cannot see the simulated board\n",
            ] {
                // SAFETY: a buffer of that length; a closed stderr is nobody's loss.
                unsafe { libc::write(2, part.as_ptr().cast(), part.len()) };
            }
        }
        // SAFETY: opened above and known to nobody else.
        unsafe { libc::close(fd) };
    }
}

fn read_at(fd: c_int, to: &mut [u8], at: u64) -> bool {
    let (p, len) = (to.as_mut_ptr() as c_long, to.len() as c_long);
    let args = [c_long::from(fd), p, len, at as c_long, 0, 0];
    // SAFETY: a buffer of that length.
    unsafe { syscall(libc::SYS_pread64, args) == len }
}

/// An ELF program (64 bit) with segments to load but no interpreter.
fn is_static(fd: c_int) -> bool {
    const INTERPRETER: u32 = 3;
    let mut head = [0u8; 64];
    if !read_at(fd, &mut head, 0) || &head[..4] != ELF || head[4] != 2 {
        return false;
    }
    let word = |at: usize| u16::from_le_bytes([head[at], head[at + 1]]);
    let mut at = [0u8; 8];
    at.copy_from_slice(&head[32..40]);
    let (at, size, count) = (u64::from_le_bytes(at), word(54), word(56));
    if usize::from(size) != 56 || usize::from(count) > MOST_HEADERS {
        return false;
    }
    for i in 0..u64::from(count) {
        let mut kind = [0u8; 4];
        let Some(at) = at.checked_add(i * u64::from(size)) else { return false };
        if !read_at(fd, &mut kind, at) || u32::from_le_bytes(kind) == INTERPRETER {
            return false;
        }
    }
    count > 0
}

/// `execve`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execve(
    at: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    // SAFETY: the caller's contract.
    unsafe {
        check(at);
        syscall_int(libc::SYS_execve, [at as c_long, argv as c_long, envp as c_long, 0, 0, 0])
    }
}

/// `execv`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execv(at: *const c_char, argv: *const *const c_char) -> c_int {
    unsafe extern "C" {
        static environ: *const *const c_char;
    }
    // SAFETY: the caller's contract; libc keeps `environ`.
    unsafe { execve(at, argv, environ) }
}

/// `execvpe`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvpe(
    name: *const c_char,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    let f = real!(execvpe: fn(
        *const c_char,
        *const *const c_char,
        *const *const c_char
    ) -> c_int);
    // SAFETY: the caller's contract.
    unsafe {
        check_found(name);
        f.map_or_else(|| crate::fail(libc::ENOSYS), |f| f(name, argv, envp))
    }
}

/// `execvp`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn execvp(name: *const c_char, argv: *const *const c_char) -> c_int {
    let f = real!(execvp: fn(*const c_char, *const *const c_char) -> c_int);
    // SAFETY: the caller's contract.
    unsafe {
        check_found(name);
        f.map_or_else(|| crate::fail(libc::ENOSYS), |f| f(name, argv))
    }
}

type Spawn = unsafe extern "C" fn(
    *mut libc::pid_t,
    *const c_char,
    *const c_void,
    *const c_void,
    *const *const c_char,
    *const *const c_char,
) -> c_int;

/// `posix_spawn`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawn(
    pid: *mut libc::pid_t,
    at: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    let f: Option<Spawn> = real!(posix_spawn: fn(
        *mut libc::pid_t,
        *const c_char,
        *const c_void,
        *const c_void,
        *const *const c_char,
        *const *const c_char
    ) -> c_int);
    // SAFETY: the caller's contract.
    unsafe {
        check(at);
        f.map_or(libc::ENOSYS, |f| f(pid, at, actions, attributes, argv, envp))
    }
}

/// `posix_spawnp`.
///
/// # Safety
/// As libc's.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn posix_spawnp(
    pid: *mut libc::pid_t,
    name: *const c_char,
    actions: *const c_void,
    attributes: *const c_void,
    argv: *const *const c_char,
    envp: *const *const c_char,
) -> c_int {
    let f: Option<Spawn> = real!(posix_spawnp: fn(
        *mut libc::pid_t,
        *const c_char,
        *const c_void,
        *const c_void,
        *const *const c_char,
        *const *const c_char
    ) -> c_int);
    // SAFETY: the caller's contract.
    unsafe {
        check_found(name);
        f.map_or(libc::ENOSYS, |f| f(pid, name, actions, attributes, argv, envp))
    }
}
