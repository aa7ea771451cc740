//! Rates as people write them, and which of them the NPU's clock may be given.

/// The one rate above the boot's that boards have been run at (kernel-and-uapi B.3).
pub const VALIDATED: u64 = 600_000_000;
/// What the boot leaves.
pub const BOOT: u64 = 200_000_000;
/// Pinned to this with the voltage left alone, a board locked up hard (kernel-and-uapi B.3).
const LOCKS_UP: u64 = 900_000_000;

/// Hz of `600MHz`, `0.6 GHz` or `600000000`; 0, which leaves the clock alone, of `default`.
pub fn parse(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let example = "a rate is written as 600MHz, or 'default' for the boot's";
    if text.len() > 40 {
        return Err(format!("this is no rate; {example}"));
    }
    if text.eq_ignore_ascii_case("default") {
        return Ok(0);
    }
    let end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let scale: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "hz" => 1,
        "khz" => 1_000,
        "mhz" | "m" => 1_000_000,
        "ghz" | "g" => 1_000_000_000,
        // Nobody means 600 Hz.
        "" if number.len() >= 7 => 1,
        "" if !number.is_empty() => return Err(format!("{text} what? {example}")),
        _ => return Err(format!("'{text}' is no rate; {example}")),
    };
    exact(number, scale).ok_or_else(|| format!("'{text}' is no rate in whole Hz; {example}"))
}

/// A decimal number times a power of ten, where that is whole.
fn exact(number: &str, scale: u64) -> Option<u64> {
    let (whole, part) = number.split_once('.').unwrap_or((number, ""));
    let digits = part.trim_end_matches('0');
    let shift = 10u64.checked_pow(u32::try_from(digits.len()).ok()?)?;
    if whole.is_empty() || !scale.is_multiple_of(shift) {
        return None;
    }
    let part = if digits.is_empty() { 0 } else { digits.parse::<u64>().ok()? };
    let whole = whole.parse::<u64>().ok()?.checked_mul(scale)?;
    whole.checked_add(part.checked_mul(scale / shift)?)
}

/// Whether the clock may be given this rate; else why not, and which it may.
pub fn allowed(hz: u64) -> Result<(), String> {
    let why = match hz {
        0 | BOOT | VALIDATED => return Ok(()),
        LOCKS_UP.. => {
            "at 900 MHz with its voltage left alone a board locked up hard, and was no faster"
        }
        VALIDATED.. => "no board is known to have been run above 600 MHz at the stock voltage",
        _ => "no board is known to have been run at that rate",
    };
    Err(format!("{} is refused: {why}; validated are 600MHz, 200MHz and 'default'", shown(hz)))
}

/// A rate in MHz, or in Hz where it is not whole.
pub fn shown(hz: u64) -> String {
    match hz % 1_000_000 {
        0 => format!("{} MHz", hz / 1_000_000),
        _ => format!("{hz} Hz"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn rates_as_people_write_them() {
        for (text, hz) in [
            ("600MHz", 600_000_000),
            (" 600 mhz ", 600_000_000),
            ("600M", 600_000_000),
            ("0.6GHz", 600_000_000),
            ("1.2 GHz", 1_200_000_000),
            ("600000 kHz", 600_000_000),
            ("600000000", 600_000_000),
            ("600.000000MHz", 600_000_000),
            ("default", 0),
        ] {
            assert_eq!(parse(text), Ok(hz), "{text}");
        }
        for bad in
            ["", "600", "fast", "-600MHz", "6e8", "600MHz/2", "0.0000001kHz", "..5GHz", "GHz"]
        {
            assert!(parse(bad).unwrap_err().contains("600MHz"), "{bad}");
        }
        assert!(parse("99999999999999999999").is_err() && parse(&"9".repeat(99)).is_err());
    }

    #[test]
    fn only_what_was_validated() {
        for good in [0, 200_000_000, 600_000_000] {
            assert_eq!(allowed(good), Ok(()));
        }
        for (bad, word) in [
            (900_000_000, "locked up"),
            (1_000_000_000, "locked up"),
            (899_999_999, "above 600"),
            (600_000_001, "above 600"),
            (500_000_000, "at that rate"),
            (1, "at that rate"),
        ] {
            let e = allowed(bad).unwrap_err();
            assert!(e.contains(word) && e.contains("600MHz"), "{e}");
        }
    }

    proptest! {
        #[test]
        fn any_text(text in "\\PC{0,60}") {
            crate::fuzz::clock_rate(text.as_bytes());
        }

        #[test]
        fn what_is_shown_is_read_again(hz in 1_000_000u64..=u64::MAX / 2) {
            prop_assert_eq!(parse(&shown(hz)), Ok(hz));
        }
    }
}
