//! The plugin's report: what it says became of each op.

use anyhow::{Context as _, Result};
use serde_json::Value;
use std::collections::HashMap;
use std::path::Path;

/// One computed op.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Ran {
    /// That of the NPU, or `cpu`.
    pub route: String,
    /// Why the CPU.
    pub redo: Option<String>,
    /// Bytes of weights that were packed for it.
    pub packed_bytes: u64,
}

/// What was read.
#[derive(Debug, Default)]
pub struct Report {
    /// By name of the result.
    pub ops: HashMap<String, Ran>,
    /// Declined products: type's name, K, N and reason.
    pub declined: Vec<(String, i64, i64, String)>,
    /// Ops by route.
    pub routes: HashMap<String, u64>,
    /// CPU redos by reason.
    pub redos: HashMap<String, u64>,
}

fn text(v: &Value) -> String {
    v.as_str().unwrap_or_default().to_owned()
}

fn counts(v: &Value) -> HashMap<String, u64> {
    let entries = v.as_object().into_iter().flatten();
    entries.map(|(k, n)| (k.clone(), n.as_u64().unwrap_or(0))).collect()
}

/// Reads the file that the plugin writes when a context ends.
///
/// # Errors
/// There is none.
pub fn read(path: &Path) -> Result<Report> {
    let bytes = std::fs::read(path).context("the plugin wrote no report")?;
    let v: Value = serde_json::from_slice(&bytes).context("the plugin's report is no JSON")?;
    let list = |key: &str| v[key].as_array().cloned().unwrap_or_default();
    let ops = list("ops").into_iter().map(|o| {
        let redo = o["redo"].as_str().map(str::to_owned);
        let packed_bytes = o["engine"]["packed_bytes"].as_u64().unwrap_or(0);
        (text(&o["name"]), Ran { route: text(&o["route"]), redo, packed_bytes })
    });
    let declined = list("reasons").into_iter().map(|r| {
        let number = |key: &str| r[key].as_i64().unwrap_or(-1);
        (text(&r["weight_type"]), number("k"), number("n"), text(&r["reason"]))
    });
    Ok(Report {
        ops: ops.collect(),
        declined: declined.collect(),
        routes: counts(&v["routes"]),
        redos: counts(&v["redos"]),
    })
}
