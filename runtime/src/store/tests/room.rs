//! Limits: of the store, and of the disk.

use super::super::write::Step;
use super::*;
use nix::mount::{MsFlags, mount, umount};
use nix::sched::{CloneFlags, unshare};
use std::fs::FileTimes;
use std::time::{Duration, SystemTime};

/// One page of header, one of data.
const IMAGE: u64 = 8192;

fn one() -> Vec<Vec<u8>> {
    vec![filled(4096, 5)]
}

/// Makes the image of `key` one that was used so many seconds ago.
fn aged(store: &Store, key: &Key, seconds: u64) {
    let then = SystemTime::now() - Duration::from_secs(seconds);
    let file = fs::File::open(path(store, key)).unwrap();
    file.set_times(FileTimes::new().set_modified(then)).unwrap();
}

fn there(store: &Store, keys: std::ops::Range<u128>) -> Vec<u128> {
    keys.filter(|k| path(store, &key(*k)).exists()).collect()
}

fn why_not(saved: Saved) -> String {
    match saved {
        Saved::No(why) => why,
        Saved::Yes => panic!("saved"),
    }
}

/// Four images, number 0 the oldest, from an earlier process.
fn four(limit: u64) -> (TempDir, Store) {
    let (dir, store) = store(None);
    for i in 0..4 {
        assert_eq!(save(&store, &key(i), &one()), Saved::Yes);
        aged(&store, &key(i), 1000 - i as u64);
    }
    let store = reopen(dir.path(), Some(limit));
    (dir, store)
}

#[test]
fn the_longest_unused_images_go() {
    let (dir, store) = four(4 * IMAGE);
    assert_eq!(save(&store, &key(4), &one()), Saved::Yes);
    assert_eq!(there(&store, 0..5), [1, 2, 3, 4]);
    // Loading is use, for the process that comes next too.
    assert_eq!(loaded(&store, &key(1)), Some(one()));
    let store = reopen(dir.path(), Some(4 * IMAGE));
    assert_eq!(save(&store, &key(5), &one()), Saved::Yes);
    assert_eq!(there(&store, 0..6), [1, 3, 4, 5]);
}

/// Also in the middle of writing.
#[test]
fn the_limit_holds_at_any_time() {
    let (dir, store) = four(4 * IMAGE);
    let held = || -> u64 {
        fs::read_dir(store.path()).unwrap().map(|e| e.unwrap().metadata().unwrap().len()).sum()
    };
    let other = reopen(dir.path(), Some(4 * IMAGE));
    let mut first = store.writer(&key(5), &[4096]).unwrap();
    assert_eq!(held(), 4 * IMAGE);
    let mut second = other.writer(&key(6), &[4096]).unwrap();
    assert_eq!(held(), 4 * IMAGE);
    for writer in [&mut first, &mut second] {
        writer.part(0, &one()[0]).unwrap();
    }
    assert_eq!((first.commit().unwrap(), second.commit().unwrap()), (Saved::Yes, Saved::Yes));
    assert_eq!(held(), 4 * IMAGE);
    assert_eq!(there(&store, 0..7), [2, 3, 5, 6]);
}

/// Images that are mapped, here or in another process, and images that this process has used.
#[test]
fn images_in_use_stay() {
    let (dir, store) = four(4 * IMAGE);
    let other = reopen(dir.path(), None);
    let mapped = other.load(&key(0)).unwrap().unwrap();
    aged(&store, &key(0), 5000);
    assert_eq!(loaded(&store, &key(1)), Some(one()));
    aged(&store, &key(1), 4000);
    assert_eq!(save(&store, &key(4), &one()), Saved::Yes);
    assert_eq!(there(&store, 0..5), [0, 1, 3, 4]);
    // 0 is mapped, 1 and 4 are used: 3 alone is not enough, so it stays as well.
    let why = why_not(save(&store, &key(5), &[filled(8192, 1)]));
    assert!(why.contains("limit of 32768") && why.contains("in use"), "{why}");
    assert_eq!(there(&store, 0..6), [0, 1, 3, 4]);
    drop(mapped);
    assert_eq!(save(&store, &key(5), &[filled(8192, 1)]), Saved::Yes);
    assert_eq!(there(&store, 0..6), [1, 4, 5]);
}

/// A model larger than the limit keeps the part that fits, rather than writing all of it anew at
/// every start.
#[test]
fn a_model_larger_than_the_limit_does_not_drive_itself_out() {
    let dir = tempfile::tempdir().unwrap();
    let start = || {
        let store = reopen(dir.path(), Some(3 * IMAGE));
        (0..5u128)
            .map(|i| {
                let hit = loaded(&store, &key(i)).is_some();
                hit || save(&store, &key(i), &one()) == Saved::Yes
            })
            .collect::<Vec<_>>()
    };
    assert_eq!(start(), [true, true, true, false, false]);
    let store = reopen(dir.path(), None);
    let before = names(&store);
    assert_eq!(start(), [true, true, true, false, false]);
    assert_eq!(names(&store), before);
    assert_eq!(there(&store, 0..5), [0, 1, 2]);
}

