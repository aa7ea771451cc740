//! `rocketctl report`: what the tools read of this machine, for others to look at.
//!
//! It is a tree as `--root` takes it, packed. What tells who and where is taken out before anything is written.

mod archive;
mod redact;
#[cfg(test)]
mod tests;

use crate::doctor;
use crate::ui::{Globals, print, print_json};
use anyhow::{Context, Result, bail};
use archive::Entry;
use redact::Redactor;
use rocket_runtime::board::{Kept, Root};
use std::collections::BTreeMap;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use tempfile::{NamedTempFile, TempDir};

pub use archive::unpack_from;

/// See [`run`].
#[derive(Debug, clap::Args)]
pub struct Arguments {
    /// Where to; a file that is there is left alone.
    #[arg(default_value = "rocketctl-report.tar.gz")]
    file: PathBuf,
    #[command(flatten)]
    named: doctor::Options,
    /// Print the names of the files that it would have, and write nothing.
    #[arg(long)]
    dry_run: bool,
}

/// Reads all that the doctor does, and packs it.
///
/// # Errors
/// A root that is not there, or a file that cannot be written.
pub fn run(arguments: &Arguments, globals: &Globals) -> Result<ExitCode> {
    let root = doctor::opened(&globals.root)?.keeping();
    doctor::look(&root, &arguments.named)?;
    if arguments.dry_run {
        let names: Vec<String> = contents(&root)?.into_keys().collect();
        match globals.json {
            true => print_json(&serde_json::json!({ "files": names }))?,
            false => print(&(names.join("\n") + "\n"))?,
        }
        return Ok(ExitCode::SUCCESS);
    }
    let written = write(&root, &arguments.file)?;
    match globals.json {
        true => print_json(&written)?,
        false => print(&written.text())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// What was written.
#[derive(Debug, serde::Serialize)]
pub struct Written {
    file: PathBuf,
    files: usize,
    bytes: u64,
}

impl Written {
    /// For people, with what is in it and what is not.
    pub fn text(&self) -> String {
        let Written { file, files, bytes } = self;
        format!(
            "wrote {file}: {files} files, {kib} KiB\n\n\
             In it is what the doctor read: the device tree's NPU nodes, the driver's\n\
             files in sysfs, the kernel's configuration and those lines of its log that\n\
             are about the NPU and its drivers, memory, processors, and GGML_, LLAMA_,\n\
             ROCKET_ and WHISPER_ variables and PATH.\n\
             Taken out are host name, serials, hardware addresses, UUIDs, user names,\n\
             home folders, and variables that are called key, token, or password.\n\n\
             Look before you send it:\n    tar -tzf {file}\nIt reads as a machine does:\n    \
             rocketctl --root {file} doctor\n",
            file = file.display(),
            kib = bytes.div_ceil(1024),
        )
    }
}

/// Writes what was kept. The file is there whole or not at all.
///
/// # Errors
/// A file that is there already, or that cannot be written.
pub fn write(root: &Root, file: &Path) -> Result<Written> {
    let entries = contents(root)?;
    let named = || format!("{} cannot be written", file.display());
    let folder = file.parent().filter(|p| !p.as_os_str().is_empty()).unwrap_or(Path::new("."));
    let mut temporary = NamedTempFile::new_in(folder).with_context(named)?;
    archive::pack(&entries, &mut temporary).with_context(named)?;
    temporary.flush().with_context(named)?;
    let bytes = temporary.as_file().metadata().with_context(named)?.len();
    if let Err(e) = temporary.persist_noclobber(file) {
        match e.error.kind() {
            std::io::ErrorKind::AlreadyExists => {
                bail!("{} is there already; name another file, or remove it", file.display())
            }
            _ => return Err(e.error).with_context(named),
        }
    }
    let files = entries.values().filter(|e| **e != Entry::Folder).count();
    Ok(Written { file: file.to_path_buf(), files, bytes })
}

/// What goes into a report, by path.
fn contents(root: &Root) -> Result<BTreeMap<String, Entry>> {
    // Another root: what is only read to be taken out is not kept.
    let redactor = Redactor::of(&Root::open(root.path())?)?;
    let mut kept = root.kept();
    // Who is on the machine is nobody's business; who asked is in cmd/id.txt.
    kept.remove("/etc/passwd");
    let hidden = kept.into_iter().map(|(path, kept)| {
        let free = is_free(&path);
        let text = |text: &str| redactor.text(text, free);
        let kept = match kept {
            Kept::File(bytes) => Kept::File(redactor.bytes(&bytes, free)),
            Kept::Folder(names) => Kept::Folder(names.iter().map(|n| text(n)).collect()),
            Kept::Link(name) => Kept::Link(text(&name)),
            Kept::There | Kept::Left => kept,
        };
        (text(&path), kept)
    });
    Ok(archive::entries(&hidden.collect()))
}

/// Whether people's names may be in it: not in what the kernel and its packages say of the hardware.
fn is_free(path: &str) -> bool {
    let hardware = ["/sys/", "/proc/", "/lib/", "/usr/lib/linux-image", "/boot/"];
    !hardware.iter().any(|h| path.starts_with(h))
}

/// A report that is unpacked for as long as this is held.
#[derive(Debug)]
pub struct Unpacked {
    _folder: TempDir,
    /// The tree.
    pub tree: PathBuf,
}

/// The tree of a report, where `root` is one and no folder.
///
/// # Errors
/// A file that is no report.
pub fn unpacked(root: &Path) -> Result<Option<Unpacked>> {
    if !root.is_file() {
        return Ok(None);
    }
    let folder = TempDir::with_prefix("rocketctl-")?;
    let tree = archive::unpack(root, folder.path())?;
    Ok(Some(Unpacked { _folder: folder, tree }))
}
