//! Generates JSON with unusual values.

use serde_json::{Map, Value, json};

/// A pseudorandom number generator (xorshift, by Marsaglia) with a fixed seed, so that it returns
/// the same values in every run.
pub(crate) struct JsonRng(u64);

impl JsonRng {
    pub(crate) fn seeded(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        usize::try_from(self.0 % limit as u64).unwrap()
    }

    pub(crate) fn choose<T: Clone>(&mut self, values: &[T]) -> T {
        values[self.below(values.len())].clone()
    }

    /// Returns an object in which each field is missing with a probability of 1 in `rarity`.
    pub(crate) fn object(&mut self, rarity: usize, fields: &[(&str, &[Value])]) -> Value {
        self.object_if(fields, |rng| rng.below(rarity) > 0).into()
    }

    /// Returns an object in which each field is present with a probability of 1 in `rarity`.
    pub(crate) fn sparse_object(
        &mut self,
        rarity: usize,
        fields: &[(&str, &[Value])],
    ) -> Map<String, Value> {
        self.object_if(fields, |rng| rng.below(rarity) == 0)
    }

    fn object_if(
        &mut self,
        fields: &[(&str, &[Value])],
        is_present: impl Fn(&mut Self) -> bool,
    ) -> Map<String, Value> {
        let mut object = Map::new();
        for (name, values) in fields {
            if is_present(self) {
                object.insert((*name).to_owned(), self.choose(values));
            }
        }
        object
    }

    /// Returns a list with fewer than `limit` items.
    pub(crate) fn list(&mut self, limit: usize, item: fn(&mut Self) -> Value) -> Value {
        (0..self.below(limit)).map(|_| item(self)).collect()
    }
}

/// Returns one value of each JSON type.
pub(crate) fn unusual_values() -> Vec<Value> {
    vec![json!(null), json!(""), json!("text"), json!(7), json!(true), json!([]), json!({"a": 1})]
}
