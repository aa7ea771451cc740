//! Every handwritten layout of the plugin against the headers of real ggml versions.
//!
//! The folder `ROCKET_TEST_HEADERS` is filled by `headers_all` of scripts/lib/headers.sh. Which
//! generation a version belongs to is taken from the specification (ggml-abi 1), not from the code.

mod clang;
mod layouts;

use clang::Headers;
use ggml_rocket::abi::host::Functions;
use ggml_rocket::abi::probe::SLOTS;
use ggml_rocket::abi::{Generation, SUPPORTED};
use layouts::Difference;

/// Version and generation. A3 was never released.
const VERSIONS: &[(&str, &str)] = &[
    ("whisper-1.7.4", "A1/A2"),
    ("0.9.5", "B1"),
    ("0.13.1", "B2"),
    ("0.25.3", "B2"),
    ("0.26.0", "C"),
];

fn versions() -> impl Iterator<Item = (Headers, &'static Generation)> {
    VERSIONS.iter().map(|(version, name)| {
        let g = SUPPORTED.iter().find(|g| g.name == *name).expect("a supported generation");
        (Headers::read(version), *g)
    })
}

/// Debian's public headers, where a prebuilt host was fetched: whatever version it has.
fn public() -> Vec<Headers> {
    let names = std::fs::read_dir(clang::folder()).expect("readable").map(|e| e.expect("entry"));
    let names = names.map(|e| e.file_name().to_string_lossy().into_owned());
    names.filter(|n| n.starts_with("debian-")).map(|n| Headers::read(&n)).collect()
}

fn none(version: &str, what: &str, differences: Vec<Difference>) {
    assert!(differences.is_empty(), "ggml {version}, {what}: {differences:#?}");
}

#[test]
fn headers_tables_of_every_generation() {
    for (h, g) in versions() {
        none(&h.version, g.name, layouts::generation(&h, g));
        let (api, slots) = (g.api, g.backend.slots);
        println!("ggml {}: generation {}, API {api}, {slots} backend slots", h.version, g.name);
    }
    // Debian's is the newest there is; its internal header is not packaged.
    let newest = SUPPORTED.last().expect("a generation");
    for h in public() {
        none(&h.version, newest.name, layouts::public(&h, newest));
        println!("ggml {}: public headers fit generation {}", h.version, newest.name);
    }
}

/// Negative control: the tables of every other generation do not fit.
#[test]
fn headers_of_another_generation_are_told_apart() {
    for (h, own) in versions() {
        for other in SUPPORTED.iter().filter(|g| g.name != own.name) {
            let found = layouts::generation(&h, other);
            assert!(!found.is_empty(), "ggml {} also fits {}", h.version, other.name);
            println!("ggml {} as {}: {} differences", h.version, other.name, found.len());
        }
    }
}

#[test]
fn headers_tensor() {
    for h in versions().map(|(h, _)| h).chain(public()) {
        none(&h.version, "ggml_tensor", layouts::fields(&h, "ggml_tensor", &layouts::tensor()));
        none(&h.version, "limits", layouts::limits(&h));
    }
}

/// Negative control: one field moved by one byte, whichever it is.
#[test]
fn headers_a_moved_field_is_noticed() {
    let (h, _) = versions().next().expect("a version");
    let fields = layouts::tensor();
    for moved in 0..fields.len() {
        let mut wrong = fields.clone();
        wrong[moved].1 += 1;
        assert_eq!(layouts::fields(&h, "ggml_tensor", &wrong).len(), 1, "{}", fields[moved].0);
    }
}

#[test]
fn headers_parameters_and_type_traits() {
    for h in versions().map(|(h, _)| h).chain(public()) {
        let params = layouts::init_params();
        none(&h.version, "ggml_init_params", layouts::fields(&h, "ggml_init_params", &params));
        none(&h.version, "type traits", layouts::traits(&h));
    }
}

#[test]
fn headers_enum_values() {
    for h in versions().map(|(h, _)| h).chain(public()) {
        none(&h.version, "enums", layouts::numbers(&h));
        let types = layouts::types(&h);
        // The file types of ggml-abi 2.9 that the plugin has a name for.
        assert!(types.compared >= 12, "{}: only {} type numbers", h.version, types.compared);
        none(&h.version, "type numbers", types.differences);
    }
}

/// What the plugin asks a host for is public in every version.
#[test]
fn headers_declare_every_function() {
    let names = Functions::SYMBOLS.iter().copied().chain(SLOTS.iter().map(|s| s.symbol));
    let names: Vec<_> = names.map(|n| n.to_str().expect("text")).collect();
    for h in versions().map(|(h, _)| h).chain(public()) {
        let declared = |name: &str| {
            h.text.split(|c: char| !c.is_alphanumeric() && c != '_').any(|w| w == name)
        };
        let missing: Vec<_> = names.iter().filter(|n| !declared(n)).collect();
        assert!(missing.is_empty(), "ggml {}: {missing:?}", h.version);
        assert!(!declared("ggml_backend_no_such_function"));
        println!("ggml {}: {} functions", h.version, names.len());
    }
}
