//! Compares the store with the models.

use tower_chat::{HistoryStore, store::Journal};

use super::Supervisor;
use crate::{
    Failure,
    conversations::{ReadAt, chain, key},
};

impl Supervisor {
    pub(super) async fn check(&mut self, conversation: u32) -> Result<(), Failure> {
        let key = key(conversation);
        let failed = |error: tower_chat::store::StoreError| chain(&error);
        let read = async {
            let history = self.store.load(&key).await.map_err(failed)?;
            let open = self.store.as_dyn().open_run(&key).await.map_err(failed)?;
            Ok::<_, String>((history, open))
        };
        let read = read.await;
        self.count("comparisons of a conversation");
        let Some(model) = self.models.get_mut(conversation as usize) else { return Ok(()) };
        let inspected =
            read.and_then(|(history, open)| model.inspect(&history, open.as_ref(), ReadAt::Now));
        match inspected {
            Ok(inspected) => {
                model.remember(inspected);
                Ok(())
            }
            Err(what) => Err(self.found(format!("conversation {key}: {what}"))),
        }
    }

    /// Checks the backup when the processes have reported everything that it can contain.
    pub(super) async fn check_backup(&mut self) -> Result<(), Failure> {
        let is_reported =
            |after| self.children.iter().all(|child| child.measured >= after || !child.is_open);
        if !self.backup.as_ref().and_then(|backup| backup.after).is_some_and(is_reported) {
            return Ok(());
        }
        let Some(backup) = self.backup.take() else { return Ok(()) };
        self.count("backups compared");
        match backup.check(&self.models).await {
            Ok(_) => Ok(()),
            Err(what) => Err(self.found(format!("a backup: {what}"))),
        }
    }

    pub(super) async fn verify(&mut self) -> Result<(), Failure> {
        let Some(file) = self.store.file.clone() else { return Ok(()) };
        let found = file.check_integrity().await.map_err(|error| self.found(chain(&error)))?;
        let stray = file.stray_rows().await.map_err(|error| self.found(chain(&error)))?;
        self.count("checks of the file");
        if !found.is_empty() || stray.messages + stray.tools > 0 {
            return Err(self.found(format!("the file: {found:?}, {stray:?}")));
        }
        Ok(())
    }
}
