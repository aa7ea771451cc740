//! The whole of it on trees: the board whose nodes are disabled, with the files of each boot loader.

use super::board::{Reference, Verdict};
use super::{Arguments, examine, run};
use crate::ui::{Color, Globals};
use clap::{Args as _, FromArgMatches as _};
use rocket_runtime::board::{Root, fdt};
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

const BOARD: &str = "../tests/boards/rk3588s-nodes-disabled";
const EXTLINUX: (&str, &str) = (
    "boot/extlinux/extlinux.conf",
    "default l0\nlabel l0\n\tlinux /boot/vmlinuz-7.3\n\tfdtdir /boot/dtbs/7.3\n\tappend quiet\n",
);
const ARMBIAN: (&str, &str) = ("boot/armbianEnv.txt", "verbosity=1\nuser_overlays=fan\n");
const MENU: (&str, &str) = ("usr/sbin/u-boot-update", "#!/bin/sh\n");
const LIST: (&str, &str) = ("etc/default/u-boot", "U_BOOT_FDT_OVERLAYS=\"fan.dtbo\"\n");

struct Tree(tempfile::TempDir);

impl Tree {
    fn new(files: &[(&str, &str)]) -> Tree {
        let dir = tempfile::tempdir().unwrap();
        copy(&Path::new(env!("CARGO_MANIFEST_DIR")).join(BOARD), dir.path());
        let tree = Tree(dir);
        files.iter().for_each(|(path, text)| tree.put(path, text.as_bytes()));
        tree
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, bytes).unwrap();
    }

    fn text(&self, path: &str) -> String {
        fs::read_to_string(self.0.path().join(path)).unwrap()
    }

    /// Every file's bytes and every folder, by its path.
    fn all(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let (mut all, mut open) = (BTreeMap::new(), vec![self.0.path().to_path_buf()]);
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).unwrap().flatten() {
                let (path, kind) = (entry.path(), entry.file_type().unwrap());
                all.insert(path.clone(), fs::read(&path).unwrap_or_default());
                open.extend(kind.is_dir().then_some(path));
            }
        }
        all
    }

    /// What the program returns; `words` as on its command line.
    fn call(&self, words: &str) -> u8 {
        let command = Arguments::augment_args(clap::Command::new("overlay"));
        let words = ["overlay"].into_iter().chain(words.split_whitespace());
        let matches = command.try_get_matches_from(words).unwrap();
        let root = self.0.path().to_path_buf();
        let globals = Globals { root, json: false, quiet: false, color: Color::Never };
        let code = run(&Arguments::from_arg_matches(&matches).unwrap(), &globals).unwrap();
        (0..=3).find(|n| ExitCode::from(*n) == code).unwrap()
    }

    fn verdict(&self) -> Verdict {
        let root = Root::open(self.0.path()).unwrap();
        examine(&root, &super::Board { rail: super::board::RAIL.into() })
    }
}

fn copy(from: &Path, to: &Path) {
    for entry in fs::read_dir(from).unwrap().flatten() {
        let (path, to) = (entry.path(), to.join(entry.file_name()));
        match entry.file_type().unwrap().is_dir() {
            true => {
                fs::create_dir(&to).unwrap();
                copy(&path, &to);
            }
            false => drop(fs::copy(&path, &to).unwrap()),
        }
    }
}

