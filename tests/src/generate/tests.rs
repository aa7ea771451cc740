use super::{Kind, Recipe, Values, dense, tiny};
use half::f16;

const ROWS: usize = 8;
const COLUMNS: usize = 512;

/// The bytes of the only tensor of a file, which are its last ones: each size here is a multiple of
/// the alignment.
fn bytes_of(recipe: &Recipe, bytes: usize) -> Vec<u8> {
    let dir = tempfile::tempdir().expect("a folder");
    let path = dir.path().join("one.gguf");
    recipe.write(&path).expect("writes");
    let file = std::fs::read(path).expect("reads");
    file[file.len() - bytes..].to_vec()
}

fn one(kind: Kind, deviation: f32) -> Recipe {
    let mut r = Recipe::new("one");
    r.tensor("one".into(), &[COLUMNS, ROWS], kind, Values::Normal(deviation));
    r
}

/// Element `i` of a file's bytes, one at a time, as the formats are described (ggml-abi 2.9).
fn element(kind: Kind, bytes: &[u8], i: usize) -> f32 {
    let half = |at: usize| f16::from_le_bytes([bytes[at], bytes[at + 1]]).to_f32();
    match kind {
        Kind::F32 => f32::from_le_bytes(bytes[4 * i..][..4].try_into().expect("four bytes")),
        Kind::F16 => half(2 * i),
        Kind::Q8_0 => {
            let block = i / 32 * 34;
            half(block) * f32::from(bytes[block + 2 + i % 32] as i8)
        }
        Kind::Mxfp4 => {
            let (block, i) = (i / 32 * 17, i % 32);
            let code = (bytes[block + 1 + i % 16] >> (i / 16 * 4)) & 15;
            let (exponent, mantissa) = (i32::from(code >> 1 & 3), f32::from(code & 1));
            let size = match exponent {
                0 => mantissa / 2.0,
                e => (1.0 + mantissa / 2.0) * 2f32.powi(e - 1),
            };
            let sign = if code >> 3 == 1 { -1.0 } else { 1.0 };
            sign * size * 2f32.powi(i32::from(bytes[block]) - 127)
        }
        Kind::Q4K => {
            let (block, i) = (i / 256 * 144, i % 256);
            let packed = &bytes[block + 4..][..12];
            let j = i / 32;
            let (scale, min) = match j {
                0..4 => (packed[j] & 63, packed[j + 4] & 63),
                _ => (
                    packed[j + 4] & 15 | packed[j - 4] >> 6 << 4,
                    packed[j + 4] >> 4 | packed[j] >> 6 << 4,
                ),
            };
            let code = (bytes[block + 16 + i / 64 * 32 + i % 32] >> (i / 32 % 2 * 4)) & 15;
            half(block) * f32::from(scale) * f32::from(code) - half(block + 2) * f32::from(min)
        }
    }
}

#[test]
fn decoded_copies_have_the_values_that_the_bytes_mean() {
    let n = ROWS * COLUMNS;
    for (kind, size) in [
        (Kind::F16, 2 * n),
        (Kind::Q8_0, n / 32 * 34),
        (Kind::Q4K, n / 256 * 144),
        (Kind::Mxfp4, n / 32 * 17),
    ] {
        let recipe = one(kind, 0.05);
        let bytes = bytes_of(&recipe, size);
        let decoded = bytes_of(&recipe.decoded(|_| true), 4 * n);
        let values: Vec<f32> = (0..n).map(|i| element(Kind::F32, &decoded, i)).collect();
        for (i, v) in values.iter().enumerate() {
            assert_eq!(element(kind, &bytes, i), *v, "{kind:?}, element {i}");
        }
        let mean = values.iter().sum::<f32>() / n as f32;
        let deviation = (values.iter().map(|v| v * v).sum::<f32>() / n as f32).sqrt();
        println!("{kind:?}: mean {mean:.5}, deviation {deviation:.5}");
        // A block of MXFP4 has one of three octaves around the nearest one.
        let within = if kind == Kind::Mxfp4 { 0.4 } else { 0.05 };
        assert!((deviation / 0.05 - 1.0).abs() < within && mean.abs() < 0.003, "{kind:?}");
    }
}

#[test]
fn a_recipe_is_one_file() {
    let dir = tempfile::tempdir().expect("a folder");
    let path = tiny(Kind::F16).in_folder(dir.path()).expect("writes");
    let first = std::fs::read(&path).expect("reads");
    assert_eq!(tiny(Kind::F16).in_folder(dir.path()).expect("is there"), path);
    // Written again elsewhere it is the same; another recipe is another file.
    let other = dir.path().join("other");
    let again = tiny(Kind::F16).in_folder(&other).expect("writes");
    assert!(std::fs::read(again).expect("reads") == first, "not the same bytes");
    let eight = tiny(Kind::Q8_0).in_folder(dir.path()).expect("writes");
    assert_ne!(eight, path);
    assert_eq!(std::fs::read_dir(dir.path()).expect("a folder").count(), 3, "leavings");
}

#[test]
fn what_is_no_whole_block_is_refused() {
    let mut r = Recipe::new("odd");
    r.tensor("odd".into(), &[48, 4], Kind::Q8_0, Values::Normal(1.0));
    let dir = tempfile::tempdir().expect("a folder");
    let e = r.write(&dir.path().join("odd.gguf")).expect_err("48 is no multiple of 32");
    assert!(e.to_string().contains("odd"), "{e}");
}

#[test]
fn tensors_draw_their_own_values() {
    // Two matrices of one shape and deviation, of which a mistaken identity could otherwise pass.
    let r = dense();
    let of = |name: &str| {
        let mut one = Recipe::new("one");
        one.tensors = r.tensors.iter().filter(|t| t.name == name).cloned().collect();
        bytes_of(&one, 2 * 1024 * 256)
    };
    assert!(of("blk.0.attn_k.weight") != of("blk.0.attn_v.weight"));
    assert!(of("blk.0.attn_k.weight") != of("blk.1.attn_k.weight"));
}
