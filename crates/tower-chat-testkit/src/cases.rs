//! Iterates over all combinations of test parameters.

use std::{fmt::Debug, thread};

/// Iterates over every combination of the values of two to five lists. The value of the last list
/// changes fastest.
///
/// If the test panics during an iteration, the current combination is printed.
///
/// ```
/// use tower_chat_testkit::cases;
/// let mut seen = Vec::new();
/// for (mode, streamed) in cases!(["per run", "journaled"], [false, true]) {
///     seen.push(format!("{mode} {streamed}"));
/// }
/// assert_eq!(seen, ["per run false", "per run true", "journaled false", "journaled true"]);
/// ```
#[macro_export]
macro_rules! cases {
    ($a:expr, $b:expr $(,)?) => {
        $crate::Cases::named($crate::Cases::pairs($a, $b))
    };
    ($a:expr, $b:expr, $c:expr $(,)?) => {
        $crate::Cases::named(
            $crate::Cases::pairs($crate::Cases::pairs($a, $b), $c).map(|((a, b), c)| (a, b, c)),
        )
    };
    ($a:expr, $b:expr, $c:expr, $d:expr $(,)?) => {
        $crate::Cases::named(
            $crate::Cases::pairs($crate::Cases::pairs($crate::Cases::pairs($a, $b), $c), $d)
                .map(|(((a, b), c), d)| (a, b, c, d)),
        )
    };
    ($a:expr, $b:expr, $c:expr, $d:expr, $e:expr $(,)?) => {
        $crate::Cases::named(
            $crate::Cases::pairs(
                $crate::Cases::pairs($crate::Cases::pairs($crate::Cases::pairs($a, $b), $c), $d),
                $e,
            )
            .map(|((((a, b), c), d), e)| (a, b, c, d, e)),
        )
    };
}

/// An iterator over cases, as returned by [`cases!`](crate::cases). If the test panics, dropping
/// the iterator prints the current case.
#[derive(Debug)]
pub struct Cases<I> {
    cases: I,
    name: Option<String>,
}

impl Cases<()> {
    /// Wraps an iterator, in order to print the current case if the test panics.
    pub fn named<I>(cases: I) -> Cases<I> {
        Cases { cases, name: None }
    }

    /// Returns every combination of two lists.
    pub fn pairs<A, B>(a: A, b: B) -> impl Iterator<Item = (A::Item, B::Item)>
    where
        A: IntoIterator<Item: Clone>,
        B: IntoIterator<IntoIter: Clone>,
    {
        let b = b.into_iter();
        a.into_iter().flat_map(move |a| b.clone().map(move |b| (a.clone(), b)))
    }
}

impl<I: Iterator<Item: Debug>> Iterator for Cases<I> {
    type Item = I::Item;

    fn next(&mut self) -> Option<I::Item> {
        let case = self.cases.next();
        self.name = case.as_ref().map(|case| format!("{case:?}"));
        case
    }
}

impl<I> Drop for Cases<I> {
    fn drop(&mut self) {
        if let Some(name) = self.name.take()
            && thread::panicking()
        {
            eprintln!("in the case {name}");
        }
    }
}
