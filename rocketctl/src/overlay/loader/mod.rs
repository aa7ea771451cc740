//! What boots this system, and how it is told of an overlay: found below a root path, by its files.

pub mod armbian;
pub mod extlinux;
mod lines;
pub mod menu;
#[cfg(test)]
mod tests;

use anyhow::{Context, Result, bail};
use rocket_runtime::board::{Reading, Root};

/// What the overlay is called, without `.dtbo`.
pub const NAME: &str = "rocket-npu";

/// The boot loader's way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Way {
    Armbian,
    Extlinux,
    /// Debian's u-boot-menu, which writes extlinux.conf.
    Menu,
}

/// How this system takes an overlay.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Target {
    pub way: Way,
    /// Where the overlay's file is.
    pub file: String,
    /// The configuration that names it; nothing where its folder is enough.
    pub config: Option<String>,
    /// What the configuration calls it.
    pub called: String,
    /// What is run after a change.
    pub command: Option<&'static str>,
    /// Why it cannot be written, where that is known.
    pub shut: Option<String>,
}

impl Target {
    /// The configuration with the overlay in it.
    ///
    /// # Errors
    /// In words, what an editor has to do by hand.
    pub fn add(&self, text: &str) -> Result<String> {
        match self.way {
            Way::Armbian => armbian::add(text, &self.called),
            Way::Extlinux => extlinux::add(text, &self.called),
            Way::Menu => menu::add(text, &self.called),
        }
    }

    /// The configuration without it.
    pub fn remove(&self, text: &str) -> String {
        match self.way {
            Way::Armbian => armbian::remove(text, &self.called),
            Way::Extlinux => extlinux::remove(text, &self.called),
            Way::Menu => menu::remove(text, &self.called),
        }
    }

    /// Whether the overlay is there, and what boots here is told of it.
    pub fn installed(&self, root: &Root) -> bool {
        let told = |text: String| match self.way {
            Way::Armbian => armbian::has(&text, &self.called),
            Way::Extlinux => extlinux::has(&text, &self.called),
            Way::Menu => menu::has(&text, &self.called),
        };
        let config = self.config.as_ref();
        root.exists(&self.file) == Ok(true)
            && config.is_none_or(|config| read(root.bytes(config)).is_ok_and(told))
    }

    /// What it is called by people.
    pub fn name(&self) -> &'static str {
        match self.way {
            Way::Armbian => "Armbian's armbianEnv.txt",
            Way::Extlinux => "extlinux.conf",
            Way::Menu => "Debian's u-boot-menu",
        }
    }
}

const ARMBIAN: &str = "/boot/armbianEnv.txt";
const EXTLINUX: [&str; 3] = [
    "/boot/extlinux/extlinux.conf",
    "/boot/boot/extlinux/extlinux.conf",
    "/extlinux/extlinux.conf",
];
const DEFAULTS: &str = "/etc/default/u-boot";
const UPDATE: &str = "/usr/sbin/u-boot-update";
const FRAGMENTS: [&str; 2] = ["/usr/share/u-boot-menu/conf.d", "/etc/u-boot-menu/conf.d"];

/// What is looked for, as words for who has none of it.
pub fn looked_for() -> Vec<String> {
    let menu = format!("{UPDATE} (Debian's u-boot-menu)");
    [ARMBIAN, EXTLINUX[0], EXTLINUX[1], EXTLINUX[2]]
        .map(str::to_owned)
        .into_iter()
        .chain([menu])
        .collect()
}

/// Finds the way of this system; nothing where there is none of them.
///
/// # Errors
/// There is one, and it cannot be told by this program.
pub fn find(root: &Root) -> Result<Option<Target>> {
    let there = |path: &str| -> Result<bool> {
        root.exists(path).map_err(|absent| anyhow::anyhow!("{absent}"))
    };
    let target = match () {
        () if there(ARMBIAN)? => Some(Target {
            way: Way::Armbian,
            file: format!("/boot/overlay-user/{NAME}.dtbo"),
            config: Some(ARMBIAN.to_owned()),
            called: NAME.to_owned(),
            command: None,
            shut: None,
        }),
        () if there(UPDATE)? => Some(by_menu(root)?),
        () => match EXTLINUX.iter().find(|path| root.exists(path) == Ok(true)) {
            Some(path) => Some(by_extlinux(root, path)?),
            None => None,
        },
    };
    Ok(target.map(|t| Target { shut: shut(root, &t), ..t }))
}

