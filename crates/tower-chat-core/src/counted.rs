use std::fmt::Display;

/// Returns a number and its noun, in the plural unless the number is 1: `2 messages`.
pub(crate) fn counted(count: usize, noun: &str) -> impl Display {
    let plural = if count == 1 { "" } else { "s" };
    format!("{count} {noun}{plural}")
}
