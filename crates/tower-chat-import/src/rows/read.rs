//! Reads all rows of a history, and reports every row that cannot be parsed.

use std::fmt;

use tower_chat_core::Role;

use super::AggregateRow;

/// Parses rows, each of which is a JSON text, such as the lines of a file of JSON Lines.
///
/// # Errors
///
/// Fails with [`UnreadableRows`] if at least one row cannot be parsed, because a history is never
/// converted in part. The error contains each of these rows and the reason.
///
/// ```
/// use tower_chat::import::rows::read_rows;
/// let rows = [
///     r#"{"role": "user", "content": "Is it cold?"}"#,
///     r#"{"role": "assistant", "tool_calls": [{"id": "c1", "name": "look"}],
///         "tool_results": [{"id": "c1", "output": "12 degrees"}]}"#,
/// ];
/// let error = read_rows(rows).unwrap_err();
/// assert_eq!(error.rows.len(), 1);
/// assert_eq!(error.rows[0].row, 1);
/// assert!(error.to_string().contains("output"), "{error}");
/// ```
pub fn read_rows<'a>(
    rows: impl IntoIterator<Item = &'a str>,
) -> Result<Vec<AggregateRow>, UnreadableRows> {
    let (mut read, mut unreadable) = (Vec::new(), Vec::new());
    for (row, json) in rows.into_iter().enumerate() {
        match serde_json::from_str::<AggregateRow>(json) {
            Ok(found) if found.role != Role::Assistant && found.asks() => {
                let reason = "it contains tool calls, but its role is not assistant".to_owned();
                unreadable.push(UnreadableRow { row, reason });
            }
            Ok(found) => read.push(found),
            Err(error) => unreadable.push(UnreadableRow { row, reason: error.to_string() }),
        }
    }
    if unreadable.is_empty() { Ok(read) } else { Err(UnreadableRows { rows: unreadable }) }
}

/// The error of parsing rows, which lists the rows that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnreadableRows {
    /// The rows that cannot be parsed, in their order.
    pub rows: Vec<UnreadableRow>,
}

/// A row that cannot be parsed.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct UnreadableRow {
    /// The index of the row, from 0.
    pub row: usize,
    /// The reason.
    pub reason: String,
}

impl UnreadableRows {
    /// The maximum number of rows that the error message names.
    const NAMED: usize = 5;
}

impl fmt::Display for UnreadableRows {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let noun = if self.rows.len() == 1 { "row" } else { "rows" };
        write!(f, "{} {noun} cannot be converted", self.rows.len())?;
        for UnreadableRow { row, reason } in self.rows.iter().take(Self::NAMED) {
            write!(f, "; row {row}: {reason}")?;
        }
        match self.rows.len().checked_sub(Self::NAMED) {
            Some(more @ 1..) => write!(f, "; and {more} more"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for UnreadableRows {}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::rows::messages_of_rows;

    #[test]
    fn deeply_nested_rows_are_errors_and_deeply_nested_arguments_are_stored_as_text() {
        let deep = format!("{}{}", "[".repeat(1_000_000), "]".repeat(1_000_000));
        let call = format!(r#"{{"id":"c1","name":"look","arguments":{deep},"result":{deep}}}"#);
        let taken = format!(r#"{{"role":"assistant","tool_calls":[{call}]}}"#);
        let messages = messages_of_rows(read_rows([&*taken]).unwrap()).unwrap();
        assert_eq!(messages[0].calls().next().unwrap().arguments, deep);
        assert_eq!(messages[1].results().next().unwrap().text(), deep);
        let rows = [
            format!(r#"{{"role":"user","content":{deep}}}"#),
            format!(r#"{{"role":"assistant","reasoning":{deep}}}"#),
            format!(r#"{{"role":"assistant","tool_calls":{deep}}}"#),
            deep.clone(),
        ];
        let error = read_rows(rows.iter().map(String::as_str)).unwrap_err();
        let named: Vec<usize> = error.rows.iter().map(|unreadable| unreadable.row).collect();
        assert_eq!(named, [0, 1, 2, 3]);
    }
}