/// The overlay goes to the folder `overlays` of the file system that has the configuration.
fn by_extlinux(root: &Root, config: &str) -> Result<Target> {
    let text = read(root.bytes(config))?;
    let below_root = match extlinux::kernel(&text) {
        Some(kernel) if kernel.starts_with("/boot/") => config.starts_with("/boot/extlinux/"),
        Some(_) => !config.starts_with("/boot/"),
        None => !own_file_system(root),
    };
    let (folder, called) = match below_root {
        true => ("/boot/overlays", "/boot/overlays"),
        false => ("/boot/overlays", "/overlays"),
    };
    Ok(Target {
        way: Way::Extlinux,
        file: format!("{folder}/{NAME}.dtbo"),
        config: Some(config.to_owned()),
        called: format!("{called}/{NAME}.dtbo"),
        command: None,
        shut: None,
    })
}

fn by_menu(root: &Root) -> Result<Target> {
    let mut files = vec![DEFAULTS.to_owned()];
    for place in FRAGMENTS {
        let names = root.names(place).unwrap_or_default();
        files.extend(names.iter().filter(|n| n.ends_with(".conf")).map(|n| format!("{place}/{n}")));
    }
    let mut list: Option<(String, String)> = None;
    let mut folder = "/boot/dtbo".to_owned();
    for file in files.iter().filter(|f| root.exists(f) == Ok(true)) {
        let text = read(root.bytes(file))?;
        let value = |name| menu::value(&text, name).with_context(|| file.clone());
        if let Some(value) = value(menu::OVERLAYS)? {
            list = Some((file.clone(), value));
        }
        if let Some(value) = value(menu::FOLDER)?.filter(|v| !v.is_empty()) {
            folder = value;
        }
    }
    let folder = folder.trim_end_matches('/');
    if !folder.starts_with('/') || folder.contains("..") || folder.contains(char::is_whitespace) {
        bail!("{} is '{folder}', which is no absolute path", menu::FOLDER);
    }
    let prefix = if own_file_system(root) { "/boot" } else { "" };
    let config = list.filter(|(_, names)| !names.trim().is_empty()).map(|(file, _)| file);
    if let Some(file) = config.as_ref().filter(|file| file.starts_with("/usr/")) {
        bail!(
            "{file} lists the overlays, and belongs to a package. Write the list with {NAME}.dtbo in it to a file \
             of your own, /etc/u-boot-menu/conf.d/overlays.conf: {}=\"...\"",
            menu::OVERLAYS
        );
    }
    Ok(Target {
        way: Way::Menu,
        file: format!("{prefix}{folder}/{NAME}.dtbo"),
        config,
        called: format!("{NAME}.dtbo"),
        command: Some("u-boot-update"),
        shut: None,
    })
}

fn read(bytes: Reading<Vec<u8>>) -> Result<String> {
    let bytes = bytes.map_err(|absent| anyhow::anyhow!("{absent}"))?;
    String::from_utf8(bytes).context("the boot configuration is no text")
}

/// Whether /boot is a file system of its own: by what is mounted, else by what is to be.
fn own_file_system(root: &Root) -> bool {
    let at_boot = |text: &str| {
        let second = |line: &str| line.split_whitespace().nth(1).map(str::to_owned);
        text.lines()
            .filter(|l| !l.trim_start().starts_with('#'))
            .any(|l| second(l).as_deref() == Some("/boot"))
    };
    let mounts = root.text("/proc/self/mounts").or_else(|_| root.text("/etc/fstab"));
    mounts.is_ok_and(|text| at_boot(&text))
}

/// That the file system which has the files is mounted read-only, where the kernel says so.
fn shut(root: &Root, target: &Target) -> Option<String> {
    let mounts = root.text("/proc/self/mounts").ok()?;
    let covers = |place: &str| {
        place == "/" || target.file.strip_prefix(place).is_some_and(|r| r.starts_with('/'))
    };
    let fields = mounts.lines().filter_map(|line| {
        let mut fields = line.split_whitespace().skip(1);
        let (place, options) = (fields.next()?, fields.nth(1)?);
        covers(place).then(|| (place.to_owned(), options.split(',').any(|o| o == "ro")))
    });
    // Of two mounts at a place the later one is seen.
    let (place, read_only) = fields.max_by_key(|(place, _)| place.len())?;
    read_only
        .then(|| format!("{place} is mounted read-only; first: sudo mount -o remount,rw {place}"))
}
