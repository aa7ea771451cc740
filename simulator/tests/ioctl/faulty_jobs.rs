//! Injected faults of jobs: slow ones, a parked clock, an IOMMU fault.

use crate::common::{self, Setup, Shape, task};
use rocket_runtime::device::JobRef;
use rocket_sim::{Fault, Rule};

/// A job of two tasks that compute; its modelled time in ns, and the clock afterwards.
fn modelled(fault: Option<fn(u64) -> Fault>) -> (u64, u64) {
    let rig = common::Rig::new(common::quick());
    let shape = Shape::new(64, 512, 64);
    let s = Setup::new(&rig, shape);
    // The second task finds its operands on the chip, so that the clock is what limits it.
    let again = Shape { data_reuse: true, weight_reuse: true, ..shape };
    let addr = [&s.input, &s.weights, &s.output, &s.operand].map(common::Buf::iova);
    let programs = [rig.words(&s.words), rig.words(&common::encode(&again, addr))];
    rig.board.inject(fault.map_or(Fault::DropJob(99), |f| f(0)));
    let (tasks, writes) = (programs.each_ref().map(|p| task(p, 126)), [s.output.handle()]);
    let job = JobRef { tasks: &tasks, reads: &[], writes: &writes, flags: 0 };
    rig.node.submit(&[job]).unwrap();
    rig.wait(&s.output);
    assert_eq!(s.result(), s.expected());
    (rig.board.counters().modelled_ns.iter().sum(), rig.board.clock_hz())
}

#[test]
fn slow_jobs_and_a_parked_clock() {
    let slow = |fault| modelled(Some(fault)).0;
    let (plain, hz) = modelled(None);
    assert_eq!(hz, 600_000_000);
    let [three, five] = [
        slow(|job| Fault::SlowJob { job, times: 3 }),
        slow(|job| Fault::SlowJob { job, times: 5 }),
    ];
    // Linear in the factor; what is not of the tasks stays.
    assert!(three > plain, "{plain} {three}");
    assert_eq!(five - three, three - plain);
    let (parked, hz) = modelled(Some(Fault::ParkClock));
    assert_eq!(hz, 200_000_000);
    // The second of two tasks at a third of the clock takes at most three times as long.
    let tasks = (three - plain) / 2;
    assert!(parked > plain && parked - plain <= 2 * tasks, "{plain} {parked} {tasks}");
}

#[test]
fn an_iommu_fault() {
    let rig = common::Rig::new(common::quick());
    let s = Setup::new(&rig, Shape::new(4, 32, 16));
    rig.board.inject(Fault::IommuFault(0));
    s.run();
    assert!(s.untouched());
    assert_eq!(rig.last().unwrap().rule, Rule::Injected);
    let c = rig.board.counters();
    assert_eq!((c.jobs_timed_out, c.tasks, c.faults), (1, 0, 1));
    s.run();
    assert_eq!(s.result(), s.expected(), "the core was reset");
}
