//! Headers as they are, cut, and made to harm.

use super::write::{Gguf, llama, whisper};
use super::{Error, Format, Value, open, parse};
use proptest::prelude::*;
use std::io::Cursor;
use std::time::{Duration, Instant};

fn read(bytes: &[u8]) -> super::Result<super::Header> {
    parse(Cursor::new(bytes))
}

fn small() -> Gguf {
    Gguf::new("llama")
        .raw("a.bool", 7, [1])
        .raw("a.i8", 1, [0xff])
        .raw("a.u16", 2, 513u16.to_le_bytes())
        .raw("a.i64", 11, (-5i64).to_le_bytes())
        .raw("a.f32", 6, 0.5f32.to_le_bytes())
        .raw("a.u64", 10, u64::MAX.to_le_bytes())
        // Two numbers, two texts, and an array of an array of one.
        .raw(
            "a.list",
            9,
            [
                &4u32.to_le_bytes()[..],
                &2u64.to_le_bytes(),
                &7u32.to_le_bytes(),
                &9u32.to_le_bytes(),
            ]
            .concat(),
        )
        .raw(
            "a.words",
            9,
            [
                &8u32.to_le_bytes()[..],
                &2u64.to_le_bytes(),
                &1u64.to_le_bytes(),
                b"x",
                &0u64.to_le_bytes(),
            ]
            .concat(),
        )
        .raw(
            "a.deep",
            9,
            [
                &9u32.to_le_bytes()[..],
                &1u64.to_le_bytes(),
                &0u32.to_le_bytes(),
                &1u64.to_le_bytes(),
                &[3],
            ]
            .concat(),
        )
        .number("llama.block_count", 1)
        .tensor("blk.0.attn_q.weight", &[64, 96], 8)
        .tensor("blk.0.norm.weight", &[64], 0)
        .tensor("x", &[2, 3, 4, 5], 1)
}

/// Every kind of value and of tensor, in both versions.
#[test]
fn a_header_is_what_was_written() {
    for version in [2, 3] {
        let bytes = Gguf { version, ..small() }.bytes();
        let h = read(&bytes).unwrap();
        assert_eq!((h.format, h.architecture.as_str()), (Format::Gguf(version), "llama"));
        for (key, want) in [
            ("a.bool", Value::Number(1)),
            ("a.i8", Value::Number(-1)),
            ("a.u16", Value::Number(513)),
            ("a.i64", Value::Number(-5)),
            ("a.f32", Value::Float(0.5)),
            ("a.u64", Value::Number(i64::MAX)),
            ("a.list", Value::Numbers(vec![7, 9])),
            ("a.words", Value::Other(2)),
            ("a.deep", Value::Other(1)),
        ] {
            assert_eq!(h.keys.get(key), Some(&want), "{key}");
        }
        let seen: Vec<_> =
            h.tensors.iter().map(|t| (t.name.as_str(), t.ne, t.dtype.0, t.bytes())).collect();
        assert_eq!(
            seen,
            [
                ("blk.0.attn_q.weight", [64, 96, 1, 1], 8, Some(64 / 32 * 34 * 96)),
                ("blk.0.norm.weight", [64, 1, 1, 1], 0, Some(256)),
                ("x", [2, 3, 4, 5], 1, Some(240)),
            ]
        );
        assert_eq!(
            (h.number("block_count"), h.blocks(), h.bytes),
            (Some(1), 1, bytes.len() as u64)
        );
    }
}

/// At every length: an error that says so, and never a header.
#[test]
fn a_cut_file_is_no_model() {
    let bytes = small().bytes();
    for len in 0..bytes.len() {
        match read(&bytes[..len]) {
            // The last tensor's padding may be missing.
            Ok(_) => assert!(len + 32 > bytes.len(), "{len} of {}", bytes.len()),
            Err(Error::Truncated(_)) => {}
            Err(e) => panic!("{len}: {e}"),
        }
    }
    let words = whisper([1; 11], &[("t", &[32, 4], 8), ("u", &[3], 0)]);
    assert_eq!(read(&words).unwrap().tensors.len(), 2);
    let ends = [words.len() - 12 - 12 - 4 - 1];
    for len in (0..words.len()).filter(|len| !ends.contains(len)) {
        match read(&words[..len]) {
            Ok(h) => assert_eq!(h.tensors.len(), 0, "{len} of {}", words.len()),
            Err(e) => assert!(matches!(e, Error::Truncated(_)), "{len}: {e}"),
        }
    }
}

