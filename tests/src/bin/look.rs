//! What a Rust program sees of a board through its standard library: one line for each thing it
//! looked at, as `tests/c/look.cpp` prints them.

use std::fs;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::Path;

fn text_of(path: &str) -> String {
    let text = fs::read_to_string(path).unwrap_or_else(|_| "(absent)".to_owned());
    text.replace(['\0', '\n'], " ")
}

fn kind(is_character: bool) -> &'static str {
    if is_character { "character" } else { "other" }
}

fn main() -> std::io::Result<()> {
    for entry in fs::read_dir("/dev/accel")? {
        let entry = entry?;
        let character = entry.file_type()?.is_char_device() && entry.metadata()?.rdev() >> 8 == 261;
        println!("entry {} {}", entry.path().display(), kind(character));
    }
    let node = Path::new("/dev/accel/accel0");
    println!("status {}", kind(node.metadata()?.file_type().is_char_device()));
    let second = Path::new("/dev/accel/accel1").exists();
    println!("second {}", if second { "exists" } else { "absent" });
    println!("canonical {}", fs::canonicalize("/dev/accel/../accel/accel0")?.display());
    println!("compatible {}", text_of("/proc/device-tree/compatible"));
    println!("clock {}", text_of("/sys/module/rocket/parameters/rocket_npu_clk_hz"));
    let cores = fs::read_dir("/sys/bus/platform/drivers/rocket")?;
    let cores = cores.flatten().filter(|e| e.path().join("power").is_dir()).count();
    println!("cores {cores}");
    for entry in fs::read_dir("/sys/class/accel/accel0/")? {
        let path = entry?.path();
        if path.file_name().is_some_and(|n| n == "dev") {
            println!("dev {}", text_of(&path.to_string_lossy()));
        }
    }
    let file = fs::File::options().read(true).write(true).open(node)?;
    println!("open {}", kind(file.metadata()?.file_type().is_char_device()));
    Ok(())
}
