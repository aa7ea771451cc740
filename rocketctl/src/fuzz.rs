//! The parsers of outside bytes, for fuzz targets. Each also asserts what must hold of whatever it took.

use crate::change::journal;

/// A journal of changes: what is taken is taken again when it is written out.
pub fn journal(data: &[u8]) {
    let Ok(Some(read)) = journal::parse(data) else { return };
    let mut text = String::new();
    let begin = std::iter::once(journal::Record::Begin(read.begin.clone()));
    let deeds = read.deeds.iter().cloned().map(journal::Record::Do);
    for record in begin.chain(deeds).chain(read.ended.then_some(journal::Record::End)) {
        match journal::line(&record) {
            Ok(line) => text += &line,
            Err(e) => panic!("{e}: {record:?}"),
        }
    }
    assert_eq!(journal::parse(text.as_bytes()), Ok(Some(read)));
}
