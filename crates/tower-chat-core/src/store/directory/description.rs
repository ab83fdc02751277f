//! The description of a conversation: its title, and metadata of the application.

use std::sync::Arc;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::metadata;

/// A conversation's title and metadata.
///
/// The description is stored beside the conversation and never sent to a model. The constructors
/// check the maximum size of a description, so that a store need not refuse a description that is
/// too large.
///
/// ```
/// use serde_json::json;
/// use tower_chat_core::store::Description;
/// let metadata = json!({"topic": "coats", "urgent": true});
/// let description = Description::new()
///     .with_title("Packing for Paris")?
///     .with_metadata(metadata.as_object().cloned().unwrap_or_default())?;
/// assert_eq!(description.title(), Some("Packing for Paris"));
/// assert!(Description::new().with_title("x".repeat(2000)).is_err());
/// # Ok::<(), tower_chat_core::store::DescriptionTooLarge>(())
/// ```
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub struct Description {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    title: Option<Arc<str>>,
    #[serde(
        default,
        skip_serializing_if = "Map::is_empty",
        deserialize_with = "metadata::deserialize"
    )]
    metadata: Map<String, Value>,
    #[serde(skip)]
    is_sealed: bool,
}

/// Compares the title and the metadata. The mark of a [sealed](Description::sealed) description is
/// not compared.
impl PartialEq for Description {
    fn eq(&self, other: &Self) -> bool {
        (&self.title, &self.metadata) == (&other.title, &other.metadata)
    }
}

/// A description exceeds its maximum size or its maximum nesting.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the {part} of the conversation is too large: the size in {unit} is {size}, and the maximum is {limit}"
)]
#[non_exhaustive]
pub struct DescriptionTooLarge {
    /// `title` or `metadata`.
    pub part: &'static str,
    /// The unit of `size` and `limit`. `bytes` are those of the title in UTF-8, or of the metadata
    /// as compact JSON. `levels` are levels of nested values in the metadata.
    pub unit: &'static str,
    /// The actual size.
    pub size: usize,
    /// The maximum size.
    pub limit: usize,
}

impl Description {
    /// The maximum size of a title, in bytes.
    pub const TITLE_LIMIT: usize = 1024;
    /// The maximum size of metadata, in bytes of compact JSON.
    pub const METADATA_LIMIT: usize = 16 * 1024;
    /// The maximum number of nested levels in metadata, which is below the limits of common JSON
    /// parsers.
    pub const NESTING_LIMIT: usize = 64;

    /// Creates a description without title and metadata.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the title.
    ///
    /// # Errors
    ///
    /// If the title is larger than [`TITLE_LIMIT`](Self::TITLE_LIMIT).
    pub fn with_title(mut self, title: impl Into<Arc<str>>) -> Result<Self, DescriptionTooLarge> {
        let title = title.into();
        check("title", "bytes", title.len(), Self::TITLE_LIMIT)?;
        self.title = Some(title);
        Ok(self)
    }

    /// Removes the title.
    #[must_use]
    pub fn without_title(mut self) -> Self {
        self.title = None;
        self
    }

    /// Replaces the metadata.
    ///
    /// # Errors
    ///
    /// If the metadata is larger than [`METADATA_LIMIT`](Self::METADATA_LIMIT), or nested more
    /// deeply than [`NESTING_LIMIT`](Self::NESTING_LIMIT).
    pub fn with_metadata(
        mut self,
        metadata: Map<String, Value>,
    ) -> Result<Self, DescriptionTooLarge> {
        let levels = metadata.values().map(levels).max().map_or(1, |levels| levels + 1);
        check("metadata", "levels", levels, Self::NESTING_LIMIT)?;
        check("metadata", "bytes", encoded_length(&metadata), Self::METADATA_LIMIT)?;
        self.metadata = metadata;
        Ok(self)
    }

    /// Creates a description that a store has read, or that a wrapper has sealed. The size is not
    /// checked.
    #[must_use]
    pub fn from_stored(title: Option<Arc<str>>, metadata: Map<String, Value>) -> Self {
        Self { title, metadata, is_sealed: false }
    }

