//! `docs/library.md` is what runs: its blocks of Rust are the marked parts of an example, and the
//! example's figures are what the guide says of them.

#[path = "../examples/library.rs"]
#[allow(dead_code)] // its main is not run here
mod library;

use rocket_sim::Config;
use rocket_tests::TestBoard;

const GUIDE: &str = include_str!("../../docs/library.md");
const SOURCE: &str = include_str!("../examples/library.rs");

/// What stands between a line that begins with `from` and the next one that is `to`.
fn parts(text: &str, from: &str, to: &str) -> Vec<String> {
    let mut found = Vec::new();
    let mut lines = text.lines();
    while lines.by_ref().any(|l| l.starts_with(from)) {
        let part: Vec<&str> = lines.by_ref().take_while(|l| *l != to).collect();
        found.push(part.join("\n"));
    }
    found
}

#[test]
fn the_guides_code_is_the_examples() {
    let shown = parts(GUIDE, "```rust", "```");
    let compiled = parts(&SOURCE.replace("// guide: end", "// end"), "// guide: ", "// end");
    assert!(shown.len() > 5);
    for (i, shown) in shown.iter().enumerate() {
        assert!(
            compiled.contains(shown),
            "block {} of docs/library.md is not compiled:\n{shown}",
            i + 1
        );
    }
    for part in &compiled {
        assert!(shown.contains(part), "docs/library.md does not show:\n{part}");
    }
}

#[test]
fn the_examples_figures_hold() {
    let report = library::run(&TestBoard::new(Config::default())).expect("runs");
    println!("{report:#?}");
    assert!(report.floats.len() == 5 && report.agree);
    for d in &report.floats {
        assert!(d.of_bound <= 1.0, "{d:?}");
        assert!(d.control > 2.0, "the bound says nothing: {d:?}");
    }
    assert_eq!(report.exact, [true, true]);
    let [plain, rotated] = report.quantized;
    assert!(rotated > 0.0 && rotated < plain / 2.0, "{plain} and {rotated}");
    assert!(report.stats.executed_macs - report.stats.padding_macs == 100 * 960 * 300);
}

/// The guide quotes the example's output on the simulated board. The simulator's sums have one
/// order, so every machine prints the same.
#[test]
fn the_guide_quotes_the_output() {
    let report = library::run(&TestBoard::open_as(Config::default(), false)).expect("runs");
    let lines = report.to_string();
    assert!(
        GUIDE.contains(&format!("```text\n{lines}```")),
        "docs/library.md is to hold what `cargo run -p rocket-tests --example library` prints:\n{lines}"
    );
}
