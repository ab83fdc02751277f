//! The schedule of the chores during the runs, such as prunes, backups and restarts.

use std::time::{Duration, Instant};

#[derive(Debug)]
pub(super) struct Chore {
    every: Duration,
    next: Instant,
}

#[derive(Debug)]
pub(super) struct Chores {
    pub(super) measure: Chore,
    pub(super) restart: Chore,
    pub(super) kill: Chore,
    pub(super) backup: Chore,
    pub(super) verify: Chore,
}

impl Chore {
    /// Creates a chore that is due `times` times in the whole time. Its period is between `min` and
    /// `max` seconds.
    fn new(whole: Duration, times: f64, min: f64, max: f64) -> Self {
        let every = Duration::from_secs_f64((whole.as_secs_f64() / times).clamp(min, max));
        Self { every, next: Instant::now() + every }
    }

    /// Returns whether the chore is due. If it is, schedules its next execution.
    pub(super) fn is_due(&mut self) -> bool {
        let now = Instant::now();
        let is_due = now >= self.next;
        if is_due {
            self.next = now + self.every;
        }
        is_due
    }
}

impl Chores {
    pub(super) fn new(whole: Duration) -> Self {
        Self {
            measure: Chore::new(whole, 100.0, 0.1, 5.0),
            restart: Chore::new(whole, 50.0, 0.15, 4.0),
            kill: Chore::new(whole, 12.0, 0.7, 20.0),
            backup: Chore::new(whole, 6.0, 1.0, 60.0),
            verify: Chore::new(whole, 6.0, 1.3, 45.0),
        }
    }
}
