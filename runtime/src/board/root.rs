//! Readings below a root path: of the live machine, of a fixture tree, or of a collected report.
//!
//! A tree holds copies of the files at their paths. What is no plain file lies beside them: a device node as
//! `NODE.stat` (`major minor mode owner group`, the last three as `660 root render`), the kernel's log as
//! `cmd/dmesg.txt`, what `id` prints for the user as `cmd/id.txt`, and the environment as `cmd/env.txt`.

use std::collections::BTreeMap;
use std::fmt;
use std::fs::{self, File};
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, PoisonError};

/// Most bytes of a file that are read: a kernel's log of 64 Ki lines has room.
const LIMIT: u64 = 16 << 20;

/// A value, or why there is none.
pub type Reading<T> = std::result::Result<T, Absent>;

/// Why a reading has no value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Absent {
    /// The path, from the root on.
    pub path: String,
    /// What came of it.
    pub why: Why,
}

/// What came of a reading without a value.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Why {
    /// There is no such file.
    Missing,
    /// It may not be read by this user.
    Denied,
    /// It is there, and is not what it should be.
    Malformed(String),
}

impl fmt::Display for Absent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.why {
            Why::Missing => write!(f, "no {}", self.path),
            Why::Denied => write!(f, "{} may not be read (try as root)", self.path),
            Why::Malformed(what) => write!(f, "{}: {what}", self.path),
        }
    }
}

/// A device node or a file as `stat` shows it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stat {
    /// Device numbers; none of a plain file.
    pub device: Option<(u64, u64)>,
    /// Permission bits.
    pub mode: u32,
    /// Owner's name, or number where it has none.
    pub owner: String,
    /// Group's name, or number where it has none.
    pub group: String,
}

/// Who is asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Identity {
    /// Effective user.
    pub uid: u32,
    /// User's name, where it has one.
    pub name: Option<String>,
    /// Names of this process's groups, or numbers where they have none.
    pub groups: Vec<String>,
}

/// A line of the kernel's log.
#[derive(Debug, Clone, PartialEq)]
pub struct LogLine {
    /// Seconds since the boot, where the line says so.
    pub seconds: Option<f64>,
    /// The rest.
    pub text: String,
}

/// A root path and what was looked at below it.
#[derive(Debug)]
pub struct Root {
    pub(super) path: PathBuf,
    seen: Mutex<BTreeMap<String, Option<Absent>>>,
}

impl Root {
    /// `/` for the live machine, or a tree.
    ///
    /// # Errors
    /// The folder cannot be found.
    pub fn open(path: &Path) -> io::Result<Root> {
        Ok(Root { path: path.canonicalize()?, seen: Mutex::default() })
    }

    /// Whether this is the machine that the program runs on.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// A system in a folder of this one, as a container's: links do not lead out of it.
    ///
    /// # Errors
    /// There is no such folder, or it is not inside.
    pub fn below(&self, path: &str) -> Reading<Root> {
        let real = self.note(path, self.inside(path))?;
        Ok(Root { path: real, seen: Mutex::default() })
    }

    /// Where the root is on this machine.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// What was looked at so far, and what came of it.
    pub fn seen(&self) -> Vec<(String, Option<Absent>)> {
        let seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.iter().map(|(path, absent)| (path.clone(), absent.clone())).collect()
    }

    /// A file's bytes. Never waits: what is no plain file, or longer than 16 MiB, is malformed.
    pub fn bytes(&self, path: &str) -> Reading<Vec<u8>> {
        self.bytes_within(path, LIMIT)
    }

    /// A file's bytes, where those may be so many: programs and libraries.
    pub fn bytes_within(&self, path: &str, limit: u64) -> Reading<Vec<u8>> {
        self.note(path, self.bytes_of(path, limit))
    }

    /// A file's text without the line end. What is no UTF-8 is replaced.
    pub fn text(&self, path: &str) -> Reading<String> {
        Ok(String::from_utf8_lossy(&self.bytes(path)?).trim_end().to_owned())
    }

    /// A file's number.
    pub fn number<T: FromStr>(&self, path: &str) -> Reading<T> {
        let text = self.text(path)?;
        let what = format!("'{}' is no number", text.chars().take(40).collect::<String>());
        self.note(path, text.trim().parse().map_err(|_| Why::Malformed(what)))
    }

    /// The strings of a device-tree property.
    pub fn strings(&self, path: &str) -> Reading<Vec<String>> {
        let bytes = self.bytes(path)?;
        let parts = bytes.split(|b| *b == 0).filter(|p| !p.is_empty());
        Ok(parts.map(|p| String::from_utf8_lossy(p).into_owned()).collect())
    }

