use super::*;
use proptest::prelude::*;
use std::fs;

const PATH: &str = "/boot/overlays/rocket-npu.dtbo";

const TWO_LABELS: &str = "\
# menu
timeout 30
DEFAULT new
menu title Boot

label old
    kernel /boot/vmlinuz-6.1
    fdtdir /boot/dtbs/6.1
    append root=/dev/mmcblk0p1 quiet

Label new
\tlinux /boot/vmlinuz-7.3
\tinitrd /boot/initrd.img-7.3
\tfdtdir /boot/dtbs/7.3
\tappend root=/dev/mmcblk0p1
\tappend quiet
";

/// The lines that are new, and that no other has changed.
fn added(old: &str, new: &str) -> Vec<String> {
    let mut left: Vec<&str> = old.split_inclusive('\n').collect();
    let mut new_lines = Vec::new();
    for line in new.split_inclusive('\n') {
        match left.first() {
            Some(first) if *first == line => drop(left.remove(0)),
            _ => new_lines.push(line.to_owned()),
        }
    }
    assert!(left.is_empty(), "lost: {left:?}");
    new_lines
}

#[test]
fn extlinux_default_label_alone() {
    let new = extlinux::add(TWO_LABELS, PATH).unwrap();
    assert_eq!(added(TWO_LABELS, &new), [format!("\tfdtoverlays {PATH}\n")]);
    let place = new.find("fdtoverlays").unwrap();
    assert!(place > new.find("dtbs/7.3").unwrap() && place < new.find("append quiet").unwrap());
    assert!(extlinux::has(&new, PATH) && !extlinux::has(TWO_LABELS, PATH));
    assert_eq!(extlinux::add(&new, PATH).unwrap(), new, "once");
    assert_eq!(extlinux::remove(&new, PATH), TWO_LABELS);
}

/// What people's files look like.
#[test]
fn extlinux_variants() {
    let back = |text: &str| {
        let new = extlinux::add(text, PATH).unwrap();
        assert!(extlinux::has(&new, PATH), "{new}");
        assert_eq!(extlinux::add(&new, PATH).unwrap(), new);
        assert_eq!(extlinux::remove(&new, PATH), text);
        new
    };
    let first = back(&TWO_LABELS.replace("DEFAULT new\n", ""));
    assert!(
        first.find("fdtoverlays").unwrap() < first.find("Label new").unwrap(),
        "the first label"
    );
    let menu = TWO_LABELS.replace("DEFAULT new\n", "").replace("\tappend quiet", "\tmenu default");
    let menu = back(&menu);
    assert!(menu.find("fdtoverlays").unwrap() > menu.find("Label new").unwrap(), "menu default");
    let old = back(&TWO_LABELS.replace("DEFAULT new", "default old"));
    assert!(
        old.contains("    fdtdir /boot/dtbs/6.1\n    fdtoverlays "),
        "indented as its neighbours"
    );
    let crlf = back(&TWO_LABELS.replace('\n', "\r\n"));
    assert_eq!(crlf.matches("\r\n").count(), crlf.matches('\n').count());
    let open = back("label a\n  linux /boot/k\n  fdt /boot/b.dtb");
    assert!(open.ends_with(&format!("  fdt /boot/b.dtb\n  fdtoverlays {PATH}")), "{open:?}");
    let others = TWO_LABELS.replace("\tappend quiet", "\tFDTOVERLAYS /boot/a.dtbo /boot/b.dtbo ");
    let others = back(&others);
    assert!(
        others.contains(&format!("FDTOVERLAYS /boot/a.dtbo /boot/b.dtbo {PATH} \n")),
        "{others}"
    );
    let near = TWO_LABELS.replace("\tappend quiet", &format!("\tfdtoverlays {PATH}.old"));
    assert!(!extlinux::has(&near, PATH) && back(&near).contains(&format!("{PATH}.old {PATH}\n")));
    let comment = TWO_LABELS.replace("\tappend quiet", &format!("\t# fdtoverlays {PATH}"));
    assert!(!extlinux::has(&comment, PATH));
    back(&comment);
}

