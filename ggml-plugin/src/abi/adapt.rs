//! `ROCKET_ABI=adapt`: tables for a layout that no row describes, from what was measured
//! (ggml-abi 5.3). Whatever was not measured must be as it always was.

use super::generation::{ACCEL_A, ACCEL_B, ADAPTED};
use super::probe::{Probes, SLOTS, Slot};
use super::{BackendTable, Generation, SUPPORTED};

/// Whether the pure loads found both tables, so that the slot probes have something to find.
pub(super) fn worth_probing(p: &Probes) -> bool {
    p.backend_slots.is_some() && p.device_slots.is_some()
}

/// The layout as measured.
///
/// # Errors
/// Which measurement is missing or contradicts another.
pub(super) fn layout(p: &Probes) -> Result<Generation, String> {
    let api = p.host_api.ok_or("no registered backend shows the API version")?;
    let slots = p.backend_slots.ok_or("the backend table's length is unknown")?;
    let newest = SUPPORTED[SUPPORTED.len() - 1];
    let device_slots = p
        .device_slots
        .filter(|&n| n >= newest.device_slots)
        .ok_or("the device table is shorter than any known one")?;
    // Where the capabilities lie in a struct of another size cannot be measured.
    let (props_bytes, accel) = match p.props_bytes {
        Some(40) => (40, ACCEL_A),
        Some(56) => (56, ACCEL_B),
        _ => return Err("the device properties have an unknown size".to_owned()),
    };
    let mut backend = Vec::new();
    for probe in SLOTS {
        let found = p.slots.iter().find(|(name, _)| *name == probe.name);
        let found = found
            .and_then(|(_, slot)| *slot)
            .ok_or_else(|| format!("the slot of {} is unknown", probe.name))?;
        match probe.slot {
            Slot::Backend(_) if found >= slots || backend.contains(&found) => {
                return Err(format!("{} reads slot {found} of {slots}", probe.name));
            }
            Slot::Backend(_) => backend.push(found),
            Slot::Device(known) | Slot::Reg(known) if found != known => {
                return Err(format!("{} reads slot {found} instead of {known}", probe.name));
            }
            Slot::Device(_) | Slot::Reg(_) => {}
        }
    }
    let [get_name, free, synchronize, graph_compute] = backend[..] else {
        return Err("the backend's slots could not be probed".to_owned());
    };
    Ok(Generation {
        name: ADAPTED,
        era: "measured",
        api,
        backend: BackendTable { slots, get_name, free, synchronize, graph_compute },
        device_slots,
        buft_slots: p.buft_slots.unwrap_or(0),
        props_bytes,
        has_2d: p.has_2d,
        has_buffer_n: p.has_buffer_n,
        accel,
    })
}