#[test]
fn whisper_files_are_read() {
    let settings = [51865, 1500, 512, 8, 6, 448, 512, 8, 6, 80, 1];
    let h = read(&whisper(
        settings,
        &[("encoder.blocks.3.mlp.0.weight", &[512, 2048], 1), ("b", &[1, 512], 0)],
    ))
    .unwrap();
    assert_eq!(
        (h.format, h.architecture.as_str(), h.bytes > 0),
        (Format::Whisper, "whisper", true)
    );
    assert_eq!(
        [h.number("audio_ctx"), h.number("audio_layer"), h.number("mels")],
        [Some(1500), Some(6), Some(80)]
    );
    assert_eq!(
        (h.tensors[0].ne, h.tensors[0].layer(), h.tensors[1].ne),
        ([512, 2048, 1, 1], Some(3), [1, 512, 1, 1])
    );
}

/// Numbers that a reader might believe.
#[test]
fn hostile_numbers_end_at_once() {
    let count = |tensors: u64, keys: u64| {
        [&b"GGUF"[..], &3u32.to_le_bytes(), &tensors.to_le_bytes(), &keys.to_le_bytes()].concat()
    };
    let key = |kind: u32, rest: &[u8]| {
        [&count(0, 1)[..], &1u64.to_le_bytes(), b"k", &kind.to_le_bytes(), rest].concat()
    };
    let deep: Vec<u8> = [&9u32.to_le_bytes()[..], &1u64.to_le_bytes()].concat().repeat(1000);
    let huge = u64::MAX.to_le_bytes();
    for (what, bytes) in [
        ("tensors", count(u64::MAX, 0)),
        ("keys", count(0, u64::MAX)),
        ("a key", [&count(0, 1)[..], &huge].concat()),
        ("a text", key(8, &huge)),
        ("an array of u64", key(9, &[&10u32.to_le_bytes()[..], &huge].concat())),
        ("an array of texts", key(9, &[&8u32.to_le_bytes()[..], &huge].concat())),
        ("an array of arrays", key(9, &[&9u32.to_le_bytes()[..], &huge].concat())),
        ("nesting", key(9, &deep)),
        ("a type of value", key(13, &[])),
        ("an alignment", Gguf::new("x").number("general.alignment", 0).bytes()),
        ("another", Gguf::new("x").number("general.alignment", 48).bytes()),
        ("big-endian", [&b"GGUF"[..], &3u32.to_be_bytes()].concat()),
        ("nothing", Vec::new()),
        ("text", b"hello world, this is no model".to_vec()),
    ] {
        let begun = Instant::now();
        let e = read(&bytes).expect_err(what);
        assert!(
            !e.to_string().is_empty() && begun.elapsed() < Duration::from_secs(1),
            "{what}: {e}"
        );
    }
    // The reader says no, and not the file's end.
    assert!(read(&key(9, &deep)).unwrap_err().to_string().contains("deep"));
    let shape = |shape: &[u64]| {
        let mut bytes = count(1, 0);
        bytes.extend(1u64.to_le_bytes());
        bytes.extend(b"t");
        bytes.extend((shape.len() as u32).to_le_bytes());
        shape.iter().for_each(|n| bytes.extend(n.to_le_bytes()));
        bytes.extend([0; 64]);
        bytes
    };
    for dims in [&[u64::MAX; 4][..], &[1 << 32, 1 << 32], &[1; 5], &[1 << 62]] {
        assert!(matches!(read(&shape(dims)), Err(Error::Invalid(_))), "{dims:?}");
    }
    // No elements at all is a tensor, if a useless one.
    assert!(read(&shape(&[0, 5])).is_ok());
}

