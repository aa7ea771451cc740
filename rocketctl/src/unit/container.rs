//! The same for containers: text for compose, and a CDI specification.

use super::dropin::Wish;
use serde_json::{Value, json};

/// What a container is to be given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Container {
    pub wish: Wish,
    /// The nodes' paths.
    pub nodes: Vec<String>,
    /// The group's number on this host; its name means nothing in an image.
    pub gid: Option<u32>,
}

impl Container {
    fn folder(&self) -> &str {
        self.wish.plugin.rsplit_once('/').map_or("/", |(folder, _)| folder)
    }
}

/// A service for docker compose and podman compose.
pub fn compose(container: &Container, service: &str) -> String {
    // JSON's strings are YAML's; compose takes a dollar for a variable's.
    let quoted = |text: &str| json!(text).to_string().replace('$', "$$");
    let list =
        |items: Vec<String>| items.iter().map(|i| format!("      - {i}\n")).collect::<String>();
    let devices = list(container.nodes.iter().map(|n| quoted(&format!("{n}:{n}:rw"))).collect());
    let group = match container.gid {
        Some(gid) => format!("\"{gid}\""),
        None => "keep-groups".to_owned(),
    };
    let mount = |path: &str, mode: &str| quoted(&format!("{path}:{path}{mode}"));
    let mounts = list(vec![mount(container.folder(), ":ro"), mount("/run/rocket", "")]);
    format!(
        "services:\n  {service}:\n    image: IMAGE\n    devices:\n{devices}    \
         # The number of the node's group on this host. Podman without root:\n    # keep-groups\n    \
         group_add:\n      - {group}\n    \
         # The board is read from /sys/firmware, which containers do not see.\n    \
         # Podman: unmask=/sys/firmware\n    security_opt:\n      - systempaths=unconfined\n    \
         environment:\n      GGML_BACKEND_PATH: {}\n    \
         # The plugin, and the counters that rocket-top on the host reads.\n    volumes:\n{mounts}",
        quoted(&container.wish.plugin)
    )
}

/// A specification of the Container Device Interface, for /etc/cdi/rocket-npu.json.
pub fn cdi(container: &Container) -> Value {
    let node = |path: &String| json!({"path": path, "type": "c", "permissions": "rw"});
    let mut edits = json!({
        "env": [format!("GGML_BACKEND_PATH={}", container.wish.plugin)],
        "mounts": [
            {"hostPath": container.folder(), "containerPath": container.folder(),
             "options": ["ro", "nosuid", "nodev", "rbind"]},
            {"hostPath": "/run/rocket", "containerPath": "/run/rocket",
             "options": ["rw", "nosuid", "nodev", "rbind"]},
        ],
    });
    // Groups are known from 0.7.0 on; a specification says the lowest version that it needs.
    let version = match container.gid {
        Some(gid) => {
            edits["additionalGids"] = json!([gid]);
            "0.7.0"
        }
        None => "0.5.0",
    };
    let nodes: Vec<Value> = container.nodes.iter().map(node).collect();
    json!({
        "cdiVersion": version,
        "kind": "rocket/npu",
        "devices": [{"name": "all", "containerEdits": {"deviceNodes": nodes}}],
        "containerEdits": edits,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn container(plugin: &str, gid: Option<u32>) -> Container {
        let wish = Wish { plugin: plugin.into(), device: "char-accel".into(), group: None };
        Container { wish, nodes: vec!["/dev/accel/accel0".into()], gid }
    }

    /// The YAML is read by a YAML reader, and means what was wished.
    #[test]
    fn compose_is_yaml() {
        let odd = "/opt/a: b/$x \"q\"/p.so";
        for (plugin, gid) in [("/usr/lib/ggml-rocket/libggml-rocket.so", Some(105)), (odd, None)] {
            let text = compose(&container(plugin, gid), "llama-server");
            let yaml: serde_json::Value = serde_yaml::from_str(&text).unwrap();
            let service = &yaml["services"]["llama-server"];
            let read = |value: &serde_json::Value| value.as_str().unwrap().replace("$$", "$");
            assert_eq!(read(&service["environment"]["GGML_BACKEND_PATH"]), plugin);
            assert_eq!(service["devices"][0], "/dev/accel/accel0:/dev/accel/accel0:rw");
            assert_eq!(
                service["group_add"][0],
                gid.map_or("keep-groups".into(), |g| g.to_string())
            );
            assert_eq!(service["security_opt"][0], "systempaths=unconfined");
            assert!(read(&service["volumes"][0]).ends_with(":ro"));
            assert!(text.lines().all(|l| l.len() <= 80), "{text}");
        }
    }

    /// The rules of the public specification: required keys, names, versions, absolute paths.
    #[test]
    fn cdi_keeps_its_rules() {
        for gid in [Some(105), None] {
            let spec = cdi(&container("/usr/lib/ggml-rocket/libggml-rocket.so", gid));
            let (vendor, class) = spec["kind"].as_str().unwrap().split_once('/').unwrap();
            let name = |n: &str| {
                n.starts_with(|c: char| c.is_ascii_alphabetic())
                    && n.chars().all(|c| c.is_ascii_alphanumeric() || "_-.".contains(c))
            };
            assert!(name(vendor) && name(class));
            let groups = spec["containerEdits"].get("additionalGids").is_some();
            assert_eq!((groups, spec["cdiVersion"] == "0.7.0"), (gid.is_some(), gid.is_some()));
            let devices = spec["devices"].as_array().unwrap();
            assert!(!devices.is_empty());
            for device in devices {
                assert!(name(device["name"].as_str().unwrap()));
                let nodes = device["containerEdits"]["deviceNodes"].as_array().unwrap();
                assert!(
                    nodes.iter().all(|n| n["path"].as_str().unwrap().starts_with("/dev/"))
                        && !nodes.is_empty()
                );
            }
            let env = spec["containerEdits"]["env"][0].as_str().unwrap();
            assert_eq!(env, "GGML_BACKEND_PATH=/usr/lib/ggml-rocket/libggml-rocket.so");
            for mount in spec["containerEdits"]["mounts"].as_array().unwrap() {
                assert!(
                    ["hostPath", "containerPath"]
                        .iter()
                        .all(|k| mount[k].as_str().unwrap().starts_with('/'))
                );
            }
        }
    }
}
