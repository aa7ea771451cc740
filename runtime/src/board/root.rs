//! Readings below a root path: of the live machine, of a fixture tree, or of a collected report.
//!
//! A tree holds copies of the files at their paths. What is no plain file lies beside them: a device node as
//! `NODE.stat` (`major minor mode owner group`, the last three as `660 root render`), what opening it gives as
//! `NODE.open`, its driver and version as `NODE.version`, the kernel's log as `cmd/dmesg.txt`, what `id` prints for
//! the user as `cmd/id.txt`, the environment as `cmd/env.txt`, and what could not be read as `cmd/absent.txt`.

use super::limit::{PATIENCE, Patience};
use super::reading::{Absent, Reading, Why, absent_line, parse_absent, why};
use super::side::{self, Identity, LogLine, Stat};
use std::collections::BTreeMap;
use std::fs;
use std::io::{self, Read};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::str::FromStr;
use std::sync::{Mutex, MutexGuard, PoisonError};

/// Most bytes of a file that are read: a kernel's log of 64 Ki lines has room.
const LIMIT: u64 = 16 << 20;

/// What was found at a path, for a report that loads back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kept {
    /// A file's bytes.
    File(Vec<u8>),
    /// A folder's names.
    Folder(Vec<String>),
    /// The last name of what a link leads to.
    Link(String),
    /// It is there; nobody asked for more.
    There,
    /// It was read and is too large for a report.
    Left,
}

/// A root path and what was looked at below it.
#[derive(Debug)]
pub struct Root {
    path: PathBuf,
    /// Reasons that a tree has for what could not be read where it was taken.
    absent: BTreeMap<String, Why>,
    patience: Patience,
    seen: Mutex<BTreeMap<String, Option<Absent>>>,
    /// `None`: nobody wants a report.
    kept: Option<Mutex<BTreeMap<String, Kept>>>,
}

impl Root {
    /// `/` for the live machine, or a tree.
    ///
    /// # Errors
    /// The folder cannot be found.
    pub fn open(path: &Path) -> io::Result<Root> {
        let mut root = Root::at(path.canonicalize()?);
        if !root.is_live() {
            let reasons = parse_absent(&root.text("cmd/absent.txt").unwrap_or_default());
            root.absent = reasons.into_iter().map(|a| (a.path, a.why)).collect();
            root.seen = Mutex::default();
        }
        Ok(root)
    }

    fn at(path: PathBuf) -> Root {
        let patience = Patience::new(PATIENCE);
        Root { path, absent: BTreeMap::new(), patience, seen: Mutex::default(), kept: None }
    }

    /// A system in a folder of this one, as a container's: links do not lead out of it.
    ///
    /// # Errors
    /// There is no such folder, or it is not inside.
    pub fn below(&self, path: &str) -> Reading<Root> {
        self.read(path, |base, place| inside(&base, &place)).map(Root::at)
    }

    /// Where the root is on this machine.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The same, and keeps what it reads for [`Root::kept`].
    #[must_use]
    pub fn keeping(mut self) -> Root {
        self.kept = Some(Mutex::default());
        self
    }

    /// Whether this is the machine that the program runs on.
    pub fn is_live(&self) -> bool {
        self.path == Path::new("/")
    }

    /// What was looked at so far, and what came of it.
    pub fn seen(&self) -> Vec<(String, Option<Absent>)> {
        locked(&self.seen).iter().map(|(path, absent)| (path.clone(), absent.clone())).collect()
    }

    /// What a tree needs so that it gives the same readings, by path: empty where nothing was kept.
    pub fn kept(&self) -> BTreeMap<String, Kept> {
        let mut all = self.kept.as_ref().map(|k| locked(k).clone()).unwrap_or_default();
        let left: Vec<String> =
            all.iter().filter(|(_, k)| **k == Kept::Left).map(|(path, _)| path.clone()).collect();
        all.retain(|_, k| *k != Kept::Left);
        let left = left.into_iter().map(|path| malformed(&path, "is not in the report".into()));
        let absent = locked(&self.seen).values().flatten().cloned().collect::<Vec<Absent>>();
        let reasons: Vec<String> =
            absent.into_iter().chain(left).filter_map(|a| absent_line(&a)).collect();
        if self.kept.is_some() && !reasons.is_empty() {
            all.insert("/cmd/absent.txt".into(), Kept::File((reasons.join("\n") + "\n").into()));
        }
        all
    }

