//! Governors, interrupts, and memory's clock.

use super::super::finding::Status;
use super::Board;

fn governor(of: impl Fn(usize) -> &'static str) -> Board {
    (0..8).fold(Board::of("rk3588-series"), |board, cpu| {
        board.set(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq/scaling_governor"), of(cpu))
    })
}

#[test]
fn governors_of_the_fast_cores() {
    let status = |b: &Board| b.finding("speed.governor").status;
    assert_eq!(
        status(&governor(|cpu| if cpu < 4 { "powersave" } else { "performance" })),
        Status::Ok
    );
    assert_eq!(status(&governor(|_| "schedutil")), Status::Note);
    let slow = governor(|cpu| if cpu == 5 { "powersave" } else { "performance" });
    let f = slow.finding("speed.governor");
    assert_eq!(f.status, Status::Warn);
    assert!(
        f.fix[0].run.ends_with("/sys/devices/system/cpu/cpu[4567]/cpufreq/scaling_governor"),
        "{f:?}"
    );
    let unseen = (0..8).fold(Board::of("rk3588-series"), |board, cpu| {
        board.without(&format!("sys/devices/system/cpu/cpu{cpu}/cpufreq"))
    });
    assert_eq!(status(&unseen), Status::Unknown);
}

#[test]
fn who_takes_the_interrupts() {
    let takes = |cpu: &str| {
        [87, 88, 89].iter().fold(Board::of("rk3588-series"), |board, n| {
            board.set(&format!("proc/irq/{n}/effective_affinity_list"), cpu)
        })
    };
    let f = takes("2\n").finding("speed.irq");
    assert_eq!((f.status, f.evidence[0].value.as_str()), (Status::Note, "2"));
    assert!(f.fix[0].run.starts_with("echo 4 | sudo tee /proc/irq/87/smp_affinity_list"), "{f:?}");
    assert_eq!(f.fix[0].undo.split(" |").next(), Some("echo 4"), "as it was allowed before");
    assert_eq!(takes("7\n").finding("speed.irq").status, Status::Ok);
    let one = Board::of("rk3588-series").set("proc/irq/89/effective_affinity_list", "0\n");
    assert_eq!(one.finding("speed.irq").status, Status::Note, "one of three is slow");
    let alike = (0..8).fold(takes("0\n"), |board, cpu| {
        let path = format!("sys/devices/system/cpu/cpu{cpu}");
        board
            .without(&format!("{path}/cpu_capacity"))
            .set(&format!("{path}/cpufreq/cpuinfo_max_freq"), "9\n")
    });
    assert_eq!(alike.finding("speed.irq").status, Status::Ok);
    let unseen = Board::of("rk3588-series").without("proc/interrupts");
    assert_eq!(unseen.finding("speed.irq").status, Status::Unknown);
}

#[test]
fn memory_that_is_kept_slow() {
    let dmc = |governor: &str, now: &str| {
        Board::of("rk3588-series")
            .set("sys/class/devfreq/dmc/governor", governor)
            .set("sys/class/devfreq/dmc/cur_freq", now)
            .set("sys/class/devfreq/dmc/max_freq", "2112000000\n")
    };
    let slow = dmc("powersave\n", "528000000\n");
    assert_eq!(slow.wrong(), ["warn speed.dmc"]);
    assert!(slow.finding("speed.dmc").cause.starts_with("528 of 2112 MHz"));
    assert_eq!(dmc("performance", "2112000000").finding("speed.dmc").status, Status::Ok);
    assert_eq!(dmc("dmc_ondemand", "528000000").finding("speed.dmc").status, Status::Ok);
    let odd = dmc("powersave", "fast").finding("speed.dmc");
    assert!(odd.status == Status::Warn && !odd.cause.contains("MHz"), "unknown is not 0: {odd:?}");
    let gpu =
        Board::of("rk3588-series").set("sys/class/devfreq/fb000000.gpu/governor", "powersave");
    assert_eq!(gpu.finding("speed.dmc").status, Status::Ok);
    let none = Board::of("rk3588-series").set("sys/class/devfreq/dmc/name", "");
    assert_eq!(none.finding("speed.dmc").status, Status::Unknown);
}
