//! Removes keywords that a service refuses at the top level of a tool's schema, such as `allOf`,
//! `anyOf` and `oneOf`, and merges their subschemas into one object.

use serde_json::{Map, Value, json};

/// The maximum depth of nested subschemas and references that are merged.
const MAX_DEPTH: usize = 10;

/// Removes the refused keywords at the top level of a tool's schema. Returns whether the schema had
/// one of these keywords, and was changed.
///
/// The result is one object schema, which merges the schema itself, the target of its `$ref`, and
/// the subschemas of its `allOf`, `anyOf` and `oneOf`:
///
/// - The object has the properties of all these schemas. If their definitions of a property differ,
///   the schema of the property is an `anyOf` of the definitions.
/// - A property is required if one of these requires it: the schema itself, the target, a subschema
///   of `allOf`, or every subschema of an `anyOf` or `oneOf`.
/// - A property that only some subschemas of an `anyOf` or `oneOf` require is not required.
///   Instead, a sentence in the description lists these properties for each subschema. There is no
///   sentence if one of the subschemas requires none of them.
///
/// `enum` and `not` are removed without a replacement. The object allows some arguments that the
/// original schema does not allow, so the tool must check its arguments.
pub(super) fn replace(schema: &mut Value, refused: &[&str]) -> bool {
    let root = schema.clone();
    let Value::Object(fields) = schema else { return false };
    if !refused.iter().any(|keyword| fields.contains_key(*keyword)) {
        return false;
    }
    fields.retain(|keyword, _| !refused.contains(&keyword.as_str()));
    let object = MergedSchema::of_schema(&root, &root, 0);
    if !object.sentences.is_empty() {
        let description = fields.get("description").and_then(Value::as_str).into_iter();
        let sentences: Vec<&str> =
            description.chain(object.sentences.iter().map(String::as_str)).collect();
        fields.insert("description".to_owned(), sentences.join(" ").into());
    }
    if !object.required.is_empty() {
        fields.insert("required".to_owned(), object.required.clone().into());
    }
    fields.insert("type".to_owned(), "object".into());
    fields.insert("properties".to_owned(), object.into_properties());
    true
}

/// The properties that a schema, the target of its `$ref` and its subschemas define and require.
#[derive(Debug, Default)]
struct MergedSchema {
    /// The name and the different schemas of each property.
    properties: Vec<(String, Vec<Value>)>,
    /// The names of the required properties.
    required: Vec<String>,
    /// The sentences for the description, such as "Required: `id`, or `path` and `ref`."
    sentences: Vec<String>,
}

impl MergedSchema {
    /// Reads a schema. `root` is the whole schema of the tool, in which references are resolved.
    /// `depth` is the number of references and subschemas between `root` and this schema.
    fn of_schema(schema: &Value, root: &Value, depth: usize) -> Self {
        let mut object = Self::default();
        let Some(fields) = schema.as_object().filter(|_| depth <= MAX_DEPTH) else { return object };
        if let Some(properties) = fields.get("properties").and_then(Value::as_object) {
            let properties = properties.iter();
            object.add_properties(
                properties.map(|(name, schema)| (name.clone(), vec![schema.clone()])),
            );
        }
        object.require(fields.get("required").and_then(Value::as_array).into_iter().flatten());
        if let Some(target) = referenced_schema(fields, root) {
            object.merge(Self::of_schema(target, root, depth + 1));
        }
        for schema in subschemas(fields, "allOf") {
            object.merge(Self::of_schema(schema, root, depth + 1));
        }
        for keyword in ["anyOf", "oneOf"] {
            let schemas = subschemas(fields, keyword);
            object.merge_any_of(schemas.map(|it| Self::of_schema(it, root, depth + 1)).collect());
        }
        object
    }

    /// Merges a subschema of `allOf` or the target of a reference. The arguments of a call must
    /// satisfy it, too.
    fn merge(&mut self, other: Self) {
        self.add_properties(other.properties);
        for name in other.required {
            self.require_name(name);
        }
        self.sentences.extend(other.sentences);
    }

    /// Merges the subschemas of an `anyOf` or `oneOf`. The arguments of a call must satisfy one of
    /// them.
    fn merge_any_of(&mut self, schemas: Vec<Self>) {
        let Some((first, others)) = schemas.split_first() else { return };
        let is_common = |name: &&String| others.iter().all(|other| other.required.contains(name));
        for name in first.required.iter().filter(is_common) {
            self.require_name(name.clone());
        }
        let groups: Vec<Vec<String>> = schemas
            .iter()
            .map(|it| it.required.iter().filter(|name| !self.required.contains(name)))
            .map(|names| names.map(|name| format!("`{name}`")).collect())
            .collect();
        if groups.len() > 1 && groups.iter().all(|group| !group.is_empty()) {
            let groups: Vec<String> = groups.iter().map(|group| group.join(" and ")).collect();
            self.sentences.push(format!("Required: {}.", groups.join(", or ")));
        }
        for schema in schemas {
            self.add_properties(schema.properties);
            self.sentences.extend(schema.sentences);
        }
    }

