//! The committed fuzz corpora, through the bodies that the fuzz targets run.

#![allow(clippy::unwrap_used)]

use std::path::Path;

#[test]
fn every_corpus() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("fuzz/corpus");
    for (name, body) in rocketctl::fuzz::ALL {
        let mut files: Vec<_> = std::fs::read_dir(folder.join(name))
            .unwrap_or_else(|e| panic!("{name}: {e}"))
            .map(|e| e.unwrap().path())
            .collect();
        files.sort();
        assert!(!files.is_empty(), "{name} has none");
        for path in files {
            println!("{}", path.display());
            body(&std::fs::read(&path).unwrap());
        }
    }
    let known = |name: &str| rocketctl::fuzz::ALL.iter().any(|(n, _)| *n == name);
    let left = std::fs::read_dir(&folder)
        .unwrap()
        .flatten()
        .find(|e| !known(&e.file_name().to_string_lossy()));
    assert!(left.is_none(), "no target has this corpus: {left:?}");
}