/// A hole of a terabyte reads as zeros.
#[test]
fn sparse_files_are_no_trap() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("sparse.gguf");
    for head in [
        [&b"GGUF"[..], &3u32.to_le_bytes(), &65536u64.to_le_bytes(), &4096u64.to_le_bytes()]
            .concat(),
        whisper([1; 11], &[]),
        [
            &b"GGUF"[..],
            &3u32.to_le_bytes(),
            &0u64.to_le_bytes(),
            &1u64.to_le_bytes(),
            &1u64.to_le_bytes(),
            b"k",
            &9u32.to_le_bytes(),
            &8u32.to_le_bytes(),
            &(1u64 << 40).to_le_bytes(),
        ]
        .concat(),
    ] {
        std::fs::write(&path, head).unwrap();
        std::fs::File::options().write(true).open(&path).unwrap().set_len(1 << 40).unwrap();
        let begun = Instant::now();
        let _ = open(&path);
        assert!(begun.elapsed() < Duration::from_secs(20), "{:?}", begun.elapsed());
    }
    // A whole model is one too: 80 layers of which nothing is there but the header.
    llama(80, &[12]).write(&path);
    assert_eq!(open(&path).unwrap().tensors.len(), 3 + 80 * 9);
}

#[test]
fn parts_are_one_model_and_a_missing_one_is_named() {
    let dir = tempfile::tempdir().unwrap();
    let at = |i: u32| dir.path().join(format!("m-{i:05}-of-00003.gguf"));
    let part = |i: u16| {
        let g = Gguf::new("llama").raw("split.no", 2, i.to_le_bytes()).raw(
            "split.count",
            2,
            3u16.to_le_bytes(),
        );
        let g = g.raw("split.tensors.count", 5, 3i32.to_le_bytes());
        g.tensor(format!("blk.{i}.ffn_up.weight"), &[64, 64], 1)
    };
    for i in 0..3 {
        part(i).write(&at(u32::from(i) + 1));
    }
    // Whichever is named.
    for i in 1..=3 {
        let h = open(&at(i)).unwrap();
        let names: Vec<_> = h.tensors.iter().filter_map(super::Tensor::layer).collect();
        assert_eq!((names, h.parts), (vec![0, 1, 2], 3));
        assert!(h.bytes > 3 * 64 * 64 * 2);
    }
    std::fs::remove_file(at(2)).unwrap();
    let e = open(&at(1)).unwrap_err();
    assert!(
        matches!(e, Error::MissingPart(_)) && e.to_string().contains("m-00002-of-00003.gguf"),
        "{e}"
    );
    part(2).write(&at(2));
    let e = open(&at(1)).unwrap_err();
    assert!(matches!(e, Error::Invalid(_)) && e.to_string().contains("not part 2 of 3"), "{e}");
    // Renamed, so that its siblings cannot be found.
    let other = dir.path().join("other.gguf");
    std::fs::rename(at(1), &other).unwrap();
    assert!(open(&other).unwrap_err().to_string().contains("-00001-of-00003.gguf"));
}

#[test]
fn what_is_no_file_is_said() {
    let dir = tempfile::tempdir().unwrap();
    for path in [dir.path().to_owned(), dir.path().join("none.gguf"), "/dev/zero".into()] {
        let e = open(&path).unwrap_err();
        assert!(
            matches!(e, Error::Unreadable(_)) && e.to_string().contains(path.to_str().unwrap()),
            "{e}"
        );
    }
}

proptest! {
    /// Anything at all, and anything after a good beginning.
    #[test]
    fn no_bytes_harm(bytes in proptest::collection::vec(any::<u8>(), 0..400), at in 0usize..400, kind in 0u8..3) {
        let base = match kind { 0 => small().bytes(), 1 => whisper([3; 11], &[("t", &[32, 4], 8)]), _ => Vec::new() };
        let mut data = base.clone();
        let at = at.min(data.len());
        data.truncate(at);
        data.extend(&bytes);
        crate::fuzz::model(&data);
        // One byte changed.
        if let (Some(b), false) = (bytes.first(), base.is_empty()) {
            let mut data = base;
            let i = at % data.len();
            data[i] ^= b;
            crate::fuzz::model(&data);
        }
    }
}
