//! What programs of several languages see of a board.

use crate::{Sim, compiled, stdout_of, succeed};
use std::process::Command;

/// What `look.cpp` and `look.rs` print on a board of that driver.
fn seen(clock: &str) -> String {
    format!(
        "entry /dev/accel/accel0 character\n\
         status character\n\
         second absent\n\
         canonical /dev/accel/accel0\n\
         compatible rocket-sim,rk3588 rockchip,rk3588 \n\
         clock {clock}\n\
         cores 3\n\
         dev 261:0 \n"
    )
}

#[test]
fn a_cpp_program_sees_the_board() {
    let sim = Sim::ready();
    let program = compiled("g++", "look.cpp", &["-std=c++17"]);
    let stock = succeed(&mut sim.run(&["--driver", "stock"], &[&program]));
    assert_eq!(stdout_of(&stock), seen("(absent)"));
    let full = succeed(&mut sim.run(&["--driver", "full", "--clock", "900"], &[&program]));
    assert_eq!(stdout_of(&full), seen("900000000 "));
}

#[test]
fn a_rust_program_sees_the_board() {
    let sim = Sim::ready();
    let program = env!("CARGO_BIN_EXE_look");
    let opened = "open character\n";
    let stock = succeed(&mut sim.run(&["--driver", "stock"], &[program]));
    assert_eq!(stdout_of(&stock), seen("(absent)") + opened);
    let full = succeed(&mut sim.run(&["--driver", "full"], &[program]));
    assert_eq!(stdout_of(&full), seen("600000000 ") + opened);
}

#[test]
fn a_shell_sees_the_board() {
    let sim = Sim::ready();
    let script =
        "set -e; test -c /dev/accel/accel0; test -d /dev/accel; test ! -e /dev/accel/accel1
        stat -c '%F %t %T %a' /dev/accel/accel0; ls /dev/accel /dev/accel/accel0
        tr '\\0' ' ' </proc/device-tree/model; cat /sys/module/rocket/initstate
        echo /dev/accel/*; find /dev/accel -type c; readlink -f /sys/dev/char/261:0";
    let out = succeed(&mut sim.run(&["-q"], &["sh", "-c", script]));
    let want = "character special file 105 0 660\n\
                /dev/accel/accel0\n\n/dev/accel:\naccel0\n\
                Simulated RK3588 board live\n\
                /dev/accel/accel0\n\
                /dev/accel/accel0\n\
                /sys/devices/platform/rknn/accel/accel0\n";
    assert_eq!(stdout_of(&out), want);
}

const PYTHON: &str = r#"
import fcntl, glob, mmap, os, stat, struct, sys
print([(e.name, stat.S_ISCHR(e.stat().st_mode)) for e in os.scandir("/dev/accel")])
print(os.listdir("/dev/accel"), glob.glob("/dev/accel/*"), os.path.exists("/dev/accel/accel1"))
s = os.stat("/dev/accel/accel0")
print(os.major(s.st_rdev), os.minor(s.st_rdev))
print(open("/proc/device-tree/model").read().rstrip("\0"))
fd = os.open("/dev/accel/accel0", os.O_RDWR)
print(os.readlink("/proc/self/fd/%d" % fd))
def create(size):
    return struct.unpack("IIQQ", fcntl.ioctl(fd, 0xc0186440, struct.pack("IIQQ", size, 0, 0, 0)))
print(create(5000)[:3])
size, handle, iova, offset = create(4096)
print(handle, hex(iova))
m = mmap.mmap(fd, 4096, mmap.MAP_SHARED, offset=offset)
m[0:5] = b"hello"
print(bytes(m[0:6]))
try:
    fcntl.ioctl(fd, 0x40106442, struct.pack("IIq", 77, 0, 0))
except OSError as e:
    print(e.strerror)
"#;

#[test]
fn a_python_program_sees_the_board() {
    // The interpreter itself, not a script that chooses one.
    let ask = Command::new("python3").args(["-c", "import sys; print(sys.executable)"]).output();
    let Some(python) = ask.ok().filter(|out| out.status.success()) else {
        println!("no python3 on this machine: skipped");
        return;
    };
    let python = stdout_of(&python);
    let sim = Sim::ready();
    let out = succeed(&mut sim.run(&[], &[python.trim(), "-c", PYTHON]));
    let want = "[('accel0', True)]\n\
                ['accel0'] ['/dev/accel/accel0'] False\n\
                261 0\n\
                Simulated RK3588 board\n\
                /dev/accel/accel0\n\
                (5000, 1, 0)\n\
                2 0x2000\n\
                b'hello\\x00'\n\
                No such file or directory\n";
    assert_eq!(stdout_of(&out), want);
}

#[test]
fn a_path_of_the_board_is_not_this_machines() {
    // No device tree leaks in from the machine that simulates; what is nobody's board stays.
    let sim = Sim::ready();
    let script = "ls /proc/device-tree/; stat -c %F /dev/null; cat /proc/self/comm";
    let said = stdout_of(&succeed(&mut sim.run(&["-q"], &["sh", "-c", script])));
    let want = "compatible\niommu@fdab9000\niommu@fdaca000\niommu@fdada000\nmodel\n\
                npu@fdab0000\nnpu@fdac0000\nnpu@fdad0000\ncharacter special file\ncat\n";
    assert_eq!(said, want);
}

/// The counters by open (cat) and by fopen (sort), as the file that `sim run --status` writes.
#[test]
fn a_program_reads_the_boards_counters() {
    let sim = Sim::ready();
    let at = "/sys/kernel/debug/accel/rknn/sim-counters";
    let read = |program: &str| {
        let mut c = sim.run(&["--driver", "1.5", "--clock", "300"], &[program, at]);
        stdout_of(&succeed(c.env("LC_ALL", "C")))
    };
    let text = read("cat");
    let seen: rocket_sim::serve::Status = serde_json::from_str(&text).expect("a status");
    assert_eq!((seen.driver.as_str(), seen.clock_hz), ("1.5", 300_000_000));
    assert_eq!((seen.counters.jobs, seen.alive.files), (0, 0));
    let mut lines: Vec<&str> = text.lines().collect();
    lines.sort_unstable();
    assert_eq!(read("sort").lines().collect::<Vec<_>>(), lines);
    let kind = stdout_of(&succeed(&mut sim.run(&[], &["stat", "-c", "%F %a", at])));
    assert_eq!(kind, "regular empty file 444\n");
}
