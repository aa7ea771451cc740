//! Configuration, device tree, module, interface and log of a kernel.

use super::super::finding::{Finding, Status};
use super::{Board, boards};
use std::fs;

const RELEASE: &str = "7.3.4+deb13-arm64";

/// A stock board whose driver is not loaded.
fn unloaded() -> Board {
    Board::of("rk3588-stock")
        .without("sys/module")
        .without("sys/bus")
        .without("sys/class/accel")
        .set("cmd/dmesg.txt", "")
}

fn config(board: Board, edit: impl Fn(String) -> String) -> Board {
    let path = format!("boot/config-{RELEASE}");
    let text = fs::read_to_string(boards().join("rk3588-stock").join(&path)).unwrap();
    board.set(&path, edit(text))
}

fn fails(board: &Board) -> Vec<String> {
    board.wrong().into_iter().filter(|w| w.starts_with("fail")).collect()
}

/// A4: without a configuration of this release nothing is said of it.
#[test]
fn a_configuration_that_cannot_be_seen() {
    let own = format!("boot/config-{RELEASE}");
    let hidden = || unloaded().without(&own).without("lib");
    let off = "# CONFIG_DRM_ACCEL is not set\n";
    let others = hidden()
        .set("boot/config-6.12.1", off)
        .set(&format!("{own}.old"), off)
        .set("lib/modules/6.12.1/config", off);
    for board in [hidden(), others] {
        let f = board.finding("kernel.config");
        assert_eq!(f.status, Status::Unknown, "{f:?}");
        assert!(f.why.unwrap().contains("grep DRM_ACCEL /boot/config-"), "how to find out");
        assert_eq!(fails(&board), Vec::<String>::new());
        assert_eq!(board.ask().exit, 3);
    }
    let odd = unloaded().set(&own, "no configuration\n");
    assert_eq!(odd.finding("kernel.config").status, Status::Unknown);
}

#[test]
fn a_configuration_without_what_is_needed() {
    for option in ["DRM_ACCEL", "ROCKCHIP_IOMMU", "ROCKCHIP_PM_DOMAINS"] {
        let without = config(unloaded().without("lib"), |text| {
            text.replace(&format!("CONFIG_{option}=y"), &format!("# CONFIG_{option} is not set"))
        });
        assert_eq!(fails(&without), ["fail kernel.config"]);
        let f = without.finding("kernel.config");
        assert!(f.title.ends_with(option) && f.cause.contains("another kernel"), "{f:?}");
        assert_eq!(without.finding("kernel.module").because, Some("kernel.config"));
    }
    // As Debian has it: the driver can be added.
    let no_driver = |board| {
        config(board, |t| {
            t.replace("CONFIG_DRM_ACCEL_ROCKET=m", "# CONFIG_DRM_ACCEL_ROCKET is not set")
        })
    };
    let modules = format!("lib/modules/{RELEASE}/modules.dep");
    let bare = no_driver(unloaded().set(&modules, "kernel/x.ko:\n"));
    assert_eq!(fails(&bare), ["fail kernel.config"]);
    assert!(bare.finding("kernel.config").fix[0].run.contains("rocket-npu-dkms"));
    let added = no_driver(unloaded().set(&modules, "updates/dkms/rocket.ko: x.ko\n"));
    assert_eq!(added.finding("kernel.config").status, Status::Ok);
    assert_eq!(added.finding("kernel.module").fix[0].run, "sudo modprobe rocket");
    let runs = no_driver(Board::of("rk3588-stock"));
    assert_eq!(runs.finding("kernel.config").status, Status::Ok, "it runs");
    let lost = config(unloaded().set(&modules, "kernel/x.ko:\n"), |t| t);
    assert_eq!(lost.finding("kernel.module").title, "the driver's module is not installed");
}

