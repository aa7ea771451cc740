//! What a report must not have: the machine's name, serials, hardware addresses, users, their homes.

use regex::{Captures, Regex};
use rocket_runtime::board::Root;
use std::collections::BTreeSet;

/// Words that names may be and that say something else where they stand: who calls a machine "rocket" shall get a log
/// that can still be read.
const VOCABULARY: &[&str] = &[
    "root",
    "render",
    "video",
    "user",
    "npu",
    "rknpu",
    "rocket",
    "rknn",
    "drm",
    "accel",
    "iommu",
    "linux",
    "kernel",
    "module",
    "host",
    "home",
    "core",
    "version",
    "debian",
    "ubuntu",
    "armbian",
    "arm64",
    "aarch64",
    "rockchip",
    "localhost",
    "nobody",
    "nogroup",
    "boot",
    "usr",
    "lib",
    "bin",
    "proc",
    "sys",
    "dev",
    "etc",
    "path",
    "service",
];

/// A hardware address, however its bytes are divided.
const ADDRESS: &str = r"(?i)\b[0-9a-f]{2}(?:[:-][0-9a-f]{2}){5}\b";
/// File systems and machines have one.
const UUID: &str = r"(?i)\b[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}\b";
/// Who built a kernel, where.
const BUILDER: &str = r"\([\w.-]+@[\w.-]+\)";
/// What USB and disks call their serial.
const SERIAL: &str = r"(?i)\b(serial(?:\s?number)?\s*[:=]\s*)(\S+)";
/// A folder of a user that no file names.
const HOME: &str = r"/home/[^/\s:;,'\x22]+";

/// Replaces what it was made to know.
#[derive(Debug)]
pub struct Redactor {
    /// What is whole and never a part of a word, longest first.
    exact: Vec<(Regex, String)>,
    /// Names, which are replaced where they stand as a word of their own.
    words: Vec<(Regex, String)>,
    /// Hardware addresses as bytes.
    raw: Vec<[u8; 6]>,
    shapes: Vec<(Regex, &'static str)>,
    serial: Regex,
}

impl Redactor {
    /// Reads what there is to hide. `root` is not the one whose readings go into the report.
    pub fn of(root: &Root) -> anyhow::Result<Redactor> {
        let mut exact = Vec::new();
        for serial in serials(root) {
            exact.push((anycase(&serial)?, "(serial)".to_owned()));
        }
        let addresses = addresses(root);
        for address in &addresses {
            let digits: String = address.chars().filter(char::is_ascii_hexdigit).collect();
            exact.push((anycase(&digits)?, "(mac)".to_owned()));
        }
        let (homes, users) = users(root);
        for home in homes {
            exact.push((
                Regex::new(&format!("{}\\b", regex::escape(&home)))?,
                "/home/user".to_owned(),
            ));
        }
        exact.sort_by_key(|(r, _)| std::cmp::Reverse(r.as_str().len()));
        let known = board_words(root);
        let is_plain = |name: &String| {
            let name = name.to_lowercase();
            name.len() > 1 && !VOCABULARY.contains(&&*name) && !known.contains(&name)
        };
        let mut words = Vec::new();
        for host in hosts(root).into_iter().filter(is_plain) {
            words.push((word(&host)?, "host".to_owned()));
        }
        for (i, user) in users.into_iter().filter(is_plain).enumerate() {
            let name = if i == 0 { "user".to_owned() } else { format!("user{}", i + 1) };
            words.push((word(&user)?, name));
        }
        let raw = addresses.iter().filter_map(|a| bytes(a)).collect();
        let shapes = vec![
            (Regex::new(ADDRESS)?, "(mac)"),
            (Regex::new(UUID)?, "(uuid)"),
            (Regex::new(BUILDER)?, "(builder)"),
            (Regex::new(HOME)?, "/home/user"),
        ];
        Ok(Redactor { exact, words, raw, shapes, serial: Regex::new(SERIAL)? })
    }

    /// A text. `free` are those that people and programs write as they like (logs, settings); in what the kernel says
    /// of the hardware a word is never somebody's name.
    pub fn text(&self, text: &str, free: bool) -> String {
        let mut text = text.to_owned();
        for (regex, with) in &self.exact {
            text = regex.replace_all(&text, with.as_str()).into_owned();
        }
        for (regex, with) in &self.shapes {
            text = regex.replace_all(&text, *with).into_owned();
        }
        let serial = |c: &Captures<'_>| format!("{}(serial)", &c[1]);
        text = self.serial.replace_all(&text, serial).into_owned();
        for (regex, with) in self.words.iter().filter(|_| free) {
            let hide = |c: &Captures<'_>| format!("{}{with}{}", &c[1], &c[2]);
            // Twice: what stands between two names belongs to the first match alone.
            text = regex.replace_all(&text, hide).into_owned();
            text = regex.replace_all(&text, hide).into_owned();
        }
        text
    }

    /// A file. What is no text keeps its length, as others point into it.
    pub fn bytes(&self, bytes: &[u8], free: bool) -> Vec<u8> {
        match std::str::from_utf8(bytes) {
            Ok(text) if !text.contains('\0') => self.text(text, free).into_bytes(),
            _ => self.same_length(bytes),
        }
    }

