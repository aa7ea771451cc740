//! Who holds the node: /proc/PID/fd, and fdinfo where the kernel has our series (kernel-and-uapi C.4 P1, D.2). Those of
//! other users are seen by root alone.

use super::{Source, small};
use crate::sample::{Client, Raw, Sample, TimeSource};
use rocket_runtime::board::Root;
use rocket_runtime::board::fdinfo::{self, FdInfo};
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};

/// Files of a process that are looked at.
const MOST_FILES: usize = 4096;

/// See the module.
#[derive(Debug)]
pub struct Clients {
    proc: PathBuf,
}

impl Clients {
    /// Of the processes below a root.
    pub fn below(root: &Path) -> Clients {
        Clients { proc: root.join("proc") }
    }
}

impl Source for Clients {
    fn fill(&mut self, _root: &Root, sample: &mut Sample) {
        let Raw::Value(node) = &sample.node else {
            sample.clients = Raw::Why(sample.node.why().unwrap_or_default().to_owned());
            return;
        };
        let link = PathBuf::from("/dev/accel").join(node);
        let entries = match fs::read_dir(&self.proc) {
            Ok(entries) => entries,
            Err(e) => {
                sample.clients = Raw::Why(format!("{}: {e}", self.proc.display()));
                return;
            }
        };
        let pids = entries.flatten().filter_map(|e| e.file_name().to_str()?.parse::<u32>().ok());
        let mut seen = Seen::default();
        let clients = pids
            .filter_map(|pid| seen.client(&self.proc.join(pid.to_string()), pid, &link))
            .collect();
        for (i, core) in sample.cores.iter_mut().enumerate() {
            core.time.insert(TimeSource::Fdinfo, seen.time(i));
        }
        sample.clients = Raw::Value(clients);
    }
}

/// All that was seen of files that are the node.
#[derive(Debug, Default)]
struct Seen {
    /// A file of the node that two processes share is one client.
    clients: BTreeSet<u64>,
    busy: BTreeMap<usize, u64>,
    /// Processes whose files may not be listed, and files without usage.
    hidden: usize,
    silent: usize,
}

impl Seen {
    fn client(&mut self, process: &Path, pid: u32, node: &Path) -> Option<Client> {
        let fds = match fs::read_dir(process.join("fd")) {
            Ok(fds) => fds,
            Err(e) => {
                self.hidden += usize::from(e.kind() == ErrorKind::PermissionDenied);
                return None;
            }
        };
        let mut found = None;
        for fd in fds.flatten().take(MOST_FILES) {
            if !fs::read_link(fd.path()).is_ok_and(|target| target == node) {
                continue;
            }
            let resident = found.get_or_insert(None::<u64>);
            let Ok(text) = small(&process.join("fdinfo").join(fd.file_name()), 1 << 16) else {
                continue;
            };
            let Some(info) = fdinfo::parse(&text).filter(|i| engines(i).next().is_some()) else {
                self.silent += 1;
                continue;
            };
            if info.client.is_some_and(|c| !self.clients.insert(c)) {
                continue;
            }
            for (core, ns) in engines(&info) {
                let sum = self.busy.entry(core).or_default();
                *sum = sum.saturating_add(ns);
            }
            if let Some(regions) = info.memory.get("resident") {
                let bytes =
                    regions.values().fold(resident.unwrap_or(0), |sum, b| sum.saturating_add(*b));
                *resident = Some(bytes);
            }
        }
        let resident = match found? {
            Some(bytes) => Raw::Value(bytes),
            None => Raw::Why("this driver's fdinfo has no usage".into()),
        };
        Some(Client { pid, name: Raw::from(small(&process.join("comm"), 64)), resident })
    }

    /// A sum that leaves somebody out is no utilization.
    fn time(&self, core: usize) -> Raw<u64> {
        match self {
            Seen { silent: 1.., .. } => Raw::Why("this driver's fdinfo has no usage".into()),
            Seen { hidden: 1.., .. } => {
                Raw::Why("files of other users' processes are for root to see".into())
            }
            _ => match self.busy.get(&core) {
                Some(ns) => Raw::Value(*ns),
                None => Raw::Why("no process holds the node".into()),
            },
        }
    }
}

/// ns of a core, by its name in fdinfo.
fn engines(info: &FdInfo) -> impl Iterator<Item = (usize, u64)> {
    info.engines
        .iter()
        .filter_map(|(name, ns)| Some((name.strip_prefix("npu")?.parse().ok()?, *ns)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sample::Core;
    use std::os::unix::fs::symlink;

    fn proc(files: &[(u32, u32, &str)]) -> tempfile::TempDir {
        let dir = tempfile::tempdir().unwrap();
        for (pid, fd, info) in files {
            let process = dir.path().join(format!("proc/{pid}"));
            fs::create_dir_all(process.join("fd")).unwrap();
            fs::create_dir_all(process.join("fdinfo")).unwrap();
            symlink("/dev/accel/accel0", process.join(format!("fd/{fd}"))).unwrap();
            symlink("/dev/null", process.join(format!("fd/{}", fd + 100))).unwrap();
            fs::write(process.join(format!("fdinfo/{fd}")), info).unwrap();
            fs::write(process.join("comm"), format!("host{pid}\n")).unwrap();
        }
        dir
    }

    fn look(dir: &Path) -> Sample {
        let core = |name: &str| Core { name: name.into(), ..Core::default() };
        let mut sample = Sample {
            node: Raw::Value("accel0".into()),
            cores: vec![core("a"), core("b")],
            ..Sample::default()
        };
        Clients::below(dir).fill(&Root::open(dir).unwrap(), &mut sample);
        sample
    }

    #[test]
    fn clients_and_their_sum() {
        let info = |client: u32, ns: u32| {
            format!(
                "drm-driver: rocket\ndrm-client-id: {client}\ndrm-engine-npu0: {ns} ns\ndrm-resident-memory: 4 KiB\n"
            )
        };
        let (one, two) = (info(1, 10), info(2, 5));
        // The second process inherited the first one's file; the third has its own.
        let dir = proc(&[(10, 3, &one), (11, 3, &one), (12, 4, &two)]);
        let sample = look(dir.path());
        let clients = sample.clients.value().unwrap();
        let pids: BTreeSet<u32> = clients.iter().map(|c| c.pid).collect();
        assert_eq!(pids, BTreeSet::from([10, 11, 12]));
        assert_eq!(sample.cores[0].time[&TimeSource::Fdinfo], Raw::Value(15));
        assert!(sample.cores[1].time[&TimeSource::Fdinfo].why().is_some());
        let stock = proc(&[(10, 3, "pos: 0\n"), (12, 4, &two)]);
        let sample = look(stock.path());
        assert_eq!(
            sample.cores[0].time[&TimeSource::Fdinfo].why(),
            Some("this driver's fdinfo has no usage")
        );
        assert_eq!(sample.clients.value().unwrap().len(), 2);
    }
}
