//! Small libraries and programs for tests, compiled by the machine's C compiler.

use std::fs;
use std::path::Path;
use std::process::Command;

/// Compiles a source to `out` with these options, linked against nothing by itself.
pub fn compile(out: &Path, source: &str, options: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let file = dir.path().join("stub.c");
    fs::write(&file, source).unwrap();
    fs::create_dir_all(out.parent().unwrap()).unwrap();
    let mut c = Command::new("gcc");
    c.args(["-nostdlib", "-fPIC", "-O1", "-w"]).arg("-o").arg(out).arg(&file).args(options);
    let run = c.output().unwrap_or_else(|e| panic!("gcc: {e}; install it, as scripts/test does"));
    assert!(run.status.success(), "{c:?}: {}", String::from_utf8_lossy(&run.stderr));
}

/// A shared library with this soname.
pub fn library(out: &Path, soname: &str, source: &str, options: &[&str]) {
    let soname = format!("-Wl,-soname,{soname}");
    let mut all = vec!["-shared", &soname];
    all.extend(options);
    compile(out, source, &all);
}

/// A `libc.so.6` that has these versions, the newest last, and a symbol of its own in each.
pub fn libc(out: &Path, versions: &[&str]) {
    let dir = tempfile::tempdir().unwrap();
    let script = dir.path().join("versions");
    let (mut text, mut source, mut before) = (String::new(), String::new(), "");
    for version in versions {
        let name = format!("in_{}", version.replace(['.', '-'], "_"));
        text += &format!("{version} {{ global: {name}; }} {before};\n");
        source += &format!("void {name}(void) {{}}\n");
        before = version;
    }
    text = text.replacen("; }", "; local: *; }", 1);
    fs::write(&script, text).unwrap();
    let script = format!("-Wl,--version-script={}", script.display());
    library(out, "libc.so.6", &source, &[&script]);
}
