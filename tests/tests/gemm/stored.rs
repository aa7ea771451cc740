//! Packed weights on disk: a second start packs nothing, and whatever happens to the files, no
//! product is made with other weights than its own.

use crate::{Stream, board, open};
use rocket_runtime::matmul::{
    Format, Int4, Int8, Integer, Matrix, Npu, Operand, Origin, Resident, Rows, Weights,
};
use rocket_runtime::store::{Saved, Store, content};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const M: usize = 40;
const K: usize = 600;
const N: usize = 300;

/// Weights that count how often a row is read.
#[derive(Debug)]
struct Counted<'a>(Rows<'a, i8>, AtomicUsize);

impl Weights<i8> for Counted<'_> {
    fn n(&self) -> usize {
        self.0.n()
    }

    fn k(&self) -> usize {
        self.0.k()
    }

    fn load(&self, n: usize, dst: &mut [i8]) {
        self.1.fetch_add(1, Relaxed);
        self.0.load(n, dst);
    }
}

fn codes(seed: u64) -> Vec<i8> {
    let mut s = Stream::new(seed);
    (0..N * K).map(|_| (s.draw() % 15) as i8 - 7).collect()
}

fn store(dir: &Path) -> Store {
    Store::open(dir, None).expect("opens").with_reserve(0)
}

/// What the weights were, where they came from, and how many rows were read for it.
fn start<F: Format<Element = i8>>(
    npu: &Npu,
    dir: &Path,
    format: F,
    w: &[i8],
) -> (Resident<F>, Origin, usize) {
    let counted = Counted(Rows::new(w, N, K), AtomicUsize::new(0));
    let key = content(bytemuck::cast_slice(w));
    let (resident, origin) =
        npu.pack_stored(&store(dir), key, 512, format, &counted).expect("packs");
    (resident, origin, counted.1.into_inner())
}

/// Whether the resident weights are `w`, by a product.
fn are<F: Integer>(npu: &Npu, resident: &Resident<F>, w: &[i8]) -> bool {
    let mut s = Stream::new(9);
    let a: Vec<i8> = (0..M * K).map(|_| (s.draw() % 15) as i8 - 7).collect();
    let mut c = vec![0; M * N];
    npu.gemm_exact(Matrix::new(&a, M, K, K), Operand::Resident(resident), &mut c).expect("runs");
    c.iter().enumerate().all(|(x, c)| {
        let (a, w) = (&a[x / N * K..][..K], &w[x % N * K..][..K]);
        *c == a.iter().zip(w).map(|(x, y)| i32::from(*x) * i32::from(*y)).sum::<i32>()
    })
}

fn files(dir: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(dir).expect("readable").flatten().map(|e| e.path());
    entries
        .filter(|p| p.extension().is_some_and(|x| x.as_encoded_bytes().starts_with(b"rkw")))
        .collect()
}

#[test]
fn a_second_start_packs_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let w = codes(1);
    for workers in [1, 3, 5] {
        // Every start is a new Npu, as in a new process.
        let begin = |second: bool| {
            let npu = open(&board(), workers);
            let (resident, origin, rows) = start(&npu, dir.path(), Int8::default(), &w);
            assert_eq!(origin == Origin::Store, second, "{workers} workers: {origin:?}");
            assert_eq!(rows > 0, !second, "{rows} rows were read");
            assert!(are(&npu, &resident, &w));
            let held = resident.bytes();
            drop(resident);
            assert_eq!(npu.budget().used(), 0);
            held
        };
        // Five workers share a weight by three, as three do.
        let first = begin(workers == 5);
        assert_eq!(begin(true), first);
    }
    // Formats and groups have files of their own, also where the bytes would be alike.
    let npu = open(&board(), 1);
    assert_ne!(start(&npu, dir.path(), Int8 { group: Some(64) }, &w).1, Origin::Store);
    for format in [true, false].map(|full| Int4 { full, group: None }) {
        assert_ne!(start(&npu, dir.path(), format, &w).1, Origin::Store);
        let (resident, origin, rows) = start(&npu, dir.path(), format, &w);
        assert_eq!((origin, rows), (Origin::Store, 0));
        assert!(are(&npu, &resident, &w));
    }
    assert_eq!(files(dir.path()).len(), 5);
}

/// Models that come and go: same shape, same place in memory, other bytes.
#[test]
fn weights_that_look_alike_never_mix() {
    let dir = tempfile::tempdir().expect("a folder");
    let npu = open(&board(), 2);
    let mut place = codes(0);
    let address = place.as_ptr();
    for round in 0..3 {
        for seed in [1, 2, 3] {
            // A last byte that differs is another weight.
            place.copy_from_slice(&codes(seed.min(2)));
            place[N * K - 1] = seed as i8;
            assert_eq!(place.as_ptr(), address);
            let (resident, origin, _) = start(&npu, dir.path(), Int8::default(), &place);
            assert_eq!(origin == Origin::Store, round > 0);
            assert!(are(&npu, &resident, &place), "round {round}, weight {seed}");
        }
    }
    assert_eq!(files(dir.path()).len(), 3);
}

