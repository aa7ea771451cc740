//! A file, put in its place whole or not at all.

use super::disk::Disk;
use super::effect::Whole;
use super::place::{Place, parent};
use anyhow::Result;

/// The name under which a file is written before it takes its place.
pub fn temp(path: &str) -> String {
    format!(".{}.rocketctl-new", path.rsplit('/').next().unwrap_or_default())
}

/// Puts a file in its place, whole or not at all.
pub fn write_file(disk: &mut dyn Disk, place: &Place, path: &str, new: &Whole) -> Result<()> {
    let real = place.real(path);
    let temp = real.with_file_name(temp(path));
    if disk.look(&temp)?.is_some() {
        disk.unlink(&temp)?;
    }
    disk.write(&temp, &new.bytes, new.mode, new.owner)?;
    disk.sync(&temp)?;
    disk.rename(&temp, &real)?;
    Ok(disk.sync(&place.real(parent(path)))?)
}
