//! Writers and readers in processes of their own: alive, forked, killed, many.

use super::*;
use crate::test_process as process;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use std::fs::File;
use std::io::{Read, Write, pipe};
use std::os::fd::AsRawFd;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant, SystemTime};

/// A process that counts to `most`, says so through a pipe, and waits to be ended.
fn counting(dir: &Path, most: u64) -> (Pid, std::io::PipeReader) {
    let (said, mut say) = pipe().unwrap();
    let child = process::start(|| {
        let w = writer(dir);
        for n in 1..=most {
            step(&w, n);
            w.publish();
        }
        say.write_all(b"x").unwrap();
        std::thread::sleep(Duration::from_secs(60));
    });
    drop(say);
    (child, said)
}

/// Waits, in a child, until the test drops its end of the pipe.
fn until_dropped(wait: &mut std::io::PipeReader, hold: &std::io::PipeWriter) {
    // The child's own copy of that end; it ends without dropping anything.
    nix::unistd::close(hold.as_raw_fd()).unwrap();
    let _ = wait.read(&mut [0]);
}

fn wait_for(said: &mut std::io::PipeReader) {
    let mut one = [0];
    said.read_exact(&mut one).unwrap();
}

fn end(child: Pid) {
    kill(child, Signal::SIGKILL).unwrap();
    assert_eq!(process::end(child), WaitStatus::Signaled(child, Signal::SIGKILL, false));
}

/// Threads that count, one that publishes, others that read: every copy is of one moment, and
/// no number ever falls.
#[test]
fn readers_see_whole_copies_that_only_grow() {
    let dir = folder();
    let w = writer(dir.path());
    let (stop, most) = (AtomicBool::new(false), 3000);
    std::thread::scope(|scope| {
        let readers: Vec<_> = (0..3)
            .map(|_| {
                scope.spawn(|| {
                    let (mut last, mut looks) = ([0, 0], 0u64);
                    while !stop.load(Ordering::Relaxed) || looks == 0 {
                        let s = read(w.path()).unwrap();
                        let now = [steps(&s), s.copies];
                        assert!(now >= last && now[1] >= last[1], "{last:?} {now:?}");
                        (last, looks) = (now, looks + 1);
                    }
                    looks
                })
            })
            .collect();
        let counters: Vec<_> = (0..2)
            .map(|_| {
                scope.spawn(|| {
                    for n in 0..most {
                        step(&w, n);
                        w.publish();
                    }
                })
            })
            .collect();
        counters.into_iter().for_each(|c| c.join().unwrap());
        stop.store(true, Ordering::Relaxed);
        let looks: u64 = readers.into_iter().map(|r| r.join().unwrap()).sum();
        println!("{looks} looks at {} copies", read(w.path()).unwrap().copies);
    });
    assert_eq!(steps(&read(w.path()).unwrap()), 2 * most);
}

/// The same across processes; and a killed one is dead by its lock, whoever has its PID.
#[test]
fn a_killed_writer_is_dead_and_its_file_goes() {
    let dir = folder();
    let dirs = [dir.path().to_owned()];
    let (child, mut said) = counting(dir.path(), 2000);
    let until = Instant::now() + Duration::from_secs(20);
    let mut last = 0;
    while last < 2000 && Instant::now() < until {
        for found in scan(&dirs) {
            let s = found.figures.unwrap();
            let now = steps(&s);
            assert!(now >= last, "{last} {now}");
            assert_eq!((s.life, s.process.pid), (Life::Alive, child.as_raw() as u32));
            last = now;
        }
    }
    wait_for(&mut said);
    assert_eq!(last, 2000);
    assert!(clean(&dirs, &Keep::NOTHING).removed.is_empty(), "it lives");
    end(child);
    let path = only(dir.path());
    let s = read(&path).unwrap();
    assert_eq!((s.life.clone(), steps(&s)), (Life::Dead, 2000), "its last figures can be read");
    assert!(s.age().is_some_and(|ns| ns < 60_000_000_000));
    // Process 1 lives, and has nothing to do with it.
    let mut bytes = fs::read(&path).unwrap();
    l::put_u32(&mut bytes, header::PID, 1);
    seal(&mut bytes);
    let reused = dir.path().join("rocket-counters-1-0123456789abcdef");
    fs::write(&reused, bytes).unwrap();
    assert_eq!(read(&reused).unwrap().life, Life::Dead);
    assert!(clean(&dirs, &Keep::default()).removed.is_empty(), "worth a look for a while");
    let mut removed = clean(&dirs, &Keep::NOTHING).removed;
    removed.sort();
    assert_eq!(removed.len(), 2);
    assert!(scan(&dirs).is_empty());
}