#[test]
fn extlinux_that_would_not_apply_it() {
    let refused = |text: &str| extlinux::add(text, PATH).unwrap_err().to_string();
    let none = refused(&TWO_LABELS.replace("fdtdir", "# fdtdir"));
    assert!(none.contains("no fdt or fdtdir line"), "{none}");
    let other = refused(&TWO_LABELS.replace("DEFAULT new", "default newer"));
    assert!(other.contains("'newer'") && other.contains("old, new"), "{other}");
    assert!(refused("").contains("no label"));
    let both = extlinux::add(&TWO_LABELS.replace("DEFAULT new", "default old"), PATH).unwrap();
    let both = extlinux::add(&both.replace("default old", "default new"), PATH).unwrap();
    let plain = TWO_LABELS.replace("DEFAULT", "default");
    assert_eq!(extlinux::remove(&both, PATH), plain, "from every label");
}

#[test]
fn armbian_lists() {
    let add = |text: &str| armbian::add(text, NAME).unwrap();
    let plain =
        "verbosity=1\noverlays=rk3588-x\nuser_overlays=fan leds\n# user_overlays=old\nextra=a=b\n";
    let new = add(plain);
    assert_eq!(new, plain.replace("fan leds", "fan leds rocket-npu"));
    for text in [
        plain,
        "verbosity=1\n",
        "verbosity=1",
        "",
        "user_overlays=a\r",
        "a=b\r\nuser_overlays=fan\r\n",
        "a=b\r\n",
        "user_overlays=rocket-npu-old \n",
        "user_overlays=a\nuser_overlays=b\n",
    ] {
        let new = add(text);
        assert!(armbian::has(&new, NAME) && !armbian::has(text, NAME), "{text:?}");
        assert_eq!((add(&new), armbian::remove(&new, NAME)), (new.clone(), text.to_owned()));
    }
    assert_eq!(
        add("user_overlays=a\nuser_overlays=b\n"),
        "user_overlays=a\nuser_overlays=b rocket-npu\n"
    );
    assert_eq!(armbian::remove("user_overlays=rocket-npu a\n", NAME), "user_overlays=a\n");
    assert_eq!(add("a=b\r\n"), "a=b\r\nuser_overlays=rocket-npu\r\n");
}

#[test]
fn menu_lists() {
    let name = "rocket-npu.dtbo";
    let add = |text: &str| menu::add(text, name).unwrap();
    for (text, new) in [
        ("U_BOOT_FDT_OVERLAYS=\"a.dtbo\"\n", "U_BOOT_FDT_OVERLAYS=\"a.dtbo rocket-npu.dtbo\"\n"),
        (
            "export U_BOOT_FDT_OVERLAYS='a b' # c",
            "export U_BOOT_FDT_OVERLAYS='a b rocket-npu.dtbo' # c",
        ),
        ("U_BOOT_FDT_OVERLAYS=\"\"\n", "U_BOOT_FDT_OVERLAYS=\"\"\n"),
        ("#U_BOOT_FDT_OVERLAYS=\"a\"\n", "#U_BOOT_FDT_OVERLAYS=\"a\"\n"),
        ("U_BOOT_FDT_OVERLAYS_DIR=\"/x\"\n", "U_BOOT_FDT_OVERLAYS_DIR=\"/x\"\n"),
    ] {
        assert_eq!((add(text), add(new)), (new.to_owned(), new.to_owned()));
        assert_eq!(menu::remove(new, name), text);
    }
    assert_eq!(add("U_BOOT_FDT_OVERLAYS=a\n"), "U_BOOT_FDT_OVERLAYS=\"a rocket-npu.dtbo\"\n");
    for odd in ["=\"$X a\"\n", "=\"a\"b\n", "=\"a\n", "=$(ls)\n", "=a b\n", "=a;reboot\n"] {
        let e = menu::add(&format!("{}{odd}", menu::OVERLAYS), name).unwrap_err().to_string();
        assert!(e.contains("line 1 "), "{odd}: {e}");
    }
    let twice = "U_BOOT_FDT_OVERLAYS=\"a\"\nU_BOOT_FDT_OVERLAYS=\"b\"\n";
    assert_eq!(menu::value(twice, menu::OVERLAYS).unwrap(), Some("b".into()));
}

