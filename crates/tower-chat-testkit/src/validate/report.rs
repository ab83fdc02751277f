//! Collects violations.

use super::{CallInMessage, Citation, InvalidTranscript, Violation, Wire};

/// The violations found so far.
#[derive(Debug)]
pub(super) struct Report {
    wire: Wire,
    violations: Vec<Violation>,
}

impl Report {
    pub(super) fn new(wire: Wire) -> Self {
        Self { wire, violations: Vec::new() }
    }

    /// Reports the message at this index, which breaks a rule.
    pub(super) fn message(&mut self, cited: &'static Citation, message: usize) {
        self.add(cited, message, None);
    }

    /// Reports a call or a result that breaks a rule. `message` is the index of its message, and `index`
    /// its index in the message.
    pub(super) fn call(
        &mut self,
        cited: &'static Citation,
        message: usize,
        index: usize,
        id: Option<&str>,
    ) {
        self.add(cited, message, Some(CallInMessage { index, id: id.map(str::to_owned) }));
    }

    pub(super) fn into_result(self) -> Result<(), InvalidTranscript> {
        let mut violations = self.violations.into_iter();
        match violations.next() {
            None => Ok(()),
            Some(first) => Err(InvalidTranscript::new(first, violations.collect())),
        }
    }

    fn add(&mut self, cited: &'static Citation, message: usize, call: Option<CallInMessage>) {
        self.violations.push(Violation {
            wire: self.wire,
            rule: cited.rule,
            message,
            call,
            says: cited.says,
            source: cited.source,
        });
    }
}
