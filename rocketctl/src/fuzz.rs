//! Entry points for fuzzing: one a parser of outside bytes, with what must hold of whatever it says.

/// Unit files: every line is at most one assignment, and what is written is read back.
pub fn unit_file(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let unit = crate::unit::parse::parse(&text);
    assert!(unit.entries.len() + unit.odd.len() <= text.lines().count());
    for entry in &unit.entries {
        let word = crate::unit::parse::quoted(&entry.value);
        let doubled = entry.value.replace('%', "%%");
        assert_eq!(crate::unit::parse::words(&word), [doubled], "quoting");
    }
    let _ = unit.environment();
}

/// Flattened device trees: a node can be found by its path.
pub fn fdt(data: &[u8]) {
    let Ok(tree) = rocket_runtime::board::fdt::parse(data) else { return };
    assert!(tree.nodes().iter().take(64).all(|(path, _)| tree.node(path).is_some()));
    let _ = tree.by_phandle(1);
}
