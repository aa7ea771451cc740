//! What the tools know of a machine, read once.

use super::cpu::Cpu;
use super::devfreq::Devfreq;
use super::irq::Interrupt;
use super::silicon::{CoreVersion, core_versions};
use super::thermal::Zone;
use super::{
    Identity, KernelConfig, LogLine, Memory, NextKernel, PackagedTree, Reading, Root, Stat, meminfo,
};
use super::{boot, clocks, cpu, devfreq, dtb, irq, kconfig, thermal};

/// An NPU core in the device tree (kernel-and-uapi D.1).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DtNode {
    /// The node's name, as `npu@fdab0000`.
    pub name: String,
    /// Its path from the root on.
    pub path: String,
    /// Its `compatible` entries.
    pub compatible: Vec<String>,
    /// Whether its `status` lets a driver have it: no status means it does.
    pub enabled: bool,
}

/// An accel node (kernel-and-uapi D.2).
#[derive(Debug, Clone)]
pub struct AccelNode {
    /// Its path from the root on.
    pub path: String,
    /// The driver's name.
    pub driver: Reading<String>,
    /// What the driver says of itself, `rocket 1.7`.
    pub version: Reading<String>,
    /// Owner and mode.
    pub stat: Reading<Stat>,
    /// The errno's name with which opening it fails; empty when it opens. A tree has it in `NODE.open`.
    pub open: Reading<String>,
}

/// Power management of a core (kernel-and-uapi D.3).
#[derive(Debug, Clone)]
pub struct CorePower {
    /// The folder, from the root on.
    pub path: String,
    /// Milliseconds without a job before the core is switched off.
    pub autosuspend_ms: Reading<i64>,
    /// `auto` or `on`.
    pub control: Reading<String>,
}

/// The running driver (kernel-and-uapi D.2).
#[derive(Debug, Clone)]
pub struct Module {
    /// Letters of what is unusual: `O` is out of tree, `E` unsigned.
    pub taint: Reading<String>,
    /// A digest of its sources, though not of their UAPI header.
    pub srcversion: Reading<String>,
}

/// Everything that was read.
#[derive(Debug, Clone)]
pub struct Facts {
    /// `compatible` of the machine.
    pub compatible: Reading<Vec<String>>,
    /// The board's name.
    pub model: Reading<String>,
    /// Whether there are ACPI tables.
    pub acpi: Reading<bool>,
    /// The board's name by its firmware.
    pub dmi: Reading<String>,
    /// What shows that this is a container.
    pub container: Option<&'static str>,
    /// What shows the vendor's driver, from the root on (kernel-and-uapi D.12).
    pub vendor: Option<&'static str>,
    /// The kernel's release.
    pub release: Reading<String>,
    /// The processor's kind, as `uname -m` has it.
    pub machine: Reading<String>,
    /// NPU cores in the device tree.
    pub nodes: Vec<DtNode>,
    /// Whether the driver is there, loaded or built in.
    pub loaded: Reading<bool>,
    /// `modules.dep` or `modules.builtin` lines that name the driver; empty: this kernel has none.
    pub installed: Reading<Vec<String>>,
    /// What it says of itself.
    pub module: Module,
    /// The running kernel's configuration.
    pub config: Reading<KernelConfig>,
    /// The device tree that came with the running kernel.
    pub packaged: Reading<PackagedTree>,
    /// The kernel that boots next.
    pub next: Reading<NextKernel>,
    /// What the patched driver says it does (`rocket_features`).
    pub features: Reading<Vec<String>>,
    /// The rate that the patched driver was told.
    pub wanted_hz: Reading<u64>,
    /// Names of the cores that the driver has.
    pub bound: Reading<Vec<String>>,
    /// Whether the kernel has accel devices at all; unknown where that cannot be seen.
    pub accel_class: Reading<bool>,
    /// Accel nodes.
    pub accel: Vec<AccelNode>,
    /// The kernel's log.
    pub log: Reading<Vec<LogLine>>,
    /// Power management of the cores that the driver has.
    pub power: Vec<CorePower>,
    /// The clock now.
    pub clock_hz: Reading<u64>,
    /// The NPU's temperature in thousandths of a degree.
    pub temperature: Reading<i64>,
    /// Every thermal zone.
    pub zones: Reading<Vec<Zone>>,
    /// The processors.
    pub cpus: Reading<Vec<Cpu>>,
    /// What their instruction set has.
    pub cpu_features: Reading<Vec<String>>,
    /// The C library's version.
    pub glibc: Reading<String>,
    /// Interrupts of the cores.
    pub interrupts: Reading<Vec<Interrupt>>,
    /// Devices whose clock is scaled.
    pub devfreq: Reading<Vec<Devfreq>>,
    /// The system's memory.
    pub memory: Option<Memory>,
    /// Who is asking.
    pub identity: Reading<Identity>,
    /// Lines of `etc/group`.
    pub groups: Reading<String>,
}

