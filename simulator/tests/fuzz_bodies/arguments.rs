//! Arguments of calls that take lists: ranges and jobs, mostly well formed.

use super::ioctls::{ARG, HEAP, HEAP_BYTES, TOP, World};
use super::stream::Stream;
use super::user::User;
use bytemuck::{bytes_of, cast_slice};
use rocket_runtime::uapi::{self, BoRange, Job, Submit, Task};
use rocket_sim::Errno;

impl World {
    pub fn ranged(&mut self, f: usize, prep: bool, s: &mut Stream<'_>) {
        let count = s.u8();
        let mut list = Vec::new();
        for _ in 0..count % 4 {
            let (offset, size) = (u64::from(s.u16()), u64::from(s.u16()));
            // Half of them end at the end of a page, where buffers end, or one byte beside it.
            let edge = (offset + 1).next_multiple_of(4096) - offset + size % 3 - 1;
            list.push(BoRange { offset, size: if size & 0x8000 == 0 { size } else { edge } });
        }
        self.user.poke(HEAP, cast_slice(&list));
        let at = s.pick(&[HEAP, HEAP, HEAP, 0, TOP, HEAP + HEAP_BYTES as u64 - 16]);
        let range_count = if count > 250 { u32::from(count) << 3 } else { (count % 4).into() };
        let (handle, reserved) = (u32::from(s.u8() % 8), 0);
        let known = at == HEAP && range_count as usize == list.len() && !self.injected.any;
        let fits = self.files[f].1.fits(handle, &list);
        let fits = fits.filter(|_| known && self.profile.version() >= (1, 5));
        let done = if prep {
            let timeout_ns = i64::from(count & 8 == 0) * i64::MAX;
            let a = uapi::PrepBoRanges { handle, range_count, ranges: at, timeout_ns, reserved };
            self.call(f, uapi::IOCTL_PREP_BO_RANGES, ARG, bytes_of(&a))
        } else {
            let a = uapi::FiniBoRanges { handle, range_count, ranges: at, reserved };
            self.call(f, uapi::IOCTL_FINI_BO_RANGES, ARG, bytes_of(&a))
        };
        match done {
            // A wait may fail for other reasons.
            Err(e) if prep && e != Errno::EINVAL => {}
            done => assert!(fits.is_none_or(|f| f == done.is_ok()), "{list:?}: {done:?}"),
        }
    }

    /// Jobs that are mostly well formed: what they point to lies in the heap.
    pub fn submit(&mut self, f: usize, s: &mut Stream<'_>) {
        let shape = s.u8();
        let stride = [48u32, 48, 48, 40, 56, 64, 39, 41][usize::from(shape & 7)];
        let jobs = s.of(1..4);
        let mut bytes = Vec::new();
        let mut behind = HEAP + 256;
        for _ in 0..jobs {
            let [tasks, reads, writes, odd] = s.bytes::<4>();
            let mut lists = Vec::new();
            let mut list = |user: &mut User<'_>, bytes: &[u8]| {
                user.poke(behind, bytes);
                lists.push(behind);
                behind += bytes.len() as u64;
            };
            let task = |s: &mut Stream<'_>| Task {
                regcmd: u32::from(s.u8()) << 4,
                regcmd_count: u32::from(s.u8() % 64),
            };
            let all: Vec<Task> = (0..tasks % 3).map(|_| task(s)).collect();
            list(&mut self.user, cast_slice(&all));
            for n in [reads % 3, writes % 3] {
                let handles: Vec<u32> = (0..n).map(|_| u32::from(s.u8() % 8)).collect();
                list(&mut self.user, cast_slice(&handles));
            }
            let mut job = Job {
                tasks: lists[0],
                in_bo_handles: lists[1],
                out_bo_handles: lists[2],
                task_count: u32::from(tasks % 3),
                task_struct_size: [8, 8, 8, 16, 4, 12, 8, 8][usize::from(odd & 7)],
                in_bo_handle_count: u32::from(reads % 3),
                out_bo_handle_count: u32::from(writes % 3),
                flags: u32::from(odd >> 3 & 3) * u32::from(odd & 0x80 != 0),
                reserved: u32::from(odd == 0xff),
            };
            match odd >> 3 & 7 {
                6 => job.tasks = 8,
                7 => job.out_bo_handles = TOP,
                5 => job.task_count = u32::MAX,
                _ => {}
            }
            let mut one = [0; 64];
            one[..48].copy_from_slice(bytes_of(&job));
            one[63] = u8::from(odd == 0x7f);
            bytes.extend_from_slice(&one[..stride as usize]);
        }
        self.user.poke(HEAP, &bytes);
        let a = Submit {
            jobs: if shape & 0x78 == 0x78 { 4 } else { HEAP },
            job_count: jobs as u32 + u32::from(shape & 0x70 == 0x70) * 1000,
            job_struct_size: stride,
            reserved: u64::from(shape == 0xff),
        };
        let _ = self.call(f, uapi::IOCTL_SUBMIT, ARG, bytes_of(&a));
    }
}
