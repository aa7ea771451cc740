use super::stubs::{compile, libc, library};
use super::{Class, Conf, Files, Kind, Search, Text, conf, parse, read};
use proptest::prelude::*;
use rocket_runtime::board::Root;
use std::env::consts::ARCH;
use std::path::Path;
use std::sync::OnceLock;
use std::time::{Duration, Instant};

/// A library with everything that is looked at.
fn sample() -> &'static [u8] {
    static BYTES: OnceLock<Vec<u8>> = OnceLock::new();
    BYTES.get_or_init(|| {
        let dir = tempfile::tempdir().unwrap();
        let at = |name: &str| dir.path().join(name);
        libc(&at("libc.so.6"), &["GLIBC_2.17", "GLIBC_2.38"]);
        let source = "
            const char text[] = \"GGML_BACKEND_PATH\";
            void in_GLIBC_2_17(void); void in_GLIBC_2_38(void); void elsewhere(void);
            __attribute__((weak)) void perhaps(void);
            static void hidden(void) { in_GLIBC_2_17(); }
            void shown(void) { hidden(); in_GLIBC_2_38(); elsewhere(); if (perhaps) perhaps(); }
        ";
        let with = at("libc.so.6");
        let options = [with.to_str().unwrap(), "-Wl,-rpath,$ORIGIN/x:/y", "-Wl,--enable-new-dtags"];
        library(&at("sample.so"), "libsample.so.1", source, &options);
        std::fs::read(at("sample.so")).unwrap()
    })
}

#[test]
fn what_a_library_says() {
    let elf = parse(sample()).unwrap();
    assert_eq!((elf.class, elf.kind), (Class::Bits64, Kind::Library));
    assert_eq!(super::machine_name(elf.machine), ARCH);
    assert_eq!(elf.soname.as_deref(), Some("libsample.so.1"));
    assert_eq!(elf.needed, ["libc.so.6"]);
    assert_eq!((elf.runpath.join(" "), elf.rpath.len()), ("$ORIGIN/x /y".to_owned(), 0));
    assert!(elf.exports("shown") && !elf.exports("hidden") && !elf.exports("elsewhere"));
    let import = |name: &str| elf.imports.iter().find(|i| i.name == name).unwrap();
    let version = |v: &str| Some((v.to_owned(), "libc.so.6".to_owned()));
    assert_eq!(import("in_GLIBC_2_38").version, version("GLIBC_2.38"));
    assert_eq!((&import("elsewhere").version, import("elsewhere").weak), (&None, false));
    assert!(import("perhaps").weak);
    let mut needs = elf.needs.clone().unwrap();
    needs.sort();
    let want = ["GLIBC_2.17", "GLIBC_2.38"].map(|v| (v.to_owned(), "libc.so.6".to_owned()));
    assert_eq!(needs, want);
    assert_eq!(elf.texts, [Text::BackendPath]);
    assert!(elf.versions.is_empty());
}

#[test]
fn what_libc_and_a_program_say() {
    let dir = tempfile::tempdir().unwrap();
    let at = |name: &str| dir.path().join(name);
    libc(&at("libc.so.6"), &["GLIBC_2.4", "GLIBC_2.36"]);
    let elf = parse(&std::fs::read(at("libc.so.6")).unwrap()).unwrap();
    assert_eq!((elf.versions.len(), elf.kind), (2, Kind::Library));
    assert_eq!(elf.exports["in_GLIBC_2_36"].as_deref(), Some("GLIBC_2.36"));
    for options in [["-pie", "-Wl,-e,main"], ["-no-pie", "-Wl,-e,main"]] {
        compile(&at("p"), "int main(void) { return 0; }", &options);
        let elf = parse(&std::fs::read(at("p")).unwrap()).unwrap();
        assert_eq!(elf.kind, Kind::Program, "{options:?}");
    }
}

/// What people name in place of a library.
#[test]
fn what_is_no_library() {
    let said = |b: &[u8]| parse(b).unwrap_err().to_string();
    assert!(said(b"#!/bin/sh\n").ends_with("but a script"));
    assert!(said(b"GGUF...").contains("GGUF"));
    assert!(said(b"").contains("an empty file"));
    assert!(said(&sample()[..100]).contains("damaged"));
}

