//! A report as a file: what was kept, laid out as a tree, in a compressed tar.

use anyhow::{Context, Result, bail};
use flate2::read::GzDecoder;
use flate2::write::GzEncoder;
use rocket_runtime::board::Kept;
use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufReader, Read, Write};
use std::path::{Path, PathBuf};
use tar::{Archive, Builder, EntryType, Header};

/// The folder that all of it is in.
const FOLDER: &str = "rocketctl-report";
/// Most bytes that are unpacked, and most files: a report has some hundred, of a few MiB.
const MOST_BYTES: u64 = 256 << 20;
const MOST_FILES: usize = 1 << 16;

/// A file of the archive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    File(Vec<u8>),
    Folder,
    Link(String),
}

/// The files of a tree that reads as what was kept did: names that nobody looked into are empty files.
pub fn entries(kept: &BTreeMap<String, Kept>) -> BTreeMap<String, Entry> {
    let mut all = BTreeMap::new();
    for (path, kept) in kept {
        let path = path.trim_start_matches('/');
        match kept {
            Kept::File(bytes) => _ = all.insert(path.to_owned(), Entry::File(bytes.clone())),
            Kept::Link(name) => _ = all.insert(path.to_owned(), Entry::Link(name.clone())),
            Kept::Left => {}
            Kept::There => _ = all.entry(path.to_owned()).or_insert(Entry::File(Vec::new())),
            Kept::Folder(names) => {
                all.insert(path.to_owned(), Entry::Folder);
                for name in names {
                    let path = format!("{path}/{name}");
                    all.entry(path).or_insert(Entry::File(Vec::new()));
                }
            }
        }
    }
    // What has something below it is a folder, whatever else was known of it.
    let folders: Vec<String> = all.keys().flat_map(|path| parents(path)).collect();
    for folder in folders {
        all.insert(folder, Entry::Folder);
    }
    all.remove("");
    all
}

fn parents(path: &str) -> Vec<String> {
    path.match_indices('/').map(|(i, _)| path[..i].to_owned()).collect()
}

/// Writes them, folders before what is in them, without dates or owners.
///
/// # Errors
/// The file cannot be written.
pub fn pack(entries: &BTreeMap<String, Entry>, to: impl Write) -> Result<()> {
    let mut tar = Builder::new(GzEncoder::new(to, flate2::Compression::default()));
    for (path, entry) in entries {
        let mut header = Header::new_gnu();
        header.set_mode(if *entry == Entry::Folder { 0o755 } else { 0o644 });
        let path = format!("{FOLDER}/{path}");
        match entry {
            Entry::File(bytes) => {
                header.set_size(bytes.len() as u64);
                tar.append_data(&mut header, path, bytes.as_slice())?;
            }
            Entry::Folder => {
                header.set_entry_type(EntryType::Directory);
                header.set_size(0);
                tar.append_data(&mut header, path + "/", std::io::empty())?;
            }
            Entry::Link(target) => {
                header.set_entry_type(EntryType::Symlink);
                header.set_size(0);
                tar.append_link(&mut header, path, target)?;
            }
        }
    }
    tar.into_inner()?.finish()?.flush()?;
    Ok(())
}

/// Unpacks a report into an empty folder, and says where the tree in it is.
///
/// # Errors
/// It is no report: no compressed tar, too large, or with files that would lie elsewhere.
pub fn unpack(file: &Path, into: &Path) -> Result<PathBuf> {
    let reader = BufReader::new(File::open(file).with_context(|| file.display().to_string())?);
    let what = || format!("{} is no report of rocketctl", file.display());
    unpack_from(reader, into).with_context(what)
}