    fn add_properties(&mut self, properties: impl IntoIterator<Item = (String, Vec<Value>)>) {
        for (name, schemas) in properties {
            let Some((_, known)) = self.properties.iter_mut().find(|(known, _)| *known == name)
            else {
                self.properties.push((name, schemas));
                continue;
            };
            for schema in schemas {
                if !known.contains(&schema) {
                    known.push(schema);
                }
            }
        }
    }

    fn require<'v>(&mut self, names: impl Iterator<Item = &'v Value>) {
        names.filter_map(Value::as_str).for_each(|name| self.require_name(name.to_owned()));
    }

    fn require_name(&mut self, name: String) {
        if !self.required.contains(&name) {
            self.required.push(name);
        }
    }

    fn into_properties(self) -> Value {
        let properties = self.properties.into_iter().map(|(name, mut schemas)| {
            let schema = match schemas.len() {
                1 => schemas.remove(0),
                _ => json!({"anyOf": schemas}),
            };
            (name, schema)
        });
        Value::Object(properties.collect::<Map<_, _>>())
    }
}

/// Returns the subschemas of the keyword `allOf`, `anyOf` or `oneOf`.
fn subschemas<'s>(
    fields: &'s Map<String, Value>,
    keyword: &str,
) -> impl Iterator<Item = &'s Value> {
    fields.get(keyword).and_then(Value::as_array).into_iter().flatten()
}

/// Returns the target of the schema's `$ref` in `root`.
fn referenced_schema<'s>(fields: &Map<String, Value>, root: &'s Value) -> Option<&'s Value> {
    root.pointer(fields.get("$ref")?.as_str()?.strip_prefix('#')?)
}

#[cfg(test)]
mod tests {
    use super::*;

    const KEYWORDS: &[&str] = &["allOf", "anyOf", "oneOf"];

    fn replaced(mut schema: Value, refused: &[&str]) -> Value {
        assert!(replace(&mut schema, refused), "{schema}");
        assert!(!replace(&mut schema.clone(), refused), "{schema}");
        schema
    }

    #[test]
    fn any_of_and_one_of_subschemas_are_merged_into_one_object() {
        let by_id = json!({
            "type": "object", "required": ["project", "id"],
            "properties": {"project": {"type": "string"}, "id": {"type": "integer"}},
        });
        let by_path = json!({
            "type": "object", "required": ["path", "project", "ref"],
            "properties": {
                "project": {"type": "string"}, "path": {"type": "string"}, "ref": {}, "id": {"type": "null"},
            },
        });
        for keyword in ["anyOf", "oneOf"] {
            let schema = json!({"description": "Reads a file.", keyword: [by_id, by_path]});
            let expected = json!({
                "type": "object",
                "description": "Reads a file. Required: `id`, or `path` and `ref`.",
                "required": ["project"],
                "properties": {
                    "project": {"type": "string"},
                    "id": {"anyOf": [{"type": "integer"}, {"type": "null"}]},
                    "path": {"type": "string"},
                    "ref": {},
                },
            });
            assert_eq!(replaced(schema, KEYWORDS), expected);
        }
    }

    #[test]
    fn alternative_required_lists_become_a_sentence_in_the_description() {
        let schema = json!({
            "type": "object",
            "properties": {"version": {}, "from": {}, "to": {}},
            "anyOf": [{"required": ["version"]}, {"required": ["from"]}, {"required": ["to"]}],
        });
        let expected = json!({
            "type": "object",
            "properties": {"version": {}, "from": {}, "to": {}},
            "description": "Required: `version`, or `from`, or `to`.",
        });
        assert_eq!(replaced(schema, KEYWORDS), expected);
        // No sentence is added if a subschema requires no properties.
        let schema = json!({"anyOf": [{"required": ["a"]}, {}], "properties": {"a": {}}});
        assert_eq!(replaced(schema, KEYWORDS), json!({"type": "object", "properties": {"a": {}}}));
    }

    #[test]
    fn all_of_subschemas_are_merged_and_references_are_resolved() {
        let schema = json!({
            "$defs": {
                "page": {"required": ["size"], "properties": {"size": {"type": "integer"}}},
                "endless": {"allOf": [{"$ref": "#/$defs/endless"}], "properties": {"x": {}}},
            },
            "allOf": [
                {"$ref": "#/$defs/page"}, {"$ref": "#/$defs/endless"}, {"$ref": "#/missing"}, true,
                {"oneOf": [{"properties": {"a": {}}}, {"type": "string"}]},
            ],
        });
        let defs = schema["$defs"].clone();
        let expected = json!({
            "$defs": defs,
            "type": "object",
            "required": ["size"],
            "properties": {"size": {"type": "integer"}, "x": {}, "a": {}},
        });
        assert_eq!(replaced(schema, KEYWORDS), expected);
    }

    #[test]
    fn only_keywords_that_the_service_refuses_at_the_root_are_replaced() {
        let mut schema = json!({"type": "object", "not": {"required": ["a", "b"]}, "enum": [{}]});
        assert!(!replace(&mut schema, KEYWORDS));
        let expected = json!({"type": "object", "properties": {}});
        assert_eq!(replaced(schema, &["enum", "not"]), expected);
        let mut nested = json!({"properties": {"a": {"anyOf": [{}, {"type": "null"}]}}});
        assert!(!replace(&mut nested, KEYWORDS), "keywords within properties are accepted");
    }
}