/// The interface by the driver's own word, then by the log.
#[test]
fn interfaces() {
    let version = |v: &str| Board::of("rk3588-series").set("dev/accel/accel0.version", v);
    let title = |b: Board| b.finding("kernel.interface").title;
    assert!(title(version("rocket 1.1\n")).starts_with("1.1: and several programs"));
    assert!(title(version("rocket 0.0")).starts_with("0.0: structs of 40 and 8 bytes"));
    assert!(title(version("garbage")).starts_with("1.7"), "the log has it");
    let newer = version("rocket 2.0").finding("kernel.interface");
    assert_eq!(newer.status, Status::Note);
    let silent =
        Board::of("rk3588-series").without("dev/accel/accel0.version").set("cmd/dmesg.txt", "");
    let f = silent.finding("kernel.interface");
    assert_eq!((f.status, f.why.unwrap().contains("accel0.version")), (Status::Unknown, true));
}

#[test]
fn a_device_tree_of_another_kernel() {
    let tree = |board: &str, file: &str| {
        let path = format!("usr/lib/linux-image-{RELEASE}/rockchip/{file}");
        fs::read(boards().join(board).join(path)).unwrap()
    };
    let file = format!("usr/lib/linux-image-{RELEASE}/rockchip/rk3588-rock-5b.dtb");
    let off = "disabled\0";
    let status = "proc/device-tree/npu@fdab0000/status";
    let stale = Board::of("rk3588-stock").set(status, off);
    assert_eq!(fails(&stale), ["fail kernel.dtb-stale"]);
    let f = stale.finding("kernel.dtb-stale");
    assert!(f.evidence[0].path.ends_with("npu@fdab0000") && f.evidence[0].value == "disabled");
    assert_eq!(f.fix[0].run, "sudo flash-kernel && sudo reboot");
    assert_eq!(stale.finding("kernel.dt-nodes").because, Some("kernel.dtb-stale"));
    let gone = ["npu@fdab0000", "npu@fdac0000", "npu@fdad0000"]
        .iter()
        .fold(Board::of("rk3588-stock"), |b, n| b.without(&format!("proc/device-tree/{n}")))
        .set("boot/extlinux/extlinux.conf", format!("label a\nlinux /boot/vmlinuz-{RELEASE}\n"));
    assert_eq!(fails(&gone), ["fail kernel.dtb-stale"]);
    assert_eq!(gone.finding("kernel.dtb-stale").fix[0].run, "sudo u-boot-update && sudo reboot");
    // An overlay gives more than the package has.
    let overlay = ["npu@fdab0000", "npu@fdac0000", "npu@fdad0000"]
        .iter()
        .fold(Board::of("rk3588s-nodes-disabled"), |b, n| {
            b.set(&format!("proc/device-tree/{n}/status"), "okay\0")
        });
    assert_eq!(overlay.finding("kernel.dtb-stale").status, Status::Ok);
    let other = tree("rk3588s-nodes-disabled", "rk3588s-rock-5c.dtb");
    for bytes in [other, b"\xd0\x0d\xfe\xed".to_vec()] {
        let unclear = Board::of("rk3588-stock").set(&file, bytes);
        assert_eq!(unclear.finding("kernel.dtb-stale").status, Status::Unknown);
        assert_eq!(fails(&unclear), Vec::<String>::new());
    }
}

#[test]
fn modules_that_do_not_run() {
    let log = |text: &str| unloaded().set("cmd/dmesg.txt", text);
    let magic = "[ 5.0] rocket: version magic '7.3.1 SMP' should be '7.3.4 SMP'\n";
    let refused = log(magic).finding("kernel.module");
    assert_eq!(refused.title, "the kernel refuses the driver's module");
    assert!(refused.evidence[0].value.contains("version magic"), "{refused:?}");
    let unsigned = log("[ 5.0] Loading of unsigned module is rejected: rocket\n");
    assert!(unsigned.finding("kernel.module").cause.contains("Secure boot"));
    let other = log(&magic.replace("rocket", "wifi"));
    assert_eq!(other.finding("kernel.module").title, "the driver is not loaded");
}

