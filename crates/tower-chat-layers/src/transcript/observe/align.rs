//! Where a request repeats what is stored.

use super::atom::{Atom, Atoms, Content};

/// How the beginning of a request repeats stored atoms.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Alignment {
    /// How many atoms of the request repeat the last stored ones; the most there are, and not 0.
    pub(super) at_end: Option<usize>,
    /// How many stored atoms stand before an answer which the whole request leads to; the most
    /// there are.
    pub(super) covered_before: Option<usize>,
    pub(super) furthest: Furthest,
}

/// How far a request goes with what is stored before it goes another way.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Furthest {
    /// How many atoms of the request are as they are stored.
    pub(super) sent: usize,
    /// The position of the stored atom that is not how the request goes on.
    pub(super) stored: usize,
}

/// Compares a request with what is stored. The request may begin with any stored atom, and leave out
/// optional ones. `by_id` says that messages whose ids are stored repeat no other messages.
/// `begins_at_cut` says that what was stored before was pruned, so that the request may begin with
/// messages from there.
///
/// It keeps every number of atoms that the request may have repeated when a stored atom is reached,
/// as it is done for a pattern with optional parts.
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

/// Adds the numbers that leave out results whose calls a hook has not kept.
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

/// Whether the next stored atom after this one that a loop would repeat is an answer.
fn is_before_answer(stored: &Atoms<'_>, position: usize) -> bool {
    let mut after = stored.all.iter().skip(position + 1);
    let after = after.find(|atom| !atom.is_optional || atom.is_statement());
    after.is_some_and(Atom::is_statement)
}

/// The positions of the atom of a request that is not as it is stored, and of the stored atom that
/// it should repeat, if one can be named.
pub(super) fn where_it_differs(
    stored: &Atoms<'_>,
    request: &Atoms<'_>,
    furthest: Furthest,
) -> (usize, Option<usize>) {
    if furthest.sent > 0 {
        return (furthest.sent, Some(furthest.stored));
    }
    // From the last answer that both have back to where they part.
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
