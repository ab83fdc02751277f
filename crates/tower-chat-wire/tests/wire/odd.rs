//! JSON of every odd shape.

use serde_json::{Map, Value, json};
use tower_chat_testkit::Rng;

/// Makes the same JSON at every run.
pub(crate) struct Odd(Rng);

impl Odd {
    pub(crate) fn of(seed: u64) -> Self {
        Self(Rng::of(seed, 0))
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        self.0.below(limit)
    }

    pub(crate) fn one_of<T: Clone>(&mut self, values: &[T]) -> T {
        self.0.one_of(values).unwrap().clone()
    }

    /// An object in which about one of `rarity` fields is missing.
    pub(crate) fn object(&mut self, rarity: usize, fields: &[(&str, &[Value])]) -> Value {
        self.object_if(fields, |odd| odd.below(rarity) > 0).into()
    }

    /// An object in which about one of `rarity` fields is there.
    pub(crate) fn sparse_object(
        &mut self,
        rarity: usize,
        fields: &[(&str, &[Value])],
    ) -> Map<String, Value> {
        self.object_if(fields, |odd| odd.below(rarity) == 0)
    }

    fn object_if(
        &mut self,
        fields: &[(&str, &[Value])],
        is_there: impl Fn(&mut Self) -> bool,
    ) -> Map<String, Value> {
        let mut object = Map::new();
        for (name, values) in fields {
            if is_there(self) {
                object.insert((*name).to_owned(), self.one_of(values));
            }
        }
        object
    }

    /// A list of fewer than `limit` items.
    pub(crate) fn list(&mut self, limit: usize, item: fn(&mut Self) -> Value) -> Value {
        (0..self.below(limit)).map(|_| item(self)).collect()
    }
}

/// One value of each type.
pub(crate) fn odd() -> Vec<Value> {
    vec![json!(null), json!(""), json!("text"), json!(7), json!(true), json!([]), json!({"a": 1})]
}