    /// Device trees: strings that end with a NUL, and hardware addresses as they are.
    fn same_length(&self, bytes: &[u8]) -> Vec<u8> {
        let mut bytes = bytes.to_vec();
        for raw in &self.raw {
            while let Some(at) = bytes.windows(6).position(|w| w == raw) {
                bytes[at..at + 6].fill(0);
            }
        }
        // One character a byte, so that places in the text are places in the file.
        let text: String =
            bytes.iter().map(|b| if b.is_ascii() { char::from(*b) } else { '?' }).collect();
        let shapes = self.shapes.iter().map(|(r, _)| r);
        for regex in self.exact.iter().map(|(r, _)| r).chain(shapes) {
            for found in regex.find_iter(&text) {
                bytes[found.range()].fill(b'x');
            }
        }
        bytes
    }
}

/// Whole, in upper and lower case.
fn anycase(text: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!("(?i){}", regex::escape(text)))
}

/// A name with nothing before or after that would make it a part of another: `tom` is not in `atom` or `tom-tom`.
fn word(name: &str) -> Result<Regex, regex::Error> {
    Regex::new(&format!(r"(?i)(^|[^\w-]){}($|[^\w-])", regex::escape(name)))
}

/// The board's serial, with and without the zeros before it: shorter ones would hit everything.
fn serials(root: &Root) -> BTreeSet<String> {
    let cpuinfo = root.text("proc/cpuinfo").unwrap_or_default();
    let named = cpuinfo.lines().filter_map(|l| l.split_once(':'));
    let named = named.filter(|(key, _)| key.trim() == "Serial").map(|(_, v)| v.trim().to_owned());
    let files = [
        "proc/device-tree/serial-number",
        "sys/class/dmi/id/product_serial",
        "sys/class/dmi/id/board_serial",
    ];
    let files = files.iter().filter_map(|f| root.text(f).ok());
    let files = files.map(|t| t.trim_matches(|c: char| c == '\0' || c.is_whitespace()).to_owned());
    let all: Vec<String> = named.chain(files).collect();
    let bare = all.iter().map(|s| s.trim_start_matches('0').to_owned());
    let long = |s: &String| s.len() >= 6 && s.chars().any(|c| c.is_ascii_digit());
    all.iter().cloned().chain(bare).filter(long).collect()
}

fn addresses(root: &Root) -> BTreeSet<String> {
    let names = root.names("sys/class/net").unwrap_or_default();
    let read = |name: &String| root.text(&format!("sys/class/net/{name}/address")).ok();
    let real = |a: &String| a.len() == 17 && a.chars().any(|c| !matches!(c, '0' | ':'));
    names.iter().filter_map(read).filter(real).collect()
}

fn bytes(address: &str) -> Option<[u8; 6]> {
    let parts: Option<Vec<u8>> =
        address.split(':').map(|p| u8::from_str_radix(p, 16).ok()).collect();
    parts?.try_into().ok()
}

fn hosts(root: &Root) -> BTreeSet<String> {
    let files = ["proc/sys/kernel/hostname", "etc/hostname"];
    let names = files.iter().filter_map(|f| root.text(f).ok());
    names
        .flat_map(|n| [n.split('.').next().unwrap_or_default().to_owned(), n])
        .filter(|n| !n.is_empty())
        .collect()
}

/// Homes and names of the people here: who asks first, then who has an account.
fn users(root: &Root) -> (BTreeSet<String>, Vec<String>) {
    let environment = root.environment().unwrap_or_default();
    let asking = root.identity().ok().and_then(|who| who.name);
    let mut names: Vec<String> =
        asking.into_iter().chain(environment.get("SUDO_USER").cloned()).collect();
    let mut homes = BTreeSet::new();
    for line in root.text("etc/passwd").unwrap_or_default().lines() {
        let fields: Vec<&str> = line.split(':').collect();
        let [name, _, uid, _, _, home, ..] = fields[..] else { continue };
        let person = uid.parse::<u32>().is_ok_and(|uid| (1000..65_534).contains(&uid));
        if person || names.iter().any(|n| n == name) {
            names.push(name.to_owned());
            homes.extend((home.len() > 2 && home != "/root").then(|| home.to_owned()));
        }
    }
    names.retain(|n| n != "root");
    let mut seen = BTreeSet::new();
    names.retain(|n| seen.insert(n.clone()));
    (homes, names)
}

/// What the board calls itself: a name that is the same gives nothing away.
fn board_words(root: &Root) -> BTreeSet<String> {
    let compatible = root.strings("proc/device-tree/compatible").unwrap_or_default();
    let model = root.strings("proc/device-tree/model").unwrap_or_default();
    let all = compatible
        .iter()
        .chain(&model)
        .flat_map(|s| s.split([',', ' ', '-']).map(str::to_lowercase));
    let whole = compatible.iter().filter_map(|c| c.split_once(',')).map(|(_, b)| b.to_lowercase());
    all.chain(whole).collect()
}
