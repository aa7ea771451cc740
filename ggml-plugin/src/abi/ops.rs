//! Op numbers by name (ggml-abi 2.10): they moved a dozen times without a version bump.
#![allow(unsafe_code)]

use super::symbols::Resolve;
use std::ffi::{CStr, c_char};

/// What an op number means to this plugin.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize)]
#[serde(rename_all = "snake_case")]
pub enum OpKind {
    /// Nothing to compute: a leaf.
    None,
    /// RESHAPE, VIEW, PERMUTE or TRANSPOSE: nothing to compute either.
    View,
    /// MUL_MAT.
    MulMat,
    /// MUL_MAT_ID.
    MulMatId,
    /// FLASH_ATTN_EXT.
    FlashAttn,
    /// ADD.
    Add,
    /// CPY.
    Cpy,
    /// Any other.
    Other,
}

/// The numbers of one host. An op it does not have is never matched.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Ops {
    none: Option<i32>,
    views: [Option<i32>; 4],
    mul_mat: Option<i32>,
    mul_mat_id: Option<i32>,
    flash_attn: Option<i32>,
    add: Option<i32>,
    cpy: Option<i32>,
}

/// `ggml_op_name` indexes an array without a bounds check: never ask beyond the smallest count
/// any supported host ever had, unless GLU, the last op since 2025-06, marks the end.
const BLIND_LIMIT: i32 = 81;
/// A bound for hosts where GLU is further away than it has ever been.
const LIMIT: i32 = 200;

impl Ops {
    /// Walks the host's names.
    ///
    /// # Errors
    /// The name of an op without which nothing can be done.
    pub fn resolve(host: &dyn Resolve) -> Result<Ops, String> {
        let f = host.symbol(c"ggml_op_name").ok_or("ggml_op_name is not exported")?;
        // SAFETY: the exported function has this signature in every generation.
        let name: unsafe extern "C" fn(i32) -> *const c_char =
            unsafe { std::mem::transmute(f.as_ptr()) };
        // GLU and the symbol ggml_glu came together.
        let limit = if host.symbol(c"ggml_glu").is_some() { LIMIT } else { BLIND_LIMIT };
        Ops::walk(limit, |i| {
            // SAFETY: `walk` stops at the last op, so the index is inside the host's array; the
            // strings are static.
            unsafe {
                let s = name(i);
                (!s.is_null()).then(|| CStr::from_ptr(s).to_string_lossy().into_owned())
            }
        })
    }

    fn walk(limit: i32, name: impl Fn(i32) -> Option<String>) -> Result<Ops, String> {
        let mut ops = Ops::default();
        for i in 0..limit {
            let Some(name) = name(i) else { break };
            let found = match name.as_str() {
                "NONE" => &mut ops.none,
                "RESHAPE" => &mut ops.views[0],
                "VIEW" => &mut ops.views[1],
                "PERMUTE" => &mut ops.views[2],
                "TRANSPOSE" => &mut ops.views[3],
                "MUL_MAT" => &mut ops.mul_mat,
                "MUL_MAT_ID" => &mut ops.mul_mat_id,
                "ADD" => &mut ops.add,
                "CPY" => &mut ops.cpy,
                "FLASH_ATTN_EXT" => &mut ops.flash_attn,
                "GLU" => break,
                _ => continue,
            };
            *found = Some(i);
            if ops.complete() {
                break;
            }
        }
        ops.require()
    }

    fn complete(&self) -> bool {
        self.none.is_some()
            && self.views.iter().all(Option::is_some)
            && self.mul_mat.is_some()
            && self.mul_mat_id.is_some()
            && self.flash_attn.is_some()
            && self.add.is_some()
            && self.cpy.is_some()
    }

    /// Sums, copies, expert and attention ops may be missing: then those are simply never matched.
    fn require(self) -> Result<Ops, String> {
        let must = [("NONE", self.none), ("MUL_MAT", self.mul_mat)];
        let views = ["RESHAPE", "VIEW", "PERMUTE", "TRANSPOSE"].into_iter().zip(self.views);
        match must.into_iter().chain(views).find(|(_, n)| n.is_none()) {
            Some((name, _)) => Err(format!("the host has no op named {name}")),
            None => Ok(self),
        }
    }

