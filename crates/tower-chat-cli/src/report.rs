//! Writes the output of a command, as lines for people or as one JSON object per line.

use serde::Serialize;

use crate::{error::CliError, output::Lines};

/// Writes to standard output, either lines for people or JSON objects.
#[derive(Debug)]
pub(crate) struct Report {
    as_json: bool,
    lines: Lines,
}

impl Report {
    pub(crate) fn new(as_json: bool) -> Self {
        Self { as_json, lines: Lines::default() }
    }

    /// Writes `object` if the output is JSON, and otherwise `line`, which has the same content.
    pub(crate) fn write(&mut self, line: &str, object: &impl Serialize) {
        if self.as_json {
            #[allow(clippy::expect_used, reason = "texts and numbers have a JSON form")]
            let json = serde_json::to_string(object).expect("it has a JSON form");
            self.lines.write_json(&json);
        } else {
            self.lines.write(line);
        }
    }

    /// Writes `object` if the output is JSON, and nothing otherwise.
    pub(crate) fn write_object(&mut self, object: &impl Serialize) {
        if self.as_json {
            self.write("", object);
        }
    }

    pub(crate) fn finish(self) -> Result<(), CliError> {
        self.lines.finish().map_err(CliError::Output)
    }
}
