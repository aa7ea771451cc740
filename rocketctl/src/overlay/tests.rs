use super::board::{Overlay, RAIL, Reference, Verdict, look};
use super::{dtbo, dts};
use rocket_runtime::board::fdt::{self, Node, Tree};
use std::fs;
use std::path::Path;
use std::process::Command;

/// A base tree: a board with the NPU off, compiled by dtc; `extra` goes to the rail's node.
pub fn source(cores: &str, rail: &str) -> String {
    let mut npus = String::new();
    for (n, core, iommu) in
        [(0, "fdab0000", "fdab9000"), (1, "fdac0000", "fdaca000"), (2, "fdad0000", "fdada000")]
    {
        npus += &format!(
            "npu@{core} {{ compatible = \"rockchip,rk3588-rknn-core\"; reg = <0x{core}>; iommus = <&mmu{n}>; \
             power-domains = <&power {domain}>; status = \"disabled\"; {cores} }};\n\
             mmu{n}: iommu@{iommu} {{ reg = <0x{iommu}>; status = \"disabled\"; }};\n",
            domain = 9 + n
        );
    }
    format!(
        "/dts-v1/;\n/ {{\n#address-cells = <1>; #size-cells = <0>;\n\
         compatible = \"radxa,rock-5a\", \"rockchip,rk3588s\";\n{npus}\
         power-management@fd8d8000 {{ reg = <0xfd8d8000>; power: power-controller {{\n\
         #power-domain-cells = <1>; #address-cells = <1>; #size-cells = <0>;\n\
         power-domain@8 {{ reg = <8>; #address-cells = <1>; #size-cells = <0>;\n\
         power-domain@9 {{ reg = <9>; #address-cells = <1>; #size-cells = <0>;\n\
         power-domain@a {{ reg = <10>; }}; power-domain@b {{ reg = <11>; }}; }}; }};\n\
         power-domain@c {{ reg = <12>; }}; }}; }};\n\
         regulators {{ vdd_npu_s0: dcdc-reg2 {{ regulator-name = \"vdd_npu_s0\"; {rail} }}; }};\n}};\n"
    )
}

fn dtc(text: &str, arguments: &[&str], out: &Path) {
    let source = out.with_extension("source");
    fs::write(&source, text).unwrap();
    let mut dtc = Command::new("dtc");
    let dtc = dtc.args(["-q", "-I", "dts", "-O", "dtb"]).args(arguments);
    assert!(dtc.arg("-o").arg(out).arg(source).status().unwrap().success(), "{text}");
}

/// Whether the compiler is here; said where it is not, so that nobody takes silence for a pass.
fn have_dtc() -> bool {
    let have = Command::new("dtc").arg("--version").output().is_ok();
    if !have {
        eprintln!("skipped: no dtc (Debian's device-tree-compiler)");
    }
    have
}

fn needs(tree: &Tree) -> Overlay {
    match look(tree, RAIL) {
        Verdict::Needs(overlay) => overlay,
        other => panic!("{other:?}"),
    }
}

/// The tree with an overlay applied by libfdt, which is the boot loader's own way.
fn applied(base: &Path, overlay: &Overlay) -> Tree {
    let (file, out) = (base.with_extension("dtbo"), base.with_extension("out"));
    fs::write(&file, dtbo::bytes(overlay)).unwrap();
    let done =
        Command::new("fdtoverlay").arg("-i").arg(base).arg("-o").arg(&out).arg(&file).output();
    let done = done.unwrap();
    assert!(done.status.success(), "{}", String::from_utf8_lossy(&done.stderr));
    fdt::parse(&fs::read(out).unwrap()).unwrap()
}

fn supply<'a>(tree: &'a Tree, path: &str, name: &str) -> Option<&'a Node> {
    let number = tree.node(path)?.cells(name)?[0];
    tree.by_phandle(number).map(|(_, node)| node)
}

/// For each way to name the rail: the file is dtc's of the text, and libfdt makes a tree of it that has all that
/// kernel-and-uapi D.1 asks for.
#[test]
fn what_dtc_and_libfdt_make_of_it() {
    if !have_dtc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base.dtb");
    let users = "other: user { x-supply = <&vdd_npu_s0>; };";
    let plain = source("", "");
    let used = plain.replace("regulators {", &format!("{users} regulators {{"));
    let ways: [(&str, &[&str], fn(&Reference) -> bool); 3] = [
        (&plain, &["-@"], |r| *r == Reference::Label("vdd_npu_s0".into())),
        (&used, &[], |r| matches!(r, Reference::Number(1..))),
        (&plain, &[], |r| matches!(r, Reference::Fragment(_))),
    ];
    for (text, arguments, right) in ways {
        dtc(text, arguments, &base);
        let tree = fdt::parse(&fs::read(&base).unwrap()).unwrap();
        let overlay = needs(&tree);
        assert!(overlay.rail.as_ref().is_some_and(right), "{overlay:?}");
        assert!(overlay.missing.is_empty() && !overlay.unsupplied, "{overlay:?}");
        let compiled = dir.path().join("text.dtbo");
        dtc(&dts::text(&overlay), &[], &compiled);
        let (ours, theirs) = (dtbo::bytes(&overlay), fs::read(&compiled).unwrap());
        assert_eq!(
            fdt::parse(&ours).unwrap(),
            fdt::parse(&theirs).unwrap(),
            "{}",
            dts::text(&overlay)
        );

        let after = applied(&base, &overlay);
        for (core, iommu) in
            [("fdab0000", "fdab9000"), ("fdac0000", "fdaca000"), ("fdad0000", "fdada000")]
        {
            let core = format!("/npu@{core}");
            assert!(
                after.node(&core).unwrap().enabled()
                    && after.node(&format!("/iommu@{iommu}")).unwrap().enabled()
            );
            for name in ["npu-supply", "sram-supply"] {
                assert_eq!(supply(&after, &core, name).unwrap().name, "dcdc-reg2");
            }
        }
        let domain = "/power-management@fd8d8000/power-controller/power-domain@8";
        assert_eq!(supply(&after, domain, "domain-supply").unwrap().name, "dcdc-reg2");
        assert_eq!(look(&after, RAIL), Verdict::Nothing, "nothing more is needed after it");
    }
}
