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

/// The ways to name the rail, each with a base tree that needs it and dtc's arguments for that tree.
fn ways() -> [(&'static str, String, &'static [&'static str]); 3] {
    let plain = source("", "");
    let user = "regulators { other: user { x-supply = <&vdd_npu_s0>; };";
    let used = plain.replace("regulators {", user);
    [("label", plain.clone(), &["-@"]), ("number", used, &[]), ("fragment", plain, &[])]
}

const BASES: [(&str, &[u8], &str, &[u8]); 3] = [
    (
        "label",
        include_bytes!("testdata/label.dtb"),
        include_str!("testdata/label.dts"),
        include_bytes!("testdata/label.dtbo"),
    ),
    (
        "number",
        include_bytes!("testdata/number.dtb"),
        include_str!("testdata/number.dts"),
        include_bytes!("testdata/number.dtbo"),
    ),
    (
        "fragment",
        include_bytes!("testdata/fragment.dtb"),
        include_str!("testdata/fragment.dts"),
        include_bytes!("testdata/fragment.dtbo"),
    ),
];

/// Text and file for each way to name the rail: the file is, byte for byte, what dtc 1.6.1 made of the text
/// (`dtc -I dts -O dtb -o X.dtbo X.dts`), and the text is in `testdata` for people to read.
#[test]
fn text_and_file() {
    for (name, base, text, file) in BASES {
        let overlay = needs(&fdt::parse(base).unwrap());
        assert!(overlay.missing.is_empty() && !overlay.unsupplied, "{overlay:?}");
        let named = match &overlay.rail {
            Some(Reference::Label(label)) => (label == "vdd_npu_s0", "label"),
            Some(Reference::Number(number)) => (*number > 0, "number"),
            Some(Reference::Fragment(at)) => (*at + 1 == overlay.fragments.len(), "fragment"),
            None => (false, "not named"),
        };
        assert_eq!(named, (true, name));
        assert_eq!(dts::text(&overlay), text, "{name}");
        assert_eq!(dtbo::bytes(&overlay), file, "{name}");
    }
}

/// The same by the compiler that is here, and what libfdt, which boot loaders use, makes of base and overlay: a tree
/// with all that kernel-and-uapi D.1 asks for.
#[test]
fn what_dtc_and_libfdt_make_of_it() {
    if !have_dtc() {
        return;
    }
    let dir = tempfile::tempdir().unwrap();
    let base = dir.path().join("base.dtb");
    for (name, text, arguments) in ways() {
        dtc(&text, arguments, &base);
        let overlay = needs(&fdt::parse(&fs::read(&base).unwrap()).unwrap());
        let compiled = dir.path().join("text.dtbo");
        dtc(&dts::text(&overlay), &[], &compiled);
        assert_eq!(dtbo::bytes(&overlay), fs::read(&compiled).unwrap(), "{name}");
        let after = applied(&base, &overlay);
        for (core, iommu) in
            [("fdab0000", "fdab9000"), ("fdac0000", "fdaca000"), ("fdad0000", "fdada000")]
        {
            let core = format!("/npu@{core}");
            let nodes = [core.clone(), format!("/iommu@{iommu}")];
            assert!(nodes.iter().all(|n| after.node(n).unwrap().enabled()), "{name}");
            for name in ["npu-supply", "sram-supply"] {
                assert_eq!(supply(&after, &core, name).unwrap().name, "dcdc-reg2");
            }
        }
        let domain = "/power-management@fd8d8000/power-controller/power-domain@8";
        assert_eq!(supply(&after, domain, "domain-supply").unwrap().name, "dcdc-reg2");
        assert_eq!(look(&after, RAIL), Verdict::Nothing, "nothing more is needed after it");
    }
}

fn node(name: &str, properties: &[(&str, &[u8])], children: Vec<Node>) -> Node {
    let properties = properties.iter().map(|(n, v)| ((*n).to_owned(), v.to_vec())).collect();
    Node { name: name.into(), properties, children }
}

/// Its second core stays off, as two jobs at once give wrong results, and its rail is always on, as its power domain
/// does not hold it (kernel-and-uapi C.3).
#[test]
fn the_rk3576_gets_one_core() {
    let off = ("status", &b"disabled\0"[..]);
    let core = ("compatible", &b"rockchip,rk3576-rknn-core\0"[..]);
    let soc = ["iommu@27702000", "iommu@2770a000"].map(|n| node(n, &[off], vec![]));
    let cores = ["npu@27700000", "npu@27708000"].map(|n| node(n, &[off, core], vec![]));
    let rail = node(
        "dcdc-reg2",
        &[("regulator-name", b"vdd_npu_s0\0"), ("phandle", &[0, 0, 0, 9])],
        vec![],
    );
    let soc = node("soc", &[], soc.into_iter().chain(cores).collect());
    let board = [("compatible", &b"x,y\0rockchip,rk3576\0"[..])];
    let overlay = needs(&Tree { root: node("", &board, vec![soc, rail]) });
    let set: Vec<(&str, Vec<&str>)> = overlay
        .fragments
        .iter()
        .map(|f| (f.path.as_str(), f.properties.iter().map(|(name, _)| *name).collect()))
        .collect();
    let expected = [
        ("/soc/npu@27700000", vec!["status", "npu-supply", "sram-supply"]),
        ("/soc/iommu@27702000", vec!["status"]),
        ("/dcdc-reg2", vec!["regulator-always-on"]),
    ];
    assert_eq!(set, expected);
    assert_eq!((overlay.rail, overlay.unsupplied), (Some(Reference::Number(9)), false));
}
