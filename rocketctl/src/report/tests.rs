//! Reports of boards with secrets in them: nothing of them gets out, and the doctor says the same of what does.

use super::redact::Redactor;
use super::{contents, unpacked, write};
use crate::doctor::{self, Options};
use rocket_runtime::board::Root;
use std::fs;
use std::path::{Path, PathBuf};
use tempfile::TempDir;

fn boards() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/boards")
}

/// A service that some of the boards have.
fn named() -> Options {
    Options { as_service: Some("llama".into()), ..Options::default() }
}

/// A copy of a board with more files.
fn board(name: &str, files: &[(&str, &str)]) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    let status = std::process::Command::new("cp")
        .arg("-a")
        .arg(format!("{}/.", boards().join(name).display()))
        .arg(dir.path())
        .status();
    assert!(status.unwrap().success());
    for (path, text) in files {
        let path = dir.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }
    dir
}

/// The report of a tree, unpacked.
fn reported(tree: &Path) -> (TempDir, super::Unpacked) {
    let root = Root::open(tree).unwrap().keeping();
    doctor::look(&root, &named()).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.tar.gz");
    let written = write(&root, &file).unwrap();
    assert!(written.text().lines().all(|l| l.len() <= 80 || l.contains("r.tar.gz")));
    let unpacked = unpacked(&file).unwrap().unwrap();
    (dir, unpacked)
}

fn said(tree: &Path) -> String {
    let report = doctor::look(&Root::open(tree).unwrap(), &named()).unwrap();
    serde_json::to_string_pretty(&report).unwrap()
}

/// Of every board, and of one where much is refused or does not answer.
#[test]
fn a_report_says_what_the_board_says() {
    let names = fs::read_dir(boards()).unwrap().flatten().filter(|e| e.path().is_dir());
    let mut trees: Vec<TempDir> =
        names.map(|e| board(&e.file_name().to_string_lossy(), &[])).collect();
    assert!(trees.len() >= 13);
    let absent = "denied /sys/kernel/debug/clk/scmi_clk_npu/clk_rate\nlate /proc/interrupts\n\
                  malformed /proc/cpuinfo: is no file\ndenied /sys/class/devfreq\n";
    trees.push(board("rk3588-stock", &[("cmd/absent.txt", absent)]));
    trees.push(board(
        "rk3588-series",
        &[("etc/systemd/system/llama.service", "[Service]\nPrivateDevices=1\n")],
    ));
    for tree in trees {
        let before = said(tree.path());
        // Who asks is called tom on all of them.
        let hidden = Redactor::of(&Root::open(tree.path()).unwrap()).unwrap().text(&before, true);
        let (_dir, report) = reported(tree.path());
        assert_eq!(said(&report.tree), hidden);
    }
    let late = board("rk3588-stock", &[("cmd/absent.txt", absent)]);
    assert!(said(late.path()).contains("/proc/interrupts did not answer within 3 s"));
}

