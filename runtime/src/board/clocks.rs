//! Clocks as debugfs has them (kernel-and-uapi D.4). Only read: a clock is set by the driver.

use super::{Absent, Reading, Root, Why};

/// Most rows that are read: an RK3588 has some 700.
const LIMIT: usize = 1 << 14;

/// A row of `clk_summary`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Clock {
    /// The clock's name.
    pub name: String,
    /// How often it is enabled.
    pub enabled: u64,
    /// Hz.
    pub rate: u64,
    /// Who uses it, and as what: device and connection id.
    pub consumers: Vec<(String, String)>,
}

/// The NPU's clock of an RK3588, which its cores share.
pub const NPU: &str = "scmi_clk_npu";

/// The NPU's rate now: its own file, else its row of the summary, for which the kernel asks every clock.
pub fn npu_rate(root: &Root) -> Reading<u64> {
    let folder = "sys/kernel/debug/clk";
    match root.number(&format!("{folder}/{NPU}/clk_rate")) {
        Err(absent) if absent.why == Why::Missing => {
            let path = format!("{folder}/clk_summary");
            // That the clock's own file is missing says more than that the summary is.
            let rows = root.parsed(&path, parse).map_err(|e| match e.why {
                Why::Missing => absent,
                _ => e,
            })?;
            let row = rows.iter().find(|c| c.name == NPU).map(|c| c.rate);
            row.ok_or(Absent {
                path: format!("/{path}"),
                why: Why::Malformed(format!("no row {NPU}")),
            })
        }
        read => read,
    }
}

/// The rows of `clk_summary`.
///
/// # Errors
/// In words: not one row is in it, or too many.
pub fn parse(text: &str) -> Result<Vec<Clock>, String> {
    let mut clocks: Vec<Clock> = Vec::new();
    for line in text.lines() {
        let tokens: Vec<&str> = line.split_whitespace().collect();
        let number = |i: usize| tokens.get(i).and_then(|t: &&str| t.parse::<u64>().ok());
        match (number(1), number(2), number(3), number(4), clocks.last_mut()) {
            (Some(enabled), Some(_), Some(_), Some(rate), _) => clocks.push(Clock {
                name: tokens[0].to_owned(),
                enabled,
                rate,
                // Accuracy, phase, duty and the hardware's state lie between (5 to 8).
                consumers: consumer(tokens.get(9..).unwrap_or_default()),
            }),
            (None, _, _, _, Some(last)) if tokens.len() == 2 => {
                last.consumers.extend(consumer(&tokens))
            }
            _ => {}
        }
        if clocks.len() > LIMIT {
            return Err(format!("has more than {LIMIT} clocks"));
        }
    }
    match clocks.is_empty() {
        true => Err("is no clk_summary".into()),
        false => Ok(clocks),
    }
}

fn consumer(tokens: &[&str]) -> Vec<(String, String)> {
    match tokens {
        [device, connection, ..] if *device != "deviceless" => {
            vec![((*device).to_owned(), (*connection).to_owned())]
        }
        _ => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Laid out as kernel-and-uapi D.4 describes it.
    const SUMMARY: &str = "\
                                 enable  prepare  protect                                duty  hardware                            connection
   clock                          count    count    count        rate   accuracy phase  cycle    enable   consumer                         id
---------------------------------------------------------------------------------------------------------------------------------------------
 scmi_clk_npu                        3        6        0   200000000          0     0  50000         Y   fdab0000.npu                    npu
                                                                                                         fdac0000.npu                    npu
 scmi_clk_npu2                       1        1        0   900000000          0     0  50000         Y   deviceless                      no_connection_id
    aclk_npu0                        0        1        0   0                  0 -----  50000         N   fdab0000.npu                    aclk
";

    #[test]
    fn rows_and_their_consumers() {
        let rows = parse(SUMMARY).unwrap();
        let names: Vec<&str> = rows.iter().map(|c| &*c.name).collect();
        assert_eq!(names, ["scmi_clk_npu", "scmi_clk_npu2", "aclk_npu0"]);
        assert_eq!((rows[0].rate, rows[0].enabled, rows[2].rate), (200_000_000, 3, 0));
        let of = |device: &str| (device.to_owned(), "npu".to_owned());
        assert_eq!(rows[0].consumers, [of("fdab0000.npu"), of("fdac0000.npu")]);
        assert!(rows[1].consumers.is_empty() && parse("").is_err());
    }

    #[test]
    fn the_rate_from_the_file_or_the_row() {
        let dir = tempfile::tempdir().unwrap();
        let folder = dir.path().join("sys/kernel/debug/clk");
        std::fs::create_dir_all(folder.join(NPU)).unwrap();
        let root = Root::open(dir.path()).unwrap();
        let missing = npu_rate(&root).unwrap_err();
        assert!(missing.why == Why::Missing && missing.path.ends_with("clk_rate"), "{missing}");
        std::fs::write(folder.join("clk_summary"), SUMMARY).unwrap();
        assert_eq!(npu_rate(&root), Ok(200_000_000));
        std::fs::write(folder.join("clk_summary"), SUMMARY.replace("scmi_clk_npu ", "gpu "))
            .unwrap();
        assert!(npu_rate(&root).is_err(), "unknown is not 0, and a longer name is another clock");
        std::fs::write(folder.join(NPU).join("clk_rate"), "600000000\n").unwrap();
        assert_eq!(npu_rate(&root), Ok(600_000_000));
    }

    proptest::proptest! {
        #[test]
        fn any_text(text in "[ \\n0-9a-z_?-]{0,300}") {
            let _ = parse(&text);
        }
    }
}
