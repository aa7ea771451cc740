use super::*;
use crate::doctor::finding::Status;

/// The head of an ELF file of 64 bits.
fn elf(machine: u16) -> Vec<u8> {
    let mut head = vec![0u8; 64];
    head[..7].copy_from_slice(b"\x7fELF\x02\x01\x01");
    head[16] = 2;
    head[18..20].copy_from_slice(&machine.to_le_bytes());
    head[20] = 1;
    head[52] = 64;
    head[54] = 56;
    head[58] = 64;
    head
}

const R: &str = "7.3.4-arm64";

fn good() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let put = |path: &str, bytes: &[u8]| {
        let path = dir.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, bytes).unwrap();
    };
    let build = "usr/src/headers";
    put(&format!("{build}/scripts/mod/modpost"), &elf(EM_AARCH64));
    put(&format!("{build}/Module.symvers"), b"0x1\tx\tvmlinux\tEXPORT_SYMBOL\t\n");
    put(&format!("{build}/.config"), b"CONFIG_DRM_ACCEL=y\nCONFIG_ROCKCHIP_IOMMU=y\n");
    put("usr/bin/gcc", b"");
    put("usr/bin/make", b"");
    std::fs::create_dir_all(dir.path().join(format!("lib/modules/{R}"))).unwrap();
    let link = dir.path().join(format!("lib/modules/{R}/build"));
    std::os::unix::fs::symlink("../../../usr/src/headers", link).unwrap();
    dir
}

fn bad(dir: &tempfile::TempDir, release: &str, free: Option<u64>) -> Vec<(&'static str, Status)> {
    let root = Root::open(dir.path()).unwrap();
    let findings = check(&root, release, "aarch64", free);
    let ids: Vec<&str> = findings.iter().map(|f| f.id).collect();
    assert_eq!(ids, CHECKS.iter().map(|c| c.0).collect::<Vec<_>>());
    findings.iter().filter(|f| f.status != Status::Ok).map(|f| (f.id, f.status)).collect()
}

#[test]
fn each_thing_that_is_amiss_is_one_finding() {
    let dir = good();
    let at = |path: &str| dir.path().join("usr/src/headers").join(path);
    let plenty = Some(1 << 30);
    assert_eq!(bad(&dir, R, plenty), []);
    assert_eq!(bad(&dir, R, Some(1 << 20)), [(SPACE, Status::Fail)]);
    assert_eq!(bad(&dir, R, None), [(SPACE, Status::Unknown)]);
    std::fs::write(at("scripts/mod/modpost"), elf(EM_X86_64)).unwrap();
    assert_eq!(bad(&dir, R, plenty), [(MODPOST, Status::Fail)]);
    std::fs::write(at("scripts/mod/modpost"), b"#!/bin/sh").unwrap();
    assert_eq!(bad(&dir, R, plenty), [(MODPOST, Status::Fail)]);
    std::fs::write(at("scripts/mod/modpost"), elf(EM_AARCH64)).unwrap();
    for text in ["", "\n \n"] {
        std::fs::write(at("Module.symvers"), text).unwrap();
        assert_eq!(bad(&dir, R, plenty), [(SYMVERS, Status::Fail)]);
    }
    std::fs::write(at("Module.symvers"), "0x1 x").unwrap();
    std::fs::write(at(".config"), "# CONFIG_DRM_ACCEL is not set\nCONFIG_ROCKCHIP_IOMMU=y\n")
        .unwrap();
    assert_eq!(bad(&dir, R, plenty), [(CONFIG, Status::Fail)]);
    std::fs::remove_file(at(".config")).unwrap();
    assert_eq!(bad(&dir, R, plenty), [(CONFIG, Status::Unknown)]);
    std::fs::remove_file(dir.path().join("usr/bin/make")).unwrap();
    let compiler = |status| [(CONFIG, Status::Unknown), (COMPILER, status)];
    assert_eq!(bad(&dir, R, plenty), compiler(Status::Fail));
    std::fs::remove_dir_all(dir.path().join("usr/bin")).unwrap();
    assert_eq!(bad(&dir, R, plenty), compiler(Status::Unknown));
}

/// One root, one finding: what lies in the headers is not looked at where there are none.
#[test]
fn a_link_that_leads_nowhere() {
    let dir = good();
    std::fs::rename(dir.path().join("usr/src/headers"), dir.path().join("usr/src/away")).unwrap();
    let skipped = Status::Skipped;
    let wanted =
        [(HEADERS, Status::Fail), (CONFIG, skipped), (MODPOST, skipped), (SYMVERS, skipped)];
    assert_eq!(bad(&dir, R, Some(1 << 30)), wanted);
}

#[test]
fn kernels_of_the_series() {
    for (release, known) in [
        ("6.18.15", true),
        ("7.3+deb13", true),
        ("7.10.1", false),
        ("6.1.0", false),
        ("7.2-rc1", true),
    ] {
        assert_eq!(of_release(release).status == Status::Ok, known, "{release}");
    }
}