    /// A file's bytes. Never waits: what is no plain file, or longer than 16 MiB, is malformed.
    pub fn bytes(&self, path: &str) -> Reading<Vec<u8>> {
        let bytes = self.bytes_within(path, LIMIT)?;
        self.keep(path, || Kept::File(bytes.clone()));
        Ok(bytes)
    }

    /// A file's bytes, where those may be so many: programs and libraries. They are not for a report.
    pub fn bytes_within(&self, path: &str, limit: u64) -> Reading<Vec<u8>> {
        let bytes = self.read(path, move |base, place| bytes_of(&base, &place, limit))?;
        self.keep(path, || Kept::Left);
        Ok(bytes)
    }

    /// A file's text without the line end. What is no UTF-8 is replaced.
    pub fn text(&self, path: &str) -> Reading<String> {
        Ok(String::from_utf8_lossy(&self.bytes(path)?).trim_end().to_owned())
    }

    /// A file's number.
    pub fn number<T: FromStr>(&self, path: &str) -> Reading<T> {
        let text = self.text(path)?;
        let what = format!("'{}' is no number", text.chars().take(40).collect::<String>());
        text.trim().parse().map_err(|_| malformed(path, what))
    }

    /// The strings of a device-tree property.
    pub fn strings(&self, path: &str) -> Reading<Vec<String>> {
        let bytes = self.bytes(path)?;
        let parts = bytes.split(|b| *b == 0).filter(|p| !p.is_empty());
        Ok(parts.map(|p| String::from_utf8_lossy(p).into_owned()).collect())
    }

    /// What a pure parser makes of a file's text.
    ///
    /// # Errors
    /// As [`Root::text`], and the parser's words.
    pub fn parsed<T>(
        &self,
        path: &str,
        parse: impl FnOnce(&str) -> Result<T, String>,
    ) -> Reading<T> {
        parse(&self.text(path)?).map_err(|what| malformed(path, what))
    }

    /// Names in a folder, sorted.
    pub fn names(&self, path: &str) -> Reading<Vec<String>> {
        let names = self.read(path, |base, place| {
            let entries = fs::read_dir(inside(&base, &place)?).map_err(|e| why(&e))?;
            let mut names: Vec<String> = entries
                .flatten()
                .take(1 << 16)
                .map(|e| e.file_name().to_string_lossy().into_owned())
                .collect();
            names.sort();
            Ok(names)
        })?;
        self.keep(path, || Kept::Folder(names.clone()));
        Ok(names)
    }

    /// Names of the folders in a folder, sorted; links are none.
    pub fn folders(&self, path: &str) -> Reading<Vec<String>> {
        let names = self.read(path, |base, place| {
            let entries = fs::read_dir(inside(&base, &place)?).map_err(|e| why(&e))?;
            let folder = |e: &fs::DirEntry| e.file_type().is_ok_and(|t| t.is_dir());
            let folders = entries.flatten().take(1 << 16).filter(folder);
            let name = |e: fs::DirEntry| e.file_name().to_string_lossy().into_owned();
            let mut names: Vec<String> = folders.map(name).collect();
            names.sort();
            Ok(names)
        })?;
        for name in &names {
            self.keep(&format!("{path}/{name}"), || Kept::Folder(Vec::new()));
        }
        Ok(names)
    }

    /// Whether there is such a file or folder. Unknown only where that may not be seen.
    pub fn exists(&self, path: &str) -> Reading<bool> {
        match self.read(path, |base, place| inside(&base, &place).map(drop)) {
            Ok(()) => {
                self.keep(path, || Kept::There);
                Ok(true)
            }
            Err(Absent { why: Why::Missing, .. }) => Ok(false),
            Err(absent) => Err(absent),
        }
    }

