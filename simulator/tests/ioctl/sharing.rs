//! Buffers that leave their file: PRIME_HANDLE_TO_FD and PRIME_FD_TO_HANDLE (A.3, dma-buf).

use crate::rig::*;
use rocket_sim::{Alive, Config, DriverProfile, Fault, SimBoard};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

const EXPORT: u32 = 0xc00c_642d;
const IMPORT: u32 = 0xc00c_642e;

fn export(r: &mut Rig, handle: u32, flags: u32) -> Result<File, Errno> {
    r.user.map(ARG, bytemuck::bytes_of(&[handle, flags, 0]));
    Ok(r.file.ioctl(EXPORT, ARG, &mut r.user)?.file.unwrap())
}

fn import(r: &mut Rig, file: Option<&File>) -> Result<u32, Errno> {
    r.user.passed = file.map(|f| f.try_clone().unwrap());
    let mut a = [0u32; 3];
    r.call(IMPORT, &mut a).map(|_| a[0])
}

#[test]
fn handles_of_shared_buffers() {
    for profile in DriverProfile::ALL {
        let board = stepped(profile);
        let (mut a, mut b) = (Rig::on(&board), Rig::on(&board));
        let (_, handle) = (a.bo(4096), a.bo(4096));
        let file = export(&mut a, handle, 0o2_000_002).unwrap();
        // The file itself knows the object; another gets a handle of its own, the same each time.
        assert_eq!(import(&mut a, Some(&file)), Ok(handle), "{profile}");
        assert_eq!(import(&mut b, Some(&file)), Ok(1), "{profile}");
        assert_eq!(import(&mut b, Some(&file)), Ok(1), "{profile}");
        assert_eq!(board.alive().buffers, 2, "{profile}");
        // It lives as long as either has it; the last one frees it.
        a.close(handle).unwrap();
        assert_eq!(board.alive().buffers, 2, "{profile}");
        assert_eq!(b.fini(1), Ok(0), "{profile}");
        b.close(1).unwrap();
        assert_eq!(board.alive().buffers, 1, "{profile}");
        assert_eq!(import(&mut b, Some(&file)), Err(Errno::EINVAL), "{profile}: gone");
    }
}

#[test]
fn what_cannot_be_shared() {
    for profile in DriverProfile::ALL {
        let board = stepped(profile);
        let mut r = Rig::on(&board);
        let handle = r.bo(4096);
        assert_eq!(export(&mut r, 77, 0).err(), Some(Errno::ENOENT), "{profile}");
        assert_eq!(export(&mut r, handle, 1).err(), Some(Errno::EINVAL), "{profile}");
        // A foreign exporter's file, another board's, none at all.
        let foreign = File::open(concat!(env!("CARGO_MANIFEST_DIR"), "/Cargo.toml")).unwrap();
        assert_eq!(import(&mut r, Some(&foreign)), Err(Errno::EINVAL), "{profile}");
        let mut other = Rig::new(profile);
        let theirs = other.bo(4096);
        let theirs = export(&mut other, theirs, 0).unwrap();
        assert_eq!(import(&mut r, Some(&theirs)), Err(Errno::EINVAL), "{profile}");
        assert_eq!(import(&mut r, None), Err(Errno::EBADF), "{profile}");
    }
}

#[test]
fn a_shared_buffer_is_one_memory_and_one_fence() {
    for profile in DriverProfile::ALL {
        let board = stepped(profile);
        let (mut a, mut b) = (Rig::on(&board), Rig::on(&board));
        let bo = a.create(4096).unwrap();
        let file = export(&mut a, bo.handle, 0).unwrap();
        let theirs = import(&mut b, Some(&file)).unwrap();
        a.put(&bo, 0x3c);
        let mut seen = [0; 4096];
        file.read_exact_at(&mut seen, 0).unwrap();
        assert_eq!(seen, [0x3c; 4096], "{profile}");
        let job = a.job(0, &[], &[bo.handle]);
        a.submit(&[job], 48).unwrap();
        assert!(b.busy(theirs), "{profile}");
        a.settle();
        assert!(!b.busy(theirs), "{profile}");
        drop((a, b, file));
        assert_eq!(board.alive(), Alive::default(), "{profile}");
    }
}

/// A.5: a job waits for the last writer of what it reads and of what it writes, on any file. What
/// is only read leaves no fence, so a write after a read is not ordered across files.
#[test]
fn jobs_wait_for_writers_on_other_files() {
    for (first_writes, second_writes, ordered) in
        [(true, false, true), (true, true, true), (false, true, false)]
    {
        for profile in [Stock, Full] {
            let timeout = Duration::from_millis(300);
            let board = SimBoard::new(Config { profile, timeout, ..Config::default() });
            board.inject(Fault::HangJob(0));
            board.inject(Fault::DropJob(1));
            let (mut a, mut b) = (Rig::on(&board), Rig::on(&board));
            let shared = a.bo(4096);
            let file = export(&mut a, shared, 0).unwrap();
            let theirs = import(&mut b, Some(&file)).unwrap();
            let (x, y) = (a.bo(4096), b.bo(4096));
            let lists = |writes, bo, own| {
                if writes { (vec![], vec![bo, own]) } else { (vec![bo], vec![own]) }
            };
            let (reads, writes) = lists(first_writes, shared, x);
            let job = a.job(0, &reads, &writes);
            a.submit(&[job], 48).unwrap();
            let (reads, writes) = lists(second_writes, theirs, y);
            let job = b.job(0, &reads, &writes);
            let start = Instant::now();
            b.submit(&[job], 48).unwrap();
            assert!(b.prep(y, i64::MAX).unwrap() >= 0);
            // The first hangs until the timeout, the second takes no time.
            let what = format!("{profile}: {first_writes} {second_writes}");
            assert_eq!(a.busy(x), !ordered, "{what}");
            assert_eq!(start.elapsed() > timeout / 2, ordered, "{what}");
        }
    }
}
