//! The output of `verify` and `repair`.

use serde::Serialize;
use tower_chat::ConversationKey;
use tower_chat_repair::Finding;

use crate::report::Report;

/// What a command has done about the problem of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Kind {
    /// `verify` has found the problem.
    Problem,
    /// `repair` has repaired the problem.
    Repaired,
    /// `repair` would repair the problem without `--dry-run`.
    ToRepair,
    /// `repair` cannot repair the problem.
    Left,
}

#[derive(Serialize)]
struct JsonFinding<'a> {
    kind: Kind,
    #[serde(skip_serializing_if = "Option::is_none")]
    scope: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    conversation: Option<&'a str>,
    #[serde(skip_serializing_if = "Option::is_none")]
    message: Option<u64>,
    what: &'a str,
}

/// Writes a finding as a line, or as a JSON object that contains `kind`.
pub(crate) fn write(finding: &Finding, kind: Kind, report: &mut Report) {
    let key = finding.conversation.as_ref();
    let object = JsonFinding {
        kind,
        scope: key.map(ConversationKey::scope),
        conversation: key.map(ConversationKey::id),
        message: finding.message,
        what: &finding.what,
    };
    report.write(&finding.to_string(), &object);
}