/// Where the driver's module is in sysfs.
const MODULE: &str = "sys/module/rocket";
/// Where the cores that it has are.
const DRIVER: &str = "sys/bus/platform/drivers/rocket";

impl Facts {
    /// Reads all of it.
    pub fn read(root: &Root) -> Facts {
        let release = root.text("proc/sys/kernel/osrelease");
        let bound: Reading<Vec<String>> = root.names(DRIVER).map(|names| {
            let core = |n: &String| root.exists(&format!("{DRIVER}/{n}/power")) == Ok(true);
            names.into_iter().filter(core).collect()
        });
        let power = bound.iter().flatten().map(|core| core_power(root, core)).collect();
        let features = root.text(&format!("{MODULE}/parameters/rocket_features"));
        let compatible = root.strings("proc/device-tree/compatible");
        let zones = thermal::read(root);
        Facts {
            model: root.strings("proc/device-tree/model").map(|m| m.join(" ")),
            acpi: root.exists("sys/firmware/acpi/tables"),
            dmi: root.text("sys/class/dmi/id/board_name"),
            container: container(root),
            vendor: vendor(root),
            machine: machine(root),
            config: kconfig::read(root, &release),
            packaged: dtb::read(root, &release, &compatible),
            next: boot::next(root),
            module: Module {
                taint: root.text(&format!("{MODULE}/taint")),
                srcversion: root.text(&format!("{MODULE}/srcversion")),
            },
            nodes: dt_nodes(root),
            loaded: root.exists(MODULE),
            installed: installed(root, &release),
            features: features.map(|f| f.split([',', ' ']).map(str::to_owned).collect()),
            wanted_hz: root.number(&format!("{MODULE}/parameters/rocket_npu_clk_hz")),
            bound,
            accel_class: accel_class(root),
            accel: accel(root),
            log: root.log(),
            power,
            clock_hz: clocks::npu_rate(root),
            temperature: thermal::npu(&zones),
            zones,
            cpus: cpu::read(root),
            cpu_features: cpu::features(root),
            glibc: cpu::glibc(root),
            interrupts: irq::read(root),
            devfreq: devfreq::read(root),
            memory: root.text("proc/meminfo").ok().and_then(|text| meminfo(&text)),
            identity: root.identity(),
            groups: root.text("etc/group"),
            compatible,
            release,
        }
    }

    /// Whether the processor is an Arm one of 64 bits; a tree that does not say is taken for a board's.
    pub fn machine_is_arm(&self) -> bool {
        self.machine.as_deref().map_or(true, |m| m == "aarch64")
    }

    /// The accel nodes of the rocket driver.
    pub fn rocket_nodes(&self) -> impl Iterator<Item = &AccelNode> {
        self.accel.iter().filter(|n| n.driver.as_deref() == Ok("rocket"))
    }

    /// What the cores' silicon calls itself.
    pub fn core_versions(&self) -> Vec<CoreVersion> {
        self.log.as_deref().map(core_versions).unwrap_or_default()
    }

    /// The driver's interface by its own word, else by the log.
    pub fn interface(&self) -> Option<(u32, u32)> {
        let said = self.rocket_nodes().find_map(|n| n.version.as_deref().ok());
        let version = said.and_then(|v| v.strip_prefix("rocket ")?.split_once('.'));
        let numbers = version.and_then(|(a, b)| Some((a.parse().ok()?, b.parse().ok()?)));
        numbers.or_else(|| self.logged_interface())
    }

    /// By the last line of the log, as it may have been loaded again.
    fn logged_interface(&self) -> Option<(u32, u32)> {
        let lines = self.log.as_ref().ok()?;
        lines.iter().rev().find_map(|l| {
            let (_, rest) = l.text.split_once("Initialized rocket ")?;
            let mut numbers = rest.split(' ').next()?.split('.').map(|n| n.parse().ok());
            Some((numbers.next()??, numbers.next()??))
        })
    }

