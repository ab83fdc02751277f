//! What flipped bits come to, counted.

use super::{Arguments, look::Damage};
use crate::{Failure, Figures};

/// What came of the flips in one kind of file.
#[derive(Debug, Default)]
pub(super) struct Counts {
    pub(super) flips: u64,
    none: u64,
    refused: u64,
    told: u64,
    beside: [u64; 2],
    missing: [u64; 2],
    wrong: u64,
    first_wrong: Option<(u64, String)>,
}

/// What a file came to with a bit flipped.
pub(super) enum Outcome {
    Refused,
    Read { damage: Damage, verify_tells: bool },
}

impl Counts {
    pub(super) fn add(&mut self, outcome: Outcome, what: String) {
        let case = self.flips;
        self.flips += 1;
        match outcome {
            Outcome::Refused => self.refused += 1,
            Outcome::Read { damage, verify_tells } => {
                let count = |counts: &mut [u64; 2]| {
                    let [all, told] = counts;
                    *all += 1;
                    *told += u64::from(verify_tells);
                };
                match damage {
                    Damage::None => self.none += 1,
                    Damage::Told => self.told += 1,
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
        add("flips that change nothing that is read", self.none);
        add("flips that are refused when the store is opened", self.refused);
        add("flips of which an error tells", self.told);
        let [all, told] = self.missing;
        add("flips after which messages are not found", all);
        add("of these, flips of which verify tells", told);
        let [all, told] = self.beside;
        add("flips that change the record or the directory", all);
        add("of these, flips of which verify tells, too", told);
        add("flips that are read as other messages", self.wrong);
        Ok(())
    }
}