    /// Names in a folder, sorted.
    pub fn names(&self, path: &str) -> Reading<Vec<String>> {
        let read = || -> Result<Vec<String>, Why> {
            let entries = fs::read_dir(self.inside(path)?).map_err(|e| why(&e))?;
            let mut names: Vec<String> = entries
                .flatten()
                .take(1 << 16)
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            Ok(names)
        };
        self.note(path, read())
    }

    /// Names of the folders in a folder, sorted; links are none.
    pub fn folders(&self, path: &str) -> Reading<Vec<String>> {
        let read = || -> Result<Vec<String>, Why> {
            let entries = fs::read_dir(self.inside(path)?).map_err(|e| why(&e))?;
            let folder = |e: &fs::DirEntry| e.file_type().is_ok_and(|t| t.is_dir());
            let folders = entries.flatten().take(1 << 16).filter(folder);
            let name = |e: fs::DirEntry| e.file_name().to_string_lossy().into_owned();
            let mut names: Vec<String> = folders.map(name).collect();
            names.sort();
            Ok(names)
        };
        self.note(path, read())
    }

    /// Whether there is such a file or folder. Unknown only where that may not be seen.
    pub fn exists(&self, path: &str) -> Reading<bool> {
        match self.note(path, self.inside(path).map(drop)) {
            Ok(()) => Ok(true),
            Err(Absent { why: Why::Missing, .. }) => Ok(false),
            Err(absent) => Err(absent),
        }
    }

    /// The last name of what a link leads to.
    pub fn link(&self, path: &str) -> Reading<String> {
        let target = fs::read_link(self.place(path)).map_err(|e| why(&e));
        let name = target.and_then(|t| {
            let name = t.file_name().map(|n| n.to_string_lossy().into_owned());
            name.ok_or_else(|| Why::Malformed("leads nowhere".into()))
        });
        self.note(path, name)
    }

    /// Owner and mode of a node.
    pub fn stat(&self, path: &str) -> Reading<Stat> {
        if !self.is_live() {
            let side = format!("{path}.stat");
            let text = self.text(&side)?;
            let parsed = side_file(&text)
                .ok_or_else(|| Why::Malformed("not 'major minor mode owner group'".into()));
            return self.note(&side, parsed);
        }
        let stat = fs::metadata(self.place(path)).map_err(|e| why(&e)).map(|m| {
            let name = |file: &str, id: u32| self.named(file, id).unwrap_or_else(|| id.to_string());
            Stat {
                device: (m.rdev() != 0)
                    .then(|| (nix::sys::stat::major(m.rdev()), nix::sys::stat::minor(m.rdev()))),
                mode: m.mode() & 0o7777,
                owner: name("etc/passwd", m.uid()),
                group: name("etc/group", m.gid()),
            }
        });
        self.note(path, stat)
    }

