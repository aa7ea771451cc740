//! The files of a served board that change while it works: busy time, clock, power, temperature, log. Monitors read
//! them below [`Server::root`](super::Server::root) as they read sysfs on a board (kernel-and-uapi D.2 to D.5, D.8).

use super::tree::{CORES, Tree};
use crate::{CoreActivity, SimBoard};
use std::collections::BTreeMap;
use std::fs;
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

/// How often the files are written.
pub(super) const EVERY: Duration = Duration::from_millis(100);
/// The clock that an NPU without power is parked at (kernel-and-uapi C.2).
const PARKED_HZ: u64 = 200_000_000;

/// Thousandths of a degree of a core that rests, what full load adds, and the time in which two thirds of a change
/// are through. Assumed: no board's heat sink is modelled.
const REST_MC: f64 = 42_000.0;
const LOAD_MC: f64 = 24_000.0;
const INERTIA: f64 = 20.0;

/// What writes them.
#[derive(Debug)]
pub(super) struct Live {
    root: PathBuf,
    begun: Instant,
    last: (Instant, [CoreActivity; crate::CORES]),
    temperature: f64,
    log: String,
    written: BTreeMap<String, String>,
}

impl Live {
    pub fn new(root: PathBuf, board: &SimBoard) -> Live {
        let now = Instant::now();
        let log = boot_log(board);
        let last = (now, board.activity());
        Live { root, begun: now, last, temperature: REST_MC, log, written: BTreeMap::new() }
    }

    /// Writes what changed.
    ///
    /// # Errors
    /// The file system's.
    pub fn write(&mut self, board: &SimBoard) -> io::Result<()> {
        let (now, all) = (Instant::now(), board.activity());
        let cores = board.config().cores;
        let (before, old) = self.last;
        let passed = now.saturating_duration_since(before).as_secs_f64();
        let share = (0..cores)
            .map(|i| (all[i].busy - old[i].busy.min(all[i].busy)).as_secs_f64())
            .sum::<f64>();
        let load = if passed > 0.0 { (share / passed / cores as f64).min(1.0) } else { 0.0 };
        self.temperature = warmed(self.temperature, load, passed);
        for (i, name) in CORES.iter().enumerate().take(cores) {
            for _ in old[i].timeouts..all[i].timeouts {
                let at = self.begun.elapsed().as_secs_f64();
                self.log += &format!("[{at:12.6}] rocket {name}.npu: NPU job timed out\n");
            }
        }
        self.last = (now, all);
        let hz = clock(board, &all[..cores]);
        let mut files = Vec::new();
        for (name, core) in CORES.iter().zip(&all[..cores]) {
            core_files(&mut files, name, core, board, self.begun.elapsed(), hz);
        }
        files.push(("sys/kernel/debug/clk/scmi_clk_npu/clk_rate".into(), format!("{hz}\n")));
        let zone = "sys/class/thermal/thermal_zone6";
        files.push((format!("{zone}/temp"), format!("{}\n", self.temperature.round())));
        files.push(("sys/module/rocket/refcnt".into(), format!("{}\n", board.alive().files)));
        files.push(("cmd/dmesg.txt".into(), self.log.clone()));
        // A simulated board's memory is this machine's.
        if let Ok(text) = fs::read_to_string("/proc/meminfo") {
            files.push(("proc/meminfo".into(), text));
        }
        files.into_iter().try_for_each(|(path, text)| self.file(path, text))
    }

    /// Whole or not at all, as a file of sysfs is read.
    fn file(&mut self, path: String, text: String) -> io::Result<()> {
        if self.written.get(&path) == Some(&text) {
            return Ok(());
        }
        let tree = Tree { root: &self.root };
        let unfinished = ".live";
        tree.file(unfinished, &text)?;
        let place = self.root.join(&path);
        fs::create_dir_all(place.parent().unwrap_or(Path::new("/")))?;
        fs::rename(self.root.join(unfinished), place)?;
        self.written.insert(path, text);
        Ok(())
    }
}

