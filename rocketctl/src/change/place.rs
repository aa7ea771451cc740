//! Where a path of a system is below a root path, with the system's own links: `lib -> usr/lib` and absolute ones
//! lead to what they lead to once that system runs, and never out of the root.

use super::disk::{Disk, Kind};
use anyhow::{Context, Result, bail};
use std::ffi::OsStr;
use std::path::{Component, Path, PathBuf};

/// Most links on the way, as the kernel has it.
const LINKS: usize = 40;

/// A root path.
#[derive(Debug, Clone)]
pub struct Place {
    path: PathBuf,
    live: bool,
}

impl Place {
    pub fn new(root: &Path) -> Result<Place> {
        let path = root.canonicalize().with_context(|| root.display().to_string())?;
        Ok(Place { live: path == Path::new("/"), path })
    }

    /// Whether it is the system that runs.
    pub fn is_live(&self) -> bool {
        self.live
    }

    /// A tree that a test has run commands for, by its own disk.
    #[cfg(test)]
    pub fn as_if_live(root: &Path) -> Place {
        Place { path: root.canonicalize().unwrap(), live: true }
    }

    /// The file of this machine for a path without links.
    pub fn real(&self, path: &str) -> PathBuf {
        self.path.join(path.trim_start_matches('/'))
    }

    /// The path without links, of which only the end may be missing.
    pub fn resolved(&self, disk: &mut dyn Disk, path: &str) -> Result<String> {
        if !is_clean(path) {
            bail!("'{path}' is no absolute path without '..'");
        }
        let mut todo = parts(Path::new(path))?;
        todo.reverse();
        let (mut done, mut links): (Vec<String>, usize) = (Vec::new(), 0);
        while let Some(part) = todo.pop() {
            if part == ".." {
                done.pop();
                continue;
            }
            done.push(part);
            let here = self.real(&done.join("/"));
            let entry = disk.look(&here).with_context(|| here.display().to_string())?;
            if entry.is_some_and(|e| e.kind == Kind::Link) {
                links += 1;
                if links > LINKS {
                    bail!("{path}: too many links");
                }
                let to = disk.link(&here)?;
                done.pop();
                if to.is_absolute() {
                    done.clear();
                }
                todo.extend(parts(&to)?.into_iter().rev());
            }
        }
        Ok(format!("/{}", done.join("/")))
    }
}

fn parts(path: &Path) -> Result<Vec<String>> {
    let name = |n: &OsStr| n.to_str().map(str::to_owned);
    let part = |c: Component<'_>| match c {
        Component::Normal(n) => Some(name(n).with_context(|| format!("{n:?} is no text"))),
        Component::ParentDir => Some(Ok("..".to_owned())),
        _ => None,
    };
    path.components().filter_map(part).collect()
}

/// Whether a path is absolute, names something, and goes no way back.
pub fn is_clean(path: &str) -> bool {
    let named = |p: &str| !matches!(p, "" | "." | "..") && !p.contains('\0');
    path.len() <= 4096 && path.strip_prefix('/').is_some_and(|rest| rest.split('/').all(named))
}

/// The folder of a path without links.
pub fn parent(path: &str) -> &str {
    match path.rsplit_once('/') {
        Some(("", _)) | None => "/",
        Some((folder, _)) => folder,
    }
}

#[cfg(test)]
mod tests {
    use super::super::disk::Real;
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn links_of_the_system_below_the_root() {
        let dir = tempfile::tempdir().unwrap();
        let at = |p: &str| dir.path().join(p);
        fs::create_dir_all(at("usr/lib/deep")).unwrap();
        symlink("usr/lib", at("lib")).unwrap();
        symlink("/usr/lib/deep", at("abs")).unwrap();
        symlink("../../../../../etc", at("usr/lib/out")).unwrap();
        symlink("loop", at("loop")).unwrap();
        let place = Place::new(dir.path()).unwrap();
        let resolved = |p: &str| place.resolved(&mut Real, p);
        assert_eq!(resolved("/lib/rocket/x.so").unwrap(), "/usr/lib/rocket/x.so");
        assert_eq!(resolved("/abs/new").unwrap(), "/usr/lib/deep/new");
        assert_eq!(resolved("/lib/out/passwd").unwrap(), "/etc/passwd", "not the machine's");
        let below = dir.path().canonicalize().unwrap().join("etc/passwd");
        assert_eq!(place.real("/etc/passwd"), below);
        assert!(resolved("/loop/x").is_err());
        for bad in ["etc/x", "/etc/../x", "/", "", "/a//b", "/a/\0"] {
            assert!(resolved(bad).is_err(), "{bad}");
        }
        assert_eq!((parent("/a/b"), parent("/a")), ("/a", "/"));
    }
}