#[test]
fn an_image_over_the_limit_is_refused_and_drives_nothing_out() {
    let (_dir, store) = four(4 * IMAGE);
    let mut writer = store.writer(&key(9), &[4 * IMAGE]).unwrap();
    assert!(writer.refused().is_some_and(|why| why.contains("over the limit of 32768 by itself")));
    // The caller may go on as if nothing were.
    writer.part(0, &filled(4 * IMAGE as usize, 1)).unwrap();
    let why = why_not(writer.commit().unwrap());
    assert!(why.contains("36864"), "{why}");
    assert_eq!(there(&store, 0..10), [0, 1, 2, 3]);
    assert_eq!(names(&store).len(), 4);
}

/// Files of other versions count and go; files of others do neither.
#[test]
fn only_files_of_the_store_count() {
    let (_dir, store) = four(4 * IMAGE);
    let at = |name: &str| store.path().join(name);
    let later = format!("{:032x}.rkw27", 5);
    fs::write(at(&later), vec![0; IMAGE as usize]).unwrap();
    let then = SystemTime::now() - Duration::from_secs(9000);
    let times = FileTimes::new().set_modified(then);
    fs::File::open(at(&later)).unwrap().set_times(times).unwrap();
    let strangers = ["notes.txt", "x.rkw1", "0123.rkw", ".rkw1"];
    for name in strangers {
        fs::write(at(name), vec![0; 10 * IMAGE as usize]).unwrap();
        fs::File::open(at(name)).unwrap().set_times(times).unwrap();
    }
    assert_eq!(save(&store, &key(4), &one()), Saved::Yes);
    assert!(!at(&later).exists());
    assert_eq!(there(&store, 0..5), [1, 2, 3, 4]);
    assert!(strangers.iter().all(|name| at(name).exists()));
}

#[test]
fn the_reserve_of_the_disk_is_left_alone() {
    let (_dir, store) = four(4 * IMAGE);
    let store = store.with_reserve(u64::MAX);
    let why = why_not(save(&store, &key(4), &one()));
    assert!(why.contains("the disk has") && why.contains("8192 are needed"), "{why}");
    // Even one that would have been room enough in the store.
    assert_eq!(there(&store, 0..5), [0, 1, 2, 3]);
    assert_eq!(save(&store.with_reserve(0), &key(4), &one()), Saved::Yes);
}

/// Runs `f` with a file system of 1 MiB at a directory, which no other process sees, and with what
/// mounts it anew. Only says so when this user may not mount.
fn with_mount(f: impl FnOnce(&Path, &dyn Fn(MsFlags)) + Send) {
    const OPTIONS: Option<&str> = Some("size=1m,mode=700");
    const NONE: Option<&str> = None;
    let run = || {
        let dir = tempfile::tempdir().unwrap();
        // A thread may have mounts of its own.
        let mounted = unshare(CloneFlags::CLONE_NEWNS)
            .and_then(|()| mount(NONE, "/", NONE, MsFlags::MS_REC | MsFlags::MS_PRIVATE, NONE))
            .and_then(|()| mount(NONE, dir.path(), Some("tmpfs"), MsFlags::empty(), OPTIONS));
        if let Err(e) = mounted {
            eprintln!("skipped: this user may not mount a file system of its own: {e}");
            return;
        }
        f(dir.path(), &|flags| {
            mount(NONE, dir.path(), NONE, flags | MsFlags::MS_REMOUNT, OPTIONS).unwrap();
        });
        umount(dir.path()).unwrap();
    };
    std::thread::scope(|s| s.spawn(run).join().unwrap());
}

#[test]
fn a_full_disk_is_a_reason_not_to_save() {
    with_mount(|dir, _| {
        let store = reopen(dir, None);
        let large = [filled(600 << 10, 1)];
        assert_eq!(save(&store, &key(1), &large), Saved::Yes);
        let why = why_not(save(&store, &key(2), &large));
        assert!(why.contains("the disk has"), "{why}");
        // The same when the space goes between the question and the answer.
        let other = dir.join("other");
        let fill = move || drop(fs::write(&other, vec![1; 1 << 20]));
        crash::at(Step::Created, fill);
        let why = why_not(save(&store, &key(2), &[filled(100 << 10, 1)]));
        assert!(why.contains("No space left"), "{why}");
        assert_eq!(names(&store).len(), 1);
        // What has been allocated can be written.
        fs::remove_file(dir.join("other")).unwrap();
        let other = dir.join("other");
        crash::at(Step::Allocated, move || drop(fs::write(&other, vec![1; 1 << 20])));
        assert_eq!(save(&store, &key(2), &[filled(100 << 10, 1)]), Saved::Yes);
        assert_eq!(loaded(&store, &key(1)), Some(large.to_vec()));
        // A disk without a byte left is still one that can be read.
        let next = reopen(dir, None);
        assert_eq!(loaded(&next, &key(1)), Some(large.to_vec()));
    });
}

#[test]
fn a_read_only_file_system_is_refused_with_the_fix() {
    with_mount(|dir, again| {
        drop(reopen(dir, None));
        again(MsFlags::MS_RDONLY);
        for name in ["packed", "another"] {
            let told = Store::open(&dir.join(name), None).unwrap_err().to_string();
            assert!(told.contains("file system that can be written"), "{told}");
        }
        again(MsFlags::empty());
        drop(reopen(dir, None));
    });
}
