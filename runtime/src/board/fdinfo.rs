//! What a program did with an accel node, as `/proc/PID/fdinfo/FD` has it (kernel-and-uapi D.2, C.4 P1).

use std::collections::BTreeMap;

/// Most bytes of an fdinfo that are looked at.
const LIMIT: usize = 64 << 10;

/// The `drm-` keys of an fdinfo. Mainline's rocket has none of them: then there is no value, not 0.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct FdInfo {
    /// `drm-driver`.
    pub driver: String,
    /// `drm-client-id`: the same for all descriptors of one open file.
    pub client: Option<u64>,
    /// `drm-engine-NAME`: nanoseconds at work.
    pub engines: BTreeMap<String, u64>,
    /// `drm-cycles-NAME`.
    pub cycles: BTreeMap<String, u64>,
    /// `drm-maxfreq-NAME` in Hz.
    pub max_hz: BTreeMap<String, u64>,
    /// `drm-KIND-REGION` in bytes, by kind (`total`, `shared`, `active`, `resident`, `purgeable`), then region.
    pub memory: BTreeMap<String, BTreeMap<String, u64>>,
}

/// The `drm-` keys; `None` where the file is no DRM device's, or its driver reports none.
pub fn parse(text: &str) -> Option<FdInfo> {
    let mut info = FdInfo::default();
    // Lines that a limit cut have no value that can be trusted.
    let end = text.len().min(LIMIT);
    let whole = text.get(..end).unwrap_or_default();
    for line in whole.lines() {
        let Some((key, value)) = line.strip_prefix("drm-").and_then(|l| l.split_once(':')) else {
            continue;
        };
        field(&mut info, key.trim(), value.trim());
    }
    (!info.driver.is_empty()).then_some(info)
}

fn field(info: &mut FdInfo, key: &str, value: &str) {
    match key {
        "driver" => value.clone_into(&mut info.driver),
        "client-id" => info.client = value.parse().ok(),
        _ if key.starts_with("engine-capacity-") => {}
        _ => {
            let Some((kind, name)) = key.split_once('-') else { return };
            let Some(number) = scaled(value) else { return };
            let into = match kind {
                "engine" => &mut info.engines,
                "cycles" => &mut info.cycles,
                "maxfreq" => &mut info.max_hz,
                // What `resident` was called at first.
                "memory" => info.memory.entry("resident".into()).or_default(),
                "total" | "shared" | "active" | "resident" | "purgeable" => {
                    info.memory.entry(kind.to_owned()).or_default()
                }
                _ => return,
            };
            into.insert(name.to_owned(), number);
        }
    }
}

/// A number and its unit: ns, Hz, KHz, MHz, KiB, MiB, or bytes.
fn scaled(value: &str) -> Option<u64> {
    let mut words = value.split_whitespace();
    let number: u64 = words.next()?.parse().ok()?;
    let unit = match words.next() {
        None | Some("ns" | "Hz") => 1,
        Some("KiB") => 1 << 10,
        Some("MiB") => 1 << 20,
        Some("KHz") => 1000,
        Some("MHz") => 1_000_000,
        Some(_) => return None,
    };
    number.checked_mul(unit)
}

#[cfg(test)]
mod tests {
    use super::*;

    const OURS: &str = "pos:\t0\nflags:\t02\nmnt_id:\t26\nino:\t513\ndrm-driver:\trocket\ndrm-client-id:\t7\n\
        drm-engine-npu0:\t1500000 ns\ndrm-engine-npu1:\t0 ns\ndrm-engine-capacity-npu1:\t1\n\
        drm-cycles-npu0:\t900000\ndrm-maxfreq-npu0:\t600000000 Hz\ndrm-total-memory:\t4 KiB\n\
        drm-resident-memory:\t2 MiB\ndrm-shared-memory:\t12\ndrm-odd-memory:\t1 GiB\n";

    #[test]
    fn keys_and_units() {
        let info = parse(OURS).unwrap();
        assert_eq!((&*info.driver, info.client), ("rocket", Some(7)));
        assert_eq!(info.engines, BTreeMap::from([("npu0".into(), 1_500_000), ("npu1".into(), 0)]));
        assert_eq!((info.cycles["npu0"], info.max_hz["npu0"]), (900_000, 600_000_000));
        let memory = |kind: &str| info.memory.get(kind).map(|m| m["memory"]);
        let got = ["total", "resident", "shared", "odd"].map(memory);
        assert_eq!(got, [Some(4096), Some(2 << 20), Some(12), None]);
    }

    #[test]
    fn without_a_number_there_is_no_value() {
        assert_eq!(parse("pos:\t0\nflags:\t02\nmnt_id:\t26\nino:\t513\n"), None, "mainline's");
        let odd = format!(
            "drm-driver: rocket\ndrm-engine-npu0: -5 ns\ndrm-engine-npu1: {} KiB\n",
            u64::MAX
        );
        let info = parse(&(odd + "drm-engine-npu2: 3 parsecs\ndrm-engine-npu3:\n")).unwrap();
        assert!(info.engines.is_empty(), "{info:?}");
    }

    proptest::proptest! {
        #[test]
        fn any_text(text in "(drm-)?[a-z0-9:\\n -]{0,200}") {
            let _ = parse(&text);
        }
    }
}
