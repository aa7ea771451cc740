//! On copies of the boards of `tests/boards`.

use super::module::{Decision, Seen};
use super::steps::{Named, plan};
use super::*;
use crate::change::tests::digest;
use crate::change::{Outcome, State};
use crate::doctor::Board;
use crate::ui::Color;
use std::fs;
use std::process::Command;

const YES: Options = Options { dry_run: false, yes: true, emit: None };

fn arguments() -> Arguments {
    let how = How { yes: true, dry_run: false };
    let (emit, plugin, driver, user) = (None, None, None, None);
    Arguments { how, emit, plugin, driver, user, undo: false, force: false }
}

fn setup(board: &Board, arguments: &Arguments) -> Result<u8> {
    let root = board.path().to_path_buf();
    let globals = Globals { root, json: false, quiet: true, color: Color::Never };
    let code = format!("{:?}", run(arguments, &globals)?);
    Ok((0..=255).find(|&n| code == format!("{:?}", ExitCode::from(n))).unwrap())
}

fn planned(board: &Board, named: &Named) -> Outcome {
    let root = Root::open(board.path()).unwrap();
    let (plan, _) = plan(&root, &Facts::read(&root), named).unwrap();
    change::carry_out(board.path(), &plan, &YES, &mut Vec::new()).unwrap()
}

fn state(outcome: &Outcome, id: &str) -> State {
    outcome.steps.iter().find(|s| s.id == id).unwrap().was.clone()
}

/// A shared object with these functions, for the machine that the tests run on or, by its header, for a board.
fn object(functions: &str, arm: bool) -> (tempfile::TempDir, PathBuf) {
    let dir = tempfile::tempdir().unwrap();
    let (source, object) = (dir.path().join("x.c"), dir.path().join("libggml-rocket.so"));
    fs::write(&source, functions).unwrap();
    let mut cc = Command::new("cc");
    cc.args(["-shared", "-nostdlib", "-o"]).arg(&object).arg(&source);
    assert!(cc.status().unwrap().success());
    let mut bytes = fs::read(&object).unwrap();
    // e_machine: aarch64 or x86-64.
    bytes[18] = if arm { 183 } else { 62 };
    fs::write(&object, bytes).unwrap();
    (dir, object)
}

const BACKEND: &str = "void *ggml_backend_init(void) { return 0; }";

#[test]
fn there_and_back_on_every_board() {
    let (_dir, plugin) = object(BACKEND, true);
    for name in ["rk3588-stock", "rk3588-series"] {
        for user in [None, Some("tom"), Some("ann")] {
            let told = "sys/module/rocket/parameters/rocket_npu_clk_hz";
            let mut board = Board::of(name)
                .set("etc/passwd", "root:x:0:0::/:\ntom:x:1000:1000::/:\nann:x:1001:1001::/:\n");
            if name == "rk3588-series" {
                board = board.set(told, "0\n");
            }
            let before = digest(board.path());
            let root = Root::open(board.path()).unwrap();
            let (shown, _) = plan(&root, &Facts::read(&root), &Named::default()).unwrap();
            let mut said = Vec::new();
            let dry = Options { dry_run: true, ..YES };
            change::carry_out(board.path(), &shown, &dry, &mut said).unwrap();
            for line in String::from_utf8(said).unwrap().lines() {
                let command = line.starts_with("             later: ");
                assert!(command || line.chars().count() <= 80, "{line}");
            }
            let dry = Arguments { how: How { yes: true, dry_run: true }, ..arguments() };
            assert_eq!(setup(&board, &dry).unwrap(), 0);
            assert_eq!(digest(board.path()), before, "{name}: --dry-run");

            let with = || Arguments {
                plugin: Some(plugin.clone()),
                user: user.map(str::to_owned),
                ..arguments()
            };
            let exit = setup(&board, &with()).unwrap();
            assert_eq!(exit, u8::from(name == "rk3588-stock"), "{name}: as the doctor says");
            let there = |p: &str| board.path().join(p).exists();
            assert!(
                there("etc/udev/rules.d/71-rocket-npu.rules")
                    && there("etc/tmpfiles.d/rocket-npu.conf")
            );
            assert!(!there("etc/udev/rules.d/72-rocket-npu-rk3576.rules"));
            let installed = board.path().join("usr/local/lib/ggml-rocket/libggml-rocket.so");
            assert_eq!(fs::read(installed).unwrap(), fs::read(&plugin).unwrap());
            assert_eq!(there("etc/modprobe.d/rocket.conf"), name == "rk3588-series");
            if name == "rk3588-series" {
                assert_eq!(fs::read_to_string(board.path().join(told)).unwrap(), "600000000\n");
            }

            let between = digest(board.path());
            let again = planned(
                &board,
                &Named {
                    plugin: Some(plugin.clone()),
                    user: user.map(str::to_owned),
                    ..Named::default()
                },
            );
            assert_eq!(again.end, End::NothingToDo, "{name}: {again:?}");
            assert_eq!(digest(board.path()), between);

            assert_eq!(setup(&board, &Arguments { undo: true, ..arguments() }).unwrap(), 0);
            assert_eq!(digest(board.path()), before, "{name}: --undo");
        }
    }
}