/// Order of the search (ld.so(8)), each place with a library of its own.
#[test]
fn where_libraries_are_found() {
    let dir = tempfile::tempdir().unwrap();
    let at = |path: &str| dir.path().join(path);
    let multiarch = format!("usr/lib/{ARCH}-linux-gnu");
    let places = ["opt/p/x", "env", "y", "conf", multiarch.as_str()];
    for place in places {
        library(&at(&format!("{place}/libz.so.1")), "libz.so.1", "void z(void) {}", &[]);
    }
    std::fs::create_dir_all(at("etc/ld.so.conf.d")).unwrap();
    std::fs::write(at("etc/ld.so.conf"), "# all\ninclude ld.so.conf.d/*.conf\n").unwrap();
    std::fs::write(at("etc/ld.so.conf.d/a.conf"), "/conf # here\n").unwrap();
    std::fs::write(at("etc/ld.so.conf.d/a.off"), "/y\n").unwrap();
    let root = Root::open(dir.path()).unwrap();
    let files = Files::of(&root);
    let needing = |tags: &str| {
        let rpath = "-Wl,-rpath,${ORIGIN}/x:/y";
        library(&at("opt/p/p.so"), "p", "", &[rpath, &format!("-Wl,{tags}")]);
        read(&root, "opt/p/p.so").unwrap()
    };
    let (runpath, rpath) = (needing("--enable-new-dtags"), needing("--disable-new-dtags"));
    assert!(runpath.rpath.is_empty() && rpath.runpath.is_empty());
    let found = |elf: &super::Elf, variable: Option<&str>| {
        let search = Search::new(&files, ARCH, variable);
        let path = search.find("libz.so.1", ("/opt/p/p.so", elf), &[]).unwrap().path;
        Path::new(&path).parent().unwrap().to_str().unwrap().to_owned()
    };
    assert_eq!(found(&runpath, None), "/opt/p/x");
    assert_eq!(found(&runpath, Some("/none:/env")), "/env", "before a runpath");
    assert_eq!(found(&rpath, Some("/env")), "/opt/p/x", "after an rpath");
    std::fs::remove_dir_all(at("opt/p/x")).unwrap();
    assert_eq!(found(&runpath, None), "/y");
    std::fs::remove_dir_all(at("y")).unwrap();
    assert_eq!(found(&runpath, None), "/conf");
    // Of another processor: passed over.
    let mut other = std::fs::read(at("conf/libz.so.1")).unwrap();
    other[18] = 243;
    std::fs::write(at("conf/libz.so.1"), other).unwrap();
    let fresh = Files::of(&root);
    let search = Search::new(&fresh, ARCH, None);
    let path = search.find("libz.so.1", ("/opt/p/p.so", &runpath), &[]).unwrap().path;
    assert_eq!(path, format!("/{multiarch}/libz.so.1"));
    assert!(search.find("libnone.so", ("/opt/p/p.so", &runpath), &[]).is_none());
    // Those who loaded it lend their rpath.
    library(&at("lent/liblent.so"), "liblent.so", "", &[]);
    library(&at("main"), "main", "", &["-Wl,-rpath,/lent", "-Wl,--disable-new-dtags"]);
    let main = read(&root, "main").unwrap();
    library(&at("plain.so"), "plain", "", &[]);
    let plain = read(&root, "plain.so").unwrap();
    assert!(search.find("liblent.so", ("/plain.so", &plain), &[("/main", &main)]).is_some());
    assert!(search.find("liblent.so", ("/plain.so", &plain), &[]).is_none());
}

#[test]
fn lines_of_ld_so_conf() {
    let folder = |f: &str| Conf::Folder(f.to_owned());
    let text = "/a\n /b:/c,/d # /e\ninclude /f/*.conf g\nhwcap 0 x\n\nrelative\n";
    let include = |f: &str| Conf::Include(f.to_owned());
    let want = vec![
        folder("/a"),
        folder("/b"),
        folder("/c"),
        folder("/d"),
        include("/f/*.conf"),
        include("g"),
    ];
    assert_eq!(conf(text), want);
    assert!(conf(&"/x\n".repeat(100_000)).len() <= 1000);
}

/// A configuration that includes itself ends.
#[test]
fn endless_includes() {
    let dir = tempfile::tempdir().unwrap();
    std::fs::create_dir(dir.path().join("etc")).unwrap();
    let line = "include /etc/ld.so.conf\n";
    std::fs::write(dir.path().join("etc/ld.so.conf"), line.repeat(1000)).unwrap();
    let root = Root::open(dir.path()).unwrap();
    let begun = Instant::now();
    Search::new(&Files::of(&root), ARCH, None);
    assert!(begun.elapsed() < Duration::from_secs(5));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2000))]
    /// Damaged files are read or refused, soon.
    #[test]
    fn damaged(
        changes in proptest::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..8),
        head in any::<bool>(),
        cut in any::<prop::sample::Index>(),
        cuts in 0..4,
    ) {
        let mut bytes = sample().to_vec();
        // The tables lie at the beginning and at the end.
        let range = if head { 0x400 } else { bytes.len() };
        for (at, byte) in &changes {
            bytes[at.index(range)] = *byte;
        }
        if cuts == 0 {
            bytes.truncate(cut.index(bytes.len()));
        }
        let begun = Instant::now();
        crate::fuzz::elf(&bytes);
        prop_assert!(begun.elapsed() < Duration::from_secs(1));
    }
}
