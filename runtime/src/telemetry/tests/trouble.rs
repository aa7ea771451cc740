//! Directories that take nothing, and what others do to the file: figures may be lost, the process
//! and its other files never.

use super::*;
use crate::test_process as process;
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::WaitStatus;
use rustix::process::{Resource, Rlimit, setrlimit};
use std::os::fd::AsRawFd;

#[test]
fn the_first_directory_that_takes_it() {
    let dir = folder();
    let file = dir.path().join("file");
    fs::write(&file, b"").unwrap();
    let bad = [dir.path().join("absent"), file, PathBuf::from("/proc/self")];
    let all: Vec<Directory> = bad.iter().map(Directory::existing).collect();
    let refused = Writer::create(&all, &[]).unwrap_err();
    assert_eq!(refused.tried.iter().map(|t| t.0.clone()).collect::<Vec<_>>(), bad);
    assert!(refused.to_string().contains("absent: No such file"), "{refused}");
    let good = [&all[..], &[Directory::existing(dir.path())]].concat();
    let w = Writer::create(&good, &[]).unwrap();
    assert!(w.publish() && w.path().starts_with(dir.path()));
    assert!(Writer::create(&[], &[]).is_err());
}

/// The next copy brings back what was cut off or written over.
#[test]
fn what_somebody_spoils_the_next_copy_mends() {
    let dir = folder();
    let w = writer(dir.path());
    let file = fs::File::options().write(true).open(w.path()).unwrap();
    for (n, len) in [0, 10, 300, 5000, l::SIZE - 1, l::SIZE + 77].into_iter().enumerate() {
        file.set_len(len as u64).unwrap();
        assert!(read(w.path()).is_err(), "{len}: the control");
        step(&w, n as u64 + 1);
        assert!(w.publish());
        assert_eq!(steps(&read(w.path()).unwrap()), n as u64 + 1, "{len}");
    }
    fs::write(w.path(), vec![0xa5; l::SIZE]).unwrap();
    assert!(w.publish() && read(w.path()).is_ok());
    // Removed: nobody sees it any more, and nothing goes wrong.
    fs::remove_file(w.path()).unwrap();
    step(&w, 99);
    assert!(w.publish());
}

/// As a host does that becomes a daemon: its next file gets the number of ours.
#[test]
fn a_host_that_closes_all_descriptors_keeps_its_files() {
    let dir = folder();
    let child = process::start(|| {
        let w = writer(dir.path());
        let path = w.path().to_owned();
        let number = |fd: &fs::DirEntry| fd.file_name().to_str().unwrap().parse::<i32>().unwrap();
        let is_ours = |fd: &fs::DirEntry| fs::read_link(fd.path()).is_ok_and(|p| p == path);
        let fd = fs::read_dir("/proc/self/fd").unwrap().flatten().find(is_ours).unwrap();
        let fd = number(&fd);
        nix::unistd::close(fd).unwrap();
        let theirs = fs::File::create(dir.path().join("theirs")).unwrap();
        assert_eq!(theirs.as_raw_fd(), fd, "the number is used again");
        step(&w, 1);
        assert!(!w.publish() && !w.publish());
        drop(w);
        assert!(theirs.metadata().is_ok(), "it is still open");
        assert_eq!(theirs.metadata().unwrap().len(), 0);
    });
    assert_eq!(process::end(child), WaitStatus::Exited(child, 0));
}

/// Writing past the limit would be a signal that ends the process.
#[test]
fn a_limit_on_file_sizes_is_kept() {
    let dir = folder();
    let child = process::start(|| {
        let w = writer(dir.path());
        let low = Rlimit { current: Some(1000), maximum: Some(1000) };
        setrlimit(Resource::Fsize, low).unwrap();
        step(&w, 1);
        assert!(!w.publish());
        let refused = Writer::create(&[Directory::existing(dir.path())], &[]).unwrap_err();
        assert!(refused.to_string().contains("ulimit -f"), "{refused}");
    });
    assert_eq!(process::end(child), WaitStatus::Exited(child, 0));
}

/// Room for less than a file, and a file system that takes nothing. Only says so when this user
/// may not mount.
#[test]
fn a_full_disk_and_a_read_only_one() {
    let dir = folder();
    let child = process::start(|| {
        let none: Option<&str> = None;
        let mounted = unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none))
            .and_then(|()| {
                mount(none, dir.path(), Some("tmpfs"), MsFlags::empty(), Some("size=48k"))
            });
        if let Err(e) = mounted {
            eprintln!("skipped: this user may not mount a file system of its own: {e}");
            return;
        }
        let here = [Directory::existing(dir.path())];
        let full = Writer::create(&here, &[]).unwrap_err();
        assert!(full.to_string().contains("No space left"), "{full}");
        assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 0, "nothing is left behind");
        mount(none, dir.path(), none, MsFlags::MS_REMOUNT | MsFlags::MS_RDONLY, none).unwrap();
        let refused = Writer::create(&here, &[]).unwrap_err();
        assert!(refused.to_string().contains("Read-only"), "{refused}");
        umount(dir.path()).unwrap();
    });
    assert_eq!(process::end(child), WaitStatus::Exited(child, 0));
}
