//! Listings as text.

use super::{Finding, ListedField, ListedWord, Listing, WordKind};
use std::fmt;

impl fmt::Display for Listing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "{}: {} words; fields that are zero are left out",
            self.name,
            self.words.len()
        )?;
        self.words.iter().try_for_each(|w| writeln!(f, "{w}"))?;
        match self.findings.len() {
            0 => writeln!(f, "breaks no rule"),
            1 => writeln!(f, "breaks 1 rule:"),
            n => writeln!(f, "breaks {n} rules:"),
        }?;
        self.findings.iter().try_for_each(|finding| write!(f, "{finding}"))
    }
}

impl fmt::Display for ListedWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (target, rest) = (self.raw >> 48, self.raw & 0xffff);
        write!(f, "{:>4}  {target:04x}_{:08x}_{rest:04x}  ", self.index, self.value)?;
        let mut set = self.fields.iter().filter(|field| field.value != 0);
        match self.kind {
            WordKind::Nothing => write!(f, "nothing"),
            WordKind::Barrier => write!(f, "barrier"),
            WordKind::Unknown => write!(f, "no block takes this target"),
            WordKind::Enable => {
                write!(f, "enable, mask 0x{:02x}:", self.value)?;
                set.try_for_each(|field| write!(f, " {}", field.name))
            }
            WordKind::Write => {
                let name = self.register.unwrap_or("unknown register");
                write!(f, "0x{:04x} {name}", self.offset)?;
                if self.value != 0 {
                    write!(f, "{:1$}", "", 27usize.saturating_sub(name.len()))?;
                }
                if self.fields.is_empty() && self.value != 0 {
                    write!(f, " 0x{:08x}", self.value)?;
                }
                set.try_for_each(|field| write!(f, " {field}"))
            }
        }
    }
}

impl fmt::Display for ListedField {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // Addresses, and values too long to count.
        if self.value > 0xffff || self.name.ends_with("_ADDR") {
            return write!(f, "{}=0x{:x}", self.name, self.value);
        }
        write!(f, "{}={}", self.name, self.value)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let rule = self.rule;
        writeln!(f, "  {} ({}; {})", rule.id(), rule.class(), rule.section())?;
        writeln!(f, "    {}", rule.sentence())?;
        writeln!(f, "    found: {}", self.message)?;
        let registers: Vec<String> =
            self.registers().map(|(name, offset)| format!("{name} (0x{offset:04x})")).collect();
        if registers.is_empty() {
            return Ok(());
        }
        writeln!(f, "    registers: {}", registers.join(", "))
    }
}
