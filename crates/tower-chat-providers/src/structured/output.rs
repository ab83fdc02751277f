use std::{fmt, marker::PhantomData, sync::Arc};

use schemars::JsonSchema;
use serde::de::DeserializeOwned;
use serde_json::Value;
use tower_chat_core::{Answer, ChatRequest, FinishReason, Message, Part};
use tower_chat_schema::TypeSchema;

use super::{
    error::StructuredError,
    format::{AnswerSchema, StructuredFormat},
};

/// Adds the schema of a type to requests, and deserializes the answers. See the [documentation of
/// the module](crate::structured).
pub struct StructuredOutput<T> {
    format: StructuredFormat,
    name: String,
    description: Option<String>,
    schema: TypeSchema,
    answer: PhantomData<fn() -> T>,
}

impl<T: JsonSchema + DeserializeOwned> StructuredOutput<T> {
    /// Creates a structured output for requests to a provider. The name and the description of the
    /// schema are those of the type.
    pub fn for_provider(format: StructuredFormat) -> Self {
        let schema = TypeSchema::of::<T>();
        let name = acceptable_name(schema.name());
        let description = schema.description().map(str::to_owned);
        Self { format, name, description, schema, answer: PhantomData }
    }

    /// Sets the name of the schema. The default is the name of the type. Providers accept names of
    /// up to 64 letters, digits, `_` and `-`. In `name`, other characters are replaced by `_`,
    /// characters after the 64th are removed, and an empty name is replaced by `answer`.
    #[must_use]
    pub fn with_name(mut self, name: &str) -> Self {
        self.name = acceptable_name(name);
        self
    }

    /// Sets the description of the answer. The default is the documentation of the type.
    #[must_use]
    pub fn with_description(mut self, description: &str) -> Self {
        self.description = Some(description.to_owned());
        self
    }

    /// Adds the schema to a request.
    #[must_use]
    pub fn apply(&self, mut request: ChatRequest) -> ChatRequest {
        let answer_schema = AnswerSchema {
            name: &self.name,
            description: self.description.as_deref(),
            schema: &self.schema,
        };
        self.format.apply(&answer_schema, Arc::make_mut(&mut request.options));
        request
    }

    /// Deserializes an answer as a value of the type.
    ///
    /// # Errors
    ///
    /// If the model refused to answer, if the answer was cut off or does not conform to the schema,
    /// or if the schema of the type is not valid.
    pub fn parse(&self, answer: &Answer) -> Result<T, StructuredError> {
        let name = self.name.clone();
        match &answer.finish.reason {
            Some(FinishReason::Length) => {
                let text = self.call_arguments(answer).unwrap_or_else(|| answer.text());
                return Err(StructuredError::CutOff { name, text });
            }
            Some(FinishReason::ContentFilter) => {
                let text = refusal(answer).unwrap_or_else(|| answer.text());
                return Err(StructuredError::Refused { name, text });
            }
            _ => {}
        }
        if let Some(text) = refusal(answer) {
            return Err(StructuredError::Refused { name, text });
        }
        let text = match self.format {
            StructuredFormat::ForcedTool => self.call_arguments(answer).ok_or_else(|| {
                let (name, text) = (name.clone(), answer.text());
                let problem = format!("the model did not call {name}");
                StructuredError::Invalid { name, text, problem }
            })?,
            _ => answer.text(),
        };
        self.deserialize(&text)?.map_err(|problem| StructuredError::Invalid { name, text, problem })
    }

    /// Deserializes a text. The inner error describes how the text does not conform to the schema.
    fn deserialize(&self, text: &str) -> Result<Result<T, String>, StructuredError> {
        let validator = jsonschema::validator_for(self.schema.of_type()).map_err(|error| {
            StructuredError::Schema { name: self.name.clone(), problem: error.to_string() }
        })?;
        let value = || -> Result<T, String> {
            let value = self.schema.value(text).map_err(|error| error.to_string())?;
            if let Err(error) = validator.validate(&value) {
                return Err(format!("{error} at {:?}", error.instance_path().to_string()));
            }
            serde_json::from_value(value).map_err(|error| error.to_string())
        };
        Ok(value())
    }

    /// Returns the arguments of the call that the request required: of the first such call in the
    /// last message that has one.
    fn call_arguments(&self, answer: &Answer) -> Option<String> {
        let calls = answer.messages.iter().rev().flat_map(|message| message.calls());
        let mut calls = calls.filter(|call| call.name == self.name);
        calls.next().map(|call| call.arguments.clone())
    }
}

/// Returns the text of OpenAI's `refusal`: a field of a Chat Completions message, or a content part
/// of a Responses message.
fn refusal(answer: &Answer) -> Option<String> {
    let natives = answer.messages.iter().flat_map(|message| natives(message));
    natives.filter_map(|item| refusal_in_item(&item)).next()
}

fn natives(message: &Message) -> Vec<Value> {
    let items = message.parts.iter().filter_map(|part| match part {
        Part::Native(native) => Some(native),
        Part::Text(text) => text.native.as_ref(),
        _ => None,
    });
    items.filter_map(|native| serde_json::from_str(native.item.get()).ok()).collect()
}

/// Returns the text in the field `refusal` of an item, or of one of the parts in its `content`.
fn refusal_in_item(item: &Value) -> Option<String> {
    let own = item.get("refusal").and_then(Value::as_str).filter(|text| !text.is_empty());
    own.map(str::to_owned).or_else(|| {
        let parts = item.get("content").and_then(Value::as_array);
        parts.into_iter().flatten().find_map(refusal_in_item)
    })
}

/// Converts a name to a name that providers accept.
fn acceptable_name(name: &str) -> String {
    let is_accepted =
        |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    let name: String = name
        .chars()
        .map(|letter| if is_accepted(letter) { letter } else { '_' })
        .take(64)
        .collect();
    if name.is_empty() { "answer".to_owned() } else { name }
}

impl<T> Clone for StructuredOutput<T> {
    fn clone(&self) -> Self {
        Self {
            format: self.format,
            name: self.name.clone(),
            description: self.description.clone(),
            schema: self.schema.clone(),
            answer: PhantomData,
        }
    }
}

impl<T> fmt::Debug for StructuredOutput<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("StructuredOutput")
            .field("format", &self.format)
            .field("name", &self.name)
            .field("schema", &self.schema)
            .finish_non_exhaustive()
    }
}