/// The child's counts go nowhere, and the parent's go on.
#[test]
fn a_forked_child_does_not_write_its_parents_counters() {
    let dir = folder();
    let w = writer(dir.path());
    step(&w, 1);
    assert!(w.publish());
    let child = process::start(|| {
        for n in 2..50 {
            step(&w, n);
            assert!(!w.publish());
        }
        w.publish_if_due();
        // A process of its own may have counters of its own.
        let own = writer(dir.path());
        step(&own, 1);
        assert!(own.publish());
        drop(own);
    });
    assert_eq!(process::end(child), WaitStatus::Exited(child, 0));
    assert_eq!(steps(&read(w.path()).unwrap()), 1);
    step(&w, 2);
    assert!(w.publish());
    assert_eq!(steps(&read(w.path()).unwrap()), 2);
    assert_eq!(scan(&[dir.path().to_owned()]).len(), 2);
}

/// At any moment of the parent's, also while another of its threads counts or copies.
#[test]
fn a_child_forked_in_the_middle_does_not_hang() {
    let dir = folder();
    let w = writer(dir.path());
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut n = 0;
            while !stop.load(Ordering::Relaxed) {
                n += 1;
                step(&w, n);
                w.publish();
            }
        });
        for _ in 0..100 {
            // Without the allocator's locks: of the child nothing but the counters is asked.
            let child = process::start(|| {
                let _ = w.update(|image| image.count(&KEY, 1, 1, 1));
                assert!(!w.publish());
            });
            assert_eq!(process::end(child), WaitStatus::Exited(child, 0));
        }
        stop.store(true, Ordering::Relaxed);
    });
}

/// A child that only holds what it inherited does not keep its parent's counters alive.
#[test]
fn counters_die_with_their_process_and_not_with_its_children() {
    let dir = folder();
    let (mut said, mut say) = pipe().unwrap();
    let (mut wait, hold) = pipe().unwrap();
    let child = process::start(|| {
        let w = writer(dir.path());
        step(&w, 1);
        w.publish();
        process::start(|| {
            say.write_all(b"x").unwrap();
            until_dropped(&mut wait, &hold);
        });
        std::thread::sleep(Duration::from_secs(60));
    });
    drop(say);
    wait_for(&mut said);
    assert_eq!(read(&only(dir.path())).unwrap().life, Life::Alive);
    end(child);
    assert_eq!(read(&only(dir.path())).unwrap().life, Life::Dead);
    drop(hold);
}

