//! The results of the checks, with advice.

use serde::Serialize;

use crate::output::Lines;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(super) enum Level {
    Ok,
    Warning,
    Problem,
}

/// The result of one check.
#[derive(Debug, Serialize)]
struct Finding {
    level: Level,
    check: &'static str,
    found: String,
    advice: Option<String>,
}

/// All findings, in the order of the checks.
#[derive(Debug, Default)]
pub(super) struct Findings(Vec<Finding>);

impl Findings {
    pub(super) fn ok(&mut self, check: &'static str, found: impl Into<String>) {
        self.0.push(Finding { level: Level::Ok, check, found: found.into(), advice: None });
    }

    /// Adds a warning about a setting that should be changed.
    pub(super) fn warning(&mut self, check: &'static str, found: impl Into<String>, advice: &str) {
        self.add(Level::Warning, check, found, advice);
    }

    /// Adds a problem that can lose data or prevents the use of the store.
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

    /// Adds a finding. The level is `Ok` if `is_well` is true, and `otherwise` if not.
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
