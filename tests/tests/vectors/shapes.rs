//! Index maps and tile plans.

use crate::Ran;
use crate::json::{File, list, usize_of};
use rocket_runtime::dtype::DType;
use rocket_runtime::layout::{feature_index, output_index, weight_index};
use rocket_runtime::plan::{Shape, TilePlan, group_plan_int8, plan as plan_tiles};
use serde_json::Value;

fn shape(v: &Value) -> Shape {
    Shape { m: usize_of(&v["M"]), k: usize_of(&v["K"]), n: usize_of(&v["N"]) }
}

pub fn layout(file: &File) -> Ran {
    let name = file.text("dtype").expect("dtype");
    let t = DType::from_name(name).expect("known dtype").info();
    let mut samples = 0;
    for case in list(&file.value["cases"]) {
        let Shape { m, k, .. } = shape(case);
        for (key, map) in [
            ("input", &(|r, c| feature_index(t.c2, m, r, c)) as &dyn Fn(usize, usize) -> usize),
            ("weights", &|r, c| weight_index(t, k, r, c)),
            ("output", &|r, c| output_index(t.c2_out, m, r, c)),
        ] {
            for sample in list(&case[key]) {
                let [r, c, index] = [0, 1, 2].map(|i| usize_of(&sample[i]));
                assert_eq!(map(r, c), index, "{file}: {key} ({r}, {c}) of {:?}", shape(case));
                samples += 1;
            }
        }
    }
    Ran::new(format!("layout {name}"), samples)
}

fn expected(v: &Value) -> Option<[usize; 4]> {
    (!v.is_null()).then(|| ["Mtile", "Ktile", "Ntile", "jobs"].map(|k| usize_of(&v[k])))
}

fn figures(p: Option<TilePlan>) -> Option<[usize; 4]> {
    p.map(|p| [p.mt, p.kt, p.nt, p.tasks()])
}

pub fn plan(file: &File) -> Ran {
    let cases = list(&file.value["cases"]);
    for case in cases {
        let dtype = DType::from_name(case["dtype"].as_str().expect("dtype")).expect("known");
        assert_eq!(figures(plan_tiles(dtype, shape(case))), expected(&case["plan"]), "{case}");
    }
    let grouped = list(&file.value["groupwise_int8"]);
    for case in grouped {
        let ours = group_plan_int8(shape(case), usize_of(&case["group"]));
        assert_eq!(figures(ours), expected(&case["plan"]), "{case}");
    }
    Ran::new("plan", cases.len() + grouped.len())
}
