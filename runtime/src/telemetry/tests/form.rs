//! The layout, as numbers that tools of another build rely on. A change here is a new version.

use super::*;
use proptest::prelude::*;
use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt;
use twox_hash::XxHash3_64;

/// Reads by plain offsets, none of them from the code.
struct Raw(Vec<u8>);

impl Raw {
    fn number(&self, at: usize, len: usize) -> u64 {
        self.0[at..at + len].iter().rev().fold(0, |n, &b| n << 8 | u64::from(b))
    }
    fn text(&self, at: usize, len: usize) -> &str {
        std::str::from_utf8(&self.0[at..at + len]).unwrap().trim_end_matches('\0')
    }
}

#[test]
fn version_1_lies_where_it_always_lay() {
    let dir = folder();
    let w = writer(dir.path());
    w.update(|image| {
        image.count(&KEY, 7, 70, 700);
        image.count(
            &RowKey { place: Place::Declined, rows: 1, outcome: "too_few_rows", ..KEY },
            9,
            90,
            0,
        );
        let total = image.total("npu.macs", "MAC", TotalKind::Counter);
        image.add(total, 11);
        let gauge = image.named("bytes.", "resident", "B", TotalKind::Gauge);
        image.set(gauge, 13);
        image.event(17, "given_up", "the NPU was given up");
        image.fact("plugin", "0.1.0");
    });
    assert!(w.publish());
    let raw = Raw(fs::read(w.path()).unwrap());
    assert_eq!(raw.0.len(), 86_016);
    assert_eq!(fs::metadata(w.path()).unwrap().permissions().mode() & 0o7777, 0o644);

    assert_eq!(&raw.0[..8], b"RKTCOUNT");
    // Another number here means that every line of this test may change.
    assert_eq!(raw.number(8, 4), 1);
    assert_eq!(raw.number(12, 4), 86_016);
    assert_eq!(raw.number(16, 4), 20_480 + 2 * 128);
    assert_eq!(raw.number(20, 4), u64::from(std::process::id()));
    assert_eq!(raw.number(24, 4), u64::from(nix::unistd::geteuid().as_raw()));
    let name = w.path().file_name().unwrap().to_str().unwrap();
    let expected = format!("rocket-counters-{}-{:016x}", std::process::id(), raw.number(32, 8));
    assert_eq!(name, expected);
    let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap();
    let digits: String = raw.0[48..64].iter().map(|b| format!("{b:02x}")).collect();
    assert_eq!(digits, boot.trim().replace('-', ""));
    let namespace = fs::read_link("/proc/self/ns/pid").unwrap();
    assert_eq!(namespace.to_str().unwrap(), format!("pid:[{}]", raw.number(64, 8)));
    let stat = fs::read_to_string("/proc/self/stat").unwrap();
    let fields: Vec<&str> = stat[stat.rfind(')').unwrap() + 2..].split(' ').collect();
    assert_eq!(raw.number(72, 8).to_string(), fields[19]);
    assert!(raw.number(88, 8) > 0 && raw.number(80, 8) > raw.number(88, 8));
    assert_eq!(raw.number(96, 8), 2, "the first one was written at the start");
    let used = raw.number(16, 4) as usize;
    let mut zeroed = raw.0[..used].to_vec();
    zeroed[104..112].fill(0);
    assert_eq!(raw.number(104, 8), XxHash3_64::oneshot(&zeroed));
    // The published value of XXH3-64 over nothing.
    assert_eq!(XxHash3_64::oneshot(b""), 0x2d06_8005_38d3_94c2);
    assert!(raw.0[112..256].iter().all(|&b| b == 0));

    assert_eq!(raw.number(256, 4), 12 + 13);
    assert_eq!(raw.text(260, 64), "host\t0.27.0\nplugin\t0.1.0\n");

    assert_eq!((raw.number(4096, 4), raw.text(4104, 32)), (1, "npu.macs"));
    assert_eq!((raw.text(4136, 8), raw.number(4144, 8)), ("MAC", 11));
    assert_eq!((raw.number(4160, 4), raw.text(4168, 32)), (2, "bytes.resident"));
    assert_eq!((raw.text(4200, 8), raw.number(4208, 8)), ("B", 13));

    assert_eq!((raw.number(12_288, 8), raw.number(12_296, 8)), (1, 17));
    assert_eq!((raw.text(12_304, 24), raw.text(12_328, 88)), ("given_up", "the NPU was given up"));

    assert_eq!((raw.number(20_480, 4), raw.text(20_488, 16)), (1, "mul_mat"));
    assert_eq!((raw.text(20_504, 16), raw.text(20_520, 32)), ("q4_K", "fp16"));
    let numbers = |at: usize| [0, 8].map(|i| raw.number(at + i, 8));
    assert_eq!(numbers(20_552), [576, 1536]);
    assert_eq!([20_568, 20_572].map(|at| raw.number(at, 4)), [128, 511]);
    assert_eq!([20_576, 20_584, 20_592].map(|at| raw.number(at, 8)), [7, 70, 700]);
    assert_eq!((raw.number(20_608, 4), raw.text(20_648, 32)), (2, "too_few_rows"));
    assert_eq!([20_696, 20_700].map(|at| raw.number(at, 4)), [1, 1]);
}

