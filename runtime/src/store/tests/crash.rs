//! Processes that are killed while they write.

use super::super::write::Step;
use super::*;
use crate::test_process as process;
use nix::sys::signal::{Signal, kill};
use nix::sys::wait::WaitStatus;
use nix::unistd::Pid;
use std::cell::RefCell;

type Deed = Box<dyn Fn()>;
thread_local! {
    static AT: RefCell<Option<(Step, Deed)>> = const { RefCell::new(None) };
}

/// Called by the writer of this thread.
pub fn reached(step: Step) {
    AT.with_borrow(|at| at.iter().filter(|(s, _)| *s == step).for_each(|(_, deed)| deed()));
}

/// Has `deed` done when a writer of this thread has reached `step`.
pub fn at(step: Step, deed: impl Fn() + 'static) {
    AT.set(Some((step, Box::new(deed))));
}

/// Ends the process with no chance to tidy up.
fn die() {
    kill(Pid::this(), Signal::SIGKILL).unwrap();
}

const STEPS: [Step; 6] =
    [Step::Created, Step::Allocated, Step::Part, Step::Header, Step::Synced, Step::Renamed];

fn old() -> Vec<Vec<u8>> {
    vec![filled(9000, 1), filled(100, 2)]
}

fn new() -> Vec<Vec<u8>> {
    vec![filled(9000, 3), filled(100, 4)]
}

fn killed_at(dir: &Path, step: Step) {
    let child = process::start(|| {
        at(step, die);
        let _ = save(&reopen(dir, None), &key(1), &new());
    });
    assert_eq!(process::end(child), WaitStatus::Signaled(child, Signal::SIGKILL, false));
}

/// At every step, over nothing and over an earlier image: the state before or the state after,
/// and after the next start no trace of the dead.
#[test]
fn a_killed_writer_leaves_the_old_or_the_new() {
    for step in STEPS {
        for before in [None, Some(old())] {
            let (dir, store) = store(None);
            if let Some(parts) = &before {
                assert_eq!(save(&store, &key(1), parts), Saved::Yes);
            }
            killed_at(dir.path(), step);
            let left = names(&store).len();
            let (found, said) = warnings(|| loaded(&store, &key(1)));
            assert!(said.is_empty(), "{step:?}: {said:?}");
            let renamed = step == Step::Renamed;
            assert_eq!(found, if renamed { Some(new()) } else { before.clone() }, "{step:?}");
            // The control: there was something to sweep.
            let kept = usize::from(found.is_some());
            assert_eq!(left, if renamed { 1 } else { kept + 1 }, "{step:?}");
            let next = reopen(dir.path(), None);
            assert_eq!(names(&next).len(), kept, "{step:?}: a temporary file stays");
            assert_eq!(save(&next, &key(1), &new()), Saved::Yes);
            assert_eq!(loaded(&next, &key(1)), Some(new()));
        }
    }
}

/// Opening a store sweeps; the file of a writer that lives is not the dead's.
#[test]
fn the_file_of_a_living_writer_is_not_swept() {
    let (dir, store) = store(None);
    let mut writer = store.writer(&key(1), &[9000, 100]).unwrap();
    writer.part(0, &new()[0]).unwrap();
    killed_at(dir.path(), Step::Part);
    assert_eq!(names(&store).len(), 2);
    let next = reopen(dir.path(), None);
    assert_eq!(names(&next).len(), 1);
    writer.part(1, &new()[1]).unwrap();
    assert_eq!(writer.commit().unwrap(), Saved::Yes);
    assert_eq!(loaded(&next, &key(1)), Some(new()));
    // A long-running process sweeps as well, when it saves.
    killed_at(dir.path(), Step::Part);
    assert_eq!(names(&store).len(), 2);
    assert_eq!(save(&store, &key(2), &old()), Saved::Yes);
    assert_eq!(names(&store).len(), 2);
    assert!(names(&store).iter().all(|n| n.ends_with(".rkw1")));
}