fn tree(files: &[(&str, &str)]) -> (tempfile::TempDir, Root) {
    let dir = tempfile::tempdir().unwrap();
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    let root = Root::open(dir.path()).unwrap();
    (dir, root)
}

#[test]
fn which_one_boots_here() {
    let found = |files: &[(&str, &str)]| {
        let (_dir, root) = tree(files);
        find(&root).unwrap().unwrap()
    };
    let conf = ("boot/extlinux/extlinux.conf", TWO_LABELS);
    let plain = found(&[conf]);
    assert_eq!((plain.way.clone(), &*plain.file, &*plain.called), (Way::Extlinux, PATH, PATH));
    let own = TWO_LABELS.replace("/boot/", "/");
    let own = found(&[("boot/extlinux/extlinux.conf", &own)]);
    assert_eq!((&*own.file, &*own.called), (PATH, "/overlays/rocket-npu.dtbo"), "a boot partition");
    let armbian = found(&[conf, ("boot/armbianEnv.txt", "a=b\n")]);
    assert_eq!((armbian.way, &*armbian.file), (Way::Armbian, "/boot/overlay-user/rocket-npu.dtbo"));
    let update = ("usr/sbin/u-boot-update", "");
    let all = found(&[conf, update]);
    assert_eq!((all.way, all.config, &*all.file), (Way::Menu, None, "/boot/dtbo/rocket-npu.dtbo"));
    let list = ("etc/default/u-boot", "U_BOOT_FDT_OVERLAYS=\"a\"\nU_BOOT_FDT_OVERLAYS_DIR=/x/\n");
    let later = ("etc/u-boot-menu/conf.d/z.conf", "U_BOOT_FDT_OVERLAYS=b\n");
    let mounts = ("proc/self/mounts", "/dev/a / ext4 rw 0 0\n/dev/b /boot ext4 rw 0 0\n");
    let set = found(&[conf, update, list, mounts]);
    assert_eq!(
        (set.config.as_deref(), &*set.file),
        (Some("/etc/default/u-boot"), "/boot/x/rocket-npu.dtbo")
    );
    let overruled = found(&[conf, update, list, later]);
    assert_eq!(overruled.config.as_deref(), Some("/etc/u-boot-menu/conf.d/z.conf"));
    let (_dir, root) =
        tree(&[update, ("usr/share/u-boot-menu/conf.d/p.conf", "U_BOOT_FDT_OVERLAYS=b\n")]);
    assert!(find(&root).unwrap_err().to_string().contains("belongs to a package"));
    let (_dir, root) = tree(&[("boot/grub/grub.cfg", "")]);
    assert_eq!(find(&root).unwrap(), None);
}

#[test]
fn a_boot_partition_that_is_read_only() {
    let conf = ("boot/extlinux/extlinux.conf", TWO_LABELS);
    let shut = |mounts: &str| {
        let (_dir, root) = tree(&[conf, ("proc/self/mounts", mounts)]);
        find(&root).unwrap().unwrap().shut
    };
    let why = shut("/dev/a / ext4 rw 0 0\n/dev/b /boot ext4 ro,noatime 0 0\n").unwrap();
    assert!(why.contains("/boot is mounted read-only"), "{why}");
    assert!(shut("/dev/a / ext4 ro,relatime 0 0\n").is_some());
    assert_eq!(shut("/dev/a / ext4 ro 0 0\n/dev/b /boot ext4 rw,errors=remount-ro 0 0\n"), None);
    assert_eq!(shut("/dev/a / ext4 rw 0 0\n/dev/b /bo ext4 ro 0 0\n"), None);
    assert_eq!(shut("/dev/b /boot ext4 ro 0 0\n/dev/b /boot ext4 rw 0 0\n"), None, "mounted over");
}

