//! [`File`], [`Bo`] and [`Pending`] against a driver that writes down what it is asked.

use super::in_flight::waited_for;
use super::{
    Abilities, Bo, BoInfo, Board, Deadline, DriverVersion, File, Job, JobRef, Mapping, Node,
    SharedWords,
};
use crate::soc::{Profile, RK3588};
use crate::uapi::Task;
use crate::{Error, Result};
use nix::errno::Errno;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Tests that submit share the process's count of jobs in flight.
fn alone() -> MutexGuard<'static, ()> {
    static ONE: Mutex<()> = Mutex::new(());
    ONE.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Call {
    /// Reads and writes of each job.
    Submit(Vec<[Vec<u32>; 2]>),
    Prep(u32),
    Fini(u32),
    CloseBo(u32),
    CloseFile,
}
use Call::{CloseBo, CloseFile, Fini, Prep, Submit};

#[derive(Debug, Default, Clone)]
pub(crate) struct Driver {
    calls: Arc<Mutex<Vec<Call>>>,
    handles: Arc<AtomicU32>,
    /// What PREP_BO and SUBMIT answer.
    prep: Option<Errno>,
    submit: Option<Errno>,
}

#[derive(Debug)]
struct Opened(Driver);

impl Driver {
    fn note(&self, call: Call) {
        self.calls.lock().unwrap().push(call);
    }

    /// The calls since the last time.
    fn calls(&self) -> Vec<Call> {
        std::mem::take(&mut self.calls.lock().unwrap())
    }

    pub(crate) fn file(&self) -> Arc<File> {
        File::open(self, 1).unwrap()
    }
}

#[derive(Debug)]
struct Words(Vec<AtomicU64>);

impl SharedWords for Words {
    fn words(&self) -> &[AtomicU64] {
        &self.0
    }
}

impl Board for Driver {
    fn profile(&self) -> &'static Profile {
        &RK3588
    }

    fn describe(&self) -> String {
        "a driver that takes notes".into()
    }

    fn open(&self) -> Result<Arc<dyn Node>> {
        Ok(Arc::new(Opened(self.clone())))
    }
}

impl Node for Opened {
    fn version(&self) -> Result<DriverVersion, Errno> {
        Ok(DriverVersion { major: 0, minor: 0 })
    }

    fn create_bo(&self, _: u32) -> Result<BoInfo, Errno> {
        let handle = self.0.handles.fetch_add(1, Relaxed) + 1;
        Ok(BoInfo { handle, iova: u64::from(handle) << 16, mmap_offset: 0 })
    }

    fn map_bo(&self, _: &BoInfo, len: usize) -> Result<Mapping, Errno> {
        let words = std::iter::repeat_with(AtomicU64::default).take(len.div_ceil(8)).collect();
        Mapping::of_words(Arc::new(Words(words)), len).ok_or(Errno::EINVAL)
    }

    fn submit(&self, jobs: &[JobRef<'_>]) -> Result<(), Errno> {
        self.0.note(Submit(jobs.iter().map(|j| [j.reads.to_vec(), j.writes.to_vec()]).collect()));
        self.0.submit.map_or(Ok(()), Err)
    }

    fn prep_bo(&self, handle: u32, _: Deadline) -> Result<(), Errno> {
        self.0.note(Prep(handle));
        self.0.prep.map_or(Ok(()), Err)
    }

    fn fini_bo(&self, handle: u32) -> Result<(), Errno> {
        self.0.note(Fini(handle));
        Ok(())
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        self.0.note(CloseBo(handle));
        Ok(())
    }
}

impl Drop for Opened {
    fn drop(&mut self) {
        self.0.note(CloseFile);
    }
}

fn bo(file: &Arc<File>) -> Bo {
    Bo::new(file, 4096, "a test").unwrap()
}

fn job<'a>(reads: Vec<&'a Bo>, writes: Vec<&'a Bo>) -> [Job<'a>; 1] {
    [Job {
        tasks: vec![Task { regcmd: 0x1_0000, regcmd_count: 126 }],
        reads,
        writes,
        batched: false,
    }]
}

#[test]
fn every_access_is_bracketed_by_cache_syncs() {
    let driver = Driver::default();
    let mut b = bo(&driver.file());
    let h = b.handle();
    b.read(|_: &[u8]| ()).unwrap();
    assert_eq!(driver.calls(), [Prep(h)]);
    b.write(|_: &mut [u8]| ()).unwrap();
    assert_eq!(driver.calls(), [Prep(h), Fini(h)]);
    b.fill(|_: &mut [u8]| ()).unwrap();
    assert_eq!(driver.calls(), [Fini(h)]);
}

