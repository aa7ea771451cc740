//! Devices whose clock the kernel scales, the memory's controller among them on some kernels (kernel-and-uapi D.5).

use super::{Reading, Root, Why};

/// A scaled device.
#[derive(Debug, Clone)]
pub struct Devfreq {
    /// Its folder, from the root on.
    pub path: String,
    /// Its name, as `dmc`.
    pub name: String,
    /// Who decides.
    pub governor: Reading<String>,
    /// Hz now.
    pub now: Reading<u64>,
    /// Hz at most.
    pub most: Reading<u64>,
}

/// All of them; none where the kernel has no such class.
pub fn read(root: &Root) -> Reading<Vec<Devfreq>> {
    const FOLDER: &str = "sys/class/devfreq";
    let names = match root.names(FOLDER) {
        // A kernel without the class has none, which /sys/class must be there to say.
        Err(absent) if absent.why == Why::Missing && root.exists("sys/class") == Ok(true) => {
            Vec::new()
        }
        names => names?,
    };
    let device = |name: String| {
        let path = format!("{FOLDER}/{name}");
        Devfreq {
            governor: root.text(&format!("{path}/governor")),
            now: root.number(&format!("{path}/cur_freq")),
            most: root.number(&format!("{path}/max_freq")),
            path: format!("/{path}"),
            name,
        }
    };
    Ok(names.into_iter().map(device).collect())
}
