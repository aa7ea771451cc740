//! What clang says about a version's headers. bindgen asks libclang for every size and offset and
//! writes the answers down as assertions; those numbers are read here, none of its structs is used.

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::Command;

/// One version of ggml.
#[derive(Debug)]
pub struct Headers {
    /// Name of its folder.
    pub version: String,
    /// The text of ggml.h and ggml-backend.h.
    pub text: String,
    sizes: HashMap<String, usize>,
    offsets: HashMap<String, usize>,
    constants: HashMap<String, i64>,
}

/// The folder that `headers_all` of scripts/lib/headers.sh fills.
pub fn folder() -> PathBuf {
    let folder = std::env::var_os("ROCKET_TEST_HEADERS").filter(|v| !v.is_empty());
    folder.expect("ROCKET_TEST_HEADERS: a folder of ggml headers; run scripts/test").into()
}

impl Headers {
    /// Reads the version in this subfolder.
    pub fn read(version: &str) -> Headers {
        let root = folder().join(version);
        let include = root.join("include");
        assert!(include.is_dir(), "no headers of {version} in {}", folder().display());
        let internal = root.join("src/ggml-backend-impl.h").exists();
        let mut source = String::from("#include \"ggml-cpu.h\"\n#include \"ggml-backend.h\"\n");
        if internal {
            source.push_str("#include \"ggml-backend-impl.h\"\n");
        }
        let path = |p: &Path| p.to_str().expect("text").to_owned();
        let code = bindgen::builder()
            .header_contents("all.h", &source)
            .clang_args(["-I", &path(&include), "-I", &path(&root.join("src"))])
            // libclang alone brings no stddef.h.
            .clang_args(["-isystem", &compiler_headers()])
            .allowlist_type("ggml_.*")
            .allowlist_var("GGML_.*")
            .prepend_enum_name(false)
            .generate_comments(false)
            .layout_tests(true)
            .formatter(bindgen::Formatter::None)
            .generate()
            .expect("clang reads the headers")
            .to_string();
        let read = |file| std::fs::read_to_string(include.join(file)).expect("readable");
        let mut h = Headers {
            version: version.to_owned(),
            text: read("ggml.h") + &read("ggml-backend.h"),
            sizes: HashMap::new(),
            offsets: HashMap::new(),
            constants: HashMap::new(),
        };
        h.parse(&code);
        assert!(h.offsets.len() > 20 && h.constants.len() > 100, "little was found in {version}");
        h
    }

    /// `["Size of X"] [... - 8usize]`, `["Offset of field: X::f"] [... - 8usize]` and
    /// `pub const X : type = 8 ;`.
    fn parse(&mut self, code: &str) {
        for piece in code.split("[\"").skip(1) {
            let Some((label, rest)) = piece.split_once("\"]") else { continue };
            let number = rest.split_once("usize]").and_then(|(expression, _)| {
                expression.rsplit(['-', ' ']).find(|s| !s.is_empty())?.parse().ok()
            });
            let Some(number) = number else { continue };
            if let Some(name) = label.strip_prefix("Size of ") {
                self.sizes.insert(name.to_owned(), number);
            } else if let Some(name) = label.strip_prefix("Offset of field: ") {
                self.offsets.insert(name.to_owned(), number);
            }
        }
        for piece in code.split("pub const ").skip(1) {
            let Some((name, rest)) = piece.split_once(':') else { continue };
            let value = rest.split_once('=').and_then(|(_, v)| v.split_once(';'));
            let Some((value, _)) = value else { continue };
            // A minus sign may stand apart from its number.
            if let Ok(value) = value.replace(' ', "").parse() {
                self.constants.insert(name.trim().to_owned(), value);
            }
        }
    }

    /// Bytes of a struct; `None` when the headers do not define it.
    pub fn size(&self, name: &str) -> Option<usize> {
        self.sizes.get(name).copied()
    }

    /// Offset of `struct::field`.
    pub fn offset(&self, field: &str) -> Option<usize> {
        self.offsets.get(field).copied()
    }

    /// Value of a macro or an enumerator.
    pub fn constant(&self, name: &str) -> Option<i64> {
        self.constants.get(name).copied()
    }

    /// Every constant with this prefix, without it.
    pub fn constants<'a>(&'a self, prefix: &'a str) -> impl Iterator<Item = (&'a str, i64)> {
        self.constants.iter().filter_map(move |(n, v)| Some((n.strip_prefix(prefix)?, *v)))
    }
}

fn compiler_headers() -> String {
    let out = Command::new("gcc").arg("-print-file-name=include").output();
    let out = out.expect("gcc, whose stddef.h is used");
    String::from_utf8(out.stdout).expect("text").trim().to_owned()
}
