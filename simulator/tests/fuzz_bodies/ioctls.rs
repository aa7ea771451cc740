//! A stream of bytes as calls of the driver: several files, any arguments, jobs that run in
//! between, faults.

use super::model::{self, CALLS, Injected, Model, NUMBERS};
use super::nothing_left;
use super::stream::Stream;
use super::user::User;
use bytemuck::{bytes_of, cast_slice, pod_read_unaligned};
use rocket_runtime::uapi::{self, CreateBo, Submit};
use rocket_sim::{Config, DriverProfile, Errno, Fault, Outcome, SimBoard, SimFile};
use std::time::Duration;

/// Where the arguments lie, and what they point to.
pub const ARG: u64 = 0x1_0000;
pub const HEAP: u64 = 0x2_0000;
pub const HEAP_BYTES: usize = 1024;
/// The last bytes of an address space.
pub const TOP: u64 = u64::MAX - 63;

pub struct World {
    board: SimBoard,
    pub profile: DriverProfile,
    pub files: Vec<(SimFile, Model)>,
    pub user: User<'static>,
    pub injected: Injected,
}

/// Interprets `data` to its end.
pub fn ioctls(data: &[u8]) -> bool {
    let mut s = Stream(data);
    let profile = s.pick(&DriverProfile::ALL);
    let config = Config { profile, stepped: true, timeout: Duration::ZERO, ..Config::default() };
    let board = SimBoard::new(config);
    let mut user = User::default();
    user.map(HEAP, [0; HEAP_BYTES]);
    user.map(TOP, [0; 63]);
    let mut world = World {
        board: board.clone(),
        profile,
        files: Vec::new(),
        user,
        injected: Injected::default(),
    };
    world.user.waiter = Some(world.waiter(s.u8()));
    world.open(false);
    for _ in 0..48 {
        if s.is_empty() {
            break;
        }
        world.operation(&mut s);
    }
    let stepper = world.board.clone();
    drop(world);
    while stepper.step() {}
    drop(stepper);
    nothing_left(&board);
    true
}