/// Each step for itself, there and back.
#[test]
fn each_step_goes_back() {
    let (_dir, plugin) = object(BACKEND, true);
    let late = "[   31.402000] vdd_npu_s0: disabling\n[   44.1] rocket fdab0000.npu: failed to get clocks\n";
    let boards: [fn(&str) -> Board; 2] = [
        |_| Board::of("rk3588-series").set("sys/module/rocket/parameters/rocket_npu_clk_hz", "0\n"),
        |late| {
            Board::of("rk3588-stock")
                .without("sys/class/accel")
                .set("cmd/dmesg.txt", late)
                .set("etc/initramfs-tools/modules", "# none\next4")
        },
    ];
    let mut seen = Vec::new();
    for board in boards {
        let board = board(late);
        let before = digest(board.path());
        let root = Root::open(board.path()).unwrap();
        let named =
            Named { plugin: Some(plugin.clone()), user: Some("tom".into()), ..Named::default() };
        let (all, _) = plan(&root, &Facts::read(&root), &named).unwrap();
        for step in all.steps {
            let id = step.id;
            let one = change::Plan::new("setup", "t", "u").step(step);
            let done = change::carry_out(board.path(), &one, &YES, &mut Vec::new()).unwrap();
            if done.end == End::Done {
                seen.push(id);
                assert_ne!(digest(board.path()), before, "{id}");
            }
            setup(&board, &Arguments { undo: true, ..arguments() }).unwrap();
            assert_eq!(digest(board.path()), before, "{id}");
        }
    }
    for id in ["udev-rules", "counters", "clock-keep", "clock-now", "load-order", "plugin"] {
        assert!(seen.contains(&id), "{id} in {seen:?}");
    }
}

/// Whatever fails, and wherever the power goes. There is a folder for the journal, as on every system.
#[test]
fn every_fault_of_the_whole_plan() {
    let (_dir, plugin) = object(BACKEND, true);
    let named = Named { plugin: Some(plugin), user: Some("ann".into()), ..Named::default() };
    let board = Board::of("rk3588-series")
        .set("sys/module/rocket/parameters/rocket_npu_clk_hz", "0\n")
        .set("etc/passwd", "ann:x:1001:1001::/:\n");
    fs::create_dir_all(board.path().join("var/lib")).unwrap();
    let root = Root::open(board.path()).unwrap();
    let (plan, _) = plan(&root, &Facts::read(&root), &named).unwrap();
    crate::change::tests::survives(board.path(), &plan);
}