    /// The last name of what a link leads to.
    pub fn link(&self, path: &str) -> Reading<String> {
        let name = self.read(path, |_, place| {
            let target = fs::read_link(place).map_err(|e| why(&e))?;
            let name = target.file_name().map(|n| n.to_string_lossy().into_owned());
            name.ok_or_else(|| Why::Malformed("leads nowhere".into()))
        })?;
        self.keep(path, || Kept::Link(name.clone()));
        Ok(name)
    }

    /// Owner and mode of a node.
    pub fn stat(&self, path: &str) -> Reading<Stat> {
        let side = format!("{path}.stat");
        if !self.is_live() {
            return self.parsed(&side, |text| {
                side::side_file(text).ok_or_else(|| "not 'major minor mode owner group'".into())
            });
        }
        let m = self.read(path, |_, place| fs::metadata(place).map_err(|e| why(&e)))?;
        let name = |file: &str, id: u32| self.named(file, id).unwrap_or_else(|| id.to_string());
        let stat = Stat {
            device: (m.rdev() != 0)
                .then(|| (nix::sys::stat::major(m.rdev()), nix::sys::stat::minor(m.rdev()))),
            mode: m.mode() & 0o7777,
            owner: name("etc/passwd", m.uid()),
            group: name("etc/group", m.gid()),
        };
        self.keep(&side, || Kept::File(side::side_line(&stat).into()));
        Ok(stat)
    }

    /// Whether a node opens for reading and writing: the errno's name, or nothing. A tree has it in
    /// `NODE.open`.
    pub fn opens(&self, path: &str) -> Reading<String> {
        let side = format!("{path}.open");
        if !self.is_live() {
            return self.text(&side);
        }
        let errno = self.read(path, |_, place| {
            let flags = nix::fcntl::OFlag::O_NONBLOCK.bits();
            let mut options = fs::OpenOptions::new();
            match options.read(true).write(true).custom_flags(flags).open(place) {
                Ok(_) => Ok(String::new()),
                Err(e) if e.kind() == io::ErrorKind::NotFound => Err(Why::Missing),
                Err(e) => {
                    let errno = nix::errno::Errno::from_raw(e.raw_os_error().unwrap_or(0));
                    Ok(errno.to_string().split(':').next().unwrap_or_default().to_owned())
                }
            }
        })?;
        self.keep(&side, || Kept::File(errno.clone().into()));
        Ok(errno)
    }

    /// A node's driver and interface as `DRM_IOCTL_VERSION` has them, `rocket 1.7` (kernel-and-uapi A.1). A tree has
    /// it in `NODE.version`.
    pub fn version(&self, path: &str) -> Reading<String> {
        let side = format!("{path}.version");
        if !self.is_live() {
            return self.text(&side);
        }
        let version = self.read(path, |_, place| {
            let (version, name) = crate::device::identity(&place)?;
            Ok(format!("{name} {}.{}", version.major, version.minor))
        })?;
        self.keep(&side, || Kept::File(version.clone().into()));
        Ok(version)
    }

    /// Who is asking: the process, or `cmd/id.txt` of a tree.
    pub fn identity(&self) -> Reading<Identity> {
        const FILE: &str = "cmd/id.txt";
        let text = match self.is_live() {
            true => self.id_text(),
            false => self.text(FILE)?,
        };
        self.keep(FILE, || Kept::File(text.clone().into()));
        side::id_line(&text).ok_or_else(|| malformed(FILE, "not what id prints".into()))
    }

