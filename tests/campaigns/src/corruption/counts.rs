//! Counts the effects of flipped bits.

use super::{Arguments, contents::Damage};
use crate::{Failure, Figures};

/// The numbers of flips in one kind of file, by their effects.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) flips: u64,
    none: u64,
    refused: u64,
    reported: u64,
    /// Flips that change the rows about tool calls or the list of conversations, and how many of
    /// these flips `verify` reports.
    beside: [u64; 2],
    /// Flips after which messages are missing, and how many of these flips `verify` reports.
    missing: [u64; 2],
    wrong: u64,
    first_wrong: Option<(u64, String)>,
}

/// The outcome of opening and reading a file with a flipped bit.
pub(super) enum Outcome {
    Refused,
    Read { damage: Damage, verify_reports: bool },
}

impl Counts {
    pub(super) fn add(&mut self, outcome: Outcome, what: String) {
        let case = self.flips;
        self.flips += 1;
        match outcome {
            Outcome::Refused => self.refused += 1,
            Outcome::Read { damage, verify_reports } => {
                let count = |counts: &mut [u64; 2]| {
                    let [all, verified] = counts;
                    *all += 1;
                    *verified += u64::from(verify_reports);
                };
                match damage {
                    Damage::None => self.none += 1,
                    Damage::Reported => self.reported += 1,
                    Damage::Beside(_) => count(&mut self.beside),
                    Damage::Missing(_) => count(&mut self.missing),
                    Damage::Wrong(how) => {
                        self.wrong += 1;
                        self.first_wrong.get_or_insert((case, format!("{what}: {how}")));
                    }
                }
            }
        }
    }

    pub(super) fn figures(
        self,
        name: &str,
        arguments: &Arguments,
        figures: &mut Figures,
    ) -> Result<(), Failure> {
        if let Some((case, what)) = self.first_wrong {
            let Self { wrong, flips, .. } = self;
            let what = format!(
                "{name}: {wrong} of {flips} flips are read as other messages without an error; {what}"
            );
            return Err(Failure::Found { seed: arguments.seed, case, what });
        }
        let mut add = |what: &str, count: u64| figures.add(format!("{name}: {what}"), count);
        add("flips", self.flips);
        add("flips without an effect on what is read", self.none);
        add("flips that are refused when the store is opened", self.refused);
        add("flips that an error reports", self.reported);
        let [all, verified] = self.missing;
        add("flips after which messages are not found", all);
        add("flips after which messages are not found, reported by verify", verified);
        let [all, verified] = self.beside;
        add("flips that change the record or the directory", all);
        add("flips that change the record or the directory, reported by verify", verified);
        add("flips that are read as other messages", self.wrong);
        Ok(())
    }
}