    /// Marks the description as sealed by an encrypting wrapper, as
    /// [`Write::sealed`](crate::store::author::Write::sealed) marks a write. The mark is not
    /// stored.
    #[must_use]
    pub fn sealed(mut self) -> Self {
        self.is_sealed = true;
        self
    }

    /// Returns whether the description is marked as [sealed](Self::sealed).
    pub fn is_sealed(&self) -> bool {
        self.is_sealed
    }

    /// Returns the title.
    pub fn title(&self) -> Option<&str> {
        self.title.as_deref()
    }

    /// Returns the metadata.
    pub fn metadata(&self) -> &Map<String, Value> {
        &self.metadata
    }

    /// Returns whether the description has neither a title nor metadata.
    pub fn is_empty(&self) -> bool {
        self.title.is_none() && self.metadata.is_empty()
    }

    /// Returns whether the metadata contains all of these members, each with the same value.
    pub fn contains(&self, members: &Map<String, Value>) -> bool {
        members.iter().all(|(name, value)| self.metadata.get(name) == Some(value))
    }
}

fn check(
    part: &'static str,
    unit: &'static str,
    size: usize,
    limit: usize,
) -> Result<(), DescriptionTooLarge> {
    if size > limit { Err(DescriptionTooLarge { part, unit, size, limit }) } else { Ok(()) }
}

/// Returns the number of levels of nested objects and arrays in a value; 0 for any other value.
fn levels(value: &Value) -> usize {
    let deepest = match value {
        Value::Object(members) => members.values().map(levels).max(),
        Value::Array(items) => items.iter().map(levels).max(),
        Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => return 0,
    };
    deepest.unwrap_or_default() + 1
}

/// Returns the number of bytes of metadata as compact JSON.
fn encoded_length(metadata: &Map<String, Value>) -> usize {
    struct Length(usize);
    impl std::io::Write for Length {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            self.0 += bytes.len();
            Ok(bytes.len())
        }
        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }
    let mut length = Length(0);
    match serde_json::to_writer(&mut length, metadata) {
        Ok(()) => length.0,
        // Serialization fails only for maps whose keys are not strings.
        Err(_) => usize::MAX,
    }
}

/// A change of a description. The patch changes only the parts that were set in it.
///
/// The metadata is changed by a JSON merge patch (RFC 7396): a member that is `null` is removed, an
/// object is merged, and any other value replaces the old one.
///
/// ```
/// use serde_json::{Map, Value, json};
/// use tower_chat_core::store::{Description, DescriptionPatch};
/// let object = |value: Value| value.as_object().cloned().unwrap_or_default();
/// let before = Description::new().with_metadata(object(json!({"a": 1, "b": {"c": 2, "d": 3}})))?;
/// let patch = DescriptionPatch::new()
///     .with_title("Coats")
///     .with_metadata(object(json!({"a": null, "b": {"c": 4}})));
/// let after = patch.apply(&before)?;
/// assert_eq!(after.title(), Some("Coats"));
/// assert_eq!(after.metadata(), &object(json!({"b": {"c": 4, "d": 3}})));
/// # Ok::<(), tower_chat_core::store::DescriptionTooLarge>(())
/// ```
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DescriptionPatch {
    /// The new title. `None` leaves the title unchanged, and `Some(None)` removes it.
    title: Option<Option<Arc<str>>>,
    metadata: Map<String, Value>,
}

impl DescriptionPatch {
    /// Creates a patch that changes nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the title.
    #[must_use]
    pub fn with_title(mut self, title: impl Into<Arc<str>>) -> Self {
        self.title = Some(Some(title.into()));
        self
    }

    /// Removes the title.
    #[must_use]
    pub fn without_title(mut self) -> Self {
        self.title = Some(None);
        self
    }

    /// Sets the merge patch of the metadata.
    #[must_use]
    pub fn with_metadata(mut self, patch: Map<String, Value>) -> Self {
        self.metadata = patch;
        self
    }