impl World {
    /// A wait runs jobs: until its fence signals, or only some, or a signal comes first.
    fn waiter(&self, kind: u8) -> super::user::Waiter<'static> {
        let board = self.board.clone();
        Box::new(move |fence, _| {
            for _ in 0..kind % 8 {
                if fence.signalled() || !board.step() {
                    break;
                }
            }
            match kind {
                _ if fence.signalled() => Ok(()),
                128.. => Err(Errno::EINTR),
                _ => Err(Errno::ETIMEDOUT),
            }
        })
    }

    fn open(&mut self, shared: bool) {
        let opened = if shared { self.board.open_shared() } else { self.board.open_file() };
        match opened {
            Ok(file) if self.files.len() < 4 => self.files.push((file, Model::default())),
            Ok(_) => {}
            Err(e) => {
                assert!(self.injected.any, "open: {e}");
            }
        }
    }

    fn operation(&mut self, s: &mut Stream<'_>) {
        let op = s.u8();
        if self.files.is_empty() {
            return self.open(false);
        }
        let f = usize::from(op >> 4) % self.files.len();
        match op & 15 {
            0 => self.open(op & 0x80 != 0),
            1 => drop(self.files.swap_remove(f)),
            2 => {
                // Mostly a few pages; now and then a large one, which nothing may walk.
                let (size, kind) = (u32::from(s.u16()), s.u8());
                let size = match kind {
                    // So large that the host's allocator maps it, rather than clears it.
                    0xff => s.u32() | 1 << 28,
                    0xfe => size,
                    _ => size & 0x1fff,
                };
                let arg = CreateBo { size, ..CreateBo::default() };
                let _ = self.call(f, uapi::IOCTL_CREATE_BO, ARG, bytes_of(&arg));
                if kind == 0xff {
                    self.close_large(f);
                }
            }
            3 => self.plain(f, uapi::IOCTL_GEM_CLOSE, &[u32::from(s.u8() % 8), 0]),
            4 => {
                let (handle, low, high) = (s.u8() % 8, s.u32(), s.u32());
                let reserved = u32::from(handle == 7 && low == 7);
                // A far deadline in most cases.
                let high = if high & 3 == 0 { high } else { 0x7fff_ffff };
                self.plain(f, uapi::IOCTL_PREP_BO, &[handle.into(), reserved, low, high]);
            }
            5 => self.plain(f, uapi::IOCTL_FINI_BO, &[u32::from(s.u8() % 8), 0]),
            6 | 7 => self.ranged(f, op & 15 == 6, s),
            8 | 9 | 13 => self.submit(f, s),
            10 => self.raw(f, s),
            11 => self.inject(s),
            12 => {
                for _ in 0..=op >> 4 {
                    self.board.step();
                }
            }
            14 => self.prime(f, s),
            _ => {
                let (at, byte) = (s.u16() as usize % HEAP_BYTES, s.u8());
                self.user.poke(HEAP + at as u64, &[byte]);
            }
        }
    }

    fn plain(&mut self, f: usize, number: u32, words: &[u32]) {
        let _ = self.call(f, number, ARG, cast_slice(words));
    }

    /// Closes the buffer that was made last, or its file when that fails.
    fn close_large(&mut self, f: usize) {
        let made: [u32; 2] = self.user.peek(ARG, 8).map_or([0; 2], |b| pod_read_unaligned(&b));
        let close = cast_slice(&[made[1], 0]).to_vec();
        if made[1] != 0 && self.call(f, uapi::IOCTL_GEM_CLOSE, ARG, &close).is_err() {
            self.files.swap_remove(f);
        }
    }

    /// Any number with any argument anywhere.
    fn raw(&mut self, f: usize, s: &mut Stream<'_>) {
        let kind = s.u8();
        let number = match kind & 3 {
            0 => s.u32(),
            // A known one with some bit wrong.
            1 => s.pick(NUMBERS) ^ 1 << (s.u8() & 31),
            _ => s.pick(NUMBERS),
        };
        let at = [ARG, ARG, 0, HEAP + HEAP_BYTES as u64 - 8, TOP][usize::from(kind >> 2) % 5];
        let mut arg = s.bytes::<32>();
        if number & 0xff == 0x40 && at == ARG {
            // A size that is quickly walked.
            arg[2..4].fill(0);
        }
        let _ = self.call(f, number, at, &arg);
    }

    fn inject(&mut self, s: &mut Stream<'_>) {
        let n = self.board.next_job() + u64::from(s.u8() % 4);
        let kind = s.u8();
        let call = s.pick(CALLS);
        let errno = s.pick(&[Errno::ENOMEM, Errno::EINTR, Errno::EIO, Errno::ENOSPC]);
        let task = usize::from(kind >> 4 & 1);
        let fault = match kind & 15 {
            0 => Fault::DropJob(n),
            1 => Fault::RejectJob(n),
            2 => Fault::HangJob(n),
            3 => Fault::LoseInterrupt(n),
            4 => Fault::IommuFault(n),
            5 => Fault::SlowJob { job: n, times: s.u32() },
            6 => Fault::ParkClock(n),
            7 => Fault::HangTask { job: n, task },
            8 => Fault::PartialTask { job: n, task, surfaces: 1 },
            9 => Fault::ShortTask { job: n, task, surfaces: 0 },
            10 => Fault::Fail { call, n: s.u8().into(), errno },
            11 => Fault::Refuse { call, errno },
            12 => Fault::Vanish(s.u8().into()),
            13 => Fault::StructSkew,
            14 => Fault::Seeded { seed: s.u64(), one_in: s.u8().into() },
            _ => return self.board.clear_faults(),
        };
        let said: Fault = fault.to_string().parse().unwrap_or(fault);
        assert_eq!(said, fault, "a fault reads back as it is written");
        self.injected.add(fault);
        self.board.inject(fault);
    }

    /// Exports a buffer and imports it into some file.
    fn prime(&mut self, f: usize, s: &mut Stream<'_>) {
        let (handle, to) = (u32::from(s.u8() % 8), s.of(0..self.files.len()));
        let arg = [handle, u32::from(handle == 7), 0];
        let exported = self.call(f, 0xc00c_642d, ARG, cast_slice(&arg));
        let Some(file) = exported.ok().and_then(|o| o.file) else { return };
        self.user.passed = Some(file);
        let _ = self.call(to, 0xc00c_642e, ARG, cast_slice(&[0u32; 3]));
        self.user.passed = None;
    }

    /// Makes the call and checks its answer.
    pub fn call(&mut self, f: usize, number: u32, at: u64, arg: &[u8]) -> Result<Outcome, Errno> {
        self.user.map(ARG, [0; 64]);
        self.user.poke(at, arg);
        let (nr, size) = (number & 0xff, (number >> 16 & 0x3fff) as usize);
        // What the driver takes from it: nothing unless the number says so, and no more.
        let mut taken = if number >> 30 & 1 == 1 { self.user.peek(at, size) } else { Some(vec![]) };
        taken.iter_mut().for_each(|t| t.resize(t.len().max(64), 0));
        if nr == 0x40 && at != ARG && taken.as_ref().is_some_and(|t| t[2..4] != [0, 0]) {
            return Err(Errno::EINVAL);
        }
        let expected = (nr == 0x41 && self.profile.version().0 == 0)
            .then(|| taken.as_ref().map_or(Err(Errno::EFAULT), |t| self.stock_submit(t)));
        let (file, model) = &mut self.files[f];
        let done = file.ioctl(number, at, &mut self.user);
        let spoken = number >> 31 == 1 && size >= 24;
        let after = self.user.peek(at, size.min(64)).unwrap_or_default();
        match &done {
            Err(e) if self.injected.errnos.contains(e) => model.blurred |= *e == Errno::EFAULT,
            Err(e) => {
                assert!(model::allowed(nr).contains(e), "ioctl 0x{number:08x}: {e}");
                // The call may have been done before its answer could not be written.
                model.blurred |= *e == Errno::EFAULT && matches!(nr, 0x40 | 0x2e);
            }
            Ok(o) => assert!(model::exists(nr, self.profile) && o.value >= 0, "0x{number:08x}"),
        }
        if let Some(expected) = expected.filter(|_| !self.injected.any) {
            assert_eq!(done.as_ref().map(drop).map_err(|e| *e), expected, "a stock SUBMIT");
        }
        let word = |at: usize| taken.as_ref().map_or(0, |t| pod_read_unaligned(&t[at..at + 4]));
        match nr {
            0x40 if done.is_ok() && spoken => model.created(&pod_read_unaligned(&after[..24])),
            0x40 if done.is_ok() => model.blurred = true,
            0x2e if done.is_ok() && number >> 31 == 1 && size >= 4 => {
                model.imported(pod_read_unaligned(&after[..4]));
            }
            0x2e if done.is_ok() => model.blurred = true,
            0x09 if !self.injected.any && taken.is_some() => model.closed(word(0), done.is_ok()),
            0x09 if done.is_ok() => model.closed(word(0), true),
            0x43 if !self.injected.any && word(4) == 0 && taken.is_some() => {
                let known = model.knows(word(0));
                assert!(known.is_none_or(|k| k == done.is_ok()), "FINI_BO: {done:?}");
            }
            _ => {}
        }
        done
    }

    fn stock_submit(&mut self, taken: &[u8]) -> Result<(), Errno> {
        let a: Submit = pod_read_unaligned(&taken[..size_of::<Submit>()]);
        model::stock_submit(&a, &mut self.user)
    }
}
