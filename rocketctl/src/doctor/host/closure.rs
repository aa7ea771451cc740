//! What is loaded along with an object.

use crate::elf::{Elf, Search};
use std::rc::Rc;

/// Most libraries of one program.
const MOST: usize = 256;

/// A file and its evidence.
#[derive(Debug, Clone)]
pub struct Object {
    /// In its own system.
    pub path: String,
    pub elf: Rc<Elf>,
}

impl Object {
    /// The file's name.
    pub fn name(&self) -> &str {
        self.path.rsplit('/').next().unwrap_or(&self.path)
    }

    /// Whether a name is another one of the same library: `libx.so` and `libx.so.0`.
    pub fn same_name(&self, name: &str) -> bool {
        let stem = |n: &str| n.split(".so").next().unwrap_or(n).to_owned();
        stem(self.name()) == stem(name)
    }
}

/// Libraries in the order in which they are loaded: breadth first, as ld.so does.
#[derive(Debug, Clone, Default)]
pub struct Closure {
    pub objects: Vec<Object>,
    /// Libraries that are not found, and who needs them.
    pub missing: Vec<(String, String)>,
}

impl Closure {
    /// Of a program or library, without itself.
    pub fn of(search: &Search<'_>, start: &Object) -> Closure {
        let mut all = Closure::default();
        all.extend(search, start.clone());
        all
    }

    /// The library whose file name or soname begins so.
    pub fn named(&self, prefix: &str) -> Option<&Object> {
        let is = |o: &&Object| {
            o.name().starts_with(prefix)
                || o.elf.soname.as_deref().is_some_and(|s| s.starts_with(prefix))
        };
        self.objects.iter().find(is)
    }

    /// Adds an object and what comes along with it.
    pub fn add(&mut self, search: &Search<'_>, object: Object) {
        if !self.objects.iter().any(|o| o.same_name(object.name())) {
            self.objects.push(object.clone());
            self.extend(search, object);
        }
    }

    fn extend(&mut self, search: &Search<'_>, start: Object) {
        // Each with those that loaded it, for their rpaths.
        let mut open = std::collections::VecDeque::from([(start, Vec::<Object>::new())]);
        while let Some((object, loaders)) = open.pop_front() {
            for name in &object.elf.needed {
                let known =
                    |o: &Object| o.name() == name || o.elf.soname.as_deref() == Some(name.as_str());
                let noted = self.missing.iter().any(|(n, _)| n == name);
                if noted || self.objects.len() >= MOST || self.objects.iter().any(known) {
                    continue;
                }
                let above: Vec<(&str, &Elf)> =
                    loaders.iter().rev().map(|o| (&*o.path, &*o.elf)).collect();
                let found = search.find(name, (&object.path, &object.elf), &above);
                match found.map(|f| (f.path, f.elf)) {
                    Some((path, Ok(elf))) => {
                        let next = Object { path, elf };
                        self.objects.push(next.clone());
                        let mut by = loaders.clone();
                        by.push(object.clone());
                        open.push_back((next, by));
                    }
                    _ => self.missing.push((name.clone(), object.name().to_owned())),
                }
            }
        }
    }
}
