//! PREP_BO_RANGES and FINI_BO_RANGES (A.4): the interface from 1.5 on.

use crate::rig::*;
use bytemuck::cast_slice;
use rocket_runtime::uapi::{self, BoRange, CreateBo, FiniBoRanges, PrepBoRanges};

const LIST: u64 = 0x40_0000;
const WITH: [DriverProfile; 3] = [V1_5, V1_6, Full];

fn list(ranges: &[(u64, u64)]) -> Vec<u8> {
    let of = |&(offset, size)| BoRange { offset, size };
    cast_slice(&ranges.iter().map(of).collect::<Vec<_>>()).to_vec()
}

/// Both calls with the same ranges; what they say, which must be the same.
fn both(r: &mut Rig, handle: u32, range_count: u32, ranges: u64, reserved: u64) -> Option<Errno> {
    let mut prep = PrepBoRanges { handle, range_count, ranges, timeout_ns: 0, reserved };
    let prep = r.call(uapi::IOCTL_PREP_BO_RANGES, &mut prep);
    let mut fini = FiniBoRanges { handle, range_count, ranges, reserved };
    let fini = r.call(uapi::IOCTL_FINI_BO_RANGES, &mut fini);
    assert_eq!(prep, fini, "the two calls check their ranges in the same way");
    prep.err()
}

#[test]
fn they_do_not_exist_before_1_5() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let handle = r.bo(4096);
        let want = if WITH.contains(&profile) { None } else { Some(Errno::EINVAL) };
        assert_eq!(both(&mut r, handle, 0, 0, 0), want, "{profile}");
        let synced = r.board.counters().cpu_sync;
        assert_eq!(synced, if want.is_none() { 2 * 4096 } else { 0 }, "{profile}");
    }
}

/// What it is, offsets and sizes in an object of two pages, and the error.
type Row = (&'static str, &'static [(u64, u64)], Option<Errno>);

#[test]
fn what_ranges_may_be() {
    const INVALID: Option<Errno> = Some(Errno::EINVAL);
    let table: &[Row] = &[
        ("one byte", &[(0, 1)], None),
        ("the last byte", &[(8191, 1)], None),
        ("all", &[(0, 8192)], None),
        ("neighbours", &[(0, 64), (64, 64)], None),
        ("apart", &[(0, 1), (100, 1), (8000, 192)], None),
        ("empty", &[(0, 0)], INVALID),
        ("empty at the end", &[(8192, 0)], INVALID),
        ("an empty one among others", &[(0, 8), (8, 0), (16, 8)], INVALID),
        ("overlap", &[(0, 65), (64, 64)], INVALID),
        ("twice", &[(0, 64), (0, 64)], INVALID),
        ("descending", &[(64, 64), (0, 64)], INVALID),
        ("one byte too far", &[(0, 8193)], INVALID),
        ("one byte behind", &[(8192, 1)], INVALID),
        ("the second too far", &[(0, 64), (8000, 193)], INVALID),
        ("wraps", &[(u64::MAX, 2)], INVALID),
        ("wraps to zero", &[(1, u64::MAX)], INVALID),
    ];
    for profile in WITH {
        for (what, ranges, want) in table {
            let mut r = Rig::new(profile);
            let handle = r.bo(8000);
            r.user.map(LIST, list(ranges));
            let said = both(&mut r, handle, ranges.len() as u32, LIST, 0);
            assert_eq!(said, *want, "{profile}: {what}");
            if want.is_some() {
                assert_eq!(r.board.counters().cpu_sync, 0, "{profile}: {what}");
            }
        }
    }
}

