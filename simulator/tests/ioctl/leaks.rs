//! Nothing is left of what is closed, in whatever order (A.3, B.6 U1).

use crate::rig::*;
use rocket_sim::{Alive, Config, Fault, Rule, SimBoard};
use std::time::{Duration, Instant};

#[test]
fn jobs_in_flight_outlive_their_file() {
    for profile in DriverProfile::ALL {
        let stock = matches!(profile, Stock618 | Stock);
        let board = stepped(profile);
        let (mut a, mut b) = (Rig::on(&board), Rig::on(&board));
        let (input, output) = (a.bo(4096), a.bo(8192));
        let (unused, theirs) = (a.bo(4096), b.bo(4096));
        let jobs = [a.job(0, &[input], &[output]), a.job(1, &[], &[output])];
        a.submit(&jobs, 48).unwrap();
        let job = b.job(0, &[], &[theirs]);
        b.submit(&[job], 48).unwrap();
        assert_eq!(unused, 3, "{profile}");
        let all = Alive { files: 2, buffers: 4, bytes: 5 * 4096, jobs: 3 };
        assert_eq!(board.alive(), all, "{profile}");
        drop(a);
        // What no job needs goes with the file.
        let left = Alive { files: 1, buffers: 3, bytes: 4 * 4096, jobs: 3 };
        assert_eq!(board.alive(), left, "{profile}");
        let noticed = board.explanations().iter().any(|e| e.rule == Rule::ClosedInFlight);
        assert_eq!(noticed, stock, "{profile}");
        // The last of its jobs lets go of the rest.
        assert!(board.step() && board.step());
        assert_eq!(board.alive().buffers, 1, "{profile}");
        drop(b);
        while board.step() {}
        assert_eq!(board.alive(), Alive::default(), "{profile}");
        let c = board.counters();
        assert_eq!((c.fences, c.files_closed), (3, 2), "{profile}");
        assert_eq!(c.closed_with_jobs_in_flight, 2 * u64::from(stock), "{profile}");
    }
}

/// The same with the board's own threads, and jobs that hang.
#[test]
fn threads_leave_nothing() {
    for profile in [Stock, Full] {
        let timeout = Duration::from_millis(5);
        let board = SimBoard::new(Config { profile, timeout, ..Config::default() });
        for job in 0..9 {
            board.inject(Fault::HangJob(job));
        }
        for _ in 0..3 {
            let mut r = Rig::on(&board);
            let output = r.bo(4096);
            let jobs = [0, 1, 2].map(|n| r.job(n, &[], &[output]));
            r.submit(&jobs, 48).unwrap();
        }
        let start = Instant::now();
        while board.alive() != Alive::default() {
            assert!(start.elapsed() < Duration::from_secs(30), "{:?}", board.alive());
            std::thread::sleep(Duration::from_millis(1));
        }
        assert_eq!(board.counters().jobs_timed_out, 9, "{profile}");
    }
}
