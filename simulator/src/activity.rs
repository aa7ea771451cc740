//! What each core was doing, in time on the wall, as the driver's usage statistics and the kernel's runtime power
//! management count it (kernel-and-uapi C.4 P2, D.3). The simulator is slower than silicon: these are its own times,
//! and say nothing of a board's.

use crate::CORES;
use crate::kernel::fence::lock;
use std::sync::Mutex;
use std::time::{Duration, Instant};

/// What a core did up to a moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct CoreActivity {
    /// Time with a job on it, the one that runs included.
    pub busy: Duration,
    /// Jobs that ended.
    pub jobs: u64,
    /// Tasks of those that ended well.
    pub tasks: u64,
    /// Jobs that hung.
    pub timeouts: u64,
    /// Time that it was powered.
    pub active: Duration,
    /// Whether it is powered: it runs, or has not rested for long enough.
    pub powered: bool,
}

/// One core's books.
#[derive(Debug, Clone, Copy, Default)]
struct Core {
    /// Without the job that runs and without the time since `up`.
    past: CoreActivity,
    /// When the job that runs began.
    since: Option<Instant>,
    /// When it was powered, and when its last job ended.
    up: Option<Instant>,
    rested: Option<Instant>,
}

impl Core {
    /// Until when it is powered, as far as is known at `now`.
    fn powered_until(&self, now: Instant, delay: Duration) -> Instant {
        match (self.since, self.rested) {
            (None, Some(rested)) => now.min(rested + delay),
            _ => now,
        }
    }

    /// Closes a time with power that is over.
    fn settle(&mut self, now: Instant, delay: Duration) {
        let until = self.powered_until(now, delay);
        if let Some(up) = self.up
            && until < now
        {
            self.past.active += until.saturating_duration_since(up);
            self.up = None;
        }
    }

    fn at(mut self, now: Instant, delay: Duration) -> CoreActivity {
        self.settle(now, delay);
        let since = |from: Option<Instant>| {
            from.map_or(Duration::ZERO, |f| now.saturating_duration_since(f))
        };
        CoreActivity {
            busy: self.past.busy + since(self.since),
            active: self.past.active + since(self.up),
            powered: self.up.is_some(),
            ..self.past
        }
    }
}

/// All cores.
#[derive(Debug)]
pub struct Activity {
    /// Rest after which a core loses its power.
    delay: Duration,
    cores: Mutex<[Core; CORES]>,
}

impl Activity {
    pub fn new(delay: Duration) -> Activity {
        Activity { delay, cores: Mutex::default() }
    }

    /// A job begins.
    pub fn start(&self, core: usize, now: Instant) {
        let core = &mut lock(&self.cores)[core % CORES];
        core.settle(now, self.delay);
        core.up.get_or_insert(now);
        core.since = Some(now);
    }

    /// It ends, with so many tasks done, or hung.
    pub fn end(&self, core: usize, now: Instant, done: Option<u64>) {
        let core = &mut lock(&self.cores)[core % CORES];
        if let Some(since) = core.since.take() {
            core.past.busy += now.saturating_duration_since(since);
        }
        core.rested = Some(now);
        core.past.jobs += 1;
        core.past.tasks += done.unwrap_or(0);
        core.past.timeouts += u64::from(done.is_none());
    }

    /// Up to a moment.
    pub fn at(&self, now: Instant) -> [CoreActivity; CORES] {
        lock(&self.cores).map(|c| c.at(now, self.delay))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected figures by hand, from a time line: job of 10 ms, rest of 30, job of 5, rest beyond the delay of 50.
    #[test]
    fn a_time_line() {
        let ms = Duration::from_millis;
        let begin = Instant::now();
        let all = Activity::new(ms(50));
        assert_eq!(all.at(begin)[0], CoreActivity::default());
        all.start(0, begin + ms(100));
        let running = all.at(begin + ms(104))[0];
        assert_eq!(
            (running.busy, running.active, running.powered, running.jobs),
            (ms(4), ms(4), true, 0)
        );
        all.end(0, begin + ms(110), Some(3));
        let resting = all.at(begin + ms(130))[0];
        assert_eq!((resting.busy, resting.active, resting.powered), (ms(10), ms(30), true));
        all.start(0, begin + ms(140));
        all.end(0, begin + ms(145), None);
        let off = all.at(begin + ms(1000))[0];
        assert_eq!((off.busy, off.active, off.powered), (ms(15), ms(95), false));
        assert_eq!((off.jobs, off.tasks, off.timeouts), (2, 3, 1));
        all.start(0, begin + ms(1000));
        assert_eq!(all.at(begin + ms(1001))[0].active, ms(96));
        assert_eq!(all.at(begin + ms(1001))[1], CoreActivity::default());
    }
}
