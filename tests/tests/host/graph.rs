//! What a model computes with weights, and what of it the board has to do: from the file's header,
//! checked against the host's own list of operations, and against what the board executed.

use crate::gguf::{Header, Tensor};
use serde_json::Value;
use std::collections::BTreeMap;

/// Which operations have a route, and its name in the plugin's report. Those that are not here
/// are listed all the same, and must not be in the report.
pub const ROUTES: &[(&str, &str)] = &[
    ("MUL_MAT", "fp16"),
    ("FLASH_ATTN_EXT", "attention"),
    ("MUL_MAT_ID", "experts-int8"),
    ("MUL_MAT_ID", "experts-fp16"),
];

/// `slices` products of `m` rows by `k` by `n` with a stored weight.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Product {
    pub k: usize,
    pub n: usize,
    pub m: usize,
    pub slices: usize,
    /// Type of the weight.
    pub kind: &'static str,
}

/// Attention of `tokens` to `kv` of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Attention {
    pub key: usize,
    pub value: usize,
    pub heads: usize,
    pub kv_heads: usize,
    pub tokens: usize,
    pub kv: usize,
}

/// `used` products a token with weights that are chosen from `experts`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Experts {
    pub k: usize,
    pub n: usize,
    pub experts: usize,
    pub used: usize,
    pub tokens: usize,
    pub kind: &'static str,
}

/// One batch's operations with weights or a cache.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Graph {
    pub products: Vec<Product>,
    pub attention: Vec<Attention>,
    pub experts: Vec<Experts>,
}

/// How a batch is cut: tokens of it, those whose logits are wanted, and tokens in the cache.
#[derive(Debug, Clone, Copy)]
pub struct Batch {
    pub tokens: usize,
    pub wanted: usize,
    pub cached: usize,
}

impl Batch {
    /// A whole prompt at once.
    pub fn whole(tokens: usize, wanted: usize) -> Batch {
        Batch { tokens, wanted, cached: tokens }
    }
}

/// Stored with two dimensions, but not multiplied with.
const TABLES: [&str; 2] = ["ssm_conv1d.weight", "ssm_norm.weight"];

fn is_quantized(kind: &str) -> bool {
    !matches!(kind, "F16" | "F32" | "BF16")
}

impl Product {
    fn macs(&self) -> u64 {
        (self.k * self.n * self.m * self.slices) as u64
    }

    /// By the defaults of `docs/knobs.md`, and the least K and N of a route.
    fn is_worth_it(&self) -> bool {
        let rows = if is_quantized(self.kind) { 128 } else { 32 };
        self.m >= rows && self.k >= 64 && self.n >= 64
    }
}

impl Attention {
    fn macs(&self) -> u64 {
        (self.heads * self.tokens * self.kv * (self.key + self.value)) as u64
    }

    fn is_worth_it(&self) -> bool {
        self.tokens >= 16 && self.kv >= 1024
    }
}

impl Experts {
    fn macs(&self) -> u64 {
        (self.k * self.n * self.used * self.tokens) as u64
    }

    fn is_worth_it(&self) -> bool {
        let rows = self.used * self.tokens / self.experts;
        let work = rows * self.k * self.n;
        is_quantized(self.kind) && self.tokens >= 512 && rows >= 64 && work >= 340_000_000
    }
}

/// The operations of a text model's batch: every matrix over all tokens, except that the last
/// block's feed-forward part and the head see only the rows whose logits are wanted.
pub fn expected(model: &Header, batch: Batch) -> Graph {
    let last = format!("blk.{}.ffn_", model.blocks - 1);
    let (mut products, mut experts) = (Vec::new(), Vec::new());
    let tied = model.tensor("output.weight").is_none();
    for t in &model.tensors {
        let head = t.name == if tied { "token_embd.weight" } else { "output.weight" };
        let table = TABLES.iter().any(|p| t.name.ends_with(p));
        if !(head || t.name.starts_with("blk.")) || !t.name.ends_with(".weight") || table {
            continue;
        }
        let tokens = if head || t.name.starts_with(&last) { batch.wanted } else { batch.tokens };
        let [k, n, slices] = match t.shape[..] {
            [k, n] => [k, n, 1],
            [k, n, slices] => [k, n, slices],
            _ => continue,
        };
        if t.name.contains("_exps.") {
            let used = model.number("expert_used_count");
            experts.push(Experts { k, n, experts: slices, used, tokens, kind: t.kind });
        } else {
            products.push(Product { k, n, m: tokens, slices, kind: t.kind });
        }
    }
    let attends = |i: &usize| model.tensor(&format!("blk.{i}.attn_output.weight")).is_some();
    let attention = (0..model.blocks).filter(attends).map(|_| Attention {
        key: model.number("attention.key_length"),
        value: model.number("attention.value_length"),
        heads: model.number("attention.head_count"),
        kv_heads: model.number("attention.head_count_kv"),
        tokens: batch.tokens,
        // The host hands out the cache in steps of so many.
        kv: batch.cached.next_multiple_of(256),
    });
    Graph { products, attention: attention.collect(), experts }.sorted()
}

