//! What is read, in the order in which it is shown.

use super::Shown;
use rocket_runtime::board::Facts;
use rocket_runtime::soc::RK3588;

pub fn readings(facts: &Facts) -> Vec<Shown> {
    let mut all = vec![
        family(facts),
        soc(facts),
        Shown::of("board", &facts.model, "/proc/device-tree/model"),
    ];
    all.extend(cores(facts));
    all.extend(driver(facts));
    all.extend(speed(facts));
    all.extend(system(facts));
    all
}

/// Which of the two drivers' worlds this is (kernel-and-uapi D.12).
fn family(facts: &Facts) -> Shown {
    const NAME: &str = "family";
    let node =
        |part: &str| facts.nodes.iter().find(|n| n.compatible.iter().any(|c| c.contains(part)));
    let mainline = node("-rknn-core").map(|n| n.path.clone());
    let mainline =
        mainline.or_else(|| (facts.loaded == Ok(true)).then(|| "/sys/module/rocket".into()));
    let vendor =
        node("-rknpu").map(|n| n.path.clone()).or_else(|| facts.vendor.map(|p| format!("/{p}")));
    match (mainline, vendor) {
        (Some(at), None) => Shown::known(NAME, "mainline rocket", at),
        (None, Some(at)) => Shown::known(NAME, "vendor rknpu", at),
        (Some(one), Some(other)) => Shown::known(NAME, "both", format!("{one}, {other}")),
        (None, None) => match (&facts.compatible, facts.machine_is_arm()) {
            (Ok(_), _) => Shown::known(NAME, "none", "/proc/device-tree"),
            (Err(_), false) => Shown::known(NAME, "none", "no device tree, and no Arm processor"),
            (Err(absent), true) => Shown::absent(NAME, absent),
        },
    }
}

fn soc(facts: &Facts) -> Shown {
    const NAME: &str = "soc";
    const PARTS: [(&str, &str); 3] = [
        ("rockchip,rk3588", "RK3588"),
        ("rockchip,rk3588s", "RK3588S"),
        ("rockchip,rk3576", "RK3576"),
    ];
    let compatible = match &facts.compatible {
        Ok(compatible) => compatible,
        Err(absent) => return Shown::absent(NAME, absent),
    };
    let source = "/proc/device-tree/compatible";
    let exact = PARTS.iter().find(|(entry, _)| compatible.iter().any(|c| c == entry));
    match exact {
        Some((_, part)) => Shown::known(NAME, *part, source),
        None => Shown::unknown(
            NAME,
            source,
            format!("not one that is known: {}", compatible.join(", ")),
        ),
    }
}

fn cores(facts: &Facts) -> Vec<Shown> {
    let enabled = facts.nodes.iter().filter(|n| n.enabled).count();
    let expected = match &facts.compatible {
        Ok(_) => Shown::known("cores expected", enabled, "/proc/device-tree"),
        Err(absent) => Shown::absent("cores expected", absent),
    };
    let nodes = |n: &rocket_runtime::board::AccelNode| {
        format!("{} ({})", n.path, n.driver.as_deref().unwrap_or("driver not known"))
    };
    let versions = facts.core_versions();
    let silicon = match (versions.first(), &facts.log) {
        (Some(version), _) => Shown::known("core version", version.to_string(), "kernel log"),
        (None, Err(absent)) => Shown::absent("core version", absent),
        (None, Ok(_)) => {
            Shown::unknown("core version", "kernel log", "the kernel's log does not say it")
        }
    };
    vec![
        expected,
        Shown::of("cores bound", &facts.bound, "/sys/bus/platform/drivers/rocket"),
        silicon,
        match &facts.accel_class {
            Ok(_) => {
                let all: Vec<String> = facts.accel.iter().map(nodes).collect();
                Shown::known("accel nodes", all, "/sys/class/accel")
            }
            Err(absent) => Shown::absent("accel nodes", absent),
        },
    ]
}

fn driver(facts: &Facts) -> Vec<Shown> {
    let by_itself = facts.rocket_nodes().find(|n| n.version.is_ok());
    let interface = match (facts.interface(), by_itself, facts.rocket_nodes().next()) {
        (Some((major, minor)), node, _) => {
            let source =
                node.map_or("kernel log".to_owned(), |n| format!("{} (DRM_IOCTL_VERSION)", n.path));
            Shown::known("interface", format!("{major}.{minor}"), source)
        }
        (None, _, Some(node)) => match &node.version {
            Err(absent) => Shown::absent("interface", absent),
            Ok(odd) => {
                Shown::unknown("interface", node.path.clone(), format!("the driver says '{odd}'"))
            }
        },
        (None, _, None) => {
            Shown::unknown("interface", "/sys/class/accel", "no accel node of the driver rocket")
        }
    };
    let features = "/sys/module/rocket/parameters/rocket_features";
    let patches = match (&facts.features, facts.interface()) {
        (Ok(all), _) => Shown::known("patches", all.clone(), features),
        (Err(_), Some((0, 0))) => {
            Shown::known("patches", Vec::<String>::new(), "interface 0.0, which is mainline's own")
        }
        (Err(absent), _) => Shown::absent("patches", absent),
    };
    vec![
        interface,
        patches,
        Shown::of("module", &facts.module.srcversion, "/sys/module/rocket/srcversion"),
    ]
}

fn speed(facts: &Facts) -> Vec<Shown> {
    let rk3588 = facts.compatible.iter().flatten().any(|c| RK3588.compatible.contains(&c.as_str()));
    let boot = match rk3588 {
        true => Shown::known("clock at boot", RK3588.slowest_hz, "the RK3588's default").unit("Hz"),
        false => Shown::unknown("clock at boot", "the part", "not known of this part"),
    };
    let clock = "/sys/kernel/debug/clk/scmi_clk_npu/clk_rate";
    let wanted = "/sys/module/rocket/parameters/rocket_npu_clk_hz";
    let delay = match facts.power.first() {
        Some(core) => Shown::of("autosuspend", &core.autosuspend_ms, &core.path),
        None => Shown::unknown(
            "autosuspend",
            "/sys/bus/platform/drivers/rocket",
            "the driver has no core",
        ),
    };
    vec![
        Shown::of("clock", &facts.clock_hz, clock).unit("Hz"),
        boot,
        Shown::of("clock asked", &facts.wanted_hz, wanted).unit("Hz"),
        delay.unit("ms"),
        Shown::of("temperature", &facts.temperature, "/sys/class/thermal").unit("millidegrees C"),
    ]
}

fn system(facts: &Facts) -> Vec<Shown> {
    let memory = |name, of: fn(&rocket_runtime::board::Memory) -> u64| match &facts.memory {
        Some(memory) => Shown::known(name, of(memory), "/proc/meminfo").unit("bytes"),
        None => Shown::unknown(name, "/proc/meminfo", "no usable /proc/meminfo"),
    };
    let next = facts.next.as_ref().map(|n| n.release.clone()).map_err(Clone::clone);
    let from = facts.next.as_ref().map_or("/boot", |n| &n.source);
    vec![
        memory("memory", |m| m.total),
        memory("memory free", |m| m.available),
        Shown::of("kernel", &facts.release, "/proc/sys/kernel/osrelease"),
        Shown::of("kernel next", &next, from),
        Shown::of("machine", &facts.machine, "the processor"),
        Shown::of("glibc", &facts.glibc, "libc.so.6"),
        Shown::of("cpu features", &facts.cpu_features, "/proc/cpuinfo"),
    ]
}