    /// What op number `op` is on this host.
    pub fn kind(&self, op: i32) -> OpKind {
        let op = Some(op);
        if op == self.none {
            OpKind::None
        } else if self.views.contains(&op) {
            OpKind::View
        } else if op == self.mul_mat {
            OpKind::MulMat
        } else if op == self.mul_mat_id {
            OpKind::MulMatId
        } else if op == self.flash_attn {
            OpKind::FlashAttn
        } else if op == self.add {
            OpKind::Add
        } else if op == self.cpy {
            OpKind::Cpy
        } else {
            OpKind::Other
        }
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A host's op list: the named ones at these places, GLU last.
    fn host(count: i32, named: &'static [(i32, &'static str)]) -> impl Fn(i32) -> Option<String> {
        move |i| {
            assert!(i < count, "op {i} asked of a host that has {count}");
            let name = named.iter().find(|(n, _)| *n == i).map(|(_, s)| *s);
            Some(name.unwrap_or(if i == count - 1 { "GLU" } else { "X" }).to_owned())
        }
    }

    const V27: &[(i32, &str)] = &[
        (0, "NONE"),
        (2, "ADD"),
        (29, "MUL_MAT"),
        (30, "MUL_MAT_ID"),
        (35, "CPY"),
        (36, "RESHAPE"),
        (37, "VIEW"),
        (38, "PERMUTE"),
        (39, "TRANSPOSE"),
        (74, "FLASH_ATTN_EXT"),
    ];

    pub(crate) fn current() -> Ops {
        Ops::walk(LIMIT, host(101, V27)).unwrap()
    }

    #[test]
    fn numbers_of_a_current_host() {
        let ops = current();
        assert_eq!(ops.kind(0), OpKind::None);
        assert_eq!(ops.kind(2), OpKind::Add);
        assert_eq!(ops.kind(29), OpKind::MulMat);
        assert_eq!(ops.kind(30), OpKind::MulMatId);
        assert_eq!(ops.kind(35), OpKind::Cpy);
        assert_eq!(ops.kind(74), OpKind::FlashAttn);
        assert!((36..40).all(|i| ops.kind(i) == OpKind::View));
        assert!([1, 28, 31, 34, 40, 73, 75, -1].iter().all(|&i| ops.kind(i) == OpKind::Other));
    }

    /// The same ops on a host that has three fewer before them.
    #[test]
    fn numbers_follow_the_names() {
        const MOVED: &[(i32, &str)] = &[
            (0, "NONE"),
            (2, "ADD"),
            (26, "MUL_MAT"),
            (27, "MUL_MAT_ID"),
            (32, "CPY"),
            (33, "RESHAPE"),
            (34, "VIEW"),
            (35, "PERMUTE"),
            (36, "TRANSPOSE"),
            (71, "FLASH_ATTN_EXT"),
        ];
        let ops = Ops::walk(LIMIT, host(98, MOVED)).unwrap();
        let kinds = [0, 26, 27, 32, 33, 34, 35, 36, 71].map(|i| ops.kind(i));
        let v27 = [0, 29, 30, 35, 36, 37, 38, 39, 74].map(|i| current().kind(i));
        assert_eq!(kinds, v27);
        assert!([29, 30, 37, 38, 39, 74].iter().all(|&i| ops.kind(i) == OpKind::Other));
    }

    #[test]
    fn the_walk_never_passes_the_last_op() {
        const NO_ATTENTION: &[(i32, &str)] = V27.split_at(9).0;
        // The fake asserts the bound.
        let ops = Ops::walk(LIMIT, host(60, NO_ATTENTION)).unwrap();
        assert_eq!(ops.kind(74), OpKind::Other);
    }

    #[test]
    fn a_missing_matmul_is_named() {
        let words = Ops::walk(LIMIT, host(50, &[(0, "NONE")])).unwrap_err();
        assert!(words.contains("MUL_MAT"), "{words}");
    }
}
