//! A file of a stepped board, and a process that calls it.

use crate::user::User;
use bytemuck::{Pod, bytes_of, cast_slice, pod_read_unaligned};
pub use nix::errno::Errno;
use rocket_runtime::uapi::{self, CreateBo, FiniBo, GemClose, Job, PrepBo, Submit, Task};
pub use rocket_sim::DriverProfile::{self, Full, Stock, Stock618, V1_0, V1_1, V1_2, V1_3, V1_4};
pub use rocket_sim::DriverProfile::{V1_5, V1_6};
use rocket_sim::{Config, SimBoard, SimFile};
use std::os::unix::fs::FileExt;

/// Where the process keeps things.
pub const ARG: u64 = 0x1_0000;
pub const JOBS: u64 = 0x10_0000;
/// Nothing is mapped there.
pub const NOWHERE: u64 = 0x8;

pub fn stepped(profile: DriverProfile) -> SimBoard {
    SimBoard::new(Config { profile, stepped: true, ..Config::default() })
}

pub struct Rig {
    pub board: SimBoard,
    pub file: SimFile,
    pub user: User<'static>,
}

impl Rig {
    pub fn new(profile: DriverProfile) -> Rig {
        Rig::on(&stepped(profile))
    }

    pub fn on(board: &SimBoard) -> Rig {
        let file = board.open_shared().unwrap();
        Rig { board: board.clone(), file, user: User::default() }
    }

    /// Makes a call; the argument is what the driver left.
    pub fn call<T: Pod>(&mut self, number: u32, arg: &mut T) -> Result<i32, Errno> {
        self.user.map(ARG, bytes_of(arg));
        let done = self.file.ioctl(number, ARG, &mut self.user);
        *arg = pod_read_unaligned(&self.user.peek(ARG, size_of::<T>()).unwrap());
        done.map(|o| o.value)
    }

    pub fn create(&mut self, size: u32) -> Result<CreateBo, Errno> {
        let mut a = CreateBo { size, ..CreateBo::default() };
        self.call(uapi::IOCTL_CREATE_BO, &mut a).map(|_| a)
    }

    /// A buffer's handle.
    pub fn bo(&mut self, size: u32) -> u32 {
        self.create(size).unwrap().handle
    }

    pub fn close(&mut self, handle: u32) -> Result<i32, Errno> {
        self.call(uapi::IOCTL_GEM_CLOSE, &mut GemClose { handle, pad: 0 })
    }

    pub fn prep(&mut self, handle: u32, timeout_ns: i64) -> Result<i32, Errno> {
        self.call(uapi::IOCTL_PREP_BO, &mut PrepBo { handle, reserved: 0, timeout_ns })
    }

    pub fn fini(&mut self, handle: u32) -> Result<i32, Errno> {
        self.call(uapi::IOCTL_FINI_BO, &mut FiniBo { handle, reserved: 0 })
    }

    /// A well-formed job, the n-th of a call: one task, these buffers.
    pub fn job(&mut self, n: u64, reads: &[u32], writes: &[u32]) -> Job {
        let at = |list: u64| 0x20_0000 + n * 0x1_0000 + list * 0x1000;
        self.user.map(at(0), bytes_of(&Task { regcmd: 0, regcmd_count: 2 }));
        self.user.map(at(1), cast_slice(reads));
        self.user.map(at(2), cast_slice(writes));
        Job {
            tasks: at(0),
            in_bo_handles: at(1),
            out_bo_handles: at(2),
            task_count: 1,
            task_struct_size: 8,
            in_bo_handle_count: reads.len() as u32,
            out_bo_handle_count: writes.len() as u32,
            flags: 0,
            reserved: 0,
        }
    }

    /// Jobs as structs of so many bytes: cut, or longer by zeros.
    pub fn submit(&mut self, jobs: &[Job], stride: usize) -> Result<i32, Errno> {
        let mut all = Vec::new();
        for job in jobs {
            let mut one = bytes_of(job).to_vec();
            one.resize(stride, 0);
            all.extend(one);
        }
        self.submit_bytes(all, jobs.len() as u32, stride as u32)
    }

    pub fn submit_bytes(&mut self, all: Vec<u8>, n: u32, stride: u32) -> Result<i32, Errno> {
        self.user.map(JOBS, all);
        self.submit_as(&Submit { jobs: JOBS, job_count: n, job_struct_size: stride, reserved: 0 })
    }

    pub fn submit_as(&mut self, a: &Submit) -> Result<i32, Errno> {
        self.call(uapi::IOCTL_SUBMIT, &mut { *a })
    }

    /// Waits run jobs until the fence has signalled.
    pub fn waits_step(&mut self) {
        let board = self.board.clone();
        self.user.waiter = Some(Box::new(move |fence, _| {
            while !fence.signalled() && board.step() {}
            if fence.signalled() { Ok(()) } else { Err(Errno::ETIMEDOUT) }
        }));
    }

    /// Whether a job is still to write the buffer.
    pub fn busy(&mut self, handle: u32) -> bool {
        match self.prep(handle, 0) {
            Ok(0..) => false,
            Err(Errno::EBUSY) => true,
            other => panic!("PREP_BO as a poll: {other:?}"),
        }
    }

    /// Runs everything that waits.
    pub fn settle(&self) {
        while self.board.step() {}
    }

    /// Fills what the CPU sees of a page.
    pub fn put(&self, bo: &CreateBo, byte: u8) {
        let memory = self.file.memory(bo.offset, 4096).unwrap();
        memory.write_all_at(&[byte; 4096], 0).unwrap();
    }

    /// What the CPU sees of it.
    pub fn take(&self, bo: &CreateBo) -> Vec<u8> {
        let mut bytes = vec![0; 4096];
        self.file.memory(bo.offset, 4096).unwrap().read_exact_at(&mut bytes, 0).unwrap();
        bytes
    }
}
