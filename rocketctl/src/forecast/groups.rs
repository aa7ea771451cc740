//! Sums over a forecast: by the weights' type, and by the kind of op. Both add up to the whole.

use super::plan::{Forecast, Place, Shape, Work};
use crate::model::Header;
use serde::Serialize;
use std::collections::BTreeMap;

/// What is alike in one respect.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Group {
    /// A type, or an op.
    pub name: String,
    /// Tensors of the file; 0 for what is computed.
    pub tensors: u64,
    /// Their bytes in the file; `None` where the type's sizes are not known.
    pub bytes: Option<u64>,
    pub all: Work,
    pub npu: Work,
    /// Ops by route, or by the reason why not.
    pub outcomes: BTreeMap<&'static str, u64>,
}

impl Group {
    fn add(&mut self, shape: &Shape, work: Work) {
        self.all.add(work);
        if shape.place == Place::Npu {
            self.npu.add(work);
        }
        *self.outcomes.entry(shape.outcome).or_default() += work.ops;
    }
}

/// Every type of the file, and those of what is computed.
pub fn by_type(header: &Header, forecast: &Forecast) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for t in &header.tensors {
        let new = || Group { bytes: Some(0), ..Group::default() };
        let g = groups.entry(t.dtype.name()).or_insert_with(new);
        g.tensors += 1;
        g.bytes = g.bytes.zip(t.bytes()).map(|(sum, more)| sum.saturating_add(more));
    }
    for (shape, work) in &forecast.prefill {
        let name = match shape.stored {
            true => shape.weight_type.clone(),
            false => format!("({})", shape.weight_type),
        };
        groups.entry(name).or_default().add(shape, *work);
    }
    named(groups)
}

/// Every kind of op.
pub fn by_op(forecast: &Forecast) -> Vec<Group> {
    let mut groups: BTreeMap<String, Group> = BTreeMap::new();
    for (shape, work) in &forecast.prefill {
        groups.entry(shape.op.to_owned()).or_default().add(shape, *work);
    }
    named(groups)
}

/// The largest part first.
fn named(groups: BTreeMap<String, Group>) -> Vec<Group> {
    let mut list: Vec<Group> = groups.into_iter().map(|(name, g)| Group { name, ..g }).collect();
    list.sort_by_key(|g| std::cmp::Reverse(g.all.macs));
    list
}
