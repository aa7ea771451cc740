//! The kernel that boots next, which an update may have made another than the one that runs.

use super::{Absent, Reading, Root, Why, facts::installed};
use std::cmp::Ordering;

/// A kernel that is installed.
#[derive(Debug, Clone)]
pub struct NextKernel {
    /// Its release.
    pub release: String,
    /// What says that it is the next one.
    pub source: String,
    /// Its `modules.dep` and `modules.builtin` lines that name the driver.
    pub modules: Reading<Vec<String>>,
    /// Whether an initramfs of it lies in `/boot`.
    pub initramfs: Reading<bool>,
}

/// Files that name a kernel, with what stands before the release.
const IMAGES: &[&str] = &["vmlinuz-", "vmlinux-", "Image-", "uImage-", "zImage-"];

/// By the boot loader's list, else by the link that packages keep, else the newest (as GRUB does).
pub fn next(root: &Root) -> Reading<NextKernel> {
    let (release, source) =
        listed(root).or_else(|| linked(root)).map_or_else(|| newest(root), Ok)?;
    Ok(NextKernel {
        modules: installed(root, &Ok(release.clone())),
        initramfs: initramfs(root, &release),
        release,
        source,
    })
}

fn listed(root: &Root) -> Option<(String, String)> {
    ["boot/extlinux/extlinux.conf", "extlinux/extlinux.conf"].iter().find_map(|path| {
        let text = root.text(path).ok()?;
        let file = default_kernel(&text)?;
        Some((release_of(file.rsplit('/').next()?)?, format!("/{path}")))
    })
}

fn linked(root: &Root) -> Option<(String, String)> {
    ["boot/Image", "boot/vmlinuz", "vmlinuz"].iter().find_map(|path| {
        let release = release_of(&root.link(path).ok()?)?;
        Some((release, format!("/{path}")))
    })
}

fn newest(root: &Root) -> Reading<(String, String)> {
    let releases = root.names("boot")?.into_iter().filter_map(|name| release_of(&name));
    let newest = releases.max_by(|a, b| by_version(a, b));
    let none = Absent { path: "/boot".into(), why: Why::Malformed("has no kernel".into()) };
    newest.map(|r| (r, "/boot".into())).ok_or(none)
}

fn initramfs(root: &Root, release: &str) -> Reading<bool> {
    let names = root.names("boot")?;
    let ours = |name: &String| {
        let kind =
            ["initrd.img-", "initramfs-", "uInitrd-"].iter().find_map(|p| name.strip_prefix(p));
        kind.is_some_and(|r| r.trim_end_matches(".img") == release)
    };
    Ok(names.iter().any(ours))
}

fn release_of(name: &str) -> Option<String> {
    let release = IMAGES.iter().find_map(|p| name.strip_prefix(p))?;
    (release.starts_with(|c: char| c.is_ascii_digit()) && !release.ends_with(".old"))
        .then(|| release.to_owned())
}

/// The kernel of an extlinux.conf's default entry, else of its first.
pub fn default_kernel(text: &str) -> Option<&str> {
    let mut default = None;
    let mut label = None;
    let mut kernels: Vec<(Option<&str>, &str)> = Vec::new();
    for line in text.lines() {
        let Some((key, value)) = line.trim().split_once(char::is_whitespace) else { continue };
        match key.to_ascii_lowercase().as_str() {
            "default" => default = Some(value.trim()),
            "label" => label = Some(value.trim()),
            "linux" | "kernel" => kernels.push((label, value.trim())),
            _ => {}
        }
    }
    let chosen = kernels.iter().find(|(label, _)| default.is_some() && *label == default);
    chosen.or(kernels.first()).map(|(_, kernel)| *kernel)
}

/// Releases by their numbers; a release candidate comes before its release.
pub fn by_version(a: &str, b: &str) -> Ordering {
    let (a, b) = (parts(a), parts(b));
    let most = a.len().max(b.len());
    let part = |all: &[Part], i: usize| all.get(i).cloned().unwrap_or(Part::End);
    (0..most).map(|i| part(&a, i).cmp(&part(&b, i))).find(|o| o.is_ne()).unwrap_or(Ordering::Equal)
}

#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Part {
    Candidate,
    End,
    Word(String),
    Number(u64),
}

fn parts(release: &str) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut rest = release.chars().peekable();
    while let Some(first) = rest.next() {
        if !first.is_ascii_alphanumeric() {
            continue;
        }
        let digits = first.is_ascii_digit();
        let mut word = String::from(first);
        while let Some(c) =
            rest.next_if(|c| c.is_ascii_alphanumeric() && c.is_ascii_digit() == digits)
        {
            word.push(c);
        }
        parts.push(match (word.as_str(), word.parse()) {
            ("rc", _) => Part::Candidate,
            (_, Ok(number)) => Part::Number(number),
            (_, Err(_)) => Part::Word(word),
        });
    }
    parts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn which_release_is_newer() {
        let ascending = [
            "6.18.9",
            "6.18.10",
            "7.1.0-rc2",
            "7.1.0",
            "7.2.13+deb14-arm64",
            "7.3-rc7",
            "7.3.4+deb13-arm64",
        ];
        for pair in ascending.windows(2) {
            assert_eq!(by_version(pair[0], pair[1]), Ordering::Less, "{pair:?}");
            assert_eq!(by_version(pair[1], pair[0]), Ordering::Greater, "{pair:?}");
        }
        assert_eq!(by_version("7.1.0", "7.1.0"), Ordering::Equal);
    }

    #[test]
    fn the_default_entry() {
        let text =
            "default l1\nlabel l0\n  linux /vmlinuz-7.1.0\nlabel l1\n\tLINUX /boot/vmlinuz-7.2.0\n";
        assert_eq!(default_kernel(text), Some("/boot/vmlinuz-7.2.0"));
        assert_eq!(default_kernel(&text.replace("default l1", "")), Some("/vmlinuz-7.1.0"));
        assert_eq!(default_kernel("label x\n"), None);
    }

    #[test]
    fn list_then_link_then_newest() {
        let dir = tempfile::tempdir().unwrap();
        let set = |path: &str, text: &str| {
            let path = dir.path().join(path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, text).unwrap();
        };
        let root = Root::open(dir.path()).unwrap();
        assert!(next(&root).is_err(), "unknown without /boot");
        set("boot/vmlinuz-7.3.4", "");
        set("boot/vmlinuz-7.10.0", "");
        set("boot/initrd.img-7.10.0", "");
        set("lib/modules/7.10.0/modules.dep", "updates/dkms/rocket.ko:\n");
        let found = next(&root).unwrap();
        assert_eq!((&*found.release, found.initramfs), ("7.10.0", Ok(true)));
        assert_eq!(found.modules.unwrap(), ["updates/dkms/rocket.ko:"]);
        std::os::unix::fs::symlink("boot/vmlinuz-7.3.4", dir.path().join("vmlinuz")).unwrap();
        let found = next(&root).unwrap();
        assert_eq!(
            (&*found.release, &*found.source, found.initramfs),
            ("7.3.4", "/vmlinuz", Ok(false))
        );
        set("boot/extlinux/extlinux.conf", "label a\nlinux /boot/vmlinuz-6.18.1\n");
        assert_eq!(next(&root).unwrap().release, "6.18.1");
    }

    proptest::proptest! {
        #[test]
        fn any_text(text in "[a-z0-9 \\n./-]{0,100}", other in "[a-z0-9.~+-]{0,30}") {
            let _ = (default_kernel(&text), by_version(&text, &other));
        }
    }
}
