//! Every operation fails, and the power goes at every operation.

use super::disk::Fault;
use super::*;

/// Carries a plan out with a fault at each operation in turn. A failure must leave the tree as it was; after a power
/// cut once more must be refused, and undo must bring it back; so one tree serves for all.
pub fn survives(root: &Path, plan: &Plan) {
    let before = digest(root);
    for fault in [Fault::Fail, Fault::Cut, Fault::CutUnsynced] {
        let mut refused = 0;
        for at in 1.. {
            let mut disk = Faulty::new(at, fault);
            let place = Place::as_if_live(root);
            let done = carry_out_on(&mut disk, &place, plan, &YES, &mut Vec::new());
            if disk.count < at {
                assert_eq!(done.unwrap().end, End::Done);
                assert!(at > 30, "{at}");
                // All but the first few cuts leave a run that is half done.
                assert!(fault == Fault::Fail || refused > at / 2, "{refused} of {at}");
                back(root);
                break;
            }
            let e = format!("{:#}", done.unwrap_err());
            if fault == Fault::Fail {
                assert!(e.contains("planted failure"), "{at}: {e}");
            } else {
                refused += usize::from(is_refused(root, plan, at));
                back(root);
            }
            assert_eq!(digest(root), before, "{fault:?} at operation {at}: {e}");
        }
    }
}

/// Half done is not gone on with: it is refused, with the way out.
fn is_refused(root: &Path, plan: &Plan, at: usize) -> bool {
    let half = digest(root);
    let place = Place::new(root).unwrap();
    let again = carry_out_on(&mut Faulty::sound(), &place, plan, &YES, &mut Vec::new());
    let Err(e) = again else { return false };
    assert!(format!("{e:#}").contains(&plan.undo), "{at}: {e:#}");
    assert_eq!(digest(root), half);
    true
}

#[test]
fn every_fault_of_every_kind_of_change() {
    survives(tree().path(), &plan());
}

#[test]
fn the_way_back_can_be_cut_as_well() {
    let before = digest(tree().path());
    for fault in [Fault::Fail, Fault::Cut, Fault::CutUnsynced] {
        let (mut at, dir) = (1, tree());
        loop {
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