/// The host's own list, of lines such as `name = (f32) OP(a{4, 3, 2, 1}, b{...}) = {...}`.
pub fn listed(log: &str, model: &Header) -> Graph {
    let (mut products, mut attention, mut experts) = (Vec::new(), Vec::new(), Vec::new());
    for line in log.lines() {
        let Some((op, rest)) = line.split_once(" = (f32)").and_then(|(_, r)| r.split_once('('))
        else {
            continue;
        };
        let dims: Vec<[usize; 4]> = rest.split('{').skip(1).filter_map(four).collect();
        let (&[a, b, .., r], Some(name)) = (&dims[..], rest.split('{').next()) else { continue };
        // Weights are called by their tensors' names, and nothing else is.
        let weight: Option<&Tensor> = model.tensor(name);
        match (op.trim(), weight) {
            ("MUL_MAT", Some(w)) => products.push(Product {
                k: a[0],
                n: a[1],
                m: b[1..].iter().product::<usize>() / a[2],
                slices: a[2],
                kind: w.kind,
            }),
            ("MUL_MAT_ID", Some(w)) => experts.push(Experts {
                k: a[0],
                n: a[1],
                experts: a[2],
                used: r[1],
                tokens: r[2],
                kind: w.kind,
            }),
            ("FLASH_ATTN_EXT", _) => attention.push(Attention {
                key: a[0],
                value: r[0],
                heads: a[2],
                kv_heads: b[2],
                tokens: a[1],
                kv: b[1],
            }),
            _ => {}
        }
    }
    Graph { products, attention, experts }.sorted()
}

fn four(text: &str) -> Option<[usize; 4]> {
    let list: Option<Vec<usize>> =
        text.split('}').next()?.split(", ").map(|n| n.trim().parse().ok()).collect();
    list?.try_into().ok()
}

impl Graph {
    fn sorted(mut self) -> Graph {
        self.products.sort_unstable();
        self.attention.sort_unstable();
        self.experts.sort_unstable();
        self
    }

    /// Several batches after one another.
    pub fn of(batches: impl IntoIterator<Item = Graph>) -> Graph {
        let mut batches = batches.into_iter();
        let mut all = batches.next().expect("a batch");
        for b in batches {
            all.products.extend(b.products);
            all.attention.extend(b.attention);
            all.experts.extend(b.experts);
        }
        all.sorted()
    }

    /// As where experts are off (`ROCKET_MOE=0`): none of theirs is to run.
    pub fn without_experts(self) -> Graph {
        Graph { experts: Vec::new(), ..self }
    }

    /// What each operation multiplies: all of them, and those that the board has to do.
    fn macs(&self) -> BTreeMap<&'static str, [Vec<u64>; 2]> {
        let routed = |op: &str| ROUTES.iter().any(|(o, _)| *o == op);
        let both = |op: &'static str, list: Vec<(u64, bool)>| {
            let board = list.iter().filter(|(_, worth)| *worth && routed(op));
            let board: Vec<u64> = board.map(|(n, _)| *n).collect();
            (op, [list.iter().map(|(n, _)| *n).collect(), board])
        };
        let products = self.products.iter().map(|p| (p.macs(), p.is_worth_it()));
        let attention = self.attention.iter().map(|a| (a.macs(), a.is_worth_it()));
        let experts = self.experts.iter().map(|e| (e.macs(), e.is_worth_it()));
        BTreeMap::from([
            both("MUL_MAT", products.collect()),
            both("FLASH_ATTN_EXT", attention.collect()),
            both("MUL_MAT_ID", experts.collect()),
        ])
    }

    /// The products of the board, by K, N, rows and slices.
    fn shapes(&self) -> Vec<[u64; 4]> {
        let worth = self.products.iter().filter(|p| p.is_worth_it());
        worth.map(|p| [p.k, p.n, p.m, p.slices].map(|d| d as u64)).collect()
    }

    /// Every operation that has to be on the board was there, executed exactly its own
    /// multiply-accumulates beside the padding that its plan states, and nothing else was; the CPU
    /// redid none. Returns a line of figures.
    pub fn check(&self, report: &Value) -> String {
        let number = |v: &Value| v.as_u64().unwrap_or_else(|| panic!("{v} is not a count"));
        assert!(report["redos"].as_object().is_some_and(|r| r.is_empty()), "{}", report["redos"]);
        assert_eq!(number(&report["ops_dropped"]), 0);
        let mut ran: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
        let (mut shapes, mut executed) = (Vec::new(), 0);
        for op in report["ops"].as_array().expect("ops") {
            let name = op["route"].as_str().expect("a route");
            let route = ROUTES.iter().find(|(_, route)| *route == name);
            let (operation, _) = route.unwrap_or_else(|| panic!("no operation takes {name}: {op}"));
            let macs = number(&op["engine"]["board"]["macs"]);
            // What a mask makes void is not multiplied.
            let void = op["engine"]["skipped_macs"].as_u64().unwrap_or_default();
            let useful = macs - number(&op["engine"]["padding_macs"]) + void;
            assert_eq!(useful, number(&op["macs_expected"]), "{op}");
            if *operation == "MUL_MAT" {
                let shape = ["k", "n", "m", "slices"].map(|d| number(&op[d]));
                assert_eq!(useful, shape.iter().product::<u64>(), "{op}");
                shapes.push(shape);
            }
            ran.entry(operation).or_default().push(useful);
            executed += macs;
        }
        // The board's total holds nothing that no op accounts for.
        let total = report["board"]["macs"].as_u64().unwrap_or_default();
        assert_eq!(total, executed, "{}", report["reasons"]);
        let mut wanted = self.shapes();
        wanted.sort_unstable();
        shapes.sort_unstable();
        assert_eq!(shapes, wanted, "products that ran and those that were to run");
        let mut line = Vec::new();
        for (op, [all, mut board]) in self.macs() {
            let mut there = ran.remove(op).unwrap_or_default();
            there.sort_unstable();
            board.sort_unstable();
            assert_eq!(there, board, "{op}: MACs that ran and those that were to run");
            let sum = |list: &[u64]| list.iter().sum::<u64>();
            line.push(format!(
                "{op}: {} of {} on the board, {} of {} MACs",
                board.len(),
                all.len(),
                sum(&board),
                sum(&all)
            ));
        }
        line.join("; ")
    }
}