/// Read locks are all that others may take: they keep no dead writer alive and no live one from
/// its file.
#[test]
fn a_readers_lock_changes_nothing() {
    let dir = folder();
    let (child, mut said) = counting(dir.path(), 1);
    wait_for(&mut said);
    let path = only(dir.path());
    let (mut locked, mut say) = pipe().unwrap();
    let (mut wait, hold) = pipe().unwrap();
    let other = process::start(|| {
        let file = File::open(&path).unwrap();
        // Whole-file read lock, waiting for the writer's to go.
        let lock = libc::flock {
            l_type: libc::F_RDLCK as libc::c_short,
            l_whence: libc::SEEK_SET as libc::c_short,
            l_start: 0,
            l_len: 0,
            l_pid: 0,
        };
        let set = |arg| nix::fcntl::fcntl(&file, arg);
        assert!(set(nix::fcntl::FcntlArg::F_SETLK(&lock)).is_err(), "the writer has it");
        say.write_all(b"x").unwrap();
        set(nix::fcntl::FcntlArg::F_SETLKW(&lock)).unwrap();
        say.write_all(b"x").unwrap();
        until_dropped(&mut wait, &hold);
    });
    drop(say);
    wait_for(&mut locked);
    assert_eq!(read(&path).unwrap().life, Life::Alive);
    end(child);
    wait_for(&mut locked);
    assert_eq!(read(&path).unwrap().life, Life::Dead, "although somebody holds a lock");
    drop(hold);
    assert_eq!(process::end(other), WaitStatus::Exited(other, 0));
}

/// The host opens and closes the file itself, which drops a record lock.
#[test]
fn the_next_copy_takes_a_lost_lock_again() {
    let dir = folder();
    let (mut said, mut say) = pipe().unwrap();
    let (mut wait, hold) = pipe().unwrap();
    let child = process::start(|| {
        let w = writer(dir.path());
        drop(File::open(w.path()).unwrap());
        say.write_all(b"x").unwrap();
        until_dropped(&mut wait, &hold);
        w.publish();
        say.write_all(b"x").unwrap();
        std::thread::sleep(Duration::from_secs(60));
    });
    drop(say);
    wait_for(&mut said);
    let path = only(dir.path());
    assert_eq!(read(&path).unwrap().life, Life::Dead, "the control");
    drop(hold);
    wait_for(&mut said);
    assert_eq!(read(&path).unwrap().life, Life::Alive);
    end(child);
}

#[test]
fn many_processes_have_a_file_each() {
    let dir = folder();
    let dirs = [dir.path().to_owned()];
    let mut all: Vec<_> = (1..=12).map(|n| (counting(dir.path(), n), n)).collect();
    all.iter_mut().for_each(|((_, said), _)| wait_for(said));
    let found: Vec<Snapshot> = scan(&dirs).into_iter().map(|f| f.figures.unwrap()).collect();
    let mut seen: Vec<_> = found.iter().map(|s| (s.process.pid, steps(s))).collect();
    let mut expected: Vec<_> = all.iter().map(|((p, _), n)| (p.as_raw() as u32, *n)).collect();
    seen.sort_unstable();
    expected.sort_unstable();
    assert_eq!(seen, expected);
    let ids: std::collections::HashSet<_> = found.iter().map(|s| s.process.id).collect();
    assert_eq!(ids.len(), 12);
    all.drain(..11).for_each(|((child, _), _)| end(child));
    // A folder that is named twice is looked at once.
    assert_eq!(scan(&[dirs[0].clone(), dirs[0].clone()]).len(), 12);
    let keep = Keep { age: Duration::from_secs(600), most: 4 };
    assert_eq!(clean(&dirs, &keep).removed.len(), 7);
    let keep = Keep { age: Duration::ZERO, most: 99 };
    assert_eq!(clean(&dirs, &keep).removed.len(), 4);
    assert_eq!(read(&only(dir.path())).unwrap().life, Life::Alive);
    all.drain(..).for_each(|((child, _), _)| end(child));
}

/// A process that starts removes what was left there, but for what is worth a look.
#[test]
fn a_new_writer_sweeps() {
    let dir = folder();
    let (child, mut said) = counting(dir.path(), 1);
    wait_for(&mut said);
    end(child);
    let left = only(dir.path());
    let first = writer(dir.path());
    assert!(left.exists(), "it was alive a moment ago");
    drop(first);
    let then = SystemTime::now() - Duration::from_secs(700);
    File::options().write(true).open(&left).unwrap().set_modified(then).unwrap();
    let _next = writer(dir.path());
    assert!(!left.exists());
}