#[test]
fn what_the_board_lacks() {
    let tree = Tree::new(&[]);
    let Verdict::Needs(overlay) = tree.verdict() else { panic!() };
    assert_eq!(overlay.rail, Some(Reference::Label("vdd_npu_s0".into())));
    let domain = overlay.fragments.last().unwrap();
    assert_eq!(domain.path, "/power-management@fd8d8000/power-controller/power-domain@8");
    assert_eq!((overlay.fragments.len(), overlay.missing.len(), overlay.unsupplied), (7, 0, false));
    // One core alone, supplies described: one status each.
    for (core, iommu) in
        [("fdab0000", "fdab9000"), ("fdac0000", "fdaca000"), ("fdad0000", "fdada000")]
    {
        let supplies = ["npu-supply", "sram-supply"];
        supplies
            .iter()
            .for_each(|s| tree.put(&format!("proc/device-tree/npu@{core}/{s}"), &[0, 0, 0, 0x70]));
        if core != "fdad0000" {
            tree.put(&format!("proc/device-tree/npu@{core}/status"), b"okay\0");
            tree.put(&format!("proc/device-tree/iommu@{iommu}/status"), b"okay\0");
        }
    }
    tree.put(
        "proc/device-tree/power-management@fd8d8000/power-controller/power-domain@8/domain-supply",
        &[0, 0, 0, 0x70],
    );
    let Verdict::Needs(overlay) = tree.verdict() else { panic!() };
    let paths: Vec<&str> = overlay.fragments.iter().map(|f| f.path.as_str()).collect();
    assert_eq!((paths, overlay.rail), (vec!["/npu@fdad0000", "/iommu@fdada000"], None));
    tree.put("proc/device-tree/npu@fdad0000/status", b"okay\0");
    tree.put("proc/device-tree/iommu@fdada000/status", b"okay\0");
    assert_eq!(tree.verdict(), Verdict::Nothing);
    assert_eq!((tree.call("show"), tree.call("install --yes")), (0, 0));
}

/// Boards for which an overlay is of no use, or a danger.
#[test]
fn boards_that_get_none() {
    let useless = |tree: &Tree| match tree.verdict() {
        Verdict::Useless(why) => why,
        other => panic!("{other:?}"),
    };
    let other = Tree::new(&[EXTLINUX]);
    other.put("proc/device-tree/compatible", b"radxa,rock-4\0rockchip,rk3399\0");
    assert!(useless(&other).contains("rockchip,rk3399"));
    let vendor = Tree::new(&[EXTLINUX]);
    vendor.put("proc/device-tree/npu@fdab0000/compatible", b"rockchip,rk3588-rknpu\0");
    assert!(useless(&vendor).contains("vendor kernel"));
    let old = Tree::new(&[EXTLINUX]);
    fs::remove_dir_all(old.0.path().join("proc/device-tree/npu@fdab0000")).unwrap();
    assert!(useless(&old).contains("older than the driver"));
    let unseen = Tree::new(&[EXTLINUX]);
    fs::remove_dir_all(unseen.0.path().join("proc/device-tree")).unwrap();
    assert!(useless(&unseen).contains("no /proc/device-tree"));
    let hostile = Tree::new(&[EXTLINUX]);
    let domain = "power-management@fd8d8000/power-controller";
    let place = hostile.0.path().join("proc/device-tree").join(domain);
    fs::rename(place.join("power-domain@8"), place.join("a\"; };")).unwrap();
    assert!(useless(&hostile).contains("is no device tree's path"));
    let half = Tree::new(&[EXTLINUX]);
    fs::remove_dir_all(half.0.path().join("proc/device-tree/iommu@fdaca000")).unwrap();
    let railless = Tree::new(&[EXTLINUX]);
    railless.put("proc/device-tree/i2c@fd880000/regulator@42/regulator-name", b"vdd_cpu_npu\0");
    let twice = Tree::new(&[EXTLINUX]);
    twice.put("proc/device-tree/spi/regulator-name", b"vdd_npu_s0\0");
    for tree in [&other, &vendor, &old, &unseen, &hostile, &half, &railless, &twice] {
        let before = tree.all();
        assert_eq!(tree.call("install --yes"), 1);
        assert_eq!(tree.all(), before, "nothing was changed");
    }
    assert_eq!(half.call("show"), 0);
    let Verdict::Needs(overlay) = railless.verdict() else { panic!() };
    assert!(overlay.unsupplied && overlay.notes[0].contains("vdd_cpu_npu"), "{:?}", overlay.notes);
    assert_eq!(railless.call("install --yes --rail vdd_cpu_npu"), 0, "named by its own name");
    assert_eq!(railless.call("remove --yes"), 0);
    assert_eq!(railless.call("install --yes --without-supply"), 0);
}

