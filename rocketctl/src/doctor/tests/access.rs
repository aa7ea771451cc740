//! Who may use the node: programs under sudo, and services.

use super::super::finding::{Finding, Status};
use super::Board;

#[test]
fn under_sudo() {
    let with =
        |env: &str| Board::of("rk3588-series").set("cmd/env.txt", env).finding("access.sudo-env");
    let bare = with("SUDO_USER=tom\nPATH=/usr/bin\n");
    assert_eq!(bare.status, Status::Note, "it is harmless to ask so");
    assert!(bare.fix[0].run.contains("--preserve-env=GGML_BACKEND_PATH"), "{bare:?}");
    let kept = with("SUDO_USER=tom\nGGML_BACKEND_PATH=/usr/lib/x.so\n");
    assert_eq!((kept.status, with("PATH=/usr/bin\n").status), (Status::Ok, Status::Ok));
    let unknown = Board::of("rk3588-series").without("cmd/env.txt");
    assert_eq!(unknown.finding("access.sudo-env").status, Status::Unknown);
}

const PLUGIN: &str = "Environment=GGML_BACKEND_PATH=/usr/lib/ggml-rocket/libggml-rocket.so\n";

/// A service on a board whose node is for the group render, which tom is in.
fn service(unit: &str) -> Board {
    Board::of("rk3588-series").set("dev/accel/accel0.stat", "261 0 660 root render").set(
        "usr/lib/systemd/system/llama.service",
        format!("[Service]\nExecStart=/usr/bin/x\n{unit}"),
    )
}

fn finding(board: &Board) -> Finding {
    board.ask_for("llama").findings.into_iter().find(|f| f.id == "access.service").unwrap()
}

#[test]
fn services_that_may() {
    for unit in [
        String::from(PLUGIN),
        format!("User=tom\n{PLUGIN}"),
        format!("User=llama\nSupplementaryGroups=video render\n{PLUGIN}"),
        format!("User=llama\nGroup=render\n{PLUGIN}"),
        format!("DynamicUser=yes\nSupplementaryGroups=render\n{PLUGIN}"),
        format!("DevicePolicy=closed\nDeviceAllow=char-accel rw\n{PLUGIN}"),
        format!("DeviceAllow=/dev/null rw\nDeviceAllow=/dev/accel/accel0\n{PLUGIN}"),
        format!("PrivateTmp=yes\nProtectHome=yes\n{PLUGIN}"),
        "Environment=GGML_BACKEND_PATH=/home/tom/x.so\n".into(),
        "EnvironmentFile=/etc/default/llama\n".into(),
    ] {
        let f = finding(&service(&unit));
        assert_eq!(f.status, Status::Ok, "{unit}: {f:?}");
    }
    let open = service(&format!("User=nobody\n{PLUGIN}"));
    assert_eq!(finding(&open).status, Status::Fail);
    let open = open.set("dev/accel/accel0.stat", "261 0 666 root render");
    assert_eq!(finding(&open).status, Status::Ok, "the node is for everybody");
}

#[test]
fn services_that_may_not() {
    for (unit, what, mends) in [
        (format!("PrivateDevices=true\n{PLUGIN}"), "sees no device", "'PrivateDevices=no'"),
        (format!("DevicePolicy=strict\n{PLUGIN}"), "may open", "'DeviceAllow=char-accel rw'"),
        (
            format!("DeviceAllow=/dev/accel/accel0 r\n{PLUGIN}"),
            "may open",
            "'DeviceAllow=char-accel rw'",
        ),
        (format!("User=llama\n{PLUGIN}"), "group render", "'SupplementaryGroups=render'"),
        (
            format!("DynamicUser=yes\nUser=tom\n{PLUGIN}"),
            "group render",
            "'SupplementaryGroups=render'",
        ),
        (String::new(), "not told of the plugin", "'Environment=GGML_BACKEND_PATH=/usr/lib/"),
        (
            "PrivateTmp=yes\nEnvironment=GGML_BACKEND_PATH=/tmp/x.so\n".into(),
            "does not see",
            "'Environment=",
        ),
        (
            "ProtectHome=tmpfs\nEnvironment=GGML_BACKEND_PATH=/home/tom/x.so\n".into(),
            "does not see",
            "'Env",
        ),
    ] {
        let f = finding(&service(&unit));
        assert_eq!(f.status, Status::Fail, "{unit}: {f:?}");
        assert!(f.title.contains(what) && f.fix[0].run.contains(mends), "{unit}: {f:?}");
        assert!(f.fix[0].run.contains("/etc/systemd/system/llama.service.d/90-rocket.conf"));
        assert!(f.fix[0].verify.contains("--as-service llama.service"));
    }
}

/// The drop-in that is the fix mends it, and one that is there already counts.
#[test]
fn drop_ins_of_services() {
    let closed = format!("User=llama\nPrivateDevices=yes\nDeviceAllow=/dev/null rw\n{PLUGIN}");
    let f = finding(&service(&closed));
    let lines: Vec<&str> = f.fix[0].run.split('\'').filter(|l| l.contains('=')).collect();
    assert_eq!(lines, ["PrivateDevices=no", "SupplementaryGroups=render"]);
    let mended = service(&closed).set(
        "etc/systemd/system/llama.service.d/90-rocket.conf",
        format!("[Service]\n{}\nDeviceAllow=char-accel rw\n", lines.join("\n")),
    );
    assert_eq!(finding(&mended).status, Status::Ok);
    let named = Board::of("rk3588-series").ask_for("none-such");
    let f = named.findings.iter().find(|f| f.id == "access.service").unwrap();
    assert_eq!(f.status, Status::Unknown, "{f:?}");
    assert!(Board::of("rk3588-series").ask().findings.iter().all(|f| f.id != "access.service"));
}

/// A node that is root's alone: nobody is to join root's group.
#[test]
fn a_node_that_is_for_root_alone() {
    let closed = Board::of("rk3588-stock").set("dev/accel/accel0.stat", "261 0 600 root root");
    let f = closed.finding("access.node");
    assert_eq!((f.status, &*f.fix[0].run), (Status::Fail, "sudo rocketctl udev install"));
}
