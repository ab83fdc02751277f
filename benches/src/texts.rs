//! The texts of the workload. `benches/peers` also parses this file, and expects the value of each
//! constant on one line.

/// The input of a measured run.
pub(crate) const INPUT: &str = "Which of my orders are late, and why?";
/// The question of each stored turn.
pub(crate) const STORED_INPUT: &str = "And the other orders?";
/// The name of the only tool.
pub(crate) const TOOL: &str = "search_orders";
/// The arguments of the tool.
pub(crate) const ARGUMENTS: &str = r#"{"order": "A-20260711-0042", "fields": ["state", "carrier", "expected", "delivered"], "limit": 25}"#;
/// The result of the tool.
pub(crate) const RESULT_TEXT: &str = r#"{"order":"A-20260711-0042","state":"in transit","carrier":"Northern Parcel","expected":"2026-07-14","delivered":null,"events":[{"at":"2026-07-11T09:14:00Z","what":"picked up"},{"at":"2026-07-12T17:40:00Z","what":"left the sorting centre"},{"at":"2026-07-13T06:05:00Z","what":"held: snow on the pass"}],"note":"ask again tomorrow; the customer was told by text message before noon"}"#;
/// The last text of every turn.
pub(crate) const FINAL_TEXT: &str =
    "Two of your orders are late: the carrier reports snow on the pass.";