    /// Whether the running driver says that it has a patch of the series; `None` where it names nothing.
    pub fn has_patch(&self, id: &str) -> Option<bool> {
        self.features.as_ref().ok().map(|all| all.iter().any(|f| f == id))
    }

    /// Lines of the log with these words; none where there is no log.
    pub fn log_with<'a>(&'a self, words: &'a str) -> impl Iterator<Item = &'a LogLine> {
        self.log.iter().flatten().filter(move |l| l.text.contains(words))
    }
}

/// The processor's kind; a tree has it where newer kernels do.
fn machine(root: &Root) -> Reading<String> {
    const FILE: &str = "proc/sys/kernel/arch";
    match root.is_live() {
        true => root.keep_file(FILE, std::env::consts::ARCH),
        false => return root.text(FILE),
    }
    Ok(std::env::consts::ARCH.to_owned())
}

fn container(root: &Root) -> Option<&'static str> {
    ["run/.containerenv", ".dockerenv"].into_iter().find(|m| root.exists(m) == Ok(true))
}

/// Its builds differ in their node: this one has `/dev/rknpu`, others a DRM device. A tree has nodes as side files.
fn vendor(root: &Root) -> Option<&'static str> {
    const PLACES: [&str; 5] =
        ["sys/module/rknpu", "dev/rknpu", "dev/rknpu.stat", "sys/kernel/debug/rknpu", "proc/rknpu"];
    PLACES.into_iter().find(|path| root.exists(path) == Ok(true))
}

/// Nodes named `npu@…` at the tree's root or below `soc` (kernel-and-uapi D.1).
fn dt_nodes(root: &Root) -> Vec<DtNode> {
    let mut nodes = Vec::new();
    for place in ["proc/device-tree", "proc/device-tree/soc"] {
        for name in root.names(place).unwrap_or_default() {
            let path = format!("{place}/{name}");
            if name.starts_with("npu@") {
                let compatible = root.strings(&format!("{path}/compatible")).unwrap_or_default();
                let status = root.strings(&format!("{path}/status")).ok();
                let enabled = status.is_none_or(|s| matches!(s.join("").as_str(), "okay" | "ok"));
                nodes.push(DtNode { name, path: format!("/{path}"), compatible, enabled });
            }
        }
    }
    nodes
}

/// Lines of a release's `modules.dep` and `modules.builtin` that name the driver.
pub(super) fn installed(root: &Root, release: &Reading<String>) -> Reading<Vec<String>> {
    let dir = format!("lib/modules/{}", release.clone()?);
    let dep = root.text(&format!("{dir}/modules.dep"))?;
    let builtin = root.text(&format!("{dir}/modules.builtin")).unwrap_or_default();
    let ours = |line: &&str| {
        let file = line.split(':').next().unwrap_or_default();
        let name = file.rsplit('/').next().unwrap_or_default();
        name == "rocket.ko" || name.starts_with("rocket.ko.")
    };
    Ok(dep.lines().chain(builtin.lines()).filter(ours).map(str::to_owned).collect())
}

/// A kernel without the class has no node, which `/sys/class` must be there to say.
fn accel_class(root: &Root) -> Reading<bool> {
    match root.names("sys/class") {
        Ok(names) => Ok(names.iter().any(|n| n == "accel")),
        Err(absent) => Err(absent),
    }
}

fn accel(root: &Root) -> Vec<AccelNode> {
    let names = root.names("sys/class/accel").unwrap_or_default();
    let node = |name: String| {
        let path = format!("dev/accel/{name}");
        AccelNode {
            driver: root.link(&format!("sys/class/accel/{name}/device/driver")),
            version: root.version(&path),
            stat: root.stat(&path),
            open: root.opens(&path),
            path: format!("/{path}"),
        }
    };
    names.into_iter().map(node).collect()
}

fn core_power(root: &Root, core: &str) -> CorePower {
    let path = format!("sys/bus/platform/devices/{core}/power");
    CorePower {
        autosuspend_ms: root.number(&format!("{path}/autosuspend_delay_ms")),
        control: root.text(&format!("{path}/control")),
        path: format!("/{path}"),
    }
}
