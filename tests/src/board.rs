//! The board that tests run on: simulated in process, or the same board behind the kernel's own
//! calls, met under the preload library.

use rocket_runtime::device::{
    BoInfo, Board, Deadline, DriverVersion, JobRef, KernelBoard, Mapping, Node,
};
use rocket_runtime::soc::Profile;
use rocket_runtime::uapi::BoRange;
use rocket_sim::serve::{Place, Server, Use};
use rocket_sim::{Alive, Config, Counters, Errno, SimBoard};
use std::ops::Deref;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

/// Set to `kernel`, the suite opens its boards through `KernelNode`; it must run under
/// `rocketctl sim run`.
pub const NODE_VARIABLE: &str = "ROCKET_TEST_NODE";

/// Whether this run goes through the kernel's calls.
pub fn through_the_kernel() -> bool {
    match std::env::var(NODE_VARIABLE).as_deref() {
        Ok("kernel") => true,
        Ok(other) => panic!("{NODE_VARIABLE} is '{other}'; it can be 'kernel' or unset"),
        Err(_) => false,
    }
}

/// A simulated board. What it counts starts from zero, whichever way it is opened.
#[derive(Debug)]
pub struct TestBoard {
    sim: SimBoard,
    served: Option<Served>,
    before: Counters,
}

#[derive(Debug)]
struct Served {
    server: Server,
    board: KernelBoard,
    /// Files that this process holds.
    held: Arc<AtomicU64>,
}

impl TestBoard {
    /// A board of its own.
    pub fn new(config: Config) -> TestBoard {
        TestBoard::open_as(config, through_the_kernel())
    }

    /// A board that is opened through the kernel's calls, or not, whatever the variable says.
    pub fn open_as(config: Config, kernel: bool) -> TestBoard {
        let sim = SimBoard::new(config);
        let served = kernel.then(|| {
            let place = Place::private().expect("a place for the board");
            let server = Server::start(sim.clone(), place).expect("serves");
            let board = KernelBoard::at(&server.node())
                .expect("the node opens (under `rocketctl sim run`?)");
            Served { server, board, held: Arc::default() }
        });
        let mut board = TestBoard { sim, served, before: Counters::default() };
        board.before = board.counters();
        board
    }

    /// Counts since the board was made. A file is closed when its connection has ended, which the
    /// server learns a moment after the process.
    pub fn counters(&self) -> Counters {
        self.settle();
        self.sim.counters() - self.before
    }

    /// What exists now; as [`TestBoard::counters`], of files that this process has closed nothing.
    pub fn alive(&self) -> Alive {
        self.settle();
        self.sim.alive()
    }

    fn settle(&self) {
        if let Some(served) = &self.served {
            while self.sim.alive().files > served.held.load(SeqCst) {
                std::thread::sleep(Duration::from_micros(50));
            }
            // Mappings that the server holds for a process go with its connection, after the file.
            let left = |a: Alive| a.files == 0 && a.buffers > 0;
            for _ in 0..10_000 {
                if !left(self.sim.alive()) {
                    break;
                }
                std::thread::sleep(Duration::from_micros(50));
            }
        }
    }

    /// What came through the kernel's calls, when the board is opened so.
    pub fn use_so_far(&self) -> Option<Use> {
        self.served.as_ref().map(|s| s.server.use_so_far())
    }
}

impl Deref for TestBoard {
    type Target = SimBoard;

    fn deref(&self) -> &SimBoard {
        &self.sim
    }
}

impl Board for TestBoard {
    fn profile(&self) -> &'static Profile {
        self.sim.profile()
    }

    fn describe(&self) -> String {
        match &self.served {
            Some(s) => s.board.describe(),
            None => self.sim.describe(),
        }
    }

    fn may_batch(&self) -> Option<bool> {
        self.sim.may_batch()
    }

    fn open(&self) -> rocket_runtime::Result<Arc<dyn Node>> {
        let Some(served) = &self.served else { return self.sim.open() };
        let node = served.board.open()?;
        served.held.fetch_add(1, SeqCst);
        Ok(Arc::new(Held { node: Some(node), held: Arc::clone(&served.held) }))
    }
}

/// A file that counts as held until it is closed.
#[derive(Debug)]
struct Held {
    node: Option<Arc<dyn Node>>,
    held: Arc<AtomicU64>,
}

impl Held {
    fn node(&self) -> &dyn Node {
        self.node.as_deref().expect("there until dropped")
    }
}

impl Drop for Held {
    fn drop(&mut self) {
        self.node = None;
        self.held.fetch_sub(1, SeqCst);
    }
}

impl Node for Held {
    fn version(&self) -> Result<DriverVersion, Errno> {
        self.node().version()
    }

    fn create_bo(&self, size: u32) -> Result<BoInfo, Errno> {
        self.node().create_bo(size)
    }

    fn map_bo(&self, bo: &BoInfo, len: usize) -> Result<Mapping, Errno> {
        self.node().map_bo(bo, len)
    }

    fn submit(&self, jobs: &[JobRef<'_>]) -> Result<(), Errno> {
        self.node().submit(jobs)
    }

    fn prep_bo(&self, handle: u32, deadline: Deadline) -> Result<(), Errno> {
        self.node().prep_bo(handle, deadline)
    }

    fn fini_bo(&self, handle: u32) -> Result<(), Errno> {
        self.node().fini_bo(handle)
    }

    fn prep_bo_ranges(
        &self,
        handle: u32,
        ranges: &[BoRange],
        deadline: Deadline,
    ) -> Result<(), Errno> {
        self.node().prep_bo_ranges(handle, ranges, deadline)
    }

    fn fini_bo_ranges(&self, handle: u32, ranges: &[BoRange]) -> Result<(), Errno> {
        self.node().fini_bo_ranges(handle, ranges)
    }

    fn close_bo(&self, handle: u32) -> Result<(), Errno> {
        self.node().close_bo(handle)
    }
}
