//! A forecast as JSON; names are stable within a schema number (docs/forecast.md).

use super::groups::{by_op, by_type};
use super::plan::{Shape, Work, percent};
use super::text::View;
use crate::model::Format;
use serde_json::{Value, json};
use std::collections::BTreeMap;

const SCHEMA: u32 = 1;

pub fn of(view: &View) -> Value {
    let View { path, header, settings, forecast, advice, source } = view;
    let [all, npu] = forecast.totals();
    let (format, version) = match header.format {
        Format::Gguf(version) => ("gguf", Some(version)),
        Format::Whisper => ("whisper", None),
    };
    let memory = match settings.memory {
        Some(m) => {
            json!({"value": m.available, "unit": "B", "source": source, "why": null, "total": m.total})
        }
        None => json!({"value": null, "unit": "B", "source": null, "total": null,
            "why": "no usable /proc/meminfo; give --ram"}),
    };
    json!({
        "schema": SCHEMA,
        "tool": "rocketctl",
        "version": env!("CARGO_PKG_VERSION"),
        "modelled": true,
        "model": {
            "file": path.display().to_string(),
            "format": format,
            "format_version": version,
            "architecture": header.architecture,
            "parts": header.parts,
            "bytes": header.bytes,
            "tensors": header.tensors.len(),
        },
        "settings": {
            "prompt": settings.cut.prompt,
            "ubatch": settings.cut.ubatch,
            "flash_attn": settings.cut.flash,
            "repack": settings.repack,
            "host_cpu": settings.cpu,
            "soc": settings.soc,
            "memory": memory,
        },
        "unit": forecast.unit,
        "totals": {
            "ops": all.ops,
            "macs": all.macs,
            "npu_ops": npu.ops,
            "npu_macs": npu.macs,
            "npu_share": percent(npu.macs, all.macs),
            "repacked_weights": forecast.repacked,
        },
        "by_type": by_type(header, forecast),
        "by_op": by_op(forecast),
        "shapes": shapes(&forecast.prefill),
        "decode": shapes(&forecast.decode),
        "residency": forecast.plan,
        "assumed": forecast.assumed,
        "recommended": advice,
    })
}

fn shapes(of: &BTreeMap<Shape, Work>) -> Vec<Value> {
    let each = of.iter().map(|(s, w)| {
        json!({
            "op": s.op, "weight_type": s.weight_type, "k": s.k, "n": s.n, "rows": s.rows,
            "place": s.place, "outcome": s.outcome, "stored": s.stored,
            "count": w.ops, "macs": w.macs,
        })
    });
    each.collect()
}