#[test]
fn a_damaged_file_is_refused_and_rebuilt() {
    let dir = tempfile::tempdir().expect("a folder");
    let npu = open(&board(), 2);
    let w = codes(4);
    start(&npu, dir.path(), Int8::default(), &w);
    let file = files(dir.path()).pop().expect("a file");
    let good = std::fs::read(&file).expect("readable");
    let half = good.len() / 2;
    let mut edited = good.clone();
    edited[half] ^= 1;
    let mut longer = good.clone();
    longer.push(0);
    for (what, bytes) in [
        ("cut", &good[..half]),
        ("empty", &[]),
        ("without its last byte", &good[..good.len() - 1]),
        ("edited", &edited),
        ("longer", &longer),
    ] {
        std::fs::remove_file(&file).expect("removes");
        std::fs::write(&file, bytes).expect("writes");
        let (resident, origin, rows) = start(&npu, dir.path(), Int8::default(), &w);
        assert_eq!((origin, rows), (Origin::Packed(Saved::Yes), N), "{what}");
        assert!(are(&npu, &resident, &w), "{what}");
        assert!(std::fs::read(&file).expect("readable") == good, "{what}: rebuilt otherwise");
        assert_eq!(start(&npu, dir.path(), Int8::default(), &w).1, Origin::Store);
    }
}

/// A store that has no room, and an Npu that has none: the weights are packed, or refused in words,
/// as without a store.
#[test]
fn no_room_is_said_and_loses_nothing() {
    let dir = tempfile::tempdir().expect("a folder");
    let w = codes(5);
    let rows = Rows::new(&w, N, K);
    let key = content(bytemuck::cast_slice(&w));
    let npu = open(&board(), 2);
    let tiny = Store::open(dir.path(), Some(4096)).expect("opens").with_reserve(0);
    let (resident, origin) =
        npu.pack_stored(&tiny, key, 512, Int8::default(), &rows).expect("packs");
    assert!(matches!(origin, Origin::Packed(Saved::No(_))), "{origin:?}");
    assert!(are(&npu, &resident, &w));
    assert_eq!(files(dir.path()).len(), 0);

    start(&npu, dir.path(), Int8::default(), &w);
    let budget = Some(1000);
    let options = rocket_runtime::matmul::Options {
        workers: 2,
        budget,
        drain_on_signals: false,
        ..Default::default()
    };
    let small = Npu::open(&board(), options).expect("opens");
    let full = small.pack_stored(&store(dir.path()), key, 512, Int8::default(), &rows);
    assert!(full.expect_err("no room").to_string().contains("budget"));
    assert_eq!(small.budget().used(), 0);
}

/// Weights that find out something about their rows while they are loaded.
#[derive(Debug)]
struct Noted<'a> {
    rows: Rows<'a, i8>,
    /// The sum of all codes, as far as they were loaded.
    sum: std::sync::atomic::AtomicI64,
    recalls: bool,
}

impl Weights<i8> for Noted<'_> {
    fn n(&self) -> usize {
        self.rows.n()
    }

    fn k(&self) -> usize {
        self.rows.k()
    }

    fn load(&self, n: usize, dst: &mut [i8]) {
        self.rows.load(n, dst);
        self.sum.fetch_add(dst.iter().map(|x| i64::from(*x)).sum(), Relaxed);
    }

    fn notes(&self) -> Vec<u8> {
        self.sum.load(Relaxed).to_le_bytes().to_vec()
    }

    fn recall(&self, notes: &[u8]) -> bool {
        let Ok(bytes) = notes.try_into() else { return false };
        self.sum.store(i64::from_le_bytes(bytes), Relaxed);
        self.recalls
    }
}

/// What was found out when the weights were packed comes back with them; a source that does not
/// know the notes is packed again.
#[test]
fn notes_come_back_with_the_weights() {
    let dir = tempfile::tempdir().expect("a folder");
    let w = codes(5);
    let want: i64 = w.iter().map(|x| i64::from(*x)).sum();
    let npu = open(&board(), 2);
    let go = |recalls| {
        let rows = Rows::new(&w, N, K);
        let noted = Noted { rows, sum: 0.into(), recalls };
        let key = content(bytemuck::cast_slice(&w));
        let (resident, origin) =
            npu.pack_stored(&store(dir.path()), key, 64, Int8::default(), &noted).expect("packs");
        assert!(are(&npu, &resident, &w));
        (origin == Origin::Store, noted.sum.into_inner())
    };
    assert_eq!(go(true), (false, want));
    assert_eq!(go(true), (true, want));
    // Recalled, refused, and then added up once more on top.
    assert_eq!(go(false), (false, 2 * want));
}