/// A stock driver drops a job that names a buffer twice, and says nothing.
#[test]
fn a_job_names_each_buffer_once() {
    let _alone = alone();
    let driver = Driver::default();
    let file = driver.file();
    let (a, b, c) = (bo(&file), bo(&file), bo(&file));
    let pending = file.submit(&job(vec![&b, &a, &c, &b], vec![&a, &a])).unwrap();
    let lists = [vec![b.handle(), c.handle()], vec![a.handle()]];
    assert_eq!(driver.calls(), [Submit(vec![lists])]);
    pending.wait().unwrap();
    assert_eq!(driver.calls(), [Prep(a.handle())]);
}

/// Once nobody holds the jobs any more, their buffers may be written to or closed.
#[test]
fn jobs_that_nobody_waits_for_are_waited_for() {
    let _alone = alone();
    let driver = Driver::default();
    let file = driver.file();
    let b = bo(&file);
    let h = b.handle();
    let pending = file.submit(&job(vec![], vec![&b])).unwrap();
    driver.calls();
    drop(pending);
    assert_eq!(driver.calls(), [Prep(h)]);

    std::mem::forget(file.submit(&job(vec![], vec![&b])).unwrap());
    driver.calls();
    drop(b);
    assert_eq!(driver.calls(), [Prep(h), CloseBo(h)]);
    drop(file);
    assert_eq!(driver.calls(), [CloseFile]);
}

/// Jobs before the one that made the call fail may be running.
#[test]
fn a_submit_that_fails_waits_for_what_was_queued() {
    let _alone = alone();
    let driver = Driver { submit: Some(Errno::ENOMEM), ..Driver::default() };
    let file = driver.file();
    let b = bo(&file);
    assert!(matches!(file.submit(&job(vec![], vec![&b])), Err(Error::Driver { .. })));
    assert_eq!(driver.calls()[1..], [Prep(b.handle())]);
}

/// Closing while a job runs is a use after free in unpatched kernels: better a file left open.
#[test]
fn a_file_whose_job_never_ends_is_left_open() {
    let _alone = alone();
    let driver = Driver { prep: Some(Errno::ETIMEDOUT), ..Driver::default() };
    let file = driver.file();
    let b = bo(&file);
    let pending = file.submit(&job(vec![], vec![&b])).unwrap();
    assert!(matches!(pending.wait(), Err(Error::Timeout { .. })));
    assert_eq!(waited_for(), 0, "a signal would wait for what never ends");
    let words = file.submit(&job(vec![], vec![&b])).unwrap_err().to_string();
    assert!(words.contains("never finished"), "{words}");
    drop((file, b));
    let closed = driver.calls().into_iter().find(|c| matches!(c, CloseBo(_) | CloseFile));
    assert_eq!(closed, None);
}

/// What each interface version brought (kernel-and-uapi A.1), and the parameter that can take
/// batching back (A.6).
#[test]
fn only_what_a_driver_promises_is_used() {
    let of = |major, minor, may_batch| {
        let a = Abilities::new(DriverVersion { major, minor }, may_batch);
        (a.batched, a.ranges)
    };
    for (major, minor, batched, ranges) in [
        (0, 0, false, false),
        (0, 9, false, false),
        (1, 0, false, false),
        (1, 1, true, false),
        (1, 4, true, false),
        (1, 5, true, true),
        (2, 0, true, true),
    ] {
        let version = format!("{major}.{minor}");
        assert_eq!(of(major, minor, None), (batched, ranges), "{version}");
        assert_eq!(of(major, minor, Some(true)), (batched, ranges), "{version}");
        assert_eq!(of(major, minor, Some(false)), (false, ranges), "{version}");
    }
}

/// A chained layout stalls a driver that runs it task by task (A.6).
#[test]
fn a_batched_job_goes_to_no_driver_that_cannot_run_it() {
    let driver = Driver::default();
    let file = driver.file();
    let b = bo(&file);
    let mut jobs = job(vec![], vec![&b]);
    jobs[0].batched = true;
    let words = file.submit(&jobs).unwrap_err().to_string();
    assert!(words.contains("batched"), "{words}");
    assert_eq!(driver.calls(), []);
}