/// What setup cannot mend: the cause, the way out, and nothing changed.
#[test]
fn boards_that_need_something_else_first() {
    for (name, id, exit) in [
        ("rk3588-acpi", "board.acpi-boot", 1),
        ("rk3588-vendor", "board.family", 1),
        ("rk3588s-nodes-disabled", "kernel.dt-nodes", 1),
        ("laptop", "board.family", 1),
        ("rk3576", "board.soc", 1),
    ] {
        let board = Board::of(name);
        let before = digest(board.path());
        let report = doctor::examine(board.path()).unwrap();
        let facts = Facts::read(&Root::open(board.path()).unwrap());
        let cause = beyond(&report, &facts).unwrap();
        assert_eq!(cause.id, id, "{name}");
        assert!(!cause.cause.is_empty());
        assert_eq!(setup(&board, &arguments()).unwrap(), exit, "{name}");
        assert_eq!(digest(board.path()), before, "{name}");
    }
    let blind = Board::of("rk3588-stock").without("proc/device-tree");
    let before = digest(blind.path());
    assert_eq!(setup(&blind, &arguments()).unwrap(), 3, "unknown is not missing");
    assert_eq!(digest(blind.path()), before);
}

/// For systems that are made elsewhere: files and words, on any machine.
#[test]
fn files_in_place_of_changes() {
    for name in ["laptop", "rk3588-stock", "rk3588s-nodes-disabled"] {
        let (board, out) = (Board::of(name), tempfile::tempdir().unwrap());
        let before = digest(board.path());
        let (_dir, plugin) = object(BACKEND, true);
        let plugin = Some(plugin);
        let emit = Arguments { plugin, emit: Some(out.path().join("o")), ..arguments() };
        assert_eq!(setup(&board, &emit).unwrap(), 0, "{name}");
        assert_eq!(digest(board.path()), before, "{name}");
        let read = |p: &str| fs::read_to_string(out.path().join("o").join(p)).unwrap();
        assert!(read("files/etc/udev/rules.d/71-rocket-npu.rules").contains("rknn"));
        assert_eq!(
            read("files/etc/modprobe.d/rocket.conf"),
            "options rocket rocket_npu_clk_hz=600000000\n",
            "a stock driver passes it over"
        );
        assert!(read("README").contains("udevadm control --reload"));
    }
}

#[test]
fn which_driver_there_is_to_be() {
    let stock = || Seen {
        loaded: true,
        installed: true,
        release: "7.3.4+deb13-arm64".into(),
        headers: true,
        package: Some("/p.deb".into()),
        ..Seen::default()
    };
    let why = |seen: Seen| match seen.decide() {
        Decision::Cannot(why) => why,
        other => panic!("{other:?}"),
    };
    assert_eq!(stock().decide(), Decision::Install("/p.deb".into()));
    assert_eq!(Seen { patched: true, ..stock() }.decide(), Decision::Suffices);
    assert_eq!(Seen { built: true, ..stock() }.decide(), Decision::Reload);
    assert!(why(Seen { built: true, in_use: true, ..stock() }).contains("in use"));
    let idle = Seen { loaded: false, package: None, ..stock() };
    assert_eq!(idle.decide(), Decision::Load);
    assert!(why(Seen { package: None, ..stock() }).contains("scripts/package-dkms"));
    let headers = why(Seen { headers: false, ..stock() });
    assert!(headers.contains("sudo apt install linux-headers-7.3.4+deb13-arm64"), "{headers}");
    assert!(why(Seen { accel: Some(false), ..stock() }).contains("CONFIG_DRM_ACCEL"));
    for bad in ["6.1.0-39-arm64", "7.30.1", "7.4.0", "6.180.0", ""] {
        assert!(why(Seen { release: bad.into(), ..stock() }).contains("6.18"), "{bad}");
    }
    for good in ["6.18.43-current-rockchip64", "6.19.8", "7.1.3", "7.2-rc1"] {
        assert!(matches!(Seen { release: good.into(), ..stock() }.decide(), Decision::Install(_)));
    }
    // A kernel with no driver at all needs the package; one that has a driver can do without.
    let none = Seen { loaded: false, installed: false, package: None, ..stock() };
    let (step, _) = module::step(&none);
    assert!(!step.optional && matches!(step.given, Some(State::Cannot(_))));
    let (step, rates) = module::step(&Seen { package: None, ..stock() });
    assert!(step.optional && !rates);
    let (step, _) = module::step(&stock());
    let words = format!("{:?}", step.changes);
    assert!(
        words.contains("\"apt-get\", \"install\", \"-y\", \"/p.deb\"") && words.contains("remove")
    );
    let (busy, _) = module::step(&Seen { in_use: true, ..stock() });
    assert!(!format!("{:?}", busy.changes).contains("modprobe"), "from the next start on");
}

