//! The chores during the runs.

use std::fs;

use super::{
    super::{Plant, backups::Pending, protocol::Command, samples::ProcessSample},
    Supervisor,
};
use crate::Failure;

impl Supervisor {
    pub(super) async fn do_chores(&mut self) -> Result<(), Failure> {
        if self.chores.measure.is_due() {
            self.sample();
            self.measure().await;
        }
        if self.chores.restart.is_due() {
            let leaks = self.arguments.plant == Some(Plant::Leak);
            let index = self.rng.below(2);
            if let Some(child) = self.children.get_mut(index)
                && child.is_open
                && child.restarts % 2 == 0
            {
                child.restarts += 1;
                child.send(&Command::Restart { leaks }).await;
            }
        }
        if self.chores.kill.is_due()
            && let [_, child] = &mut self.children
            && child.is_open
            && !child.was_killed
        {
            child.kill();
        }
        if self.chores.backup.is_due() && self.backup.is_none() && self.store.file.is_some() {
            // A store may create a log beside the backup that it opens.
            let folder = format!("backup{}", self.rng.next());
            let folder = self.folder.path().join(folder);
            fs::create_dir(&folder).map_err(|source| Failure::CannotRun {
                what: "make a folder for a backup".to_owned(),
                source: Some(source.into()),
            })?;
            let file = folder.join("chat.db");
            self.backup = Some(Pending::new(file.clone(), &self.models));
            let [child, _] = &mut self.children;
            child.send(&Command::Backup { to: file }).await;
        }
        if self.chores.verify.is_due() {
            self.verify().await?;
        }
        Ok(())
    }

    pub(super) fn sample(&mut self) {
        let processes = self
            .children
            .each_ref()
            .map(|child| child.id().and_then(ProcessSample::now).unwrap_or_default());
        let time = self.time();
        self.samples.add(time, processes, &self.location);
    }

    pub(super) async fn measure(&mut self) {
        self.measurements += 1;
        for child in &mut self.children {
            child.send(&Command::Measure { number: self.measurements }).await;
        }
    }
}
