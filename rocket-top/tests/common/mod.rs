//! A board that works: two samples a second apart, with every kind of line in them.
// Each test program has its own copy, and uses a part.
#![allow(dead_code)]

use rocket_top::frame::Frame;
use rocket_top::sample::{Board, Client, Core, Event, Host, Raw, Row, Sample, TimeSource};
use std::collections::BTreeMap;

fn row(
    place: &str,
    op: &str,
    weight: &str,
    outcome: &str,
    [k, n]: [u64; 2],
    rows: [u32; 2],
    calls: u64,
) -> Row {
    let macs = calls * u64::from(rows[1]) * k * n;
    let text = |s: &str| s.to_owned();
    Row {
        place: text(place),
        op: text(op),
        weight: text(weight),
        outcome: text(outcome),
        k,
        n,
        rows,
        calls,
        macs,
        ns: calls * 1000,
    }
}

/// `steps` of work done.
pub fn host(steps: u64) -> Host {
    let facts = [
        ("program", "/usr/bin/llama-server"),
        ("models", "qwen3-8b-q4_k_m.gguf"),
        ("simulated", "0"),
    ];
    let totals = [
        ("npu.submits", 120 * steps),
        ("bytes.resident", 3 << 30),
        ("time.pack", 100_000_000 * steps),
        ("time.convert", 200_000_000 * steps),
        ("time.npu", 600_000_000 * steps),
        ("time.results", 100_000_000 * steps),
    ];
    Host {
        id: "aa".into(),
        pid: 4242,
        alive: Some(true),
        updated_ns: 99_500_000_000 + steps * 1_000_000_000,
        facts: facts.iter().map(|(k, v)| ((*k).to_owned(), (*v).to_owned())).collect(),
        totals: totals.iter().map(|(k, v)| ((*k).to_owned(), *v)).collect(),
        rows: vec![
            row("npu", "MUL_MAT", "q8_0", "int8", [4096, 4096], [512, 512], 32 * steps),
            row("npu", "FLASH_ATTN_EXT", "f16", "attention", [128, 4096], [512, 512], 32 * steps),
            row("redone", "MUL_MAT", "q8_0", "job_timeout", [4096, 4096], [512, 512], 1),
            row(
                "declined",
                "MUL_MAT",
                "q4_K",
                "weight_not_in_host_memory",
                [4096, 12_288],
                [512, 512],
                64 * steps,
            ),
            row("declined", "MUL_MAT", "q8_0", "too_few_rows", [4096, 4096], [1, 1], 500 * steps),
            row("declined", "ROPE", "f32", "op_not_supported", [128, 32], [512, 512], 64 * steps),
        ],
        events: vec![
            Event {
                number: 1,
                time_ns: 90_000_000_000,
                code: "job_timeout".into(),
                text: "a job of 12 tasks hung on core 1".into(),
            },
            Event {
                number: 2,
                time_ns: 95_000_000_000,
                code: "experts_packed".into(),
                text: "12 of 32 experts".into(),
            },
        ],
    }
}

/// At so many seconds since boot, `steps` of work done, busy for so many ms.
pub fn sample(seconds: u64, steps: u64, busy_ms: [u64; 3]) -> Sample {
    let cores = ["fdab0000.npu", "fdac0000.npu", "fdad0000.npu"];
    let core = |(name, ms): (&str, u64)| Core {
        name: name.to_owned(),
        time: BTreeMap::from([
            (TimeSource::Sysfs, Raw::Value(ms * 1_000_000)),
            (TimeSource::Power, Raw::Value(seconds * 1_000_000_000)),
        ]),
        jobs: Raw::Value(40 * steps),
        timeouts: Raw::Value(0),
        faults: Raw::Value(0),
        interrupts: Raw::Value(vec![40 * steps, 0]),
        status: Raw::Value("active".into()),
    };
    Sample {
        boot: "boot".into(),
        boottime_ns: seconds * 1_000_000_000,
        monotonic_ns: seconds * 1_000_000_000,
        wall_ms: 1_800_000_000_000 + seconds * 1000,
        board: Board {
            model: Raw::Value("Radxa ROCK 5B".into()),
            soc: Raw::Value("rk3588".into()),
            kernel: Raw::Value("7.3.4".into()),
            interface: Raw::Value("1.7".into()),
            family: Raw::Value("rocket".into()),
        },
        cores: cores.into_iter().zip(busy_ms).map(core).collect(),
        clock_hz: Raw::Value(600_000_000),
        temperature_mc: Raw::Value(61_500),
        trip_mc: Raw::Value(115_000),
        domain: Raw::Value("on".into()),
        memory_available: Raw::Value(9 << 30),
        memory_total: Raw::Value(16 << 30),
        clients: Raw::Value(vec![
            Client {
                pid: 4242,
                name: Raw::Value("llama-server".into()),
                resident: Raw::Value(3 << 30),
            },
            Client { pid: 77, name: Raw::Value("teflon".into()), resident: Raw::Value(1 << 20) },
        ]),
        hosts: vec![host(steps)],
        refused: vec![],
        node: Raw::Value("accel0".into()),
    }
}

/// Cores at 90, 50 and 0 per cent.
pub fn working() -> Frame {
    Frame::new(
        Some(&sample(100, 1, [50_000, 50_000, 50_000])),
        &sample(101, 2, [50_900, 50_500, 50_000]),
        None,
    )
}

/// A machine with nothing to see.
pub fn bare() -> Frame {
    let why = |text: &str| text.to_owned();
    let one = |ns| Sample {
        boot: "boot".into(),
        boottime_ns: ns,
        monotonic_ns: ns,
        clock_hz: Raw::Why(why(
            "/sys/kernel/debug/clk/scmi_clk_npu/clk_rate may not be read (try as root)",
        )),
        node: Raw::Why(why("no /sys/class/accel")),
        clients: Raw::Why(why("no /sys/class/accel")),
        ..Sample::default()
    };
    Frame::new(Some(&one(1_000_000_000)), &one(2_000_000_000), None)
}
