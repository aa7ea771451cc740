//! Every operation fails, and the power goes at every operation.

use super::disk::Fault;
use super::*;

/// Runs the plan with a fault at each operation in turn; `after` is told of each tree, until there is no fault.
fn each(fault: Fault, mut after: impl FnMut(&Path, usize, Result<Outcome>)) -> usize {
    for at in 1.. {
        let dir = tree();
        let mut disk = Faulty::new(at, fault);
        let place = Place::as_if_live(dir.path());
        let done = carry_out_on(&mut disk, &place, &plan(), &YES, &mut Vec::new());
        if disk.count < at {
            assert_eq!(done.unwrap().end, End::Done);
            return at - 1;
        }
        after(dir.path(), at, done);
    }
    unreachable!()
}

#[test]
fn a_failure_leaves_the_system_as_it_was() {
    let before = digest(tree().path());
    let faults = each(Fault::Fail, |root, at, done| {
        let e = format!("{:#}", done.unwrap_err());
        assert!(e.contains("planted failure"), "{at}: {e}");
        assert_eq!(digest(root), before, "operation {at}: {e}");
    });
    assert!(faults > 60, "{faults}");
}

#[test]
fn after_a_power_cut_the_journal_brings_it_back() {
    let before = digest(tree().path());
    for fault in [Fault::Cut, Fault::CutUnsynced] {
        let faults = each(fault, |root, at, done| {
            assert!(done.is_err(), "{at}");
            let half = digest(root);
            // Once more is refused while it is half done, with the way out.
            if let Err(e) = carry_out_on(
                &mut Faulty::sound(),
                &Place::new(root).unwrap(),
                &plan(),
                &YES,
                &mut Vec::new(),
            ) {
                assert!(format!("{e:#}").contains("rocketctl test --undo"), "{at}: {e:#}");
                assert_eq!(digest(root), half);
            }
            back(root);
            assert_eq!(digest(root), before, "{fault:?} at operation {at}");
        });
        assert!(faults > 60, "{faults}");
    }
}

#[test]
fn the_way_back_can_be_cut_as_well() {
    let before = digest(tree().path());
    for fault in [Fault::Fail, Fault::Cut, Fault::CutUnsynced] {
        let mut at = 1;
        loop {
            let dir = tree();
            let place = Place::as_if_live(dir.path());
            carry_out_on(&mut Faulty::sound(), &place, &plan(), &YES, &mut Vec::new()).unwrap();
            let mut disk = Faulty::new(at, fault);
            let undone = undo_on(&mut disk, &place, &undo_yes(), &mut Vec::new());
            if disk.count < at {
                break;
            }
            // A command that fails is said, and keeps nothing from being brought back.
            assert!(undone.is_err() || !undone.unwrap().failed.is_empty(), "{at}");
            back(dir.path());
            assert_eq!(digest(dir.path()), before, "{fault:?} at operation {at}");
            at += 1;
        }
        assert!(at > 30, "{at}");
    }
}
