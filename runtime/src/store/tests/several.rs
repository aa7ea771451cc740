//! Several threads and processes in one directory.

use super::*;
use crate::test_process as process;
use nix::sys::wait::WaitStatus;

const ROUNDS: u64 = 60;
const KEYS: u128 = 3;

/// Anybody's image of one key: the same bytes whoever packs it.
fn image_of(content: u128) -> Vec<Vec<u8>> {
    vec![filled(30_000, content as u64), filled(5000, !content as u64)]
}

/// Saves and loads all the time; what is found must be right. How often something was found.
fn work(dir: &Path, limit: Option<u64>, first: u128) -> u64 {
    let mut found = 0;
    for round in 0..ROUNDS {
        // As if processes came and went.
        let store = reopen(dir, limit);
        for i in 0..KEYS {
            let content = (first + i) % KEYS;
            let (image, said) = warnings(|| store.load(&key(content)).unwrap());
            assert!(said.is_empty(), "round {round}: {said:?}");
            if let Some(packed) = &image {
                assert_eq!(bytes(packed), image_of(content), "round {round}");
                found += 1;
            }
            let saved = save(&store, &key(content), &image_of(content));
            assert!(limit.is_some() || saved == Saved::Yes, "round {round}: {saved:?}");
            // Replaced or evicted in between, it stays what it was.
            if let Some(packed) = &image {
                assert_eq!(bytes(packed), image_of(content), "round {round}");
            }
        }
    }
    found
}

/// Two threads and a process, with room for all and with room for less than that.
#[test]
fn threads_and_processes_share_a_directory() {
    for limit in [None, Some(100_000)] {
        let (dir, store) = store(limit);
        let child = process::start(|| assert!(work(dir.path(), limit, 1) > 0));
        let found: u64 = std::thread::scope(|s| {
            let at = dir.path();
            let threads = [0, 2].map(|first| s.spawn(move || work(at, limit, first)));
            threads.into_iter().map(|t| t.join().unwrap()).sum()
        });
        assert_eq!(process::end(child), WaitStatus::Exited(child, 0));
        assert!(found > 0, "nothing was ever found");
        assert!(names(&store).iter().all(|n| n.ends_with(".rkw1")), "{:?}", names(&store));
        if limit.is_none() {
            for content in 0..KEYS {
                assert_eq!(loaded(&store, &key(content)), Some(image_of(content)));
            }
        }
    }
}

/// Both have announced the same image before either is done.
#[test]
fn two_writers_of_one_key_both_end_with_a_sound_file() {
    let (dir, store) = store(None);
    let other = reopen(dir.path(), None);
    let parts = image_of(1);
    let lens: Vec<u64> = parts.iter().map(|p| p.len() as u64).collect();
    let mut writers = [&store, &other].map(|s| s.writer(&key(1), &lens).unwrap());
    for i in [1, 0] {
        for writer in &mut writers {
            writer.part(i, &parts[i]).unwrap();
        }
    }
    for writer in writers {
        assert_eq!(writer.commit().unwrap(), Saved::Yes);
        assert_eq!(loaded(&store, &key(1)).as_ref(), Some(&parts));
    }
    assert_eq!(names(&store).len(), 1);
}

/// What was mapped stays as it was: files are replaced, never written to.
#[test]
fn a_mapped_image_does_not_change() {
    let (_dir, store) = store(None);
    assert_eq!(save(&store, &key(1), &image_of(1)), Saved::Yes);
    let packed = store.load(&key(1)).unwrap().unwrap();
    assert_eq!(save(&store, &key(1), &image_of(2)), Saved::Yes);
    assert_eq!(bytes(&packed), image_of(1));
    assert_eq!(loaded(&store, &key(1)), Some(image_of(2)));
    fs::remove_file(path(&store, &key(1))).unwrap();
    assert_eq!(bytes(&packed), image_of(1));
}

/// A bad file is not taken for one that came in its place.
#[test]
fn only_the_file_that_was_opened_is_removed() {
    use super::super::image;
    use std::os::unix::fs::MetadataExt;
    let (_dir, store) = store(None);
    let path = path(&store, &key(1));
    fs::write(&path, "bad").unwrap();
    let held = fs::File::open(&path).unwrap();
    let meta = held.metadata().unwrap();
    assert_eq!(save(&store, &key(1), &image_of(1)), Saved::Yes);
    image::remove(&path, Some((meta.dev(), meta.ino()))).unwrap();
    assert_eq!(loaded(&store, &key(1)), Some(image_of(1)));
    // A writer that holds its file for long is waited for only so long, and nothing is removed.
    held.metadata().unwrap();
    let writer = fs::File::open(&path).unwrap();
    writer.try_lock().unwrap();
    let (found, said) = warnings(|| loaded(&store, &key(1)));
    assert_eq!(found, None);
    assert!(said.len() == 1 && said[0].contains("not used this time"), "{said:?}");
    drop(writer);
    assert_eq!(loaded(&store, &key(1)), Some(image_of(1)));
}

/// A process that is stopped while it holds the directory costs a wait and the image, no more.
#[test]
fn a_directory_that_stays_locked_is_waited_for_only_so_long() {
    let (dir, store) = store(None);
    assert_eq!(save(&store, &key(1), &image_of(1)), Saved::Yes);
    let held = fs::File::open(store.path()).unwrap();
    held.try_lock().unwrap();
    let next = reopen(dir.path(), None);
    assert_eq!(loaded(&next, &key(1)), Some(image_of(1)));
    let Saved::No(why) = save(&next, &key(2), &image_of(2)) else { panic!("saved") };
    assert!(why.contains("keeps the directory locked"), "{why}");
    drop(held);
    assert_eq!(save(&next, &key(2), &image_of(2)), Saved::Yes);
}