#[test]
fn counts_pointers_and_reserved() {
    for profile in WITH {
        let mut r = Rig::new(profile);
        let handle = r.bo(4096);
        let most: Vec<_> = (0..1024).map(|i| (i * 4, 4)).collect();
        r.user.map(LIST, list(&most));
        for (what, handle, count, at, reserved, want) in [
            ("most ranges", handle, 1024, LIST, 0, None),
            ("one more", handle, 1025, LIST, 0, Some(Errno::EINVAL)),
            ("very many", handle, u32::MAX, NOWHERE, 0, Some(Errno::EINVAL)),
            ("null array", handle, 1, 0, 0, Some(Errno::EFAULT)),
            ("unmapped array", handle, 1, NOWHERE, 0, Some(Errno::EFAULT)),
            ("array cut off", handle, 2, LIST + 1023 * 16, 0, Some(Errno::EFAULT)),
            ("no ranges", handle, 0, 0, 0, None),
            ("no ranges anywhere", handle, 0, NOWHERE, 0, None),
            ("reserved", handle, 0, 0, 1, Some(Errno::EINVAL)),
            ("reserved, high half", handle, 0, 0, 1 << 63, Some(Errno::EINVAL)),
            ("unknown handle", 77, 0, 0, 0, Some(Errno::ENOENT)),
        ] {
            assert_eq!(both(&mut r, handle, count, at, reserved), want, "{profile}: {what}");
        }
    }
}

/// The cache lines of `ranges` in a page: what a call on them may touch.
fn lines(ranges: &[(u64, u64)], inside: u8, outside: u8) -> Vec<u8> {
    let touched = |at: u64| ranges.iter().any(|(o, s)| at / 64 >= o / 64 && at / 64 * 64 < o + s);
    (0..4096).map(|at| if touched(at) { inside } else { outside }).collect()
}

#[test]
fn only_the_lines_of_the_ranges_are_copied() {
    // Lines 0, 1 and 2; then one byte each of lines 15 and 63.
    let ranges: &[(u64, u64)] = &[(10, 140), (1000, 1), (4095, 1)];
    for profile in WITH {
        let mut r = Rig::new(profile);
        let bo: CreateBo = r.create(4096).unwrap();
        r.user.map(LIST, list(ranges));
        let fini = |r: &mut Rig| {
            let mut a =
                FiniBoRanges { handle: bo.handle, range_count: 3, ranges: LIST, reserved: 0 };
            r.call(uapi::IOCTL_FINI_BO_RANGES, &mut a)
        };
        r.put(&bo, 0xaa);
        assert_eq!(fini(&mut r), Ok(0), "{profile}");
        assert_eq!(r.board.counters().cpu_sync, 5 * 64, "{profile}");
        // What the device has.
        r.prep(bo.handle, 0).unwrap();
        assert_eq!(r.take(&bo), lines(ranges, 0xaa, 0), "{profile}");

        r.put(&bo, 0xbb);
        r.fini(bo.handle).unwrap();
        r.put(&bo, 0xcc);
        let before = r.board.counters();
        let mut a = PrepBoRanges {
            handle: bo.handle,
            range_count: 3,
            ranges: LIST,
            timeout_ns: 0,
            reserved: 0,
        };
        assert_eq!(r.call(uapi::IOCTL_PREP_BO_RANGES, &mut a), Ok(0), "{profile}");
        assert_eq!((r.board.counters() - before).cpu_sync, 5 * 64, "{profile}");
        assert_eq!(r.take(&bo), lines(ranges, 0xbb, 0xcc), "{profile}");
    }
}

/// As PREP_BO, it waits for the last writer of the whole object, and synchronises all the same.
#[test]
fn waits() {
    for profile in WITH {
        let mut r = Rig::new(profile);
        let handle = r.bo(4096);
        let job = r.job(0, &[], &[handle]);
        r.submit(&[job], 48).unwrap();
        r.user.map(LIST, list(&[(0, 64)]));
        let prep = |r: &mut Rig, timeout_ns| {
            let (ranges, reserved) = (LIST, 0);
            let mut a = PrepBoRanges { handle, range_count: 1, ranges, timeout_ns, reserved };
            r.call(uapi::IOCTL_PREP_BO_RANGES, &mut a)
        };
        assert_eq!(prep(&mut r, 0), Err(Errno::EBUSY), "{profile}");
        assert_eq!(prep(&mut r, -1), Err(Errno::EBUSY), "{profile}");
        assert_eq!(r.board.counters().cpu_sync, 2 * 64, "{profile}");
        assert_eq!(r.user.waits, 0, "{profile}");
        r.waits_step();
        assert_eq!(prep(&mut r, i64::MAX), Ok(0), "{profile}");
        assert_eq!(r.user.waits, 1, "{profile}");
    }
}
