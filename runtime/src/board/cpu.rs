//! The processors: how fast they are told to be, and what they can do (kernel-and-uapi D.5).

use super::{Absent, Reading, Root, Why};

/// A processor.
#[derive(Debug, Clone)]
pub struct Cpu {
    /// Its number.
    pub number: usize,
    /// As the kernel derives it from the device tree; none where all are alike.
    pub capacity: Reading<u64>,
    /// `performance`, `schedutil`, `powersave` and others.
    pub governor: Reading<String>,
    /// kHz now.
    pub now_khz: Reading<u64>,
    /// kHz at most.
    pub most_khz: Reading<u64>,
}

const FOLDER: &str = "sys/devices/system/cpu";
/// Most processors that are looked at: what is to be seen are two kinds.
const LIMIT: usize = 64;

/// All of them, by number.
pub fn read(root: &Root) -> Reading<Vec<Cpu>> {
    let number = |name: String| name.strip_prefix("cpu")?.parse::<usize>().ok();
    let mut numbers: Vec<usize> = root.names(FOLDER)?.into_iter().filter_map(number).collect();
    numbers.sort_unstable();
    let cpu = |number: usize| {
        let path = format!("{FOLDER}/cpu{number}");
        Cpu {
            number,
            capacity: root.number(&format!("{path}/cpu_capacity")),
            governor: root.text(&format!("{path}/cpufreq/scaling_governor")),
            now_khz: root.number(&format!("{path}/cpufreq/scaling_cur_freq")),
            most_khz: root.number(&format!("{path}/cpufreq/cpuinfo_max_freq")),
        }
    };
    Ok(numbers.into_iter().take(LIMIT).map(cpu).collect())
}

/// The big ones where there are two kinds, by capacity and else by clock; all where they are alike.
pub fn big(cpus: &[Cpu]) -> Vec<&Cpu> {
    let weight = |c: &Cpu| c.capacity.clone().or_else(|_| c.most_khz.clone()).unwrap_or(0);
    let most = cpus.iter().map(weight).max().unwrap_or(0);
    // The A76 pairs of an RK3588 differ a little.
    cpus.iter().filter(|c| weight(c).saturating_mul(4) >= most.saturating_mul(3)).collect()
}

/// What the instruction set has, as the kernel names it.
pub fn features(root: &Root) -> Reading<Vec<String>> {
    root.parsed("proc/cpuinfo", parse_features)
}

/// The first `Features` (Arm) or `flags` (x86) of `/proc/cpuinfo`.
///
/// # Errors
/// In words: it has neither.
pub fn parse_features(text: &str) -> Result<Vec<String>, String> {
    let line = |line: &str| {
        let (key, value) = line.split_once(':')?;
        matches!(key.trim(), "Features" | "flags")
            .then(|| value.split_whitespace().map(str::to_owned).collect())
    };
    text.lines().find_map(line).ok_or_else(|| "names no features".into())
}

/// Processors of a list like `0-3,7`.
///
/// # Errors
/// The list, which is none.
pub fn parse_list(text: &str) -> Result<Vec<usize>, String> {
    let mut all = Vec::new();
    for part in text.trim().split(',').filter(|p| !p.is_empty()) {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        match (first.parse::<usize>(), last.parse::<usize>()) {
            (Ok(first), Ok(last)) if first <= last && last < 1 << 16 => all.extend(first..=last),
            _ => {
                return Err(format!(
                    "'{}' is no list of CPUs",
                    part.chars().take(40).collect::<String>()
                ));
            }
        }
    }
    Ok(all)
}

/// The version of the C library: `cmd/glibc.txt` of a tree, else what its file says of itself.
pub fn glibc(root: &Root) -> Reading<String> {
    const SIDE: &str = "cmd/glibc.txt";
    if let Ok(version) = root.text(SIDE) {
        return Ok(version);
    }
    const PLACES: [&str; 5] = [
        "lib/aarch64-linux-gnu/libc.so.6",
        "lib/x86_64-linux-gnu/libc.so.6",
        "usr/lib64/libc.so.6",
        "usr/lib/libc.so.6",
        "lib/libc.so.6",
    ];
    for place in PLACES {
        if let Ok(bytes) = root.bytes_within(place, 16 << 20) {
            let version = parse_glibc(&bytes).ok_or_else(|| Absent {
                path: format!("/{place}"),
                why: Why::Malformed("does not say which version it is".into()),
            })?;
            root.keep_file(SIDE, &version);
            return Ok(version);
        }
    }
    Err(Absent { path: format!("/{}", PLACES[0]), why: Why::Missing })
}

/// `stable release version 2.41`, which the library prints when it is run.
pub fn parse_glibc(bytes: &[u8]) -> Option<String> {
    const WORDS: &[u8] = b"release version ";
    let at = bytes.windows(WORDS.len()).position(|w| w == WORDS)? + WORDS.len();
    let rest = bytes.get(at..)?;
    let end = rest.iter().position(|b| !b.is_ascii_digit() && *b != b'.').unwrap_or(rest.len());
    let version = std::str::from_utf8(&rest[..end.min(16)]).ok()?.trim_end_matches('.');
    version.contains('.').then(|| version.to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_and_features() {
        assert_eq!(parse_list("0-2,7\n"), Ok(vec![0, 1, 2, 7]));
        assert_eq!(parse_list(""), Ok(vec![]));
        assert!(parse_list("3-1").is_err() && parse_list("a").is_err());
        assert!(parse_list("0-99999999999").is_err(), "no memory for nonsense");
        let text = "processor\t: 0\nFeatures\t: fp asimd asimddp\n\nprocessor: 1\nFeatures: fp\n";
        assert_eq!(parse_features(text), Ok(vec!["fp".into(), "asimd".into(), "asimddp".into()]));
        assert!(parse_features("processor: 0\n").is_err());
    }

    #[test]
    fn the_library_says_which_it_is() {
        let text =
            b"\x7fELF\0GNU C Library (Debian GLIBC 2.36-9) stable release version 2.36.\nCopyright";
        assert_eq!(parse_glibc(text).as_deref(), Some("2.36"));
        assert_eq!(
            (parse_glibc(b"release version "), parse_glibc(b"release version x")),
            (None, None)
        );
        // The one that this test runs with, by its own word.
        let own = std::process::Command::new("getconf").arg("GNU_LIBC_VERSION").output().unwrap();
        let own = String::from_utf8(own.stdout).unwrap();
        let live = glibc(&Root::open(std::path::Path::new("/")).unwrap()).unwrap();
        assert_eq!(own.trim(), format!("glibc {live}"));
    }

    proptest::proptest! {
        #[test]
        fn any_text(text in "[-,0-9 a:\\n]{0,60}") {
            let _ = (parse_list(&text), parse_features(&text), parse_glibc(text.as_bytes()));
        }
    }
}
