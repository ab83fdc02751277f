//! What was found, and what to do about it.

use serde::Serialize;

use crate::output::Lines;

/// How bad it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Ok,
    Warning,
    Problem,
}

/// Something that was looked at.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    check: &'static str,
    found: String,
    advice: Option<String>,
}

/// Everything that was looked at, in order.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.0.push(Finding { level: Level::Ok, check, found: found.into(), advice: None });
    }

    /// What is better changed.
    pub(super) fn warning(&mut self, check: &'static str, found: impl Into<String>, advice: &str) {
        self.add(Level::Warning, check, found, advice);
    }

    /// What loses data, or keeps the store from being used.
    pub(super) fn problem(&mut self, check: &'static str, found: impl Into<String>, advice: &str) {
        self.add(Level::Problem, check, found, advice);
    }

    pub(super) fn add(
        &mut self,
        level: Level,
        check: &'static str,
        found: impl Into<String>,
        advice: &str,
    ) {
        let advice = (level != Level::Ok).then(|| advice.to_owned());
        self.0.push(Finding { level, check, found: found.into(), advice });
    }

    /// Something that is well if a condition holds.
    pub(super) fn expect(
        &mut self,
        is_well: bool,
        otherwise: Level,
        check: &'static str,
        found: impl Into<String>,
        advice: &str,
    ) {
        self.add(if is_well { Level::Ok } else { otherwise }, check, found, advice);
    }

    pub(super) fn ask_for_a_change(&self) -> bool {
        self.0.iter().any(|finding| finding.level != Level::Ok)
    }

    pub(super) fn print(&self, lines: &mut Lines, as_json: bool) {
        for finding in &self.0 {
            if as_json {
                #[allow(clippy::expect_used, reason = "texts have a JSON form")]
                lines.write_json(&serde_json::to_string(finding).expect("it has a JSON form"));
                continue;
            }
            let level = match finding.level {
                Level::Ok => "ok     ",
                Level::Warning => "warning",
                Level::Problem => "problem",
            };
            lines.write(&format!("{level}  {}: {}", finding.check, finding.found));
            if let Some(advice) = &finding.advice {
                lines.write(&format!("         {advice}"));
            }
        }
    }
}
