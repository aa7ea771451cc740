//! When the jobs of several files run, by the driver's scheduler (kernel-and-uapi A.5), if the
//! host took no time: a file's jobs in order, on one core at a time; a file with nothing queued
//! goes to the least loaded core.

use std::collections::VecDeque;

/// What a file does.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Event {
    /// Queues these jobs.
    Submit(Vec<usize>),
    /// Goes on when this job has ended.
    Wait(usize),
}

#[derive(Debug, Default)]
struct File {
    core: Option<usize>,
    /// Jobs with their place in the order of all submissions.
    queue: VecDeque<(usize, usize)>,
    /// The job that runs, and when it ends.
    running: Option<(usize, u64)>,
    next: usize,
}

impl File {
    fn load(&self) -> usize {
        1 + self.queue.len() + usize::from(self.running.is_some())
    }
}

/// Time that each of `cores` is busy, when job `j` takes `ns[j]`.
pub fn busy(events: &[&[Event]], ns: &[u64], cores: usize) -> Vec<u64> {
    let mut files: Vec<File> = events.iter().map(|_| File::default()).collect();
    let mut done = vec![false; ns.len()];
    let mut busy = vec![0; cores];
    let (mut now, mut submitted) = (0, 0);
    loop {
        for (f, events) in events.iter().enumerate() {
            while let Some(event) = events.get(files[f].next) {
                match event {
                    Event::Wait(job) if !done[*job] => break,
                    Event::Wait(_) => {}
                    Event::Submit(jobs) => {
                        if files[f].queue.is_empty() && files[f].running.is_none() {
                            files[f].core = Some(least_loaded(&files, f, cores));
                        }
                        for &job in jobs {
                            files[f].queue.push_back((submitted, job));
                            submitted += 1;
                        }
                    }
                }
                files[f].next += 1;
            }
        }
        for (core, busy) in busy.iter_mut().enumerate() {
            let mine = |f: &File| f.core == Some(core);
            if files.iter().any(|f| mine(f) && f.running.is_some()) {
                continue;
            }
            let oldest = files
                .iter_mut()
                .filter(|f| mine(f) && !f.queue.is_empty())
                .min_by_key(|f| f.queue[0].0);
            if let Some((file, (_, job))) = oldest.and_then(|f| f.queue.pop_front().map(|j| (f, j)))
            {
                file.running = Some((job, now + ns[job]));
                *busy += ns[job];
            }
        }
        let Some(next) = files.iter().filter_map(|f| f.running).map(|r| r.1).min() else {
            return busy;
        };
        now = next;
        for file in &mut files {
            if let Some((job, _)) = file.running.take_if(|r| r.1 == now) {
                done[job] = true;
            }
        }
    }
}

/// As the simulated driver chooses: the fewest files and jobs of others, and rather not to move.
fn least_loaded(files: &[File], file: usize, cores: usize) -> usize {
    let load = |core| {
        let others = files.iter().enumerate().filter(|(f, x)| *f != file && x.core == Some(core));
        others.map(|(_, x)| x.load()).sum::<usize>()
    };
    (0..cores).min_by_key(|&c| (load(c), files[file].core != Some(c), c)).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(files: &[Vec<Event>], ns: &[u64]) -> Vec<u64> {
        let files: Vec<&[Event]> = files.iter().map(Vec::as_slice).collect();
        busy(&files, ns, 3)
    }

    /// Five files that queue all they have: two cores get two of them.
    #[test]
    fn files_with_jobs_queued_stay_on_their_core() {
        let files: Vec<_> = (0..5).map(|f| vec![Event::Submit(vec![2 * f, 2 * f + 1])]).collect();
        assert_eq!(of(&files, &[10; 10]), [40, 40, 20]);
    }

    /// Five files that wait for each job: whoever comes finds the core with the fewest.
    #[test]
    fn files_that_wait_move() {
        let files: Vec<_> = (0..5)
            .map(|f| {
                (0..30)
                    .flat_map(|i| [Event::Submit(vec![30 * f + i]), Event::Wait(30 * f + i)])
                    .collect()
            })
            .collect();
        let busy = of(&files, &[10; 150]);
        assert_eq!(busy.iter().sum::<u64>(), 1500);
        assert!(busy.iter().all(|b| (400..=600).contains(b)), "{busy:?}");
    }

    /// One file never runs on two cores at a time, whatever it waits for.
    #[test]
    fn a_file_alone_uses_one_core_at_a_time() {
        let file =
            vec![Event::Submit(vec![0, 1]), Event::Wait(0), Event::Submit(vec![2]), Event::Wait(2)];
        assert_eq!(of(&[file], &[5, 7, 9]), [21, 0, 0]);
    }
}
