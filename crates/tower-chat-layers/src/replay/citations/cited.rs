//! Finds citations in the model's text, such as `[source0]`.

use std::collections::BTreeSet;

/// Adds the numbers that a text cites to `cited`. A number that does not fit into a `u64` is
/// ignored.
pub(super) fn cite(text: &str, cited: &mut BTreeSet<u64>) {
    for (at, _) in text.match_indices('[') {
        cited.extend(text.get(at + 1..).and_then(citation));
    }
}

/// Returns the number of a citation from the text after its opening bracket.
fn citation(text: &str) -> Option<u64> {
    let (word, rest) = text.split_at_checked("source".len())?;
    let digits = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (number, rest) = rest.split_at_checked(digits)?;
    let is_citation = word.eq_ignore_ascii_case("source") && rest.starts_with(']');
    if is_citation { number.parse().ok() } else { None }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cited(text: &str) -> Vec<u64> {
        let mut cited = BTreeSet::new();
        cite(text, &mut cited);
        cited.into_iter().collect()
    }

    #[test]
    fn citations_are_found_in_upper_and_lower_case() {
        assert_eq!(cited("a [source0] b [Source12][SOURCE3]"), [0, 3, 12]);
    }

    #[test]
    fn texts_that_resemble_a_citation_are_not_citations() {
        for text in [
            "[source 1]",
            "[source1, source2]",
            "[source]",
            "[source-1]",
            "source1",
            "(source1)",
            "[source1",
            "[source1 ]",
            "[sourceé1]",
            "[sourc€",
            "[",
            "[source+1]",
            "[source１]",
        ] {
            assert!(cited(text).is_empty(), "{text}");
        }
    }

    #[test]
    fn a_bracket_inside_a_bracket_may_begin_a_citation() {
        assert_eq!(cited("[[source1]] [see [source2]]"), [1, 2]);
    }

    #[test]
    fn a_number_of_any_length_is_read_without_overflow() {
        let long = "9".repeat(40);
        assert_eq!(cited(&format!("[source{long}] [source18446744073709551615]")), [u64::MAX]);
    }
}
