//! Whatever is in a file: figures or a refusal, never a panic, and nothing that a terminal obeys.

use super::*;
use proptest::prelude::*;
use std::sync::LazyLock;

/// A copy with something everywhere.
static FULL: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let mut image = Image::default();
    for i in 0..500 {
        image.count(&RowKey { n: i, ..KEY }, i, i, i);
        let slot = image.named("t.", &i.to_string(), "1", TotalKind::Counter);
        image.add(slot, i);
        image.event(i, "code", "text");
        image.fact(&i.to_string(), "fact");
    }
    let mut bytes = Vec::new();
    image.copy_to(&mut bytes);
    bytes.resize(l::SIZE, 0);
    seal(&mut bytes);
    parse(&bytes).expect("whole");
    bytes
});

fn texts(s: &Snapshot) -> Vec<&String> {
    let facts = s.facts.iter().flat_map(|(k, v)| [k, v]);
    let totals = s.totals.iter().flat_map(|t| [&t.name, &t.unit]);
    let rows = s.rows.iter().flat_map(|r| [&r.op, &r.weight, &r.outcome]);
    let events = s.events.iter().flat_map(|e| [&e.code, &e.text]);
    facts.chain(totals).chain(rows).chain(events).collect()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(300))]

    #[test]
    fn any_bytes(bytes in prop::collection::vec(any::<u8>(), 0..400), long in any::<bool>()) {
        let mut bytes = bytes;
        if long {
            bytes.resize(l::SIZE, 0x5a);
        }
        prop_assert!(parse(&bytes).is_err());
        // Past the first bytes.
        if bytes.len() >= 16 {
            bytes[..8].copy_from_slice(&l::MAGIC);
            prop_assert!(parse(&bytes).is_err());
            l::put_u32(&mut bytes, header::VERSION, l::VERSION);
            prop_assert!(parse(&bytes).is_err());
        }
    }

    /// Changed without its checksum it is refused; with it, it is read, whatever it says.
    #[test]
    fn changed_bytes(at in 0..l::SIZE, noise in prop::collection::vec(any::<u8>(), 1..200)) {
        let good = &*FULL;
        let mut bytes = good.clone();
        let end = (at + noise.len()).min(l::SIZE);
        bytes[at..end].copy_from_slice(&noise[..end - at]);
        let used = l::u32_at(good, header::USED) as usize;
        if bytes[..used] != good[..used] {
            prop_assert!(parse(&bytes).is_err(), "unsealed");
        }
        seal(&mut bytes);
        if let Ok(s) = parse(&bytes) {
            for text in texts(&s) {
                prop_assert!(!text.chars().any(char::is_control), "{text:?}");
            }
            prop_assert!(s.rows.len() <= 512 && s.totals.len() <= 128 && s.events.len() <= 64);
        }
    }

    #[test]
    fn cut_files(len in 0..l::SIZE) {
        prop_assert!(parse(&FULL[..len]).is_err());
    }
}

/// Escape sequences and characters that turn text around do not reach a terminal.
#[test]
fn texts_are_plain() {
    let mut image = Image::default();
    image.event(1, "\u{1b}[2J", "a\u{202e}b\u{7}\u{9b}c\r\n");
    let mut bytes = Vec::new();
    image.copy_to(&mut bytes);
    bytes.resize(l::SIZE, 0);
    seal(&mut bytes);
    let s = parse(&bytes).unwrap();
    assert_eq!(s.events[0].code, "\u{fffd}[2J");
    assert_eq!(s.events[0].text, "a\u{fffd}b\u{fffd}\u{fffd}c\u{fffd}\u{fffd}");
}
