//! Collects the violations of rules.

use super::{CallInMessage, Citation, InvalidTranscript, Violation, Wire};

/// The violations that were found.
#[derive(Debug)]
pub(super) struct Report {
    wire: Wire,
    violations: Vec<Violation>,
}

impl Report {
    pub(super) fn new(wire: Wire) -> Self {
        Self { wire, violations: Vec::new() }
    }

    /// Reports that the message at this index breaks a rule.
    pub(super) fn message(&mut self, cited: &'static Citation, message: usize) {
        self.add(cited, message, None);
    }

    /// Reports that a call or a result breaks a rule. `index` is its index within the message.
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
