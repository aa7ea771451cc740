use super::super::tests::{ALL, tree, typical};
use super::text::number;
use super::*;
use crate::doctor::checks;
use crate::ui::Color;
use ggml_rocket::exec::redo::REDOS;
use ggml_rocket::route::REASONS;
use rocket_runtime::telemetry::{Image, RowKey};

fn globals(quiet: bool, color: Color) -> Globals {
    Globals { root: "/".into(), json: false, quiet, color }
}

fn shown(fill: impl Fn(&mut Image), sort: Sort, quiet: bool) -> String {
    let (dir, _writer) = tree(fill);
    let found = read(dir.path(), &ALL).unwrap();
    let text = text(&found, sort, &globals(quiet, Color::Never));
    assert!(text.lines().all(|l| l.chars().count() <= 80), "{text}");
    text
}

/// Where it ran, how often and why not; the share is that of what was counted.
#[test]
fn a_hosts_table() {
    let text = shown(typical, Sort::Work, false);
    let line = |word: &str| text.lines().find(|l| l.contains(word)).unwrap_or_default();
    // 2 * 19327352832 / 60000000 = 644.2
    assert!(line("512+x2048x6144").contains("644.2 fp16"), "{text}");
    assert!(line("1x2048x6144").contains("900 too_few_rows"), "{text}");
    assert!(text.contains("About 75 %"), "{text}");
    assert!(text.contains("fewer rows than ROCKET_MIN_M"), "{text}");
    assert!(text.contains("computed by the CPU after all") && text.contains("result_overflow"));
    // What is as it should be is left out of the short form.
    let short = shown(typical, Sort::Work, true);
    assert!(!short.contains("too_few_rows") && short.contains("weight_not_in_host_memory"));
}

#[test]
fn order_is_what_was_asked_for() {
    let first = |sort| {
        let text = shown(typical, sort, false);
        let (_, rest) = text.split_once("Left to the CPU").unwrap();
        rest.lines().nth(2).unwrap().to_owned()
    };
    assert!(first(Sort::Calls).contains("900"), "{}", first(Sort::Calls));
    assert!(first(Sort::Op).contains("q4_k"));
    let (dir, _writer) = tree(typical);
    let found = read(dir.path(), &ALL).unwrap();
    let rows = &found.shown[0].1.rows;
    let work: Vec<_> = sorted(rows, Sort::Work).iter().map(|r| (r.place, r.macs)).collect();
    assert!(work.windows(2).all(|w| w[0].0 < w[1].0 || w[0].1 >= w[1].1), "{work:?}");
}

/// What a reason sends people to is a check that the doctor has; some are as they should be.
#[test]
fn reasons_lead_to_checks() {
    let ids =
        REASONS.iter().filter_map(|r| r.mends()).chain(REDOS.iter().filter_map(|r| r.mends()));
    for id in ids {
        assert!(checks::ALL.iter().any(|c| c.id == id), "{id}");
    }
    assert_eq!(Reason::TooFewRows.mends(), None);
    assert_eq!(Reason::WeightNotInHostMemory.mends(), Some("host.repack"));
}

/// Each row has words, and what can be mended is told.
#[test]
fn reasons_are_the_plugins() {
    let (dir, _writer) = tree(typical);
    let found = read(dir.path(), &ALL).unwrap();
    let json = serde_json::to_value(output(&found, Sort::Op, 0)).unwrap();
    let rows = json["processes"][0]["rows"].as_array().unwrap();
    assert_eq!(rows.len(), 4);
    for row in rows {
        assert!(row["meaning"].is_string(), "{row}");
        let declined = row["place"] == "declined";
        assert_eq!(declined, row["ns"].is_null(), "{row}");
    }
    let mended: Vec<_> = rows.iter().filter(|r| r["normal"] == false).collect();
    assert_eq!(mended.len(), 2, "{rows:?}");
}

/// Figures of any size and names of any letters keep to the columns.
#[test]
fn long_rows_fit() {
    let fill = |image: &mut Image| {
        for (i, rows) in [1, 40, u64::MAX].into_iter().enumerate() {
            let key = RowKey {
                place: [Place::Npu, Place::Declined, Place::Other][i],
                op: "FLASH_ATTN_EXTRA",
                weight: "iq2_xxs_longer_x",
                k: 16_777_216,
                n: 152_064,
                rows,
                outcome: "attention_not_in_host_memory_and",
            };
            image.count(&key, u64::MAX, u64::MAX, u64::MAX / 1_000_000_000_000);
        }
    };
    let text = shown(fill, Sort::Time, false);
    assert!(text.contains("17Mx152064"), "{text}");
    assert_eq!(number(999_999.4, 1), "999999");
    assert_eq!(number(999_999.6, 1), "1M");
    assert_eq!(number(12.34, 1), "12.3");
}

#[test]
fn colour_is_for_what_can_be_mended() {
    let (dir, _writer) = tree(typical);
    let found = read(dir.path(), &ALL).unwrap();
    let text = text(&found, Sort::Work, &globals(false, Color::Always));
    let line = |word: &str| text.lines().find(|l| l.contains(word)).unwrap();
    assert!(line("weight_not_in").contains("\u{1b}[33m"));
    assert!(!line("too_few_rows").contains("\u{1b}[33m"));
}

/// Without figures nothing is claimed.
#[test]
fn nothing_counted_is_not_zero() {
    let text = shown(|_| {}, Sort::Work, false);
    assert!(text.contains("not known") && !text.contains("0 %"), "{text}");
}
