//! The tables of `rocketctl why`, for people.

use super::{Sort, doctor, is_normal, meaning, sorted};
use crate::counters::{Counters, state};
use crate::doctor::finding::wrapped;
use crate::ui::Globals;
use anstyle::{AnsiColor, Style};
use rocket_runtime::telemetry::{Place, Row, Snapshot};
use std::collections::BTreeSet;

pub fn text(found: &Counters, sort: Sort, globals: &Globals) -> String {
    let mut out = String::new();
    for (i, (_, s)) in found.shown.iter().enumerate() {
        if i > 0 {
            out.push('\n');
        }
        out += &head(found, s);
        out += &tables(s, sort, globals);
    }
    for (path, why) in &found.refused {
        out += &lines(&format!("not shown: {}: {why}", path.display()), 0);
    }
    if !found.removed.is_empty() {
        out +=
            &format!("removed {} left-over files of processes that ended\n", found.removed.len());
    }
    if found.shown.is_empty() {
        out += &lines(&found.nothing(), 0);
    }
    out
}

fn lines(text: &str, indent: usize) -> String {
    let wrap = |line: &str| wrapped(line, 80 - indent);
    text.lines().flat_map(wrap).map(|l| format!("{:indent$}{l}\n", "")).collect()
}

/// Who it is, and how much of its work was taken.
fn head(found: &Counters, s: &Snapshot) -> String {
    let fact = |key| s.fact(key).filter(|f| !f.is_empty());
    let mut words =
        format!("{} (process {}, {}", fact("program").unwrap_or("a host"), s.process.pid, state(s));
    words += &match found.age_ms(s) {
        Some(ms) => format!(", figures of {} ago)", ago(ms)),
        None => ")".to_owned(),
    };
    let models = fact("models").map(|m| format!(", {m}")).unwrap_or_default();
    let device = fact("device").map(|d| format!(", on {d}")).unwrap_or_default();
    let asked = match (s.total("asked.accepted_macs"), s.total("asked.declined_macs")) {
        (Some(yes), Some(no)) if yes.saturating_add(no) > 0 => {
            let share = 100.0 * yes as f64 / yes.saturating_add(no) as f64;
            format!(
                "About {share:.0} % of the work that the host asked about was taken (an estimate)."
            )
        }
        _ => "How much of the work was taken is not known.".to_owned(),
    };
    lines(&format!("{words}{models}{device}\n{asked}"), 0)
}

fn ago(ms: u64) -> String {
    match ms {
        0..10_000 => format!("{}.{} s", ms / 1000, ms % 1000 / 100),
        10_000..600_000 => format!("{} s", ms / 1000),
        _ => format!("{} min", ms / 60_000),
    }
}

fn tables(s: &Snapshot, sort: Sort, globals: &Globals) -> String {
    let mut out = String::new();
    for (place, title, calls) in [
        (Place::Npu, "On the NPU", "calls"),
        (Place::Declined, "Left to the CPU", "asked"),
        (Place::Redone, "Taken, and computed by the CPU after all", "calls"),
        (Place::Other, "Of any kind, beyond what the table holds", "calls"),
    ] {
        let rows = sorted(&s.rows, sort);
        let rows: Vec<&Row> = rows.into_iter().filter(|r| r.place == place).collect();
        let rows: Vec<&Row> =
            rows.into_iter().filter(|r| !globals.quiet || !is_normal(r)).collect();
        if rows.is_empty() {
            continue;
        }
        out += &format!("\n{title}\n");
        let last = if place == Place::Npu { "ms    GOP/s route" } else { "reason" };
        out += &format!("{:<14} {:<7} {:<21} {calls:>6} {last}\n", "op", "type", "rows x K x N");
        for r in &rows {
            out += &row(r, globals.colored());
        }
        let reasons: BTreeSet<&str> = rows.iter().map(|r| r.outcome.as_str()).collect();
        for reason in reasons.into_iter().filter(|_| place != Place::Npu) {
            let Some(r) = rows.iter().find(|r| r.outcome == reason) else { continue };
            let words = meaning(r).unwrap_or("this version does not know the reason.");
            let more = doctor(r).map(|id| format!(" See: rocketctl doctor --only {id}"));
            out += &lines(&format!("{reason}: {words}{}", more.unwrap_or_default()), 2);
        }
    }
    if s.rows.is_empty() {
        out += "No operation was counted yet.\n";
    }
    out
}

fn row(r: &Row, colored: bool) -> String {
    let rows = match r.rows {
        [a, b] if a == b => a.to_string(),
        [a, u32::MAX] => format!("{a}+"),
        [a, b] => format!("{a}-{b}"),
    };
    let shape = format!("{rows}x{}x{}", dimension(r.k), dimension(r.n));
    let cut = |text: &str, most: usize| text.chars().take(most).collect::<String>();
    let head = format!(
        "{:<14} {:<7} {shape:<21} {:>6}",
        cut(&r.op, 14),
        cut(&r.weight, 7),
        number(r.calls as f64, 0)
    );
    let tail = match r.place {
        Place::Npu => {
            // A FLOP count is twice the multiply-accumulates.
            let gops = (r.ns > 0).then(|| number(2.0 * r.macs as f64 / r.ns as f64, 1));
            let gops = gops.unwrap_or_else(|| "n/a".to_owned());
            let ms = number(r.ns as f64 / 1e6, 1);
            format!("{ms:>7} {gops:>6} {}", cut(&r.outcome, 13))
        }
        _ => cut(&r.outcome, 28),
    };
    let style = match (r.place, is_normal(r)) {
        (Place::Npu, _) => Style::new(),
        (_, true) => Style::new().dimmed(),
        (_, false) => Style::new().fg_color(Some(AnsiColor::Yellow.into())),
    };
    match colored {
        true => format!("{style}{head} {tail}{}\n", style.render_reset()),
        false => format!("{head} {tail}\n"),
    }
}

/// In at most six columns.
fn dimension(n: u64) -> String {
    if n < 1_000_000 { n.to_string() } else { number(n as f64, 0) }
}

/// In at most six columns, with so many digits behind the point if there is room.
pub fn number(x: f64, digits: usize) -> String {
    let exact = format!("{x:.digits$}");
    match exact.len() <= 6 {
        true => exact,
        false if x < 999_999.5 => format!("{x:.0}"),
        false if x < 1e10 => format!("{:.0}M", x / 1e6),
        false => format!("{x:.0e}"),
    }
}