#[test]
fn who_may_use_it() {
    let of = |board: &Board, user: &str| {
        planned(board, &Named { user: Some(user.into()), ..Named::default() })
    };
    let series = || Board::of("rk3588-series");
    assert_eq!(state(&of(&series(), "tom"), "group"), State::Done);
    let users = "root:x:0:0::/:\nann:x:1001:1001::/:\n";
    let ann = of(&series().set("etc/passwd", users), "ann");
    assert!(ann.commands.contains(&"usermod -aG render ann".to_owned()), "{:?}", ann.commands);
    let none = of(&series().set("etc/passwd", users).set("etc/group", "root:x:0:\n"), "ann");
    let at = |c: &str| none.commands.iter().position(|x| x.starts_with(c)).unwrap();
    assert!(at("groupadd --system render") < at("usermod") && at("usermod") < at("udevadm"));
    let nobody = of(&series(), "nobody-here");
    assert_eq!(nobody.end, End::Blocked);
    let sudo = series().set("etc/passwd", users).set("cmd/env.txt", "SUDO_USER=ann\n");
    let sudo = planned(&sudo, &Named::default());
    assert!(sudo.commands.contains(&"usermod -aG render ann".to_owned()));
}

#[test]
fn which_plugin() {
    let with = |board: &Board, path: &Path| {
        let outcome = planned(board, &Named { plugin: Some(path.into()), ..Named::default() });
        state(&outcome, "plugin")
    };
    let refused = |path: &Path| match with(&Board::of("rk3588-stock"), path) {
        State::Cannot(why) => why,
        other => panic!("{other:?}"),
    };
    let (_a, other) = object(BACKEND, false);
    assert!(refused(&other).contains("not for this machine, which is aarch64"));
    let (_b, none) = object("int other(void) { return 0; }", true);
    assert!(refused(&none).contains("ggml_backend_init"));
    let (_c, uses) = object(
        "extern void *ggml_backend_init(void); void *f(void) { return ggml_backend_init(); }",
        true,
    );
    assert!(refused(&uses).contains("exports no"), "one that only calls it");
    let text = tempfile::NamedTempFile::new().unwrap();
    assert!(refused(text.path()).contains("no ELF"));
    let whole = fs::read(&other).unwrap();
    for cut in (0..whole.len()).step_by(97) {
        crate::fuzz::plugin_file(&whole[..cut]);
        let mut odd = whole.clone();
        odd[cut] ^= 0xff;
        crate::fuzz::plugin_file(&odd);
    }
    assert!(refused(Path::new("/nonexistent.so")).contains("No such file"));
    assert!(refused(Path::new("/dev/zero")).contains("no file"));
    let packaged = Board::of("rk3588-stock").set("usr/lib/ggml-rocket/libggml-rocket.so", "x");
    assert_eq!(state(&planned(&packaged, &Named::default()), "plugin"), State::Done);
    let line = steps::hosts_line(Path::new("/usr/lib/ggml-rocket/libggml-rocket.so"));
    assert_eq!(line, "export GGML_BACKEND_PATH=/usr/lib/ggml-rocket/libggml-rocket.so");
}
