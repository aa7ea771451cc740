//! The store from outside, and what is done to its files behind its back.

pub(super) mod crash;
mod refused;
mod room;
mod several;

use super::format::ALIGN;
use super::{Content, Key, Packed, Saved, Store, Writer, content};
use crate::Error;
use proptest::collection::vec;
use proptest::prelude::*;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};
use tempfile::TempDir;
use twox_hash::XxHash3_128;

fn key(content: u128) -> Key {
    Key { content, format: "int8/g128", n: 96, k: 64, plan: "48x2/kt64".into() }
}

/// A store in a new directory, with all of the disk to itself.
fn store(limit: Option<u64>) -> (TempDir, Store) {
    let dir = tempfile::tempdir().unwrap();
    let store = reopen(dir.path(), limit);
    (dir, store)
}

/// What the next process does.
fn reopen(dir: &Path, limit: Option<u64>) -> Store {
    Store::open(&dir.join("packed"), limit).unwrap().with_reserve(0)
}

fn path(store: &Store, key: &Key) -> PathBuf {
    store.path().join(key.file_name())
}

/// All that lies in the directory.
fn names(store: &Store) -> Vec<String> {
    let mut names: Vec<String> = fs::read_dir(store.path())
        .unwrap()
        .map(|e| e.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

fn bytes(packed: &Packed) -> Vec<Vec<u8>> {
    packed.parts().map(<[u8]>::to_vec).collect()
}

fn loaded(store: &Store, key: &Key) -> Option<Vec<Vec<u8>>> {
    store.load(key).unwrap().map(|packed| bytes(&packed))
}

/// Bytes that say where they are.
fn filled(len: usize, seed: u64) -> Vec<u8> {
    (0..len as u64).map(|i| ((i ^ seed).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 56) as u8).collect()
}

fn save(store: &Store, key: &Key, parts: &[Vec<u8>]) -> Saved {
    store.save(key, &parts.iter().map(Vec::as_slice).collect::<Vec<_>>()).unwrap()
}

/// The warnings that `f` gives.
fn warnings<T>(f: impl FnOnce() -> T) -> (T, Vec<String>) {
    use tracing::field::{Field, Visit};
    use tracing::{Event, Metadata, Subscriber, span};
    struct Ear(Arc<Mutex<Vec<String>>>);
    struct Words<'a>(&'a mut Vec<String>);
    impl Visit for Words<'_> {
        fn record_debug(&mut self, field: &Field, value: &dyn std::fmt::Debug) {
            if field.name() == "message" {
                self.0.push(format!("{value:?}"));
            }
        }
    }
    impl Subscriber for Ear {
        fn enabled(&self, meta: &Metadata<'_>) -> bool {
            *meta.level() == tracing::Level::WARN
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            event.record(&mut Words(&mut self.0.lock().unwrap()));
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }
    let heard = Arc::new(Mutex::new(Vec::new()));
    let result = tracing::subscriber::with_default(Ear(heard.clone()), f);
    let heard = heard.lock().unwrap().clone();
    (result, heard)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    /// In pieces or at once, for this process and the next.
    #[test]
    fn what_is_saved_is_loaded(
        parts in vec((0usize..20_000, any::<u64>()), 0..5),
        piece in 1usize..9000,
    ) {
        let (dir, store) = store(None);
        let parts: Vec<Vec<u8>> = parts.iter().map(|(len, seed)| filled(*len, *seed)).collect();
        prop_assert!(loaded(&store, &key(1)).is_none());
        prop_assert_eq!(save(&store, &key(1), &parts), Saved::Yes);
        let lens: Vec<u64> = parts.iter().map(|p| p.len() as u64).collect();
        let mut writer = store.writer(&key(2), &lens).unwrap();
        for (i, part) in parts.iter().enumerate().rev() {
            part.chunks(piece).for_each(|c| writer.part(i, c).unwrap());
        }
        prop_assert_eq!(writer.commit().unwrap(), Saved::Yes);
        for store in [store, reopen(dir.path(), None)] {
            for key in [key(1), key(2)] {
                prop_assert_eq!(loaded(&store, &key), Some(parts.clone()));
            }
            let packed = store.load(&key(1)).unwrap().unwrap();
            prop_assert_eq!(packed.bytes(), lens.iter().sum::<u64>());
            // Aligned in memory as well, so that they copy well.
            for part in packed.parts().filter(|p| !p.is_empty()) {
                prop_assert_eq!(part.as_ptr() as u64 % ALIGN, 0);
            }
        }
    }

    /// Two keys that differ in any one field have a file each.
    #[test]
    fn keys_that_differ_never_share_a_file(
        content: u128, n: u64, k: u64, plan in ".{0,12}", bit in 0u32..128, field in 0usize..5,
        other in ".{0,12}",
    ) {
        let one = Key { content, format: "int8", n, k, plan };
        let mut two = one.clone();
        match field {
            0 => two.content ^= 1 << bit,
            1 => two.format = "int8/g32",
            2 => two.n ^= 1 << (bit % 64),
            3 => two.k ^= 1 << (bit % 64),
            _ => two.plan.push_str(&format!("{other}.")),
        }
        let (_dir, store) = store(None);
        prop_assert_eq!(save(&store, &one, &[vec![1; 100]]), Saved::Yes);
        prop_assert!(loaded(&store, &two).is_none());
        prop_assert_eq!(save(&store, &two, &[vec![2; 100]]), Saved::Yes);
        prop_assert_eq!(loaded(&store, &one), Some(vec![vec![1; 100]]));
        prop_assert_eq!(loaded(&store, &two), Some(vec![vec![2; 100]]));
        prop_assert_eq!(names(&store).len(), 2);
    }
}

/// A character that moves from one field into the next makes another key.
#[test]
fn keys_do_not_run_together() {
    let with = |format, plan: &str| Key { format, plan: plan.into(), ..key(0) };
    let keys = [with("ab", "c"), with("a", "bc"), with("abc", ""), with("", "abc")];
    let swapped = [Key { n: 1, k: 2, ..key(0) }, Key { n: 2, k: 1, ..key(0) }];
    let mut names: Vec<String> = keys.iter().chain(&swapped).map(Key::file_name).collect();
    names.sort();
    names.dedup();
    assert_eq!(names.len(), 6);
}

/// Same name of the model, same shape, same plan, other bytes.
#[test]
fn weights_of_one_shape_and_other_bytes_never_mix() {
    let (_dir, store) = store(None);
    let source = filled(5000, 3);
    let mut other = source.clone();
    other[4999] ^= 1;
    assert_eq!(save(&store, &key(content(&source)), std::slice::from_ref(&source)), Saved::Yes);
    assert_eq!(loaded(&store, &key(content(&other))), None);
    assert_eq!(save(&store, &key(content(&other)), std::slice::from_ref(&other)), Saved::Yes);
    assert_eq!(loaded(&store, &key(content(&source))), Some(vec![source]));
    assert_eq!(loaded(&store, &key(content(&other))), Some(vec![other]));
}

/// The digest of nothing is published with the algorithm.
#[test]
fn content_is_xxh3_128_however_it_is_cut() {
    assert_eq!(content(b""), 0x99aa_06d3_0147_98d8_6001_c324_468d_497f);
    let all = filled(100_000, 9);
    for piece in [1, 7, 1024, 65_537] {
        let mut hash = Content::new();
        all.chunks(piece).for_each(|c| hash.update(c));
        assert_eq!(hash.finish(), content(&all), "pieces of {piece}");
    }
}

/// The table in the module's documentation, written out by hand.
#[test]
fn a_file_is_as_the_table_says() {
    let (_dir, store) = store(None);
    let parts = [filled(5000, 1), filled(3, 2)];
    let content = 0x0123_4567_89ab_cdef_1122_3344_5566_7788;
    assert_eq!(save(&store, &key(content), &parts), Saved::Yes);

    let mut key_bytes = content.to_le_bytes().to_vec();
    for number in [96u64, 64, 9, 9] {
        key_bytes.extend(number.to_le_bytes());
    }
    key_bytes.extend(b"int8/g12848x2/kt64");
    let mut file = b"rocketPW".to_vec();
    file.extend([1, 0, 0, 0]);
    file.extend([0, 0x10, 0, 0]);
    file.extend([0, 0x40, 0, 0, 0, 0, 0, 0]);
    file.extend([2, 0, 0, 0]);
    file.extend([66, 0, 0, 0]);
    for (offset, part) in [(4096u64, &parts[0]), (12_288, &parts[1])] {
        file.extend(offset.to_le_bytes());
        file.extend((part.len() as u64).to_le_bytes());
        file.extend(XxHash3_128::oneshot(part).to_le_bytes());
    }
    file.extend(&key_bytes);
    file.resize(4080, 0);
    file.extend(XxHash3_128::oneshot(&file).to_le_bytes());
    file.extend(&parts[0]);
    file.resize(12_288, 0);
    file.extend(&parts[1]);
    file.resize(16_384, 0);

    let name = format!("{:032x}.rkw1", XxHash3_128::oneshot(&key_bytes));
    assert_eq!(names(&store), [name.as_str()]);
    assert!(fs::read(store.path().join(name)).unwrap() == file);
}

/// Who gives up, or dies in an orderly way, leaves nothing.
#[test]
fn a_writer_that_is_dropped_leaves_nothing() {
    let (_dir, store) = store(None);
    let mut writer = store.writer(&key(1), &[10, 20]).unwrap();
    writer.part(0, &[1; 10]).unwrap();
    assert_eq!(names(&store).len(), 1);
    drop(writer);
    assert!(names(&store).is_empty());
}

/// Each with words for the programmer; none of them leaves a file.
#[test]
fn parts_that_are_not_as_announced_are_refused() {
    let (_dir, store) = store(None);
    let told = |r: Result<(), Error>| r.unwrap_err().to_string();
    let mut writer = store.writer(&key(1), &[10, 20]).unwrap();
    assert!(told(writer.part(2, &[])).contains("no part 2 of 2"));
    assert!(told(writer.part(0, &[1; 11])).contains("part 0 was to be 10 bytes"));
    writer.part(0, &[1; 10]).unwrap();
    assert!(told(writer.part(0, &[1; 1])).contains("part 0 was to be 10 bytes"));
    writer.part(1, &[1; 19]).unwrap();
    assert!(told(writer.commit().map(drop)).contains("part 1 has 19 of its bytes"));
    let long = Key { plan: "x".repeat(2 << 20), ..key(1) };
    assert!(told(store.writer(&long, &[1]).map(drop)).contains("below 1 MiB"));
    for lens in [vec![0; 40_000], vec![u64::MAX], vec![u64::MAX / 2, u64::MAX / 2 + 5]] {
        assert!(told(store.writer(&key(1), &lens).map(drop)).contains("below 1 MiB"));
    }
    assert!(names(&store).is_empty());
}

/// A part may be packed by another thread than the one that opened the store.
#[test]
fn all_of_it_may_go_to_other_threads() {
    fn goes<T: Send + Sync>() {}
    goes::<Store>();
    goes::<Packed>();
    fn moves<T: Send>() {}
    moves::<Writer>();
}