/// One root, one finding: what the patched driver would mend waits for it.
#[test]
fn a_patched_driver_that_waits() {
    let waiting = Board::of("rk3588-patched-installed");
    for id in ["kernel.patches", "kernel.security", "speed.clock", "speed.autosuspend"] {
        assert_eq!(waiting.finding(id).because, Some("kernel.module"), "{id}");
    }
    // Out of the tree: it is a patched one already, though it does not say of what kind.
    let older = Board::of("rk3588-patched-installed").set("sys/module/rocket/taint", "OE\n");
    assert_eq!(older.finding("kernel.module").status, Status::Ok);
    let reloaded = Board::of("rk3588-patched-installed")
        .set("sys/module/rocket/parameters/rocket_features", "domain-allocator\n");
    assert_eq!(reloaded.finding("kernel.module").status, Status::Ok);
}

#[test]
fn the_kernel_that_boots_next() {
    let next = |board: Board, modules: &str| {
        board
            .set("boot/vmlinuz-7.4.0-arm64", "")
            .set("lib/modules/7.4.0-arm64/modules.dep", modules)
    };
    let stock = "kernel/drivers/accel/rocket/rocket.ko.xz:\n";
    let patched = "updates/dkms/rocket.ko.xz:\n";
    let module = |b: Board| b.finding("kernel.module");
    let none = module(next(Board::of("rk3588-stock"), "kernel/x.ko:\n"));
    assert_eq!(
        (none.status, &*none.title),
        (Status::Warn, "the kernel that boots next has no driver")
    );
    assert!(none.fix[0].run.contains("linux-headers-7.4.0-arm64"), "{none:?}");
    let less = module(next(Board::of("rk3588-series"), stock));
    assert_eq!(less.title, "the kernel that boots next has the stock driver");
    assert_eq!(module(next(Board::of("rk3588-series"), patched)).status, Status::Ok);
    assert_eq!(module(next(Board::of("rk3588-stock"), stock)).status, Status::Ok);
    let chosen = next(Board::of("rk3588-series"), "kernel/x.ko:\n")
        .link("vmlinuz", &format!("boot/vmlinuz-{RELEASE}"));
    assert_eq!(module(chosen).status, Status::Ok, "the newest is not what boots");
    let unseen = Board::of("rk3588-series").set("boot/vmlinuz-7.4.0-arm64", "");
    assert_eq!(module(unseen).status, Status::Ok, "what cannot be seen is not missing");
}

#[test]
fn cores_without_a_driver() {
    let f = Board::of("rk3588-partial-probe").finding("kernel.probe");
    assert_eq!(f.title, "the driver has 2 of 3 cores");
    assert!(f.evidence.iter().any(|e| e.value == "fdad0000"), "{f:?}");
    assert!(f.evidence.iter().any(|e| e.value.contains("failed to get clocks")), "{f:?}");
    let no_node = Board::of("rk3588-series").without("sys/class/accel").set("sys/class/x", "");
    let f = no_node.finding("kernel.probe");
    assert_eq!((f.status, f.evidence.len()), (Status::Fail, 1), "{f:?}");
    assert_eq!(f.title, "the driver has its cores and no accel node");
}

/// A1: the letters of the silicon, and a device tree that is another part's.
#[test]
fn the_silicon_has_its_say() {
    let probe = Board::of("rk3588-series").finding("kernel.probe");
    assert!(probe.title.contains("0x46495245 (FIRE)"), "{probe:?}");
    let swap = |from: &str, to: &str| {
        let log = fs::read_to_string(boards().join("rk3588-series/cmd/dmesg.txt")).unwrap();
        Board::of("rk3588-series").set("cmd/dmesg.txt", log.replace(from, to))
    };
    let other = swap("1179210309", "1179210311");
    assert_eq!(fails(&other), ["fail board.soc"]);
    assert!(other.finding("board.soc").evidence[1].value.contains("0x46495247 (FIRG)"));
    assert_eq!(swap("1179210309", "12").finding("board.soc").status, Status::Ok);
}

