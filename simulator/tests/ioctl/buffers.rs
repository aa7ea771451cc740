//! CREATE_BO, GEM_CLOSE and FINI_BO (A.2 to A.4).

use crate::rig::*;
use rocket_runtime::uapi::{self, CreateBo, FiniBo, PrepBo};

#[test]
fn sizes() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let mut next = 0;
        for (size, pages) in [(1000, 1), (1, 1), (4096, 1), (4097, 2), (65536, 16)] {
            let bo = r.create(size).unwrap();
            // Page-granular, one after another from address zero, which is a legal result.
            assert_eq!((bo.dma_address, bo.size), (next, size), "{profile}: {size}");
            assert!(bo.offset >= 1 << 32 && bo.offset.is_multiple_of(4096), "{profile}: {size}");
            next += pages * 4096;
        }
        assert_eq!(r.create(0).err(), Some(Errno::ENOSPC), "{profile}");
        assert_eq!(r.board.alive().buffers, 5, "{profile}");
        assert_eq!(r.board.alive().bytes, next, "{profile}");
    }
}

#[test]
fn the_window_of_a_file_is_four_gib() {
    for profile in [Stock618, Stock, V1_0, Full] {
        let board = stepped(profile);
        // Memory of this process is not committed before it is touched, that of a file neither.
        let mut r = Rig::on(&board);
        let whole = r.create(u32::MAX).unwrap();
        assert_eq!(whole.dma_address, 0, "{profile}");
        assert_eq!(r.create(1).err(), Some(Errno::ENOSPC), "{profile}");
        // Another file has a window of its own.
        assert_eq!(Rig::on(&board).create(1).unwrap().dma_address, 0, "{profile}");
        r.close(whole.handle).unwrap();
        let most = r.create(0xffff_f000).unwrap();
        assert_eq!(r.create(4097).err(), Some(Errno::ENOSPC), "{profile}");
        assert_eq!(r.create(4096).unwrap().dma_address, 0xffff_f000, "{profile}");
        assert_eq!(r.create(1).err(), Some(Errno::ENOSPC), "{profile}");
        assert_eq!(most.dma_address, 0, "{profile}");
    }
}

#[test]
fn handles_and_addresses_of_files() {
    for profile in DriverProfile::ALL {
        let board = stepped(profile);
        let (mut a, mut b) = (Rig::on(&board), Rig::on(&board));
        for n in 1..=4 {
            let (x, y) = (a.create(4096).unwrap(), b.create(4096).unwrap());
            // Equal addresses and handles for different objects (A.3).
            assert_eq!((x.handle, y.handle), (n, n), "{profile}");
            assert_eq!(x.dma_address, y.dma_address, "{profile}");
            assert_ne!(x.offset, y.offset, "{profile}");
        }
        // The lowest free handle is given out again, and so is the address.
        a.close(3).unwrap();
        a.close(2).unwrap();
        assert_eq!(a.close(2), Err(Errno::EINVAL), "{profile}");
        let again = a.create(4096).unwrap();
        assert_eq!((again.handle, again.dma_address), (2, 0x1000), "{profile}");
        assert_eq!((a.bo(4096), a.bo(4096)), (3, 5), "{profile}");
        // A handle means nothing on another file.
        assert_eq!(b.fini(5), Err(Errno::ENOENT), "{profile}");
        for handle in [0, 99, u32::MAX] {
            assert_eq!(a.close(handle), Err(Errno::EINVAL), "{profile}: {handle}");
        }
    }
}

#[test]
fn a_queued_job_keeps_its_buffers() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let (input, output) = (r.bo(4096), r.bo(4096));
        let job = r.job(0, &[input], &[output]);
        r.submit(&[job], 48).unwrap();
        r.close(input).unwrap();
        r.close(output).unwrap();
        // Their handles are free, their addresses are not.
        let new = r.create(4096).unwrap();
        assert_eq!((new.handle, new.dma_address), (1, 0x2000), "{profile}");
        r.settle();
        assert_eq!(r.board.alive().buffers, 1, "{profile}");
        assert_eq!(r.create(4096).unwrap().dma_address, 0, "{profile}");
    }
}

#[test]
fn reserved_words_and_unknown_handles() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let handle = r.bo(4096);
        for (handle, reserved, want) in [
            (handle, 0, Ok(())),
            (handle, 1, Err(Errno::EINVAL)),
            (handle, 1 << 31, Err(Errno::EINVAL)),
            (0, 0, Err(Errno::ENOENT)),
            (77, 0, Err(Errno::ENOENT)),
        ] {
            let mut prep = PrepBo { handle, reserved, timeout_ns: 0 };
            let said = r.call(uapi::IOCTL_PREP_BO, &mut prep).map(drop);
            assert_eq!(said, want, "{profile}: PREP_BO {handle} {reserved}");
            let mut fini = FiniBo { handle, reserved };
            let said = r.call(uapi::IOCTL_FINI_BO, &mut fini).map(drop);
            assert_eq!(said, want, "{profile}: FINI_BO {handle} {reserved}");
        }
        // Refused calls synchronise nothing.
        assert_eq!(r.board.counters().cpu_sync, 2 * 4096, "{profile}");
    }
}

#[test]
fn prep_and_fini_move_what_the_other_side_wrote() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let bo: CreateBo = r.create(4096).unwrap();
        r.put(&bo, 0xaa);
        r.fini(bo.handle).unwrap();
        r.put(&bo, 0x55);
        r.prep(bo.handle, 0).unwrap();
        assert_eq!(r.take(&bo), [0xaa; 4096], "{profile}");
    }
}
