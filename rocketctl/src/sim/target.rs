//! What a command is, before it is started: can the preload library enter it?

use goblin::elf::Elf;
use goblin::elf::header::{EM_AARCH64, EM_X86_64};
use std::ffi::OsStr;
use std::fmt;
use std::fs;
use std::io::Read;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// A program that will be started.
#[derive(Debug)]
pub struct Target {
    /// The file that the kernel starts, after `#!` lines.
    pub program: PathBuf,
    /// Its machine.
    pub machine: &'static str,
}

/// Why a command cannot be run on the board.
#[derive(Debug, PartialEq, Eq)]
pub enum Unreachable {
    /// There is no such program.
    Missing(String),
    /// There is, but it may not be started.
    NotExecutable(PathBuf),
    /// Linked statically.
    Static(PathBuf),
    /// Set-user-id or set-group-id: the loader ignores preloads.
    Privileged(PathBuf),
    /// A loader other than glibc's.
    Loader(PathBuf, String),
    /// Another machine's program.
    Machine(PathBuf, u16),
    /// Neither a script nor an ELF program.
    Format(PathBuf),
}

impl fmt::Display for Unreachable {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Unreachable::Missing(name) => write!(f, "{name}: there is no such program"),
            Unreachable::NotExecutable(p) => write!(f, "{}: not executable", p.display()),
            Unreachable::Static(p) => write!(
                f,
                "{} is linked statically, so it makes its system calls without libc and the \
                 simulated board cannot stand between; link it dynamically (for a Go program: with \
                 cgo; for a Rust one: not for a musl target)",
                p.display()
            ),
            Unreachable::Privileged(p) => write!(
                f,
                "{} is set-user-id or set-group-id, for which the loader ignores preloaded \
                 libraries; run a copy without that bit",
                p.display()
            ),
            Unreachable::Loader(p, loader) => write!(
                f,
                "{} is loaded by {loader}, not by glibc's loader; the preload library needs glibc",
                p.display()
            ),
            Unreachable::Machine(p, machine) => write!(
                f,
                "{} is for another machine (ELF machine {machine}); x86-64 and aarch64 programs \
                 are known",
                p.display()
            ),
            Unreachable::Format(p) => {
                write!(f, "{} is neither an ELF program nor a script", p.display())
            }
        }
    }
}

impl Unreachable {
    /// The exit status, as a shell and `env` have them.
    pub fn status(&self) -> u8 {
        match self {
            Unreachable::Missing(_) => 127,
            Unreachable::NotExecutable(_) | Unreachable::Format(_) => 126,
            _ => 125,
        }
    }
}

/// Looks at what `command` would start.
pub fn inspect(command: &OsStr) -> Result<Target, Unreachable> {
    let mut program = resolve(command)?;
    // A script's interpreter may be a script.
    for _ in 0..5 {
        let head = head(&program)?;
        let Some(line) = head.strip_prefix(b"#!") else { return elf(program) };
        let line = line.split(|b| *b == b'\n').next().unwrap_or_default();
        let line = String::from_utf8_lossy(line);
        let mut words = line.split_ascii_whitespace();
        let interpreter = words.next().unwrap_or_default();
        let named = Path::new(interpreter).file_name() == Some(OsStr::new("env"));
        let next = words.find(|w| named && !w.starts_with('-') && !w.contains('='));
        program = resolve(OsStr::new(next.unwrap_or(interpreter)))?;
    }
    Err(Unreachable::Format(program))
}

fn resolve(command: &OsStr) -> Result<PathBuf, Unreachable> {
    let path = Path::new(command);
    let missing = || Unreachable::Missing(command.to_string_lossy().into_owned());
    let found = if command.as_encoded_bytes().contains(&b'/') {
        Some(path.to_owned()).filter(|p| p.is_file())
    } else {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        std::env::split_paths(&folders)
            .map(|dir| dir.join(path))
            .find(|p| p.is_file() && is_executable(p))
    };
    let found = found.ok_or_else(missing)?;
    if is_executable(&found) { Ok(found) } else { Err(Unreachable::NotExecutable(found)) }
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|m| m.permissions().mode() & 0o111 != 0)
}

/// The beginning of a file: enough for an interpreter line.
fn head(path: &Path) -> Result<Vec<u8>, Unreachable> {
    let mut head = Vec::new();
    let read = fs::File::open(path).and_then(|f| f.take(256).read_to_end(&mut head));
    read.map(|_| head).map_err(|_| Unreachable::NotExecutable(path.to_owned()))
}

fn elf(program: PathBuf) -> Result<Target, Unreachable> {
    if let Ok(m) = fs::metadata(&program)
        && m.mode() & 0o6000 != 0
        && m.mode() & 0o111 != 0
    {
        return Err(Unreachable::Privileged(program));
    }
    let bytes = fs::read(&program).map_err(|_| Unreachable::NotExecutable(program.clone()))?;
    let Ok(elf) = Elf::parse(&bytes) else { return Err(Unreachable::Format(program)) };
    let machine = match elf.header.e_machine {
        EM_X86_64 => "x86_64",
        EM_AARCH64 => "aarch64",
        other => return Err(Unreachable::Machine(program, other)),
    };
    match elf.interpreter {
        None => Err(Unreachable::Static(program)),
        Some(loader) if !loader.contains("ld-linux") => {
            let loader = loader.to_owned();
            Err(Unreachable::Loader(program, loader))
        }
        Some(_) => Ok(Target { program, machine }),
    }
}

/// What compilers put behind a `syscall`: they return, or look at or move what it returned. The two
/// bytes alone occur in addresses and numbers too.
const AFTER_A_SYSTEM_CALL: &[&[u8]] = &[
    &[0xc3],       // ret
    &[0x3d],       // cmp eax, N
    &[0x48, 0x3d], // cmp rax, N
    &[0x48, 0x83],
    &[0x83, 0xf8],
    &[0x48, 0x85], // test rax, rax
    &[0x85, 0xc0],
    &[0x48, 0x89], // mov from rax
    &[0x49, 0x89],
    &[0x89],
    &[0x48, 0x63], // widen eax
    &[0x48, 0x98],
    &[0xf7, 0xd8], // neg eax
    &[0x5b],       // pop rbx
    &[0x5d, 0xc3], // pop rbp; ret
    &[0xc9, 0xc3], // leave; ret
];

/// Whether a program's code has system call instructions of its own: a hint, asked for only when
/// the program did not reach the board.
pub fn has_system_calls(program: &Path) -> bool {
    let Ok(bytes) = fs::read(program) else { return false };
    let Ok(elf) = Elf::parse(&bytes) else { return false };
    let code = elf.program_headers.iter().filter(|h| h.is_executable());
    code.filter_map(|h| bytes.get(h.file_range())).any(|code| match elf.header.e_machine {
        EM_X86_64 => code.windows(6).any(|w| {
            w[..2] == [0x0f, 0x05]
                && AFTER_A_SYSTEM_CALL.iter().any(|next| w[2..].starts_with(next))
        }),
        // svc #0
        EM_AARCH64 => code.chunks_exact(4).any(|w| w == [0x01, 0x00, 0x00, 0xd4]),
        _ => false,
    })
}
