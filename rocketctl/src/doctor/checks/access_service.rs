use super::super::finding::{Finding, word};
use super::super::{About, Case, Check};
use super::access_group::listed;
use crate::unit::files::Loaded;
use rocket_runtime::board::{Facts, Stat};

const ID: &str = "access.service";

pub const CHECK: Check = Check {
    id: ID,
    explain: "What a service may use, its unit says, and not the login of who tried the program: its user and groups, \
              the devices that it may open (PrivateDevices=, DevicePolicy=, DeviceAllow=), the folders that it sees \
              (PrivateTmp=, ProtectHome=), and an environment of its own. Looked at with --as-service UNIT.",
    after: &["access.node"],
    about: About::Service,
    required: false,
    run,
};

const SERVICE: &str = "Service";

/// What keeps a service from the NPU: in words, as the unit has it, and what a drop-in says instead.
struct Obstacle {
    what: String,
    seen: String,
    mends: String,
}

fn run(case: &Case) -> Finding {
    let Some(service) = &case.named.service else {
        return Finding::unknown(ID, "the service", "none was named");
    };
    let loaded = match &service.unit {
        Ok(loaded) => loaded,
        Err(absent) => return Finding::unread(ID, format!("the unit {}", service.name), absent),
    };
    if let Some(absent) = loaded.unread.first() {
        return Finding::unread(ID, format!("what {} may use", service.name), absent);
    }
    let Some(node) = case.facts.rocket_nodes().next() else {
        return Finding::unknown(
            ID,
            "what the service may use",
            "no accel node of the driver rocket is in sysfs",
        );
    };
    let mut all: Vec<Obstacle> = devices(loaded, &node.path).into_iter().collect();
    match &node.stat {
        Ok(stat) => all.extend(groups(loaded, stat, &case.facts)),
        Err(absent) => return Finding::unread(ID, "the node's owner and mode", absent),
    }
    all.extend(plugin(loaded));
    let Some(first) = all.first() else {
        return Finding::ok(ID, format!("{} may use the NPU", service.name));
    };
    let path = loaded.paths.join(", ");
    let lines: Vec<String> = all.iter().map(|o| quoted(&o.mends)).collect();
    let dropin = format!("/etc/systemd/system/{}.d/90-rocket.conf", service.name);
    let finding = Finding::fail(ID, format!("{}: {}", service.name, first.what));
    all.iter()
        .fold(finding, |finding, o| finding.seen(path.clone(), format!("{} ({})", o.seen, o.what)))
        .cause("A service has what its unit gives it, whoever may use the NPU by hand.")
        .fix(
            format!(
                "printf '%s\\n' '[Service]' {} | sudo install -D -m 644 /dev/stdin {dropin} && sudo systemctl \
                 daemon-reload && sudo systemctl restart {}",
                lines.join(" "),
                service.name
            ),
            format!("rocketctl doctor --as-service {} --only access.service", service.name),
            format!("sudo rm {dropin} && sudo systemctl daemon-reload && sudo systemctl restart {}", service.name),
        )
}

/// A line of the drop-in, quoted for a shell even where it need not be.
fn quoted(line: &str) -> String {
    match word(line) {
        plain if plain == line => format!("'{line}'"),
        quoted => quoted,
    }
}

/// systemd.exec(5) PrivateDevices=, systemd.resource-control(5) DevicePolicy= and DeviceAllow=.
fn devices(loaded: &Loaded, node: &str) -> Option<Obstacle> {
    let unit = &loaded.unit;
    if unit.flag(SERVICE, "PrivateDevices") == Some(true) {
        return Some(Obstacle {
            what: "it sees no device".into(),
            seen: "PrivateDevices=yes".into(),
            mends: "PrivateDevices=no".into(),
        });
    }
    let allowed = unit.list(SERVICE, "DeviceAllow");
    let policy = unit.last(SERVICE, "DevicePolicy").unwrap_or("auto");
    let covers = |entry: &&str| {
        let mut words = entry.split_whitespace();
        let device = words.next().unwrap_or_default();
        let access = words.next().unwrap_or("rwm");
        let named = matches!(device, "char-accel" | "char-*") || device == node;
        named && access.contains('r') && access.contains('w')
    };
    let closed = !allowed.is_empty() || matches!(policy, "closed" | "strict");
    (closed && !allowed.iter().any(covers)).then(|| Obstacle {
        what: "the node is not among the devices that it may open".into(),
        seen: match allowed.is_empty() {
            true => format!("DevicePolicy={policy}"),
            false => format!("DeviceAllow={}", allowed.join(" DeviceAllow=")),
        },
        mends: "DeviceAllow=char-accel rw".into(),
    })
}

/// Whether its user is in the node's group; a user of its own (DynamicUser=) is in none that is not given.
fn groups(loaded: &Loaded, stat: &Stat, facts: &Facts) -> Option<Obstacle> {
    let unit = &loaded.unit;
    let dynamic = unit.flag(SERVICE, "DynamicUser") == Some(true);
    let user = unit.last(SERVICE, "User").filter(|u| !u.is_empty());
    let user = if dynamic { user.unwrap_or("a user of its own") } else { user.unwrap_or("root") };
    let given = unit.list(SERVICE, "SupplementaryGroups");
    let has = |group: &str| {
        unit.last(SERVICE, "Group") == Some(group)
            || given.iter().any(|g| g.split_whitespace().any(|g| g == group))
            || (!dynamic && listed(facts, group, user) == Some(true))
    };
    let may = user == "root" || user == "0" || stat.mode & 0o006 == 0o006 || user == stat.owner;
    (!may && !has(&stat.group)).then(|| Obstacle {
        what: format!("its user is not in the group {}", stat.group),
        seen: if dynamic { "DynamicUser=yes".into() } else { format!("User={user}") },
        mends: format!("SupplementaryGroups={}", stat.group),
    })
}

/// Whether it is told of the plugin, at a place that it sees.
fn plugin(loaded: &Loaded) -> Option<Obstacle> {
    const NAME: &str = "GGML_BACKEND_PATH";
    let unit = &loaded.unit;
    let environment = unit.environment();
    let Some(path) = environment.get(NAME) else {
        // What a file has is not known, and neither is what the program sets itself.
        let elsewhere = !unit.list(SERVICE, "EnvironmentFile").is_empty()
            || unit.last(SERVICE, "ExecStart").is_some_and(|c| c.contains("rocketctl run"));
        return (!elsewhere).then(|| Obstacle {
            what: "it is not told of the plugin".into(),
            seen: format!("no {NAME}"),
            mends: format!("Environment={NAME}={PLUGIN}"),
        });
    };
    let hidden = |folder: &str, key: &str| {
        path.starts_with(folder)
            && unit
                .last(SERVICE, key)
                .is_some_and(|v| !matches!(v, "no" | "false" | "0" | "off" | "read-only"))
    };
    let key = match () {
        () if hidden("/tmp/", "PrivateTmp") || hidden("/var/tmp/", "PrivateTmp") => "PrivateTmp",
        () if hidden("/home/", "ProtectHome") || hidden("/root/", "ProtectHome") => "ProtectHome",
        () => return None,
    };
    Some(Obstacle {
        what: "it does not see the folder of the plugin".into(),
        seen: format!("{key}={} with {NAME}={path}", unit.last(SERVICE, key).unwrap_or_default()),
        mends: format!("Environment={NAME}={PLUGIN}"),
    })
}

/// Where the package puts it.
const PLUGIN: &str = "/usr/lib/ggml-rocket/libggml-rocket.so";
