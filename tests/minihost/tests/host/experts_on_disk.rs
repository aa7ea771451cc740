//! Experts that are packed once and kept: the next start, starts that end early, and two at once.

use super::experts::newest_and_oldest;
use super::{command, hosts, number, right};
use rocket_runtime::telemetry::{Life, read};
use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Folders of one test.
struct Folders {
    _scratch: tempfile::TempDir,
    packed: PathBuf,
    counters: PathBuf,
    /// Of the program's own.
    temporary: PathBuf,
}

impl Folders {
    fn new() -> Folders {
        let scratch = tempfile::tempdir().unwrap();
        let [packed, counters, temporary] = ["packed", "counters", "tmp"].map(|name| {
            let path = scratch.path().join(name);
            std::fs::create_dir(&path).unwrap();
            path
        });
        Folders { _scratch: scratch, packed, counters, temporary }
    }

    fn command(&self, host: &Path) -> Command {
        let mut c = command(host, &["experts", "--stored"]);
        c.env("ROCKET_PACKED_DIR", &self.packed).env("ROCKET_COUNTERS", &self.counters);
        c.env("TMPDIR", &self.temporary).env("ROCKET_LOG_STDERR", "1");
        c
    }

    /// To its end; its results, bytes it packed, and its log.
    fn run(&self, host: &Path) -> (String, u64, String) {
        let [text, log] = right(self.command(host));
        println!("{text}");
        (results(&text), number(&text, "packed bytes: ") as u64, log)
    }

    /// Files of the packed folder and their contents, hidden ones included.
    fn files(&self) -> BTreeMap<String, Vec<u8>> {
        let entries = std::fs::read_dir(&self.packed).unwrap().map(Result::unwrap);
        let all = entries.map(|e| {
            let name = e.file_name().into_string().unwrap();
            (name, std::fs::read(e.path()).unwrap())
        });
        all.collect()
    }

    /// Counters that a reader would take for a live process's.
    fn alive(&self) -> Vec<PathBuf> {
        let entries = std::fs::read_dir(&self.counters).unwrap().map(|e| e.unwrap().path());
        entries.filter(|p| read(p).is_ok_and(|s| s.life != Life::Dead)).collect()
    }
}

fn results(text: &str) -> String {
    text.lines().find(|l| l.starts_with("results: ")).map(str::to_owned).unwrap()
}

#[test]
fn host_experts_are_packed_once() {
    for host in newest_and_oldest() {
        let folders = Folders::new();
        let (first, packed, _) = folders.run(&host);
        assert!(packed > 0);
        let files = folders.files();
        assert!(!files.is_empty(), "nothing was kept");
        let (again, packed, log) = folders.run(&host);
        assert_eq!(packed, 0, "{log}");
        assert_eq!(again, first, "bit for bit");
        assert_eq!(folders.files(), files, "nothing changed");
        // Another stack of the same shape is not taken for it: nor is one whose file was cut.
        let (name, bytes) = files.first_key_value().unwrap();
        std::fs::write(folders.packed.join(name), &bytes[..bytes.len() / 2]).unwrap();
        let (third, packed, log) = folders.run(&host);
        assert!(packed > 0, "{log}");
        assert_eq!(third, first, "bit for bit");
        assert_eq!(folders.files(), files, "the same again");
        // Without the folder they are packed anew, and come out the same.
        let mut c = folders.command(&host);
        c.env("ROCKET_PACKED_DIR", "0");
        let [text, _] = right(c);
        assert_eq!(results(&text), first, "bit for bit");
        assert!(number(&text, "packed bytes: ") > 0);
    }
}

/// How long a whole run takes, in which nothing was kept before; and what it leaves.
fn healthy(host: &Path) -> (Duration, String, BTreeMap<String, Vec<u8>>) {
    let folders = Folders::new();
    let begun = Instant::now();
    let (results, ..) = folders.run(host);
    (begun.elapsed(), results, folders.files())
}

/// Moments at which a run is killed, evenly over its time.
const MOMENTS: u32 = 8;

#[test]
fn host_experts_killed_while_packing() {
    let host = &hosts()[0];
    let (whole, wanted, files) = healthy(host);
    let folders = Folders::new();
    let kill = |when: &mut dyn FnMut() -> bool| {
        let mut c = folders.command(host);
        let mut child = c.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        while !when() && child.try_wait().unwrap().is_none() {
            std::thread::sleep(Duration::from_millis(1));
        }
        let ended = child.try_wait().unwrap().is_some();
        // SIGKILL: no handler, no destructor.
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(folders.alive().is_empty(), "counters of a dead process: {:?}", folders.alive());
        !ended
    };
    let mut unfinished = 0;
    let mut killed = 0;
    for i in 1..=MOMENTS {
        for file in folders.files().keys() {
            std::fs::remove_file(folders.packed.join(file)).unwrap();
        }
        let begun = Instant::now();
        let mut when = || begun.elapsed() >= whole * i / (MOMENTS + 1);
        killed += usize::from(kill(&mut when));
        // As a writer leaves it that is killed: whether one of these kills met one is chance.
        std::fs::create_dir_all(&folders.packed).unwrap();
        std::fs::write(folders.packed.join(".tmp-killed"), "half a fi").unwrap();
        let left = folders.files();
        unfinished += left.keys().filter(|name| !files.contains_key(*name)).count();
        for (name, bytes) in left.iter().filter(|(name, _)| files.contains_key(*name)) {
            assert!(files[name] == *bytes, "{name} has its name, but is not whole");
        }
        let (results, ..) = folders.run(host);
        assert_eq!(results, wanted, "after moment {i}");
        assert!(folders.files() == files, "after moment {i}: {:?}", folders.files().keys());
        assert!(folders.alive().is_empty(), "{:?}", folders.alive());
    }
    println!("{killed} runs killed of {MOMENTS}; {unfinished} unfinished files taken away");
    assert!(killed >= 3 && unfinished >= MOMENTS as usize, "{killed} {unfinished}");
}

#[test]
fn host_experts_two_hosts_one_folder() {
    let host = &hosts()[0];
    let (_, wanted, files) = healthy(host);
    for round in 0..3 {
        let folders = Folders::new();
        let both: Vec<_> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..2).map(|_| scope.spawn(|| folders.run(host))).collect();
            runs.into_iter().map(|r| r.join().unwrap()).collect()
        });
        for (results, packed, _) in &both {
            println!("round {round}: {packed} bytes packed");
            assert_eq!(*results, wanted);
        }
        assert!(folders.files() == files, "{:?}", folders.files().keys());
        let (results, packed, _) = folders.run(host);
        assert_eq!((results, packed), (wanted.clone(), 0));
    }
}
