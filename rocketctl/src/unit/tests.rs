use super::*;
use crate::ui::Color;
use clap::FromArgMatches as _;
use std::fs;
use std::path::Path;
use std::process::Command;

const SERVER: &str = "\
[Unit]
Description=A server
[Service]
ExecStart=/bin/true --port 8080
DynamicUser=yes
PrivateDevices=yes
[Install]
WantedBy=multi-user.target
";

struct Tree(tempfile::TempDir);

impl Tree {
    fn new() -> Tree {
        let tree = Tree(tempfile::tempdir().unwrap());
        tree.put("etc/group", "root:x:0:\nrender:x:105:\n");
        tree.put("usr/lib/systemd/system/llama-server.service", SERVER);
        tree
    }

    fn put(&self, path: &str, text: &str) {
        let path = self.0.path().join(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    fn arguments(words: &[&str]) -> Result<Arguments, clap::Error> {
        let command = Arguments::augment_args(clap::Command::new("unit"));
        let matches = command.try_get_matches_from(["unit"].iter().chain(words))?;
        Arguments::from_arg_matches(&matches)
    }

    fn call(&self, words: &[&str]) -> Result<u8> {
        let root = self.0.path().to_path_buf();
        let globals = Globals { root, json: false, quiet: false, color: Color::Never };
        let code = run(&Tree::arguments(words).unwrap(), &globals)?;
        Ok((0..=3).find(|n| ExitCode::from(*n) == code).unwrap())
    }

    fn case(&self, words: &[&str]) -> Case {
        Case::new(&Root::open(self.0.path()).unwrap(), &Tree::arguments(words).unwrap()).unwrap()
    }

    /// Paths and bytes of everything there is.
    fn files(&self) -> Vec<(String, String)> {
        let (mut all, mut open) = (Vec::new(), vec![self.0.path().to_path_buf()]);
        while let Some(dir) = open.pop() {
            for entry in fs::read_dir(&dir).unwrap().flatten() {
                let text = fs::read_to_string(entry.path()).unwrap_or_default();
                all.push((entry.path().display().to_string(), text));
                open.extend(entry.file_type().unwrap().is_dir().then(|| entry.path()));
            }
        }
        all.sort();
        all
    }
}

#[test]
fn in_and_out_again() {
    let tree = Tree::new();
    let before = tree.files();
    assert_eq!(tree.call(&["install", "--dry-run"]).unwrap(), 0);
    assert_eq!(tree.files(), before);
    assert_eq!(tree.call(&["install", "--yes"]).unwrap(), 0);
    let root = Root::open(tree.0.path()).unwrap();
    let loaded = files::load(&root, "llama-server.service").unwrap();
    assert_eq!(loaded.unit.environment()["GGML_BACKEND_PATH"], PLUGINS[0]);
    assert_eq!(loaded.unit.flag("Service", "PrivateDevices"), Some(false));
    let after = tree.files();
    assert_eq!((tree.call(&["install", "--yes"]).unwrap(), tree.files()), (0, after.clone()));
    tree.put("usr/lib/systemd/system/whisper-server.service", SERVER);
    let two = tree.files();
    assert_eq!(tree.call(&["install", "--yes", "--for", "whisper-server"]).unwrap(), 0);
    assert_eq!(tree.call(&["--for", "whisper-server.service", "remove", "--yes"]).unwrap(), 0);
    assert_eq!(tree.files(), two, "the other unit keeps its own");
    fs::remove_file(tree.0.path().join("usr/lib/systemd/system/whisper-server.service")).unwrap();
    assert_eq!(tree.call(&["remove", "--yes"]).unwrap(), 0);
    assert_eq!(tree.files(), before);
    assert_eq!((tree.call(&["remove", "--yes"]).unwrap(), tree.files()), (0, before));
}

#[test]
fn what_cannot_be() {
    let tree = Tree::new();
    let before = tree.files();
    assert_eq!(tree.call(&["install", "--yes", "--for", "none"]).unwrap(), 1, "no such unit");
    for words in [
        ["--plugin", "lib.so"],
        ["--for", "a/b"],
        ["--device", "accel0"],
        ["--plugin", "/a\nExecStart=/b"],
    ] {
        assert!(tree.call(&words).is_err(), "{words:?}");
    }
    assert_eq!(tree.files(), before);
    assert!(Tree::arguments(&["compost"]).is_err());
}

/// Of the two places the one where it is; said where it is in none.
#[test]
fn the_plugin_that_is_installed() {
    let tree = Tree::new();
    let case = tree.case(&[]);
    assert_eq!(case.container.wish.plugin, PLUGINS[0]);
    assert!(case.dropin.notes.iter().any(|n| n.contains("there is no /usr/lib/ggml-rocket/")));
    tree.put(PLUGINS[1].trim_start_matches('/'), "");
    let case = tree.case(&[]);
    assert_eq!((&*case.container.wish.plugin, case.dropin.notes.len()), (PLUGINS[1], 0));
    assert_eq!(tree.case(&["--plugin", "/x.so"]).container.wish.plugin, "/x.so");
}

/// A group that is not there would keep the unit from starting; a node of another group is that one's.
#[test]
fn groups() {
    let tree = Tree::new();
    let has = |tree: &Tree, line: &str| tree.case(&[]).dropin.lines.iter().any(|(l, _)| l == line);
    assert!(has(&tree, "SupplementaryGroups=render"));
    assert_eq!(tree.case(&[]).container.gid, Some(105));
    tree.put("etc/group", "root:x:0:\nnpu:x:7:\n");
    assert!(!has(&tree, "SupplementaryGroups=render"));
    assert!(tree.case(&[]).dropin.notes.iter().any(|n| n.contains("groupadd")));
    tree.put("dev/accel/accel0.stat", "261 0 660 root npu");
    assert!(has(&tree, "SupplementaryGroups=npu"));
    assert_eq!(tree.case(&[]).container.gid, Some(7));
}

#[test]
fn nodes_are_found_by_their_driver() {
    let tree = Tree::new();
    assert_eq!(tree.case(&[]).container.nodes, ["/dev/accel/accel0"]);
    for (name, driver) in [("accel0", "intel_vpu"), ("accel1", "rocket")] {
        let device = tree.0.path().join("sys/class/accel").join(name).join("device");
        fs::create_dir_all(&device).unwrap();
        std::os::unix::fs::symlink(format!("../../../{driver}"), device.join("driver")).unwrap();
    }
    assert_eq!(tree.case(&[]).container.nodes, ["/dev/accel/accel1"]);
    assert_eq!(tree.case(&["--device", "/dev/x"]).container.nodes, ["/dev/x"]);
}

/// What systemd's own checker says of a unit with the drop-in: nothing. It returns 0 on a key that it does not know, so
/// a planted one shows that its words are looked at.
#[test]
fn systemd_has_nothing_to_say() {
    if Command::new("systemd-analyze").arg("--version").output().is_err() {
        eprintln!(
            "skipped: no systemd-analyze (Debian's systemd); scripts/check-units installs it"
        );
        return;
    }
    let tree = Tree::new();
    let odd = ["--plugin", "/opt/a b/100%/p\"q\".so", "--device", "/dev/accel/accel0"];
    let sandbox =
        "PrivateUsers=yes\nProcSubset=pid\nProtectSystem=strict\nDeviceAllow=/dev/null rw\n";
    let sandbox = SERVER.replace("[Install]", &format!("{sandbox}[Install]"));
    tree.put("usr/lib/systemd/system/whisper-server.service", &sandbox);
    for words in [&[][..], &["--for", "whisper-server"], &odd] {
        let case = tree.case(words);
        let text = case.dropin.text(&case.unit);
        assert_eq!(verified(tree.0.path(), &text), "", "{text}");
        let planted = format!("{text}DevicesAllow=char-accel rw\n");
        assert!(verified(tree.0.path(), &planted).contains("DevicesAllow"), "the negative control");
    }
}

fn verified(dir: &Path, dropin: &str) -> String {
    let unit = dir.join("checked.service");
    fs::write(&unit, format!("{SERVER}{dropin}")).unwrap();
    let mut analyze = Command::new("systemd-analyze");
    let said = analyze.args(["verify", "--man=no"]).arg(&unit).output().unwrap();
    String::from_utf8_lossy(&[said.stdout, said.stderr].concat()).into_owned()
}
