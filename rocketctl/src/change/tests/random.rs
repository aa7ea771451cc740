//! Plans at random on trees at random.

use super::disk::Fault;
use super::*;
use proptest::prelude::*;

#[derive(Debug, Clone)]
enum Any {
    Write(usize, Vec<u8>, bool),
    Append(usize, String),
    Remove(usize),
    Folder(usize),
}

/// Few paths, so that changes meet; some are below others, so that some plans cannot be carried out.
const PATHS: [&str; 6] =
    ["/etc/a", "/etc/b", "/etc/new/c", "/etc/new/deep/d", "/lib/e", "/etc/group"];

fn any_change() -> impl Strategy<Value = Any> {
    let path = 0..PATHS.len();
    prop_oneof![
        (path.clone(), proptest::collection::vec(any::<u8>(), 0..40), any::<bool>())
            .prop_map(|(p, b, x)| Any::Write(p, b, x)),
        (path.clone(), "[a-z]{0,8}").prop_map(|(p, t)| Any::Append(p, t)),
        path.clone().prop_map(Any::Remove),
        path.prop_map(Any::Folder),
    ]
}

fn built(steps: &[Vec<Any>]) -> Plan {
    let mut plan = Plan::new("test", "t", "u");
    for changes in steps {
        let mut step = Step::new("any", "Any", "any");
        for change in changes {
            step = match change.clone() {
                Any::Write(p, bytes, x) => {
                    step.write(PATHS[p], bytes, if x { 0o755 } else { 0o600 })
                }
                Any::Append(p, text) => {
                    step.edit(PATHS[p], move |old| Ok(old.unwrap_or_default().to_owned() + &text))
                }
                Any::Remove(p) => step.remove(PATHS[p]),
                Any::Folder(p) => step.folder(PATHS[p], 0o750),
            };
        }
        plan = plan.step(step);
    }
    plan
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 80, ..ProptestConfig::default() })]

    #[test]
    fn any_plan_goes_back(
        files in proptest::collection::vec(("[a-z]{0,9}", any::<bool>()), 3),
        runs in proptest::collection::vec(proptest::collection::vec(
            proptest::collection::vec(any_change(), 1..4), 1..4), 1..3),
        at in 1usize..120,
        fault in prop_oneof![Just(Fault::Fail), Just(Fault::Cut), Just(Fault::CutUnsynced)],
    ) {
        let dir = tree();
        for ((text, there), path) in files.iter().zip(PATHS) {
            if *there && !path.contains("new") {
                fs::write(dir.path().join(&path[1..]), text).unwrap();
            }
        }
        let before = digest(dir.path());
        let place = Place::new(dir.path()).unwrap();
        let (last, first) = runs.split_last().unwrap();
        for run in first {
            // One that cannot be carried out leaves things as they were.
            let between = digest(dir.path());
            if carry_out_on(&mut Faulty::sound(), &place, &built(run), &YES, &mut Vec::new()).is_err() {
                prop_assert_eq!(digest(dir.path()), between);
            }
        }
        _ = carry_out_on(&mut Faulty::new(at, fault), &place, &built(last), &YES, &mut Vec::new());
        back(dir.path());
        prop_assert_eq!(digest(dir.path()), before);
    }

    #[test]
    fn any_bytes_of_a_journal(bytes in proptest::collection::vec(any::<u8>(), 0..300)) {
        crate::fuzz::journal(&bytes);
    }
}
