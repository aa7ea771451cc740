//! The files by which programs recognise a board: device tree, module, device class
//! (kernel-and-uapi D.1 to D.3).

use crate::Config;
use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, symlink};
use std::path::{Path, PathBuf};

/// What our series' driver says that it does (`kernel-patches/series/0021-features.patch` and the patches after it).
const FEATURES: &str = "domain-allocator,create-bo-reference,extensible-submit,submit-limits,keep-attached,\
                        reset-before-detach,completion-lock,clocks-by-name,clock-lever,voltage,batched-submit,\
                        sched-init-error,dependencies-first,live-cores,usage-stats,ppu-done,bo-ranges,dma-errors,\
                        read-fences,prep-errors,job-timeout,irq-cpu";

/// Core and IOMMU nodes of the device tree.
pub(super) const CORES: [&str; 3] = ["fdab0000", "fdac0000", "fdad0000"];
const IOMMUS: [&str; 3] = ["fdab9000", "fdaca000", "fdada000"];

/// Writes files below a root, each with the folders it needs.
pub(super) struct Tree<'a> {
    pub(super) root: &'a Path,
}

impl Tree<'_> {
    fn path(&self, path: &str) -> io::Result<PathBuf> {
        let full = self.root.join(path);
        if let Some(parent) = full.parent() {
            fs::create_dir_all(parent)?;
        }
        Ok(full)
    }

    pub(super) fn file(&self, path: &str, text: &str) -> io::Result<()> {
        fs::write(self.path(path)?, text)
    }

    /// A link as sysfs has them: relative.
    fn link(&self, path: &str, target: &str) -> io::Result<()> {
        symlink(target, self.path(path)?)
    }
}

/// Builds the tree of a board; the node itself comes with its socket.
///
/// # Errors
/// When the root exists already, or the file system refuses.
pub fn build(root: &Path, config: &Config) -> io::Result<()> {
    if let Some(dir) = root.parent() {
        fs::DirBuilder::new().recursive(true).mode(0o700).create(dir)?;
    }
    fs::create_dir(root)?;
    let tree = Tree { root };
    fs::create_dir_all(root.join("dev/accel"))?;
    device_tree(&tree, config)?;
    module(&tree, config)?;
    devices(&tree, config)
}

fn device_tree(tree: &Tree<'_>, config: &Config) -> io::Result<()> {
    let base = "sys/firmware/devicetree/base";
    tree.file(&format!("{base}/compatible"), "rocket-sim,rk3588\0rockchip,rk3588\0")?;
    tree.file(&format!("{base}/model"), "Simulated RK3588 board\0")?;
    for (i, core) in CORES.iter().enumerate() {
        let status = if i < config.cores { "okay\0" } else { "disabled\0" };
        let node = format!("{base}/npu@{core}");
        tree.file(&format!("{node}/compatible"), "rockchip,rk3588-rknn-core\0")?;
        tree.file(&format!("{node}/status"), status)?;
        let iommu = format!("{base}/iommu@{}", IOMMUS[i]);
        let compatible = "rockchip,rk3588-iommu\0rockchip,rk3568-iommu\0";
        tree.file(&format!("{iommu}/compatible"), compatible)?;
        tree.file(&format!("{iommu}/status"), status)?;
    }
    tree.link("proc/device-tree", "../sys/firmware/devicetree/base")
}

fn module(tree: &Tree<'_>, config: &Config) -> io::Result<()> {
    let module = "sys/module/rocket";
    tree.file(&format!("{module}/initstate"), "live\n")?;
    tree.file(&format!("{module}/refcnt"), "0\n")?;
    let stock = config.profile.is_stock();
    tree.file(&format!("{module}/taint"), if stock { "\n" } else { "OE\n" })?;
    if stock {
        return Ok(());
    }
    let mut parameters = vec![
        ("rocket_npu_clk_hz", config.clock_hz.to_string()),
        ("rocket_npu_uv", "0".to_owned()),
        ("rocket_autosuspend_ms", "1000".to_owned()),
    ];
    if config.profile.batches() {
        parameters.push(("rocket_batch_submit", "1".to_owned()));
    }
    if config.profile.has_usage() {
        parameters.push(("rocket_features", FEATURES.to_owned()));
    }
    for (name, value) in parameters {
        tree.file(&format!("{module}/parameters/{name}"), &format!("{value}\n"))?;
    }
    Ok(())
}

fn devices(tree: &Tree<'_>, config: &Config) -> io::Result<()> {
    for core in CORES.iter().take(config.cores) {
        let device = format!("sys/bus/platform/devices/{core}.npu");
        let delay = format!("{}\n", config.profile.autosuspend().as_millis());
        tree.file(&format!("{device}/power/control"), "auto\n")?;
        tree.file(&format!("{device}/power/runtime_status"), "suspended\n")?;
        tree.file(&format!("{device}/power/autosuspend_delay_ms"), &delay)?;
        let link = format!("sys/bus/platform/drivers/rocket/{core}.npu");
        tree.link(&link, &format!("../../devices/{core}.npu"))?;
    }
    let zone = "sys/class/thermal/thermal_zone6";
    tree.file(&format!("{zone}/type"), "npu-thermal\n")?;
    tree.file(&format!("{zone}/trip_point_0_type"), "critical\n")?;
    tree.file(&format!("{zone}/trip_point_0_temp"), "115000\n")?;
    let accel = "sys/devices/platform/rknn/accel/accel0";
    tree.file(&format!("{accel}/dev"), "261:0\n")?;
    let event = "MAJOR=261\nMINOR=0\nDEVNAME=accel/accel0\nDEVTYPE=accel_minor\n";
    tree.file(&format!("{accel}/uevent"), event)?;
    tree.link(&format!("{accel}/device"), "../../../rknn")?;
    tree.link("sys/class/accel/accel0", "../../devices/platform/rknn/accel/accel0")?;
    tree.link("sys/dev/char/261:0", "../../devices/platform/rknn/accel/accel0")?;
    tree.file("sys/kernel/debug/accel/rknn/name", "rocket dev=rknn unique=rknn\n")
}
