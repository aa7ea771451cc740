//! Which patches the running module has, by what it says of itself.

use super::catalog::Patch;
use super::status::State;
use rocket_runtime::board::{Facts, Root};

/// What the running module shows.
#[derive(Debug)]
pub struct Running {
    /// What it was read from, in words.
    pub source: String,
    features: Option<Vec<String>>,
    /// Module parameters that are there; none where the folder cannot be read.
    parameters: Option<Vec<String>>,
    loaded: Option<bool>,
    interface: Option<(u32, u32)>,
    release: Option<String>,
}

impl Running {
    pub fn read(root: &Root, facts: &Facts) -> Running {
        let source = match (&facts.features, facts.loaded.as_ref().ok(), facts.interface()) {
            (Ok(_), ..) => "the running module, by rocket_features".to_owned(),
            (Err(_), Some(false), _) => "no rocket module is loaded".to_owned(),
            (Err(_), _, Some((0, 0))) => {
                "the running module is mainline's own (interface 0.0)".to_owned()
            }
            (Err(_), _, Some((major, minor))) => {
                format!("the running module has interface {major}.{minor} and names no patches")
            }
            (Err(absent), _, None) => format!("what the running module has is not known: {absent}"),
        };
        Running {
            source,
            features: facts.features.clone().ok(),
            parameters: root.names("sys/module/rocket/parameters").ok(),
            loaded: facts.loaded.clone().ok(),
            interface: facts.interface(),
            release: facts.release.clone().ok(),
        }
    }

    /// Of one patch. What the module does not say is unknown, and not missing.
    pub fn state(&self, patch: &Patch) -> State {
        if self.loaded == Some(false) {
            return State::Unknown;
        }
        let has = |all: &[String], name: &String| all.iter().any(|f| f == name);
        if self.features.as_ref().is_some_and(|f| has(f, &patch.id)) {
            return State::Applied;
        }
        // A parameter of its own shows a patch of whatever series.
        let tunable = |all: &Vec<String>| patch.tunables.iter().any(|t| has(all, t));
        if self.parameters.as_ref().is_some_and(tunable) {
            return State::Applied;
        }
        if let Some(upstream) = &patch.upstream {
            let since = self.release.as_deref().and_then(version);
            return match (since, version(upstream)) {
                // An older line may have it as well.
                (Some(running), Some(since)) if running >= since => State::Upstream,
                _ => State::Unknown,
            };
        }
        // It names what it has, and this is not among it; or it is mainline's, which has none. Names are of what
        // programs could notice: the list itself is shown by being there.
        match (&self.features, self.interface) {
            (Some(_), _) if patch.id == "features" => State::Applied,
            (Some(_), _) if patch.tunables.is_empty() => State::Missing,
            (Some(_), _) | (None, Some((0, 0))) if self.parameters.is_some() => State::Missing,
            (None, Some((0, 0))) => State::Missing,
            _ => State::Unknown,
        }
    }
}

/// The numbers that a version or a kernel's release begins with.
fn version(text: &str) -> Option<(u32, u32, u32)> {
    let mut parts = text.split(|c: char| !c.is_ascii_digit()).take(3).map(|p| p.parse().ok());
    Some((parts.next()??, parts.next()??, parts.next().flatten().unwrap_or(0)))
}

#[cfg(test)]
mod tests {
    use super::super::catalog::catalog;
    use super::*;
    use std::path::Path;

    fn state(board: &Path, id: &str) -> State {
        let root = Root::open(board).unwrap();
        let running = Running::read(&root, &Facts::read(&root));
        running.state(catalog().unwrap().iter().find(|p| p.id == id).unwrap())
    }

    fn board(name: &str) -> std::path::PathBuf {
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../tests/boards").join(name)
    }

    #[test]
    fn boards_of_the_tests() {
        assert_eq!(state(&board("rk3588-series"), "keep-attached"), State::Applied);
        assert_eq!(state(&board("rk3588-series"), "clock-lever"), State::Applied);
        assert_eq!(state(&board("rk3588-stock"), "keep-attached"), State::Missing);
        // Nothing is loaded: nothing is known, and nothing is missing.
        assert_eq!(state(&board("laptop"), "keep-attached"), State::Unknown);
    }

    #[test]
    fn a_parameter_alone_shows_its_patch_and_nothing_else() {
        let dir = tempfile::tempdir().unwrap();
        let parameters = dir.path().join("sys/module/rocket/parameters");
        std::fs::create_dir_all(&parameters).unwrap();
        std::fs::write(parameters.join("rocket_npu_clk_hz"), "0\n").unwrap();
        assert_eq!(state(dir.path(), "clock-lever"), State::Applied);
        assert_eq!(state(dir.path(), "keep-attached"), State::Unknown);
        assert_eq!(state(dir.path(), "task-array"), State::Unknown);
        std::fs::create_dir_all(dir.path().join("proc/sys/kernel")).unwrap();
        for (release, wanted) in [
            ("7.2.5-1", State::Unknown),
            ("7.2.6+deb13", State::Upstream),
            ("7.3.4", State::Upstream),
        ] {
            std::fs::write(dir.path().join("proc/sys/kernel/osrelease"), release).unwrap();
            assert_eq!(state(dir.path(), "task-array"), wanted, "{release}");
        }
    }

    #[test]
    fn versions() {
        assert_eq!(version("7.3.4-arm64"), Some((7, 3, 4)));
        assert_eq!(version("7.3-rc1"), Some((7, 3, 0)));
        assert_eq!(version("x"), None);
    }
}