/// With power at its rate, without at the boot's; a driver without the lever leaves it alone.
fn clock(board: &SimBoard, cores: &[CoreActivity]) -> u64 {
    let parks = !board.config().profile.is_stock() && cores.iter().all(|c| !c.powered);
    if parks { PARKED_HZ } else { board.clock_hz() }
}

/// A first-order lag.
fn warmed(temperature: f64, load: f64, seconds: f64) -> f64 {
    let goal = REST_MC + LOAD_MC * load;
    goal + (temperature - goal) * (-seconds / INERTIA).exp()
}

fn core_files(
    files: &mut Vec<(String, String)>,
    name: &str,
    core: &CoreActivity,
    board: &SimBoard,
    age: Duration,
    hz: u64,
) {
    let device = format!("sys/bus/platform/devices/{name}.npu");
    let status = if core.powered { "active" } else { "suspended" };
    let active = core.active.as_millis();
    let mut file =
        |path: &str, value: String| files.push((format!("{device}/{path}"), value + "\n"));
    file("power/runtime_status", status.into());
    file("power/runtime_active_time", active.to_string());
    file("power/runtime_suspended_time", age.as_millis().saturating_sub(active).to_string());
    if board.config().profile.has_usage() {
        file("npu_busy_ns", core.busy.as_nanos().to_string());
        file("npu_jobs", core.jobs.to_string());
        file("npu_tasks", core.tasks.to_string());
        file("npu_timeouts", core.timeouts.to_string());
        file("npu_faults", "0".into());
        let error = if core.timeouts > 0 { -(nix::errno::Errno::ETIMEDOUT as i32) } else { 0 };
        file("npu_last_error", error.to_string());
        file("npu_cur_freq_hz", hz.to_string());
    }
}

/// What the driver says when it comes up (kernel-and-uapi D.8). Its core version is four letters.
fn boot_log(board: &SimBoard) -> String {
    let (major, minor) = board.config().profile.version();
    let mut log =
        format!("[    0.000000] [drm] Initialized rocket {major}.{minor}.0 for rknn on minor 0\n");
    for (i, name) in CORES.iter().enumerate().take(board.config().cores) {
        log += &format!(
            "[    0.000000] rocket {name}.npu: Rockchip NPU core {i} version: 1179210309\n"
        );
    }
    log
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Config, DriverProfile};

    #[test]
    fn temperatures_follow_load_and_never_overshoot() {
        assert_eq!(warmed(REST_MC, 0.0, 5.0), REST_MC);
        let after = |s| warmed(REST_MC, 1.0, s);
        assert!(
            (after(INERTIA) - REST_MC - LOAD_MC * (1.0 - 1.0 / std::f64::consts::E)).abs() < 1e-6
        );
        assert!(after(1.0) < after(2.0) && after(1e9) <= REST_MC + LOAD_MC);
    }

    #[test]
    fn a_tree_has_what_its_driver_counts_and_no_more() {
        for (profile, usage) in [
            (DriverProfile::Stock, false),
            (DriverProfile::V1_6, false),
            (DriverProfile::Full, true),
        ] {
            let dir = tempfile::tempdir().unwrap();
            let board = SimBoard::new(Config { profile, cores: 2, ..Config::default() });
            let mut live = Live::new(dir.path().into(), &board);
            live.write(&board).unwrap();
            let read = |path: &str| fs::read_to_string(dir.path().join(path)).ok();
            let core = "sys/bus/platform/devices/fdab0000.npu";
            assert_eq!(read(&format!("{core}/npu_busy_ns")).is_some(), usage);
            assert_eq!(
                read(&format!("{core}/power/runtime_status")).as_deref(),
                Some("suspended\n")
            );
            assert_eq!(
                read("sys/bus/platform/devices/fdad0000.npu/power/runtime_status"),
                None,
                "two cores"
            );
            let hz = read("sys/kernel/debug/clk/scmi_clk_npu/clk_rate").unwrap();
            assert_eq!(hz, if profile.is_stock() { "600000000\n" } else { "200000000\n" });
            assert!(read("cmd/dmesg.txt").unwrap().contains("core 1 version: 1179210309"));
        }
    }
}
