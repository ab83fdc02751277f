//! A list as serde reads it, with no room to spare.
//!
//! Serde makes room for four elements at the first one and keeps it. Most messages have one part,
//! and what is read stays in memory for long.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserialize, Deserializer,
    de::{SeqAccess, Visitor},
};

/// Reads a list.
pub(crate) fn deserialize<'de, D, T>(deserializer: D) -> Result<Vec<T>, D::Error>
where
    D: Deserializer<'de>,
    T: Deserialize<'de>,
{
    deserializer.deserialize_seq(ExactVec(PhantomData))
}

struct ExactVec<T>(PhantomData<T>);

impl<'de, T: Deserialize<'de>> Visitor<'de> for ExactVec<T> {
    type Value = Vec<T>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut elements: A) -> Result<Vec<T>, A::Error> {
        let Some(first) = elements.next_element()? else { return Ok(Vec::new()) };
        let Some(second) = elements.next_element()? else { return Ok(vec![first]) };
        let mut all = vec![first, second];
        while let Some(element) = elements.next_element()? {
            all.push(element);
        }
        all.shrink_to_fit();
        Ok(all)
    }
}