#[test]
fn classes_of_rows() {
    for (rows, class) in [
        (0, [1, 1]),
        (1, [1, 1]),
        (2, [2, 31]),
        (31, [2, 31]),
        (32, [32, 127]),
        (127, [32, 127]),
        (128, [128, 511]),
        (511, [128, 511]),
        (512, [512, u32::MAX]),
        (u64::MAX, [512, u32::MAX]),
    ] {
        assert_eq!(l::class_of(rows), class, "{rows}");
    }
}

/// The rows and totals that find no place: nothing is lost from the sums, nothing is overwritten.
#[test]
fn full_tables() {
    let dir = folder();
    let w = writer(dir.path());
    w.update(|image| {
        for n in 0..600 {
            image.count(&RowKey { n, ..KEY }, 2, 10, 100);
            // Its own row again, or the one for all others.
            image.count(&RowKey { n: 0, ..KEY }, 1, 1, 1);
        }
        for n in 0..200 {
            let slot = image.named("t.", &n.to_string(), "1", TotalKind::Counter);
            image.add(slot, n + 1);
        }
        (1..=100).for_each(|n| image.event(n, "e", &n.to_string()));
    });
    w.publish();
    let s = read(w.path()).unwrap();
    assert_eq!(s.rows.len(), 512);
    let other = s.rows.last().unwrap();
    assert_eq!((other.place, other.outcome.as_str()), (Place::Other, "table_full"));
    assert_eq!((other.calls, other.macs, other.ns), (2 * 89, 10 * 89, 100 * 89));
    assert_eq!((s.rows[0].calls, s.rows[0].macs), (602, 610));
    assert!(s.rows[1..511].iter().all(|r| r.calls == 2));
    assert_eq!(s.totals.len(), 128);
    assert!(s.totals.iter().enumerate().all(|(i, t)| t.value == i as u64 + 1));
    let numbers: Vec<u64> = s.events.iter().map(|e| e.number).collect();
    assert_eq!(numbers, (37..=100).collect::<Vec<_>>());
    assert!(s.events.iter().all(|e| e.text == e.number.to_string()));
}

