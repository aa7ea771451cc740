//! The parsers of outside bytes, for fuzz targets: each also holds the parser to a rule.

/// Evidence from an ELF file: what it takes from elsewhere has a name.
pub fn elf(data: &[u8]) {
    if let Ok(elf) = crate::elf::parse(data) {
        assert!(elf.imports.iter().all(|i| !i.name.is_empty()));
    }
}

/// Lines of the load test: one at most for each line of text.
pub fn load_test(data: &[u8]) {
    assert!(crate::load_test::lines(data).len() <= data.split(|b| *b == b'\n').count());
}

/// Lines of ld.so.conf: folders are absolute.
pub fn ld_so_conf(data: &[u8]) {
    for line in crate::elf::conf(&String::from_utf8_lossy(data)) {
        assert!(!matches!(line, crate::elf::Conf::Folder(f) if !f.starts_with('/')));
    }
}