#[test]
fn known_bugs_by_release_and_patch() {
    let of = |release: &str| Board::of("rk3588-stock").set("proc/sys/kernel/osrelease", release);
    let bugs = |f: &Finding| f.evidence.iter().map(|e| e.path.clone()).collect::<Vec<_>>();
    let security = |b: Board| b.finding("kernel.security");
    assert_eq!(bugs(&security(of("7.3.4"))), ["U1", "U9"]);
    assert_eq!(bugs(&security(of("7.1.13"))), ["U1", "U9", "F1", "F2"]);
    assert_eq!(bugs(&security(of("6.18.15-x"))), ["U1", "U9", "F1", "F2", "F5"]);
    let between = security(of("7.2.3"));
    assert!(between.evidence[2].value.starts_with("not known of this release"), "{between:?}");
    let odd = security(of("next"));
    assert_eq!(odd.status, Status::Warn, "what no release is without");
    assert!(odd.evidence[2].value.starts_with("not known"), "{odd:?}");
    let features = "sys/module/rocket/parameters/rocket_features";
    let some = Board::of("rk3588-series").set(features, "domain-allocator,submit-limits\n");
    assert_eq!(security(some).status, Status::Ok, "the rest is the release's");
    let one = Board::of("rk3588-series").set(features, "domain-allocator\n");
    assert_eq!(bugs(&security(one)), ["U9"]);
    let unnamed = Board::of("rk3588-series").without(features);
    assert_eq!(security(unnamed).status, Status::Unknown);
}

/// Of every kind of line in the table one, and what is harmless is said to be.
#[test]
fn lines_of_the_log() {
    let with = |line: &str| Board::of("rk3588-series").add("cmd/dmesg.txt", line);
    let bad = [
        "[9.0] BUG kmalloc-16 (Tainted: G): Object already free\n",
        "[9.0] pc : rocket_iommu_domain_put+0x18/0x60 [rocket]\n",
        "[9.0] Memory manager not clean during takedown.\n",
        "[9.0] drm_sched: scheduler fdac0000.npu is not ready, skipping\n",
        "[9.0] rocket fdab0000.npu: scheduler already initialized!\n",
        "[9.0] rocket: failed to map buffer: size=4194304\n",
        "[9.0] rk_iommu fdab9000.iommu: Page fault at 0x00001000 of type write\n",
        "[9.0] rockchip-pm-domain: failed to get ack on domain 'npu', val=0x1\n",
        "[9.0] rk_iommu fdab9000.iommu: Error during raw reset. MMU_DTE_ADDR is not functioning\n",
        "[9.0] rocket: core 0 NPU clk -> 600000000 Hz (reads back 200000000)\n",
    ];
    for line in bad {
        assert_eq!(with(line).wrong(), ["warn kernel.log"], "{line}");
    }
    let harmless = [
        "[9.0] rocket: loading out-of-tree module taints kernel.\n",
        "[9.0] rocket: module verification failed: signature and/or required key missing\n",
        "[9.0] rocket: unknown parameter 'rocket_npu_clk_hz' ignored\n",
        "[9.0] rocket: core 0 NPU clk -> 600000000 Hz (reads back 600000000)\n",
        "[9.0] usb 1-1: NPU jobs are fine\n",
    ];
    for line in harmless {
        let f = with(line).finding("kernel.log");
        assert_eq!(f.status, Status::Ok, "{line}");
        assert_eq!(
            f.cause.contains("Harmless"),
            line.contains("module") || line.contains("parameter")
        );
    }
    let both = with(&(bad[2].to_owned() + "[9.1] rocket fdab0000.npu: NPU job timed out\n"));
    let f = both.finding("kernel.log");
    assert!(f.title.contains("after its file was closed"), "the cause before what follows: {f:?}");
    assert_eq!(f.fix[0].run, "sudo reboot");
}