    /// Whether a node opens for reading and writing: the errno's name, or nothing. A tree has it in
    /// `NODE.open`.
    pub fn opens(&self, path: &str) -> Reading<String> {
        if !self.is_live() {
            return self.text(&format!("{path}.open"));
        }
        let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
        let mut options = fs::OpenOptions::new();
        let open = match options.read(true).write(true).custom_flags(flags).open(self.place(path)) {
            Ok(_) => Ok(String::new()),
            Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Why::Missing),
            Err(e) => Ok(nix::errno::Errno::from_raw(e.raw_os_error().unwrap_or(0)).to_string()),
        };
        self.note(path, open.map(|e| e.split(':').next().unwrap_or_default().to_owned()))
    }

    /// Who is asking: the process, or `cmd/id.txt` of a tree.
    pub fn identity(&self) -> Reading<Identity> {
        if self.is_live() {
            let uid = nix::unistd::geteuid().as_raw();
            let groups = nix::unistd::getgroups().unwrap_or_default();
            let mut ids: Vec<u32> = groups.iter().map(|g| g.as_raw()).collect();
            ids.push(nix::unistd::getegid().as_raw());
            ids.sort_unstable();
            ids.dedup();
            let name = |id: &u32| self.named("etc/group", *id).unwrap_or_else(|| id.to_string());
            let groups = ids.iter().map(name).collect();
            return Ok(Identity { uid, name: self.named("etc/passwd", uid), groups });
        }
        let text = self.text("cmd/id.txt")?;
        let parsed = id_line(&text).ok_or_else(|| Why::Malformed("not what id prints".into()));
        self.note("cmd/id.txt", parsed)
    }

    /// Variables of the process's environment, or `cmd/env.txt` of a tree, as `env` prints it.
    pub fn environment(&self) -> Reading<BTreeMap<String, String>> {
        if self.is_live() {
            let text = |v: std::ffi::OsString| v.to_string_lossy().into_owned();
            return Ok(std::env::vars_os()
                .map(|(name, value)| (text(name), text(value)))
                .collect());
        }
        let text = self.text("cmd/env.txt")?;
        let pairs = text.lines().filter_map(|l| l.split_once('='));
        Ok(pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect())
    }

    /// The kernel's log, as far as it is kept.
    pub fn log(&self) -> Reading<Vec<LogLine>> {
        if self.is_live() {
            return self.note("dev/kmsg", kernel_log());
        }
        Ok(self.text("cmd/dmesg.txt")?.lines().map(log_line).collect())
    }

    /// The name of a user or group in a file like `etc/passwd`.
    fn named(&self, file: &str, id: u32) -> Option<String> {
        let text = self.text(file).ok()?;
        text.lines().find_map(|line| {
            let mut fields = line.split(':');
            let name = fields.next()?;
            (fields.nth(1)?.parse() == Ok(id)).then(|| name.to_owned())
        })
    }

    fn place(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// Where a path is after all links, which must not lead out of a tree.
    fn inside(&self, path: &str) -> Result<PathBuf, Why> {
        let real = self.place(path).canonicalize().map_err(|e| why(&e))?;
        match real.starts_with(&self.path) {
            true => Ok(real),
            false => Err(Why::Malformed("leads out of the root".into())),
        }
    }

    fn bytes_of(&self, path: &str, limit: u64) -> Result<Vec<u8>, Why> {
        let real = self.inside(path)?;
        let file = fs::OpenOptions::new()
            .read(true)
            .custom_flags(nix::fcntl::OFlag::O_NONBLOCK.bits())
            .open(&real)
            .map_err(|e| why(&e))?;
        if !file.metadata().map_err(|e| why(&e))?.is_file() {
            return Err(Why::Malformed("is no file".into()));
        }
        let mut bytes = Vec::new();
        file.take(limit + 1).read_to_end(&mut bytes).map_err(|e| why(&e))?;
        match bytes.len() as u64 > limit {
            true => Err(Why::Malformed(format!("is longer than {} MiB", limit >> 20))),
            false => Ok(bytes),
        }
    }

    fn note<T>(&self, path: &str, read: Result<T, Why>) -> Reading<T> {
        let path = format!("/{}", path.trim_start_matches('/'));
        let read = read.map_err(|why| Absent { path: path.clone(), why });
        let mut seen = self.seen.lock().unwrap_or_else(PoisonError::into_inner);
        seen.insert(path, read.as_ref().err().cloned());
        read
    }
}

fn why(e: &io::Error) -> Why {
    match e.kind() {
        io::ErrorKind::NotFound | io::ErrorKind::NotADirectory => Why::Missing,
        io::ErrorKind::PermissionDenied => Why::Denied,
        _ => Why::Malformed(e.to_string()),
    }
}

fn side_file(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.split_whitespace().collect();
    let [major, minor, mode, owner, group] = fields[..] else { return None };
    Some(Stat {
        device: Some((major.parse().ok()?, minor.parse().ok()?)),
        mode: u32::from_str_radix(mode, 8).ok()?,
        owner: owner.to_owned(),
        group: group.to_owned(),
    })
}

/// `uid=1000(tom) gid=1000(tom) groups=1000(tom),44(video)`
fn id_line(text: &str) -> Option<Identity> {
    let field = |key: &str| text.split_whitespace().find_map(|w| w.strip_prefix(key));
    let split = |one: &str| -> Option<(u32, Option<String>)> {
        let (id, rest) = one.split_once('(').unwrap_or((one, ""));
        let name = rest.trim_end_matches(')');
        Some((id.parse().ok()?, (!name.is_empty()).then(|| name.to_owned())))
    };
    let (uid, name) = split(field("uid=")?)?;
    let groups = field("groups=").or_else(|| field("gid="))?;
    let groups: Option<Vec<String>> =
        groups.split(',').map(|g| split(g).map(|(id, n)| n.unwrap_or(id.to_string()))).collect();
    Some(Identity { uid, name, groups: groups? })
}

/// `[    5.123456] text`, or text alone.
fn log_line(line: &str) -> LogLine {
    let timed = line.strip_prefix('[').and_then(|rest| {
        let (time, text) = rest.split_once(']')?;
        Some((time.trim().parse().ok()?, text.trim_start()))
    });
    match timed {
        Some((seconds, text)) => LogLine { seconds: Some(seconds), text: text.to_owned() },
        None => LogLine { seconds: None, text: line.to_owned() },
    }
}

