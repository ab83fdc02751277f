//! Finds the overlap of two lists, in time linear in their lengths.

use std::{collections::HashMap, hash::Hash};

/// The number of items at the beginning of `sent` that repeat items of `known`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Overlap {
    /// The maximum number of items that begin `sent` and end `known`.
    pub(super) at_end: usize,
    /// The length of the longest beginning of `sent` that occurs anywhere in `known`.
    pub(super) anywhere: usize,
}

/// Returns how many items at the beginning of `sent` repeat items of `known`.
///
/// Equal items get equal numbers, so that each item is hashed and compared once. The search of
/// Knuth, Morris and Pratt reads each number at most twice.
pub(super) fn overlap<T: Eq + Hash>(known: &[&T], sent: &[&T]) -> Overlap {
    let mut numbers = HashMap::with_capacity(sent.len());
    let sent: Vec<usize> = sent
        .iter()
        .map(|item| {
            let next = numbers.len();
            *numbers.entry(*item).or_insert(next)
        })
        .collect();
    let borders = borders(&sent);
    let mut overlap = Overlap { at_end: 0, anywhere: 0 };
    for item in known {
        overlap.at_end = match numbers.get(item) {
            Some(number) => longer(&sent, &borders, overlap.at_end, *number),
            None => 0,
        };
        overlap.anywhere = overlap.anywhere.max(overlap.at_end);
    }
    overlap
}

/// Returns the position in `sent` at which the last occurrence of the whole list `known` begins.
pub(super) fn last_occurrence<T: Eq + Hash>(known: &[&T], sent: &[&T]) -> Option<usize> {
    let mut numbers = HashMap::with_capacity(known.len());
    let mut number = |item| {
        let next = numbers.len();
        *numbers.entry(item).or_insert(next)
    };
    // The first occurrence in the reversed list is the last occurrence in the list.
    let pattern: Vec<usize> = known.iter().rev().map(|item| number(*item)).collect();
    let text: Vec<usize> = sent.iter().rev().map(|item| number(*item)).collect();
    let borders = borders(&pattern);
    let mut matched = 0;
    for (position, item) in text.into_iter().enumerate() {
        matched = longer(&pattern, &borders, matched, item);
        if matched == pattern.len() {
            return sent.len().checked_sub(position + 1);
        }
    }
    None
}

/// Returns the failure function of Knuth, Morris and Pratt: for each prefix of a list, the length
/// of its longest proper prefix that is also its suffix.
fn borders(list: &[usize]) -> Vec<usize> {
    let mut borders: Vec<usize> = Vec::with_capacity(list.len());
    for (position, item) in list.iter().enumerate() {
        let border = match borders.last() {
            None => 0,
            Some(last) => longer(list.get(..position).unwrap_or_default(), &borders, *last, *item),
        };
        borders.push(border);
    }
    borders
}

/// Returns the length of the longest prefix of `list` that is a suffix of the items read so far.
/// `matched` is this length before `item`.
fn longer(list: &[usize], borders: &[usize], mut matched: usize, item: usize) -> usize {
    while list.get(matched) != Some(&item) {
        let Some(last) = matched.checked_sub(1) else { return 0 };
        matched = borders.get(last).copied().unwrap_or_default();
    }
    matched + 1
}

#[cfg(test)]
mod tests;
