//! What the silicon calls itself in the kernel's log (kernel-and-uapi B.1, D.8).

use super::LogLine;

/// A core's version register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreVersion {
    /// The core's number.
    pub core: u32,
    /// The register.
    pub value: u32,
}

impl CoreVersion {
    /// That of an RK3588, "FIRE".
    pub const RK3588: u32 = 0x4649_5245;
    /// That of an RK3576, "FIRG", by some reports; by others it is an RK3588's.
    pub const RK3576: u32 = 0x4649_5247;
}

/// In hex and as the letters that it is made of.
impl std::fmt::Display for CoreVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "0x{:08x}", self.value)?;
        let letters = self.value.to_be_bytes();
        match letters.iter().all(u8::is_ascii_alphanumeric) {
            true => write!(f, " ({})", letters.map(char::from).iter().collect::<String>()),
            false => Ok(()),
        }
    }
}

/// `Rockchip NPU core 0 version: 1179210309`, of each core the last.
pub fn core_versions(log: &[LogLine]) -> Vec<CoreVersion> {
    let mut cores: Vec<CoreVersion> = Vec::new();
    for line in log {
        let Some(found) = core_version(&line.text) else { continue };
        cores.retain(|c| c.core != found.core);
        cores.push(found);
    }
    cores.sort_by_key(|c| c.core);
    cores
}

fn core_version(text: &str) -> Option<CoreVersion> {
    let (_, rest) = text.split_once("Rockchip NPU core ")?;
    let (core, value) = rest.split_once(" version: ")?;
    let value = value.split_whitespace().next()?;
    Some(CoreVersion { core: core.parse().ok()?, value: value.parse().ok()? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn decimal_lines_as_letters() {
        let line = |text: &str| LogLine { seconds: None, text: text.into() };
        let log = [
            line("rocket fdab0000.npu: Rockchip NPU core 1 version: 1179210309"),
            line("rocket fdab0000.npu: Rockchip NPU core 0 version: 7"),
            line("rocket fdab0000.npu: Rockchip NPU core 0 version: 1179210311"),
            line("rocket: Rockchip NPU core x version: 1"),
            line("rocket: Rockchip NPU core 2 version: 99999999999"),
        ];
        let words: Vec<String> = core_versions(&log).iter().map(ToString::to_string).collect();
        assert_eq!(words, ["0x46495247 (FIRG)", "0x46495245 (FIRE)"]);
        assert_eq!(CoreVersion { core: 0, value: 7 }.to_string(), "0x00000007");
    }
}
