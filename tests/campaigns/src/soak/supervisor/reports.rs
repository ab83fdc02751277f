//! Handles the reports of the processes.

use super::{
    super::{
        child::{Child, ChildReport, Work},
        protocol::Report,
    },
    Supervisor,
};
use crate::{
    Failure,
    conversations::{Outcome, PLANNED},
};

impl Supervisor {
    pub(super) async fn handle_report(&mut self, report: ChildReport) -> Result<(), Failure> {
        let ChildReport { child, report } = report;
        let Some(report) = report else { return self.replace_child(child).await };
        match report {
            Report::Opened => {
                if let Some(child) = self.children.get_mut(child) {
                    child.is_open = true;
                }
                Ok(())
            }
            Report::Happened { turn, event } => {
                let model = self.models.get_mut(turn.conversation as usize);
                let added = model.map_or(Ok(()), |model| {
                    model.check_shown(turn, &event)?;
                    model.add(turn, event)
                });
                added.map_err(|what| self.found(what))
            }
            Report::Wrong { turn, what } => {
                Err(self.found(format!("run {}: {what}", turn.token())))
            }
            Report::Ended { turn, outcome } => {
                self.end_run(child, turn.conversation, outcome).await
            }
            Report::Pruned { conversation, result } => {
                self.release(child, conversation);
                match result {
                    Ok(_) => self.count("prunes"),
                    Err(error) if error.contains("is in progress") => {
                        self.count("prunes refused: a run is open")
                    }
                    Err(error) if error.contains("closed") => self.count("prunes refused: closed"),
                    Err(error) => return Err(self.found(format!("a prune failed: {error}"))),
                }
                self.check(conversation).await
            }
            Report::BackedUp { to, result } => {
                self.count("backups");
                result.map_err(|error| self.found(format!("backup {}: {error}", to.display())))?;
                self.measure().await;
                if let Some(backup) = &mut self.backup {
                    backup.after = Some(self.measurements);
                }
                Ok(())
            }
            Report::Restarted { result } => {
                self.count("restarts of a store");
                if let Some(child) = self.children.get_mut(child) {
                    child.restarts += 1;
                }
                result.map_err(|error| self.found(format!("a restart failed: {error}")))
            }
            Report::Measured { number, measures } => {
                self.samples.add_measures(self.time(), &measures);
                if let Some(child) = self.children.get_mut(child) {
                    child.measured = child.measured.max(number);
                }
                self.check_backup().await
            }
        }
    }

    pub(super) fn release(&mut self, child: usize, conversation: u32) -> Option<Work> {
        self.free.push(conversation);
        self.children.get_mut(child)?.work.remove(&conversation)
    }

    pub(super) async fn end_run(
        &mut self,
        child: usize,
        conversation: u32,
        outcome: Outcome,
    ) -> Result<(), Failure> {
        let work = self.release(child, conversation);
        let time = self.time();
        self.samples.add_run(time);
        let restarts = self.children.get(child).map(|child| child.restarts);
        // The number is odd during a restart.
        let is_between = restarts.is_some_and(|restarts| restarts % 2 == 1);
        let was_closed = is_between || work != restarts.map(|restarts| Work::Run { restarts });
        let what = match &outcome {
            Outcome::Answered { .. } => "answers",
            Outcome::Dropped => "dropped responses",
            Outcome::Failed { error } if error.contains(PLANNED) => "planned failures",
            Outcome::Failed { error } if was_closed && error.contains("closed") => {
                "runs on a closed store"
            }
            Outcome::Failed { error } => {
                let error = format!("a run of conversation {conversation} failed: {error}");
                return Err(self.found(error));
            }
        };
        self.count(what);
        // With a planted fault, every run is compared. Otherwise, the next request could notice the
        // fault first and fail with another error.
        let is_checked = self.arguments.plant.is_some()
            || !matches!(outcome, Outcome::Answered { .. })
            || self.rng.one_in(3);
        if let Some(model) = self.models.get_mut(conversation as usize) {
            model.end(Some(&outcome));
        }
        if is_checked { self.check(conversation).await } else { Ok(()) }
    }

    pub(super) async fn replace_child(&mut self, index: usize) -> Result<(), Failure> {
        let prefix = format!("g{}", self.generations);
        self.generations += 1;
        let child = Child::start(
            &self.program,
            (index, &prefix, self.arguments.seed),
            &self.location,
            &self.reports,
        )?;
        let measurements = self.measurements;
        let Some(at) = self.children.get_mut(index) else { return Ok(()) };
        let mut former = std::mem::replace(at, child);
        // No request for measurements is outstanding, because the former process cannot answer it.
        at.measured = measurements;
        if !former.was_killed {
            return Err(self.found("a process ended without being killed"));
        }
        former.wait().await;
        self.count("killed processes");
        for (conversation, work) in former.work {
            self.free.push(conversation);
            if matches!(work, Work::Run { .. })
                && let Some(model) = self.models.get_mut(conversation as usize)
            {
                model.end(None);
            }
            self.check(conversation).await?;
        }
        self.check_backup().await
    }
}