/// Installing shows first, then changes what it said; again is nothing; removing gives every byte back.
#[test]
fn in_and_out_again() {
    for (files, config, new) in [
        (
            &[EXTLINUX][..],
            Some(EXTLINUX.0),
            "\tfdtdir /boot/dtbs/7.3\n\tfdtoverlays /boot/overlays/rocket-npu.dtbo\n",
        ),
        (&[ARMBIAN, EXTLINUX], Some(ARMBIAN.0), "user_overlays=fan rocket-npu\n"),
        (&[MENU, EXTLINUX], None, ""),
        (&[MENU, LIST], Some(LIST.0), "U_BOOT_FDT_OVERLAYS=\"fan.dtbo rocket-npu.dtbo\"\n"),
    ] {
        let tree = Tree::new(files);
        let before = tree.all();
        assert_eq!(tree.call("install --dry-run"), 0);
        assert_eq!(tree.all(), before, "a dry run");
        assert_eq!(tree.call("install --yes"), 0);
        assert!(config.is_none_or(|c| tree.text(c).contains(new)), "{config:?}");
        let file = tree.all().into_iter().find(|(p, _)| p.ends_with("rocket-npu.dtbo")).unwrap();
        let overlay = fdt::parse(&file.1).unwrap();
        assert_eq!(overlay.root.children.len(), 8, "seven fragments and a label");
        let root = Root::open(tree.0.path()).unwrap();
        assert!(super::loader::find(&root).unwrap().unwrap().installed(&root));
        let after = tree.all();
        assert_eq!((tree.call("install --yes"), tree.all()), (0, after), "again");
        assert_eq!(tree.call("remove --dry-run"), 0);
        assert_eq!(tree.call("remove --yes"), 0);
        assert_eq!(tree.all(), before, "{config:?}");
        assert_eq!((tree.call("remove --yes"), tree.all()), (0, before), "nothing to remove");
    }
}

/// u-boot-update writes what U-Boot reads: after a change, and after that was taken back.
#[test]
fn what_is_run_where_the_menu_is_written() {
    use crate::change::Change;
    let commands = |files: &[(&str, &str)]| {
        let tree = Tree::new(files);
        let Verdict::Needs(overlay) = tree.verdict() else { panic!() };
        let root = Root::open(tree.0.path()).unwrap();
        let target = super::loader::find(&root).unwrap().unwrap();
        let plan = super::install::plan(&overlay, &target);
        let command = |change: &Change| match change {
            Change::Run { argv, undo } => Some((argv.concat(), undo.as_ref().map(|u| u.concat()))),
            _ => None,
        };
        plan.steps[0].changes.iter().map(command).collect::<Vec<_>>()
    };
    let update = || Some("u-boot-update".to_owned());
    let around =
        [Some((String::new(), update())), None, None, Some(("u-boot-update".into(), update()))];
    assert_eq!(commands(&[MENU, LIST]), around);
    assert_eq!(commands(&[EXTLINUX]), [None, None]);
}

/// What somebody wrote since stays, and a rescue system takes the overlay out of a tree that was copied without its
/// journal.
#[test]
fn out_of_what_was_changed_since() {
    let tree = Tree::new(&[EXTLINUX]);
    assert_eq!(tree.call("install --yes"), 0);
    let edited = tree.text(EXTLINUX.0).replace("quiet", "quiet splash");
    tree.put(EXTLINUX.0, edited.as_bytes());
    assert_eq!(tree.call("remove --yes"), 0);
    assert_eq!(tree.text(EXTLINUX.0), EXTLINUX.1.replace("quiet", "quiet splash"));
    assert!(!tree.all().keys().any(|p| p.ends_with("rocket-npu.dtbo")));
    let bare = Tree::new(&[EXTLINUX]);
    assert_eq!(bare.call("install --yes"), 0);
    fs::remove_dir_all(bare.0.path().join("var")).unwrap();
    assert_eq!(bare.call("remove --yes"), 0);
    assert_eq!(bare.text(EXTLINUX.0), EXTLINUX.1);
}

/// No boot loader that is known, one that is shut, one whose list is a program.
#[test]
fn by_hand() {
    let read_only = ("proc/self/mounts", "/dev/a / ext4 rw 0 0\n/dev/b /boot vfat ro 0 0\n");
    let odd = ("etc/default/u-boot", "U_BOOT_FDT_OVERLAYS=\"$(ls /x)\"\n");
    for files in
        [&[][..], &[("sys/firmware/efi/runtime", "1")], &[EXTLINUX, read_only], &[MENU, odd]]
    {
        let tree = Tree::new(files);
        let before = tree.all();
        assert_eq!((tree.call("install --yes"), tree.all()), (1, before), "{files:?}");
    }
}
