//! Compares the overlap with its definition, and limits the number of operations.

use super::*;

/// Computes the overlap by its definition, item by item.
fn naive(known: &[&u8], sent: &[&u8]) -> Overlap {
    let max = known.len().min(sent.len());
    let at_end = (0..=max).rev().find(|count| known.ends_with(&sent[..*count])).unwrap();
    let stands = |count: &usize| {
        *count == 0 || known.windows(*count).any(|stretch| stretch == &sent[..*count])
    };
    Overlap { at_end, anywhere: (0..=max).rev().find(stands).unwrap() }
}

/// Returns all lists of up to `longest` items of `kinds` kinds.
fn lists(kinds: u8, longest: usize) -> Vec<Vec<u8>> {
    let mut lists = vec![Vec::new()];
    let mut last = lists.clone();
    for _ in 0..longest {
        let longer = |list: &Vec<u8>| {
            let list = list.clone();
            (0..kinds).map(move |kind| list.iter().copied().chain([kind]).collect::<Vec<_>>())
        };
        last = last.iter().flat_map(longer).collect();
        lists.extend(last.iter().cloned());
    }
    lists
}

#[test]
fn the_overlap_equals_the_overlap_of_a_naive_search() {
    for (kinds, longest) in [(2, 7), (3, 4)] {
        let lists = lists(kinds, longest);
        for known in &lists {
            let known: Vec<&u8> = known.iter().collect();
            for sent in &lists {
                let sent: Vec<&u8> = sent.iter().collect();
                assert_eq!(overlap(&known, &sent), naive(&known, &sent), "{known:?} {sent:?}");
            }
        }
    }
}

#[test]
fn the_overlap_of_long_random_lists_equals_the_overlap_of_a_naive_search() {
    // A linear congruential generator: the numbers are the same in every run of the test.
    let mut state = 7_u64;
    let mut random = |below: u64| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (state >> 33) % below
    };
    for _ in 0..300 {
        let kinds = 1 + random(3);
        let known: Vec<u8> = (0..random(60)).map(|_| random(kinds) as u8).collect();
        let from = random(known.len() as u64 + 1) as usize;
        let mut sent = known[from..].to_vec();
        sent.extend((0..random(20)).map(|_| random(kinds + 1) as u8));
        let (known, sent): (Vec<_>, Vec<_>) = (known.iter().collect(), sent.iter().collect());
        assert_eq!(overlap(&known, &sent), naive(&known, &sent), "{known:?} {sent:?}");
    }
}

/// A value that counts its comparisons and hashes.
struct Counted<'a>(u8, &'a std::cell::Cell<usize>);

impl PartialEq for Counted<'_> {
    fn eq(&self, other: &Self) -> bool {
        self.1.set(self.1.get() + 1);
        self.0 == other.0
    }
}
impl Eq for Counted<'_> {}
impl Hash for Counted<'_> {
    fn hash<H: std::hash::Hasher>(&self, state: &mut H) {
        self.1.set(self.1.get() + 1);
        self.0.hash(state);
    }
}

#[test]
fn the_work_is_linear_in_the_items_of_both_lists() {
    for (last, sent_last) in [(0, 0), (0, 1), (1, 0)] {
        let count = |length: usize| {
            let looks = std::cell::Cell::new(0);
            let list = |last| {
                let same = (1..length).map(|_| Counted(0, &looks));
                same.chain([Counted(last, &looks)]).collect::<Vec<_>>()
            };
            let (known, sent) = (list(last), list(sent_last));
            overlap(&known.iter().collect::<Vec<_>>(), &sent.iter().collect::<Vec<_>>());
            looks.get()
        };
        let (few, many) = (count(1_000), count(16_000));
        assert!(many <= 20 * few, "{few} looks at 1,000 items, {many} at 16,000");
    }
}