/// The records of /dev/kmsg: `priority,sequence,microseconds,flags;text`, one a read.
fn kernel_log() -> Result<Vec<LogLine>, Why> {
    let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
    let mut file: File = fs::OpenOptions::new()
        .read(true)
        .custom_flags(flags)
        .open("/dev/kmsg")
        .map_err(|e| why(&e))?;
    let mut lines = Vec::new();
    let mut record = [0; 8192];
    for _ in 0..1 << 17 {
        match file.read(&mut record) {
            Ok(0) => break,
            Ok(n) => {
                let text = String::from_utf8_lossy(&record[..n]);
                let Some((head, text)) = text.split_once(';') else { continue };
                let micros: Option<f64> = head.split(',').nth(2).and_then(|m| m.parse().ok());
                let text = text.lines().next().unwrap_or_default().to_owned();
                lines.push(LogLine { seconds: micros.map(|m| m / 1e6), text });
            }
            Err(e) if e.kind() == io::ErrorKind::WouldBlock => break,
            // A record that was overwritten before it was read.
            Err(e) if e.kind() == io::ErrorKind::BrokenPipe => {}
            Err(e) => return Err(why(&e)),
        }
    }
    Ok(lines)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::unix::fs::symlink;

    fn tree(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (path, bytes) in files {
            let path = dir.path().join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, bytes).unwrap();
        }
        let root = Root::open(dir.path()).unwrap();
        (dir, root)
    }

    #[test]
    fn values_and_reasons() {
        let (dir, root) =
            tree(&[("sys/n", b"600000000\n"), ("sys/w", b"fast\n"), ("p/c", b"a\0b,c\0")]);
        assert_eq!(root.number::<u64>("/sys/n"), Ok(600_000_000));
        assert_eq!(root.strings("p/c"), Ok(vec!["a".into(), "b,c".into()]));
        assert_eq!(root.names("sys"), Ok(vec!["n".into(), "w".into()]));
        assert_eq!(root.folders(""), Ok(vec!["p".into(), "sys".into()]));
        assert_eq!((root.exists("sys/n"), root.exists("sys/x")), (Ok(true), Ok(false)));
        let absent = |e: Absent| e.to_string();
        assert_eq!(
            root.number::<u64>("sys/w").map_err(absent),
            Err("/sys/w: 'fast' is no number".into())
        );
        assert_eq!(root.text("sys/x").map_err(absent), Err("no /sys/x".into()));
        assert_eq!(root.text("sys").map_err(absent), Err("/sys: is no file".into()));
        nix::unistd::mkfifo(&dir.path().join("sys/pipe"), nix::sys::stat::Mode::S_IRWXU).unwrap();
        assert_eq!(root.text("sys/pipe").map_err(absent), Err("/sys/pipe: is no file".into()));
        let seen: Vec<String> = root.seen().into_iter().map(|(p, _)| p).collect();
        assert_eq!(seen, ["/", "/p/c", "/sys", "/sys/n", "/sys/pipe", "/sys/w", "/sys/x"]);
    }

    #[test]
    fn links_stay_inside() {
        let (dir, root) = tree(&[("sys/drivers/rocket/x", b"1")]);
        symlink("drivers/rocket", dir.path().join("sys/driver")).unwrap();
        symlink("/etc/passwd", dir.path().join("sys/out")).unwrap();
        symlink("loop", dir.path().join("sys/loop")).unwrap();
        assert_eq!(
            (root.link("sys/driver"), root.text("sys/driver/x")),
            (Ok("rocket".into()), Ok("1".into()))
        );
        assert!(matches!(root.text("sys/out"), Err(Absent { why: Why::Malformed(_), .. })));
        assert!(root.text("sys/loop").is_err() && root.names("sys/loop").is_err());
    }

    #[test]
    fn nodes_logs_and_users() {
        let (_dir, root) = tree(&[
            ("dev/accel/accel0.stat", b"261 0 660 root render\n"),
            ("cmd/dmesg.txt", b"[    5.250000] rocket: here\n[x] odd\nplain\n"),
            ("cmd/id.txt", b"uid=1000(tom) gid=1000(tom) groups=1000(tom),44\n"),
        ]);
        let stat = root.stat("dev/accel/accel0").unwrap();
        assert_eq!((stat.device, stat.mode, &*stat.group), (Some((261, 0)), 0o660, "render"));
        let lines = root.log().unwrap();
        assert_eq!((lines[0].seconds, &*lines[0].text), (Some(5.25), "rocket: here"));
        assert_eq!(
            (lines[1].seconds, &*lines[1].text, &*lines[2].text),
            (None, "[x] odd", "plain")
        );
        let who = root.identity().unwrap();
        assert_eq!((who.uid, who.groups), (1000, vec!["tom".to_owned(), "44".to_owned()]));
    }

    proptest::proptest! {
        /// Whatever a tree holds, there is a value or a reason.
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..200)) {
            let (_dir, root) = tree(&[("x", &bytes), ("y.stat", &bytes), ("cmd/id.txt", &bytes), ("cmd/dmesg.txt", &bytes)]);
            let _ = (root.text("x"), root.strings("x"), root.number::<i64>("x"), root.stat("y"));
            let _ = (root.identity(), root.log(), root.environment());
        }
    }
}
