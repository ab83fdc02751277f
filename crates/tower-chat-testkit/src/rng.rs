//! A generator of pseudorandom numbers with a seed.

/// A generator of pseudorandom numbers, which depend only on its seed: SplitMix64, by Steele, Lea
/// and Flood.
///
/// ```
/// use tower_chat_testkit::Rng;
/// let (mut rng, mut again) = (Rng::of(7, 0), Rng::of(7, 0));
/// assert_eq!(rng.below(1_000), again.below(1_000));
/// assert!(rng.one_of(&[1, 2, 3]).is_some());
/// ```
#[derive(Debug, Clone)]
pub struct Rng(u64);

impl Rng {
    /// Creates the generator for one case of a test. The same seed and case result in the same
    /// numbers.
    pub fn of(seed: u64, case: u64) -> Self {
        let mut rng = Self(seed ^ case.wrapping_mul(0xd6e8_feb8_6659_fd93));
        rng.next();
        rng
    }

    /// Returns the next number.
    #[allow(clippy::should_implement_trait, reason = "an iterator would return an `Option`")]
    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// Returns a number less than `limit`, or 0 if `limit` is 0.
    pub fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.next() % (limit.max(1) as u64)).unwrap_or_default()
    }

    /// Returns `true` with the probability 1 / `many`.
    pub fn one_in(&mut self, many: usize) -> bool {
        self.below(many) == 0
    }

    /// Returns one of the values, or `None` if there are no values.
    pub fn one_of<'a, T>(&mut self, values: &'a [T]) -> Option<&'a T> {
        values.get(self.below(values.len()))
    }
}