fn words() -> impl Strategy<Value = String> {
    prop::collection::vec("[a-z/.-]{1,8}", 1..4).prop_map(|w| w.join(" "))
}

/// Lines that mean something, in any order.
fn config() -> impl Strategy<Value = String> {
    let line = prop_oneof![
        "(default|DEFAULT|ontimeout|label|menu default|menu) ?[ab]?",
        "[ \t]{0,2}(fdtdir|fdt|linux|append|#) ?[a-z/ ]{0,6}",
        "[ \t]?(fdtoverlays|devicetree-overlay)( [ab]| /boot/overlays/rocket-npu.dtbo){0,3} ?",
        "#?user_overlays=( ?(a|rocket-npu|rocket-npu.x)){0,3} ?",
        "(export )?U_BOOT_FDT_OVERLAYS=[\"']?( ?(a|rocket-npu)){0,3}[\"']?( #c)?",
    ];
    prop::collection::vec((line, "\r?\n|"), 0..8)
        .prop_map(|lines| lines.into_iter().map(|(l, e)| l + &e).collect())
}

proptest! {
    /// Whatever a file holds, what is added is there once, and goes again.
    #[test]
    fn any_configuration(text in config()) {
        crate::fuzz::boot_configuration(text.as_bytes());
    }

    /// What is added is there, once, and taking it away gives back what was before; nothing else ever changes.
    #[test]
    fn adding_is_undone(lists in prop::collection::vec(words(), 0..3), head in "[a-z =#\n]{0,20}", eol in "\r?\n", open: bool) {
        let config = |line: &dyn Fn(&String) -> String| {
            let mut text = head.clone();
            if !text.is_empty() && !text.ends_with('\n') { text.push('\n'); }
            text.extend(lists.iter().map(line));
            let text = text.replace('\n', &eol);
            if open { text.trim_end().to_owned() } else { text }
        };
        let text = config(&|l| format!("user_overlays={l}\n"));
        let new = armbian::add(&text, NAME).unwrap();
        prop_assert!(armbian::has(&new, NAME));
        prop_assert_eq!(armbian::add(&new, NAME).unwrap(), new.clone());
        prop_assert_eq!(armbian::remove(&new, NAME), text);

        let text = config(&|l| format!("label x\n linux /k\n fdtdir /d\n fdtoverlays {l}\n"));
        if let Ok(new) = extlinux::add(&text, PATH) {
            prop_assert!(extlinux::has(&new, PATH));
            prop_assert_eq!(extlinux::add(&new, PATH).unwrap(), new.clone());
            prop_assert_eq!(extlinux::remove(&new, PATH), text);
        }

        let text = config(&|l| format!("U_BOOT_FDT_OVERLAYS=\"{l}\"\n"));
        let new = menu::add(&text, "n.dtbo").unwrap();
        prop_assert_eq!(menu::add(&new, "n.dtbo").unwrap(), new.clone());
        prop_assert_eq!(menu::remove(&new, "n.dtbo"), text);
    }

    /// No text makes one of them panic, and a text that has no overlay of ours keeps every byte when it is removed.
    #[test]
    fn any_text(text in "(?s)[\\PC\n\r\t =\"'$]{0,120}") {
        crate::fuzz::boot_configuration(text.as_bytes());
        prop_assert_eq!(armbian::remove(&text, NAME), text.clone());
        prop_assert_eq!(extlinux::remove(&text, PATH), text.clone());
        prop_assert_eq!(menu::remove(&text, NAME), text);
    }
}