/// As [`unpack`], from bytes.
///
/// # Errors
/// As there.
pub fn unpack_from(packed: impl Read, into: &Path) -> Result<PathBuf> {
    let mut tar = Archive::new(GzDecoder::new(packed).take(MOST_BYTES));
    for (i, entry) in tar.entries()?.enumerate() {
        let mut entry = entry?;
        let kind = entry.header().entry_type();
        if i >= MOST_FILES {
            bail!("it has more than {MOST_FILES} files");
        }
        if !matches!(kind, EntryType::Regular | EntryType::Directory | EntryType::Symlink) {
            bail!("it has something that is no file, folder, or link");
        }
        entry.set_preserve_permissions(false);
        if !entry.unpack_in(into)? {
            bail!("it has a file that would lie outside");
        }
    }
    let folder = into.join(FOLDER);
    // Others pack a tree as it is.
    Ok(if folder.is_dir() { folder } else { into.to_path_buf() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use rocket_runtime::board::{Root, Why};

    fn kept(all: &[(&str, Kept)]) -> BTreeMap<String, Kept> {
        all.iter().map(|(path, kept)| ((*path).to_owned(), kept.clone())).collect()
    }

    fn packed(entries: &BTreeMap<String, Entry>) -> Vec<u8> {
        let mut bytes = Vec::new();
        pack(entries, &mut bytes).unwrap();
        bytes
    }

    #[test]
    fn readings_come_back() {
        let names = |all: &[&str]| Kept::Folder(all.iter().map(ToString::to_string).collect());
        let all = kept(&[
            ("/sys/class/accel", names(&["accel0", "accel1"])),
            ("/sys/class/accel/accel0/device/driver", Kept::Link("rocket".into())),
            ("/sys/module/rocket", Kept::There),
            ("/sys/module/rocket/refcnt", Kept::File(b"0\n".to_vec())),
            ("/boot", names(&[])),
            (
                "/cmd/absent.txt",
                Kept::File(b"denied /sys/kernel/debug/x\nlate /sys/stuck\n".to_vec()),
            ),
        ]);
        let dir = tempfile::tempdir().unwrap();
        let tree = unpack_from(packed(&entries(&all)).as_slice(), dir.path()).unwrap();
        let root = Root::open(&tree).unwrap();
        assert_eq!(root.names("sys/class/accel"), Ok(vec!["accel0".into(), "accel1".into()]));
        assert_eq!(root.link("sys/class/accel/accel0/device/driver"), Ok("rocket".into()));
        assert_eq!((root.exists("sys/module/rocket"), root.names("boot")), (Ok(true), Ok(vec![])));
        assert_eq!(root.text("sys/module/rocket/refcnt"), Ok("0".into()));
        assert_eq!(root.text("sys/kernel/debug/x").unwrap_err().why, Why::Denied);
        assert_eq!(root.exists("sys/stuck").unwrap_err().why, Why::Late);
    }

    #[test]
    fn hostile_archives() {
        let dir = tempfile::tempdir().unwrap();
        let refused = |bytes: &[u8]| unpack_from(bytes, dir.path()).is_err();
        assert!(refused(b"hello") && refused(b"\x1f\x8b\x08"));
        let raw = |name: &[u8], kind: EntryType, link: &str| {
            let mut header = Header::new_gnu();
            header.as_mut_bytes()[..name.len()].copy_from_slice(name);
            header.set_entry_type(kind);
            header.set_size(0);
            header.set_mode(0o644);
            if !link.is_empty() {
                header.set_link_name(link).unwrap();
            }
            header.set_cksum();
            let mut gz = GzEncoder::new(Vec::new(), flate2::Compression::fast());
            gz.write_all(header.as_bytes()).unwrap();
            gz.write_all(&[0; 1024]).unwrap();
            gz.finish().unwrap()
        };
        assert!(refused(&raw(b"../out", EntryType::Regular, "")));
        assert!(refused(&raw(b"node", EntryType::Char, "")));
        assert!(refused(&raw(b"hard", EntryType::Link, "/etc/passwd")));
        // A link may lead anywhere; a reading does not follow it out of the tree.
        let linked =
            unpack_from(raw(b"sneaky", EntryType::Symlink, "/etc/passwd").as_slice(), dir.path());
        assert!(Root::open(&linked.unwrap()).unwrap().text("sneaky").is_err());
        assert!(!dir.path().parent().unwrap().join("out").exists());
    }

    proptest::proptest! {
        #[test]
        fn any_bytes(bytes in proptest::collection::vec(proptest::prelude::any::<u8>(), 0..300)) {
            let dir = tempfile::tempdir().unwrap();
            let _ = unpack_from(bytes.as_slice(), dir.path());
        }
    }
}
