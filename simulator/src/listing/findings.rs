//! The rules that a program breaks, as far as its registers say.

use super::{NamedProgram, Place};
use crate::assumptions::Assumptions;
use crate::check::{self, Hang, Kept, Pass};
use crate::cna::{Cna, Image};
use crate::format::Format;
use crate::lut::Tables;
use crate::pc;
use crate::regs::{self, RegFile};
use crate::{Class, Rule};
use serde::ser::{Serialize, SerializeStruct, Serializer};

/// A broken rule.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Finding {
    /// The rule.
    pub rule: Rule,
    /// What was found, with registers and values.
    pub message: String,
}

impl Finding {
    /// Names and offsets of the registers that the rule is about.
    pub fn registers(&self) -> impl Iterator<Item = (&'static str, u16)> {
        let named = |o: &u16| (regs::register_name(*o).unwrap_or("?"), *o);
        self.rule.registers().iter().map(named)
    }
}

/// A rule in JSON: all that is known of it.
impl Serialize for Finding {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let class = match self.rule.class() {
            Class::Hang => "hang",
            Class::Garbage => "garbage",
            Class::Silent => "nothing-stored",
            Class::Note => "note",
        };
        let registers: Vec<String> =
            self.registers().map(|(name, offset)| format!("{name} (0x{offset:04x})")).collect();
        let mut out = s.serialize_struct("Finding", 7)?;
        out.serialize_field("id", self.rule.id())?;
        out.serialize_field("class", class)?;
        out.serialize_field("title", self.rule.title())?;
        out.serialize_field("sentence", self.rule.sentence())?;
        out.serialize_field("message", &self.message)?;
        out.serialize_field("registers", &registers)?;
        out.serialize_field("section", self.rule.section())?;
        out.end()
    }
}

/// Runs a program as far as it goes without memory.
pub fn of(program: &NamedProgram) -> Vec<Finding> {
    let (mut r, mut tables) = (RegFile::new(Assumptions::default()), Tables::new());
    let mut found = Vec::new();
    let decoded = match pc::decode(&mut r, &mut tables, &program.words) {
        Ok(decoded) => decoded,
        Err(hang) => return vec![Finding { rule: hang.rule, message: hang.message }],
    };
    found.extend(decoded.findings);
    match decoded.mask {
        None => {
            let message = format!("no enable word among {} words", program.words.len());
            found.push((Rule::EnableNotFetched, message));
        }
        Some(mask) => match judge(&r, &tables, mask, program.place) {
            Ok(findings) => found.extend(findings),
            Err(hang) => found.push((hang.rule, hang.message)),
        },
    }
    match program.place {
        Place::Chained { index, of } if index + 1 < of && decoded.next == 0 => {
            let message = format!("program {} of {of} names no next one", index + 1);
            found.push((Rule::ChainWithoutLink, message));
        }
        Place::First | Place::AfterSame if decoded.next != 0 => {
            let message = format!("runs on to the program at 0x{:08x}", decoded.next);
            found.push((Rule::ChainNotBatched, message));
        }
        _ => {}
    }
    found.into_iter().map(|(rule, message)| Finding { rule, message }).collect()
}

fn judge(
    r: &RegFile,
    tables: &Tables,
    mask: u32,
    place: Place,
) -> Result<Vec<(Rule, String)>, Hang> {
    match check::pass(mask)? {
        Pass::Convolution => {
            let (feature, weight) = match place {
                Place::First => Default::default(),
                _ => as_if_kept(r),
            };
            let kept = Kept {
                feature: &feature,
                weight: &weight,
                last: None,
                tables,
                first: !matches!(place, Place::AfterSame | Place::Chained { index: 1.., .. }),
                chained: matches!(place, Place::Chained { index: 1.., .. }),
            };
            check::program(r, &kept).map(|plan| plan.findings)
        }
        Pass::Flying => check::flying(r, tables).map(|flight| flight.findings),
        Pass::Pooling => check::pool(r).map(|pool| pool.findings),
    }
}

/// The operands that this program would fetch, as if the task before had left them.
fn as_if_kept(r: &RegFile) -> (Image, Image) {
    let c = Cna::read(r);
    let format = Format::of_code(r.field(regs::CNA_CONV_CON1, 6, 4)).unwrap_or(Format::Fp16);
    let (kernels, depth) = c.weight_extents(format);
    (
        Image::empty(c.feature_addr, c.rows(), c.channels),
        Image::empty(c.weight_addr, kernels, depth),
    )
}
