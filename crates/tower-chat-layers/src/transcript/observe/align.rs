//! Finds the stored messages that a request repeats. Compares lists of [atoms](super::atom::Atom),
//! the smallest parts that a tool loop repeats as a unit.

use super::atom::{Atom, Atoms, Content};

/// The result of the comparison of a request with the stored atoms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Alignment {
    /// The maximum number of atoms at the beginning of the request that repeat the final stored
    /// atoms.
    pub(super) at_end: Option<usize>,
    /// The number of stored atoms before the last answer that follows a repetition of the whole
    /// request.
    pub(super) covered_before: Option<usize>,
    pub(super) furthest: Furthest,
}

/// The first difference after the longest repetition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Furthest {
    /// The number of atoms of the request before the difference.
    pub(super) sent: usize,
    /// The position of the stored atom that differs.
    pub(super) stored: usize,
}

/// Compares a request with the stored atoms. The request may begin with any of them, and may omit
/// optional ones. With `by_id`, a message with the id of a stored message repeats only that
/// message. With `begins_at_cut`, the request may begin with older messages, which were pruned
/// (deleted from the store).
///
/// After each stored atom, `repeated` contains the possible numbers of atoms at the beginning of
/// the request that repeat the stored atoms up to this atom.
pub(super) fn align(
    stored: &Atoms<'_>,
    request: &Atoms<'_>,
    by_id: bool,
    begins_at_cut: bool,
) -> Alignment {
    let ids = if by_id { stored.ids() } else { Default::default() };
    let length = request.all.len();
    let mut alignment = Alignment::default();
    let mut repeated: Vec<usize> = Vec::new();
    let mut answer: Option<&Atom<'_>> = None;
    for (position, atom) in stored.all.iter().enumerate() {
        repeated.push(0);
        if begins_at_cut && position == 0 {
            repeated.extend(1..length);
        }
        if let Some(answer) = answer {
            skip_unknown_results(&mut repeated, answer, request);
        }
        repeated.sort_unstable();
        repeated.dedup();
        let mut next = Vec::with_capacity(repeated.len());
        for count in repeated {
            let sent = request.all.get(count);
            let is_repeated = sent.is_some_and(|sent| {
                (!by_id || atom.is_named_by(sent, &ids)) && atom.is_repeated_by(sent)
            });
            if is_repeated {
                next.push(count + 1);
            } else if sent.is_some() && !atom.is_optional && count > alignment.furthest.sent {
                alignment.furthest = Furthest { sent: count, stored: position };
            }
            if atom.is_optional && count > 0 {
                next.push(count);
            }
        }
        repeated = next;
        if repeated.contains(&length) && is_before_answer(stored, position) {
            alignment.covered_before = Some(position + 1);
        }
        match atom.content {
            Content::Answer(_) => answer = Some(atom),
            Content::Result(_) | Content::System(_) => {}
            Content::User { .. } | Content::Approvals(_) => answer = None,
        }
    }
    alignment.at_end = repeated.into_iter().max().filter(|count| *count > 0);
    alignment
}

/// Adds to `repeated` (the possible numbers of repeated atoms) the numbers that include results
/// whose calls the `persist` hook of a tool has removed from the stored answer.
fn skip_unknown_results(repeated: &mut Vec<usize>, answer: &Atom<'_>, request: &Atoms<'_>) {
    let mut position = 0;
    while let Some(count) = repeated.get(position).copied() {
        let sent = request.all.get(count);
        if count > 0 && sent.is_some_and(|sent| answer.lacks_call_of(sent)) {
            repeated.push(count + 1);
        }
        position += 1;
    }
}

/// Returns whether an answer is the next stored atom after `position`, apart from optional atoms
/// without text and calls.
fn is_before_answer(stored: &Atoms<'_>, position: usize) -> bool {
    let mut after = stored.all.iter().skip(position + 1);
    let after = after.find(|atom| !atom.is_optional || atom.is_statement());
    after.is_some_and(Atom::is_statement)
}

/// Returns the positions of the first atom of the request that differs, and of the stored atom that
/// it should repeat.
pub(super) fn first_difference(
    stored: &Atoms<'_>,
    request: &Atoms<'_>,
    furthest: Furthest,
) -> (usize, Option<usize>) {
    if furthest.sent > 0 {
        return (furthest.sent, Some(furthest.stored));
    }
    // Compares backwards from the last answer that both lists contain.
    let mut pairs = request.all.iter().enumerate().rev().filter(|(_, sent)| sent.is_statement());
    let last = pairs.find_map(|(sent, atom)| {
        let repeated = stored.all.iter().rposition(|stored| stored.is_repeated_by(atom))?;
        Some((sent, repeated))
    });
    let Some((mut sent, mut known)) = last else { return (0, None) };
    loop {
        let Some(before) = sent.checked_sub(1) else { return (0, None) };
        let is_needed = |atom: &Atom<'_>| !atom.is_optional;
        let Some(previous) = stored.all.iter().take(known).rposition(is_needed) else {
            return (before, None);
        };
        let is_repeated = stored.all.get(previous).zip(request.all.get(before));
        if !is_repeated.is_some_and(|(stored, sent)| stored.is_repeated_by(sent)) {
            return (before, Some(previous));
        }
        (sent, known) = (before, previous);
    }
}