    /// Applies the patch to a description, and returns the result.
    ///
    /// # Errors
    ///
    /// If the result exceeds the maximum size.
    pub fn apply(&self, description: &Description) -> Result<Description, DescriptionTooLarge> {
        let mut changed = description.clone();
        match &self.title {
            Some(Some(title)) => changed = changed.with_title(title.clone())?,
            Some(None) => changed = changed.without_title(),
            None => {}
        }
        if self.metadata.is_empty() {
            return Ok(changed);
        }
        let mut metadata = changed.metadata.clone();
        merge(&mut metadata, &self.metadata);
        changed.with_metadata(metadata)
    }
}

/// Applies `MergePatch` of RFC 7396, section 2, to two objects.
fn merge(target: &mut Map<String, Value>, patch: &Map<String, Value>) {
    for (name, value) in patch {
        match value {
            Value::Null => {
                target.remove(name);
            }
            Value::Object(patch) => {
                let member = target.entry(name).or_insert(Value::Null);
                let mut inner = match member.take() {
                    Value::Object(inner) => inner,
                    _ => Map::new(),
                };
                merge(&mut inner, patch);
                *member = Value::Object(inner);
            }
            value => {
                target.insert(name.clone(), value.clone());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn object(value: Value) -> Map<String, Value> {
        value.as_object().cloned().unwrap()
    }

    #[test]
    fn a_patch_merges_as_the_examples_of_rfc_7396_say() {
        for (target, patch, result) in [
            (json!({"a": "b"}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "b"}), json!({"b": "c"}), json!({"a": "b", "b": "c"})),
            (json!({"a": "b"}), json!({"a": null}), json!({})),
            (json!({"a": "b", "b": "c"}), json!({"a": null}), json!({"b": "c"})),
            (json!({"a": ["b"]}), json!({"a": "c"}), json!({"a": "c"})),
            (json!({"a": "c"}), json!({"a": ["b"]}), json!({"a": ["b"]})),
            (
                json!({"a": {"b": "c"}}),
                json!({"a": {"b": "d", "c": null}}),
                json!({"a": {"b": "d"}}),
            ),
            (json!({"a": [{"b": "c"}]}), json!({"a": [1]}), json!({"a": [1]})),
            (json!({"e": null}), json!({"a": 1}), json!({"e": null, "a": 1})),
            (json!({}), json!({"a": {"bb": {"ccc": null}}}), json!({"a": {"bb": {}}})),
        ] {
            let before = Description::new().with_metadata(object(target)).unwrap();
            let patch = DescriptionPatch::new().with_metadata(object(patch));
            assert_eq!(patch.apply(&before).unwrap().metadata(), &object(result));
        }
    }

    #[test]
    fn a_description_is_as_large_as_it_may_be_and_no_larger() {
        let title = |bytes: usize| Description::new().with_title("é".repeat(bytes / 2));
        assert!(title(Description::TITLE_LIMIT).is_ok());
        let error = title(Description::TITLE_LIMIT + 2).unwrap_err();
        assert_eq!((error.part, error.size, error.limit), ("title", 1026, 1024));
        let metadata = |bytes: usize| {
            let metadata = object(json!({"a": "x".repeat(bytes - r#"{"a":""}"#.len())}));
            Description::new().with_metadata(metadata)
        };
        let largest = metadata(Description::METADATA_LIMIT).unwrap();
        let error = metadata(Description::METADATA_LIMIT + 1).unwrap_err();
        assert_eq!((error.part, error.size, error.limit), ("metadata", 16385, 16384));
        let nested = |levels: usize| {
            let inner = (2..levels).fold(json!([]), |inner, _| json!([inner]));
            Description::new().with_metadata(object(json!({ "a": inner })))
        };
        let deepest = nested(Description::NESTING_LIMIT).unwrap();
        let text = serde_json::to_string(&deepest).unwrap();
        assert_eq!(serde_json::from_str::<Description>(&text).unwrap(), deepest);
        let error = nested(Description::NESTING_LIMIT + 1).unwrap_err();
        assert_eq!((error.unit, error.size), ("levels", 65));
        let patch = DescriptionPatch::new().with_metadata(object(json!({"b": 1})));
        assert!(patch.apply(&largest).is_err());
        let patch = DescriptionPatch::new().with_title("x".repeat(1025));
        assert!(patch.apply(&largest).is_err());
    }
}