/// Everything that must not get out, in the spellings in which it occurs.
#[test]
fn secrets_stay() {
    let log = "\
[    1.000000] rocket fdab0000.npu: on Kestrel-7 for margarethe\n\
[    1.100000] systemd[1]: Hostname set to <kestrel-7>. npu\n\
[    1.200000] rk_gmac-dwmac fe1b0000.ethernet eth0: iommu C6:FF:EE:12:34:5A c6-ff-ee-12-34-5a c6ffee12345a\n\
[    1.300000] drm: other machine 0a:1b:2c:3d:4e:5f SerialNumber: QX77Z33\n\
[    1.400000] Kernel command line: rocket.x=1 pass=opensesame\n\
[    1.410000] Linux version 7.3.4 (jo.k@build-77) on root=UUID=1b4e28ba-2fa1-11d2-883f-0016d3cca427\n\
[    1.500000] usb 1-1: SerialNumber: USBSECRET99\n\
[    1.600000] rocket: kestrel-77 and subkestrel-7 and margarethes are others'\n";
    let files = [
        ("proc/sys/kernel/hostname", "kestrel-7\n"),
        ("etc/hostname", "kestrel-7.example.org\n"),
        (
            "etc/passwd",
            "root:x:0:0::/root:/bin/sh\nmargarethe:x:1000:1000:Margarethe K:/srv/people/mk:/bin/sh\n\
                        jo:x:1001:1001::/home/jo:/bin/sh\n",
        ),
        ("etc/group", "root:x:0:\nrender:x:105:margarethe,jo\nmargarethe:x:1000:\n"),
        (
            "cmd/id.txt",
            "uid=1000(margarethe) gid=1000(margarethe) groups=1000(margarethe),105(render)\n",
        ),
        (
            "cmd/env.txt",
            "GGML_BACKEND_PATH=/home/margarethe/x.so\nLLAMA_API_KEY=hunter2\nHF_TOKEN=hf_abc\n\
                         ROCKET_STORE=/srv/people/mk/store\nPATH=/usr/bin:/home/jo/bin\nSUDO_USER=jo\nMAIL=m@x\n",
        ),
        ("proc/device-tree/serial-number", "00A1B2C3D4E5F6\0"),
        ("proc/cpuinfo", "processor : 0\nFeatures : fp\nSerial : a1b2c3d4e5f6\n"),
        ("sys/class/net/eth0/address", "c6:ff:ee:12:34:5a\n"),
        ("cmd/dmesg.txt", log),
        (
            "etc/systemd/system/llama.service",
            "[Service]\nUser=margarethe\nEnvironment=A=/srv/people/mk/a B=A1B2C3D4E5F6\n",
        ),
    ];
    let tree = board("rk3588-stock", &files);
    let (_dir, report) = reported(tree.path());
    let mut all = String::new();
    let mut open = vec![report.tree.clone()];
    while let Some(dir) = open.pop() {
        for entry in fs::read_dir(dir).unwrap().flatten() {
            all += &entry.path().to_string_lossy();
            match entry.file_type().unwrap().is_dir() {
                true => open.push(entry.path()),
                false => {
                    all += &String::from_utf8_lossy(&fs::read(entry.path()).unwrap_or_default())
                }
            }
        }
    }
    let lower = all.to_lowercase();
    let others = ["kestrel-77 and subkestrel-7 and margarethes"];
    let without = others.iter().fold(lower.clone(), |text, o| text.replace(o, ""));
    for secret in [
        "kestrel",
        "example.org",
        "margarethe",
        "/srv/people",
        "a1b2c3d4e5f6",
        "c6:ff:ee",
        "c6-ff-ee",
        "c6ffee",
        "0a:1b:2c",
        "qx77z33",
        "1b4e28ba",
        "usbsecret99",
        "opensesame",
        "build-77",
        "hunter2",
        "hf_abc",
        "m@x",
        "/home/jo",
        "user=jo",
        ",jo",
    ] {
        assert!(!without.contains(secret), "{secret} got out");
    }
    // And what merely looks like one stays, as does what the tools go by.
    for kept in [
        others[0],
        "render:x:105:user,user2",
        "uid=1000(user)",
        "radxa,rock-5b",
        "llama_api_key=(removed)",
    ] {
        assert!(lower.contains(kept), "{kept} is lost");
    }
    let who = Root::open(&report.tree).unwrap().identity().unwrap();
    assert_eq!((who.uid, who.name.as_deref()), (1000, Some("user")));
}

/// Machines and people may be called as the kernel calls things.
#[test]
fn names_that_are_words() {
    for name in ["rocket", "npu", "render", "rock-5b", "radxa", "drm"] {
        let tree = board(
            "rk3588-stock",
            &[
                ("proc/sys/kernel/hostname", name),
                ("etc/passwd", &format!("{name}:x:1000:1000::/home/{name}:/bin/sh\n")),
                ("cmd/env.txt", &format!("GGML_BACKEND_PATH=/home/{name}/x.so\n")),
            ],
        );
        let (_dir, report) = reported(tree.path());
        let ids = |tree: &Path| {
            let report = doctor::look(&Root::open(tree).unwrap(), &Options::default()).unwrap();
            report.findings.iter().map(|f| (f.id, f.status)).collect::<Vec<_>>()
        };
        assert_eq!(ids(&report.tree), ids(tree.path()), "{name}");
        let environment = fs::read_to_string(report.tree.join("cmd/env.txt")).unwrap();
        assert!(environment.contains("=/home/user/x.so"), "{environment}");
    }
}

/// A file that is no text keeps its length, whatever is hidden in it.
#[test]
fn binary_files_keep_their_length() {
    let tree = board(
        "rk3588-stock",
        &[
            ("proc/device-tree/serial-number", "SN12345678\0"),
            ("sys/class/net/eth0/address", "c6:ff:ee:12:34:5a\n"),
        ],
    );
    let redactor = Redactor::of(&Root::open(tree.path()).unwrap()).unwrap();
    let secret = b"\xd0\x0d\xfe\xed\0sn12345678\0\xc6\xff\xee\x12\x34\x5a\0rock-5b\0";
    let hidden = redactor.bytes(secret, false);
    assert_eq!(hidden, b"\xd0\x0d\xfe\xed\0xxxxxxxxxx\0\0\0\0\0\0\0\0rock-5b\0");
}

/// A file that is there is left alone, and one that cannot be made says so.
#[test]
fn where_it_goes() {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("r.tar.gz");
    fs::write(&file, "mine").unwrap();
    let root = Root::open(&boards().join("laptop")).unwrap().keeping();
    let refused = write(&root, &file).unwrap_err().to_string();
    assert!(refused.contains("is there already"), "{refused}");
    assert_eq!(fs::read(&file).unwrap(), b"mine");
    assert!(write(&root, &dir.path().join("no/r.tar.gz")).is_err());
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1, "nothing is left behind");
    assert!(unpacked(&file).unwrap_err().to_string().contains("is no report of rocketctl"));
    assert!(unpacked(dir.path()).unwrap().is_none());
    doctor::look(&root, &Options::default()).unwrap();
    assert!(contents(&root).unwrap().contains_key("cmd/id.txt"));
}