    /// What `id` would print.
    fn id_text(&self) -> String {
        let called = |file, id: u32| match self.named(file, id) {
            Some(name) => format!("{id}({name})"),
            None => id.to_string(),
        };
        let uid = nix::unistd::geteuid().as_raw();
        let gid = nix::unistd::getegid().as_raw();
        let groups = nix::unistd::getgroups().unwrap_or_default();
        let mut ids: Vec<u32> = groups.iter().map(|g| g.as_raw()).collect();
        ids.push(gid);
        ids.sort_unstable();
        ids.dedup();
        let groups: Vec<String> = ids.iter().map(|id| called("etc/group", *id)).collect();
        let (user, group) = (called("etc/passwd", uid), called("etc/group", gid));
        format!("uid={user} gid={group} groups={}\n", groups.join(","))
    }

    /// Variables of the process's environment, or `cmd/env.txt` of a tree, as `env` prints it.
    pub fn environment(&self) -> Reading<BTreeMap<String, String>> {
        const FILE: &str = "cmd/env.txt";
        let all: BTreeMap<String, String> = match self.is_live() {
            true => {
                let text = |v: std::ffi::OsString| v.to_string_lossy().into_owned();
                std::env::vars_os().map(|(name, value)| (text(name), text(value))).collect()
            }
            false => {
                let text = self.text(FILE)?;
                let pairs = text.lines().filter_map(|l| l.split_once('='));
                pairs.map(|(name, value)| (name.to_owned(), value.to_owned())).collect()
            }
        };
        self.keep(FILE, || Kept::File(side::environment_text(&all).into()));
        Ok(all)
    }

    /// The kernel's log, as far as it is kept.
    pub fn log(&self) -> Reading<Vec<LogLine>> {
        const FILE: &str = "cmd/dmesg.txt";
        let lines = match self.is_live() {
            true => self.read("dev/kmsg", |_, _| side::kernel_log())?,
            false => side::parse_log(&self.text(FILE)?),
        };
        self.keep(FILE, || Kept::File(side::log_text(&lines).into()));
        Ok(lines)
    }

    /// Notes for a report what stands for something that is no file.
    pub(super) fn keep_file(&self, path: &str, text: &str) {
        self.keep(path, || Kept::File(format!("{text}\n").into()));
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

    /// Reads with the patience that is left, and writes down what came of it.
    fn read<T: Send + 'static>(
        &self,
        path: &str,
        reading: impl FnOnce(PathBuf, PathBuf) -> Result<T, Why> + Send + 'static,
    ) -> Reading<T> {
        let name = absolute(path);
        let read = match self.absent.get(&name) {
            Some(why) => Err(why.clone()),
            None => {
                let base = self.path.clone();
                let place = base.join(path.trim_start_matches('/'));
                self.patience.wait(move || reading(base, place)).unwrap_or(Err(Why::Late))
            }
        };
        let read = read.map_err(|why| Absent { path: name.clone(), why });
        locked(&self.seen).insert(name, read.as_ref().err().cloned());
        read
    }

    /// What is known best of a path stays: that it is there says less than what is in it.
    fn keep(&self, path: &str, what: impl FnOnce() -> Kept) {
        let Some(kept) = &self.kept else { return };
        let mut kept = locked(kept);
        match what() {
            Kept::Folder(names) if names.is_empty() => {
                kept.entry(absolute(path)).or_insert(Kept::Folder(names));
            }
            Kept::There => _ = kept.entry(absolute(path)).or_insert(Kept::There),
            more => _ = kept.insert(absolute(path), more),
        }
    }
}

fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

fn absolute(path: &str) -> String {
    format!("/{}", path.trim_start_matches('/'))
}

fn malformed(path: &str, what: String) -> Absent {
    Absent { path: absolute(path), why: Why::Malformed(what) }
}

/// Where a path is after all links, which must not lead out of a tree.
fn inside(base: &Path, place: &Path) -> Result<PathBuf, Why> {
    let real = place.canonicalize().map_err(|e| why(&e))?;
    match real.starts_with(base) {
        true => Ok(real),
        false => Err(Why::Malformed("leads out of the root".into())),
    }
}

fn bytes_of(base: &Path, place: &Path, limit: u64) -> Result<Vec<u8>, Why> {
    let real = inside(base, place)?;
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