/// What is longer than its field, or of several bytes a character, is cut and stays text.
#[test]
fn texts_of_any_length() {
    let dir = folder();
    let long = "ä".repeat(500);
    let w =
        Writer::create(&[Directory::existing(dir.path())], &[("a\tb", "c\nd"), ("long", &long)])
            .unwrap();
    w.update(|image| {
        image.count(&RowKey { op: &long, weight: "x", outcome: &long, ..KEY }, 1, 1, 1);
        let slot = image.named("ops.", &long, &long, TotalKind::Counter);
        image.add(slot, 1);
        image.event(1, &long, &long);
        (0..90)
            .for_each(|i| image.fact(&format!("f{i}"), "0123456789012345678901234567890123456789"));
        image.fact("f0", "new");
    });
    w.publish();
    let s = read(w.path()).unwrap();
    assert_eq!((s.rows[0].op.as_str(), s.rows[0].outcome.chars().count()), ("ääääääää", 16));
    assert_eq!(s.totals[0].name, format!("ops.{}", "ä".repeat(14)));
    assert_eq!((s.events[0].code.chars().count(), s.events[0].text.chars().count()), (12, 44));
    assert_eq!((s.fact("a b"), s.fact("long")), (Some("c d"), Some(long.as_str())));
    assert_eq!(s.fact("f0"), Some("new"));
    // Whole statements only.
    assert!(s.facts.len() > 50 && s.facts.len() < 93);
    assert!(s.facts[3..].iter().all(|(_, v)| v.len() == 40));
}

#[derive(Debug, Clone)]
enum Deed {
    Count(u8, u64, u64, u64),
    Add(u8, u64),
    Set(u8, u64),
}

fn deeds() -> impl Strategy<Value = Vec<Deed>> {
    let number = 0u64..1 << 40;
    prop::collection::vec(
        prop_oneof![
            (any::<u8>(), 0u64..1000, number.clone(), number.clone())
                .prop_map(|(a, b, c, d)| Deed::Count(a, b, c, d)),
            (0u8..60, number.clone()).prop_map(|(a, b)| Deed::Add(a, b)),
            (0u8..60, number).prop_map(|(a, b)| Deed::Set(a, b)),
        ],
        0..300,
    )
}

proptest! {
    /// What was counted is what is read, for any order of any keys that the tables have room for.
    #[test]
    fn figures_are_the_sums(deeds in deeds()) {
        let mut image = Image::default();
        let mut rows: BTreeMap<(u32, u64, [u32; 2]), [u64; 3]> = BTreeMap::new();
        let mut totals: BTreeMap<String, u64> = BTreeMap::new();
        for deed in deeds {
            match deed {
                Deed::Count(key, calls, macs, ns) => {
                    let place = [Place::Npu, Place::Declined, Place::Redone][usize::from(key % 3)];
                    let (n, many) = (u64::from(key / 3 % 8), u64::from(key) * 10);
                    image.count(&RowKey { place, n, rows: many, ..KEY }, calls, macs, ns);
                    let sum = rows.entry((place as u32, n, l::class_of(many))).or_default();
                    for (sum, more) in sum.iter_mut().zip([calls, macs, ns]) {
                        *sum += more;
                    }
                }
                Deed::Add(name, more) => {
                    let slot = image.named("a.", &name.to_string(), "1", TotalKind::Counter);
                    image.add(slot, more);
                    *totals.entry(format!("a.{name}")).or_default() += more;
                }
                Deed::Set(name, value) => {
                    let slot = image.total(&format!("s.{name}"), "B", TotalKind::Gauge);
                    image.set(slot, value);
                    totals.insert(format!("s.{name}"), value);
                }
            }
        }
        let mut bytes = Vec::new();
        image.copy_to(&mut bytes);
        bytes.resize(l::SIZE, 0);
        seal(&mut bytes);
        let s = parse(&bytes).unwrap();
        let read: BTreeMap<_, _> = s.rows.iter()
            .map(|r| ((r.place as u32, r.n, r.rows), [r.calls, r.macs, r.ns])).collect();
        prop_assert_eq!((read, s.rows.len()), (rows.clone(), rows.len()));
        let read: BTreeMap<_, _> = s.totals.iter().map(|t| (t.name.clone(), t.value)).collect();
        prop_assert_eq!(read, totals);
    }
}
