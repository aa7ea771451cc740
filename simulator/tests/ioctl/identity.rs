//! Numbers, directions and lengths of arguments (A.2), and what DRM itself answers (A.1).

use crate::rig::*;
use bytemuck::bytes_of;
use rocket_runtime::uapi::{self, DrmVersion};

const NAME: u64 = 0x50_0000;
const DATE: u64 = 0x51_0000;
const DESC: u64 = 0x52_0000;
const UNIQUE: u32 = 0xc010_6401;
const CAPABILITY: u32 = 0xc010_640c;

fn asked(lens: [u64; 3], at: [u64; 3]) -> DrmVersion {
    DrmVersion {
        name_len: lens[0],
        name: at[0],
        date_len: lens[1],
        date: at[1],
        desc_len: lens[2],
        desc: at[2],
        ..DrmVersion::default()
    }
}

#[test]
fn versions() {
    // The table of A.1.
    let table = [
        (Stock618, 0, 0),
        (Stock, 0, 0),
        (V1_0, 1, 0),
        (V1_1, 1, 1),
        (V1_2, 1, 2),
        (V1_3, 1, 3),
        (V1_4, 1, 4),
        (V1_5, 1, 5),
        (V1_6, 1, 6),
        (Full, 1, 7),
    ];
    assert_eq!(table.map(|row| row.0), DriverProfile::ALL);
    for (profile, major, minor) in table {
        let mut r = Rig::new(profile);
        for at in [NAME, DATE, DESC] {
            r.user.map(at, [b'-'; 16]);
        }
        let mut a = asked([16; 3], [NAME, DATE, DESC]);
        assert_eq!(r.call(uapi::IOCTL_VERSION, &mut a), Ok(0), "{profile}");
        assert_eq!((a.major, a.minor, a.patch), (major, minor, 0), "{profile}");
        assert_eq!((a.name_len, a.date_len, a.desc_len), (6, 1, 10), "{profile}");
        assert_eq!(r.user.peek(NAME, 7).unwrap(), b"rocket-", "{profile}");
        assert_eq!(r.user.peek(DATE, 2).unwrap(), b"0-", "{profile}");
        assert_eq!(r.user.peek(DESC, 11).unwrap(), b"rocket DRM-", "{profile}");
    }
}

#[test]
fn version_strings_are_cut_and_pointers_may_be_null() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        r.user.map(NAME, [b'-'; 16]);
        for (len, seen) in [(0, "------"), (1, "r-----"), (4, "rock--"), (6, "rocket")] {
            r.user.map(NAME, [b'-'; 16]);
            let mut a = asked([len, 0, 0], [NAME, 0, 0]);
            assert_eq!(r.call(uapi::IOCTL_VERSION, &mut a), Ok(0), "{profile}: {len}");
            // The length is always the whole one.
            assert_eq!(a.name_len, 6, "{profile}: {len}");
            assert_eq!(r.user.peek(NAME, 6).unwrap(), seen.as_bytes(), "{profile}: {len}");
        }
        let mut a = asked([0; 3], [0; 3]);
        assert_eq!(r.call(uapi::IOCTL_VERSION, &mut a), Ok(0), "{profile}");
        assert_eq!((a.name_len, a.date_len, a.desc_len), (6, 1, 10), "{profile}");
        let mut a = asked([16; 3], [0; 3]);
        assert_eq!(r.call(uapi::IOCTL_VERSION, &mut a), Ok(0), "{profile}: null");
        let mut a = asked([16, 0, 0], [NOWHERE, 0, 0]);
        assert_eq!(r.call(uapi::IOCTL_VERSION, &mut a), Err(Errno::EFAULT), "{profile}");
    }
}

#[test]
fn unique_and_capabilities() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        // The facade device is called `rknn`; it comes whole or not at all.
        for (len, seen) in [(0, "----"), (3, "----"), (4, "rknn"), (16, "rknn")] {
            r.user.map(NAME, [b'-'; 16]);
            let mut a = [len, NAME];
            assert_eq!(r.call(UNIQUE, &mut a), Ok(0), "{profile}: {len}");
            assert_eq!(a[0], 4, "{profile}: {len}");
            assert_eq!(r.user.peek(NAME, 4).unwrap(), seen.as_bytes(), "{profile}: {len}");
        }
        // PRIME both ways (A.3), monotonic time, no syncobj; the rest is about displays.
        for (which, want) in [(5, Ok(3)), (6, Ok(1)), (0x13, Ok(0)), (1, Err(Errno::EOPNOTSUPP))] {
            let mut a = [which, 99u64];
            let said = r.call(CAPABILITY, &mut a).map(|_| a[1]);
            assert_eq!(said, want, "{profile}: capability {which}");
        }
    }
}

#[test]
fn numbers_that_do_not_exist() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        let before = r.board.counters();
        for nr in (0..=0xff).filter(|nr| ![0, 1, 9, 0xc, 0x2d, 0x2e].contains(nr)) {
            let known = 0x40..=if matches!(profile, V1_5 | V1_6 | Full) { 0x45 } else { 0x43 };
            if known.contains(&nr) {
                continue;
            }
            let said = r.call(0xc018_6400 | nr, &mut [0u64; 3]);
            assert_eq!(said, Err(Errno::EINVAL), "{profile}: 0x{nr:02x}");
        }
        assert_eq!(r.board.counters(), before, "{profile}");
    }
}

fn number(directions: u32, nr: u32, size: u32) -> u32 {
    directions << 30 | size << 16 | 0x6400 | nr
}

/// DRM extends what is missing by zeros and cuts what is too much (A.2).
#[test]
fn lengths_of_arguments() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        // A struct that grew: the driver takes its head, and leaves the tail alone.
        let mut long = [0x1000u32, 0, 0, 0, 0, 0, 7, 8];
        assert_eq!(r.call(number(3, 0x40, 32), &mut long), Ok(0), "{profile}");
        assert_eq!((long[1], long[2], long[6], long[7]), (1, 0, 7, 8), "{profile}");
        // One that was shorter: only its own bytes come back.
        let mut short = [0x1000u32, 9, 9, 9, 9, 9];
        assert_eq!(r.call(number(3, 0x40, 8), &mut short), Ok(0), "{profile}");
        assert_eq!(short, [0x1000, 2, 9, 9, 9, 9], "{profile}");
        // PREP_BO without reserved and deadline: both are zero, so it polls.
        let job = r.job(0, &[], &[1]);
        r.submit(&[job], 48).unwrap();
        let said = r.call(number(1, 0x42, 4), &mut [1u32, u32::MAX, u32::MAX]);
        assert_eq!(said, Err(Errno::EBUSY), "{profile}");
        // SUBMIT without its last word; the garbage behind is not read.
        let job = r.job(0, &[], &[2]);
        r.user.map(JOBS, bytes_of(&job));
        let said = r.call(number(1, 0x41, 16), &mut [JOBS, 48 << 32 | 1, u64::MAX]);
        assert_eq!(said, Ok(0), "{profile}");
        assert_eq!(r.board.counters().jobs, 2, "{profile}");
        // Behind the argument nothing need be mapped.
        r.user.map(ARG, 2u32.to_le_bytes());
        let said = r.file.ioctl(number(1, 0x43, 4), ARG, &mut r.user).map(|o| o.value);
        assert_eq!(said, Ok(0), "{profile}");
        let said = r.file.ioctl(number(1, 0x43, 8), ARG, &mut r.user).map(|o| o.value);
        assert_eq!(said, Err(Errno::EFAULT), "{profile}");
    }
}

/// The number's direction bits rule the copies: what is not copied in is zero.
#[test]
fn directions() {
    for profile in DriverProfile::ALL {
        let mut r = Rig::new(profile);
        for (directions, want) in [(0, Err(Errno::ENOSPC)), (2, Err(Errno::ENOSPC)), (1, Ok(0))] {
            let mut a = [4096u32, 9, 9, 9, 9, 9];
            let said = r.call(number(directions, 0x40, 24), &mut a);
            assert_eq!(said, want, "{profile}: directions {directions}");
            // Nothing is copied out unless both the number and the call say so.
            if directions != 2 {
                assert_eq!(a, [4096, 9, 9, 9, 9, 9], "{profile}: directions {directions}");
            }
        }
        assert_eq!(r.bo(4096), 2, "{profile}: one was made in silence");
        // A call that copies nothing out does not, whatever the number says.
        let before = [2u32, 0];
        let mut a = before;
        assert_eq!(r.call(number(3, 0x43, 8), &mut a), Ok(0), "{profile}");
        assert_eq!(a, before, "{profile}");
        // An argument that is not there.
        let said = r.file.ioctl(uapi::IOCTL_CREATE_BO, NOWHERE, &mut r.user).map(|o| o.value);
        assert_eq!(said, Err(Errno::EFAULT), "{profile}");
        assert_eq!(r.board.alive().buffers, 2, "{profile}");
    }
}
