use serde_json::{Map, Value, json};
use tower_chat_core::{ChatOptions, ToolChoice, ToolDefinition};

use tower_chat_schema::TypeSchema;

/// The position in a request at which a provider expects the schema of the answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum StructuredFormat {
    /// The field `response_format` of Chat Completions, with `strict`
    /// (<https://platform.openai.com/docs/guides/structured-outputs>).
    OpenAiChat,
    /// The field `text.format` of Responses, with `strict`.
    OpenAiResponses,
    /// The field `output_config.format` of Anthropic Messages, at Anthropic and in Vertex AI
    /// (<https://platform.claude.com/docs/en/build-with-claude/structured-outputs>). Claude models
    /// before 4.5 need [`ForcedTool`](Self::ForcedTool).
    Anthropic,
    /// The field `generationConfig.responseJsonSchema` of Gemini, in the Gemini API and in Vertex
    /// AI (<https://ai.google.dev/gemini-api/docs/structured-output>).
    Gemini,
    /// The field `outputConfig.textFormat` of Bedrock's Converse. Models that Bedrock's
    /// documentation does not list
    /// (<https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html>) need
    /// [`ForcedTool`](Self::ForcedTool).
    BedrockConverse,
    /// The field `response_format` of Cohere (<https://docs.cohere.com/docs/structured-outputs>).
    Cohere,
    /// The field `response_format` of Mistral, with `strict`
    /// (<https://docs.mistral.ai/capabilities/structured_output/custom>).
    Mistral,
    /// The field `format` of Ollama (<https://docs.ollama.com/capabilities/structured-outputs>).
    Ollama,
    /// The schema of a tool that the model must call. The arguments of the call are the answer.
    /// This format works with every model for which a request can require a call of a tool. Ollama
    /// cannot be required to call a tool. Neither can Claude if thinking is enabled.
    ForcedTool,
}

/// The name, the description and the schema of the requested answer.
pub(super) struct AnswerSchema<'a> {
    pub(super) name: &'a str,
    pub(super) description: Option<&'a str>,
    pub(super) schema: &'a TypeSchema,
}

impl StructuredFormat {
    /// Adds the schema to the options of a request. Other options are not changed.
    pub(super) fn apply(self, answer_schema: &AnswerSchema<'_>, options: &mut ChatOptions) {
        let schema = answer_schema.schema.portable();
        let extra = &mut options.extra;
        match self {
            Self::OpenAiChat | Self::Mistral => {
                let fields = answer_schema.to_fields("strict");
                let format = json!({"type": "json_schema", "json_schema": fields});
                extra.insert("response_format".to_owned(), format);
            }
            Self::OpenAiResponses => {
                let mut format = answer_schema.to_fields("strict");
                format.insert("type".to_owned(), json!("json_schema"));
                set_nested_field(extra, "text", "format", Value::Object(format));
            }
            Self::Anthropic => {
                let format = json!({"type": "json_schema", "schema": schema});
                set_nested_field(extra, "output_config", "format", format);
            }
            Self::Gemini => {
                let (config, json) = ("generationConfig", json!("application/json"));
                set_nested_field(extra, config, "responseMimeType", json);
                set_nested_field(extra, config, "responseJsonSchema", schema.clone());
            }
            Self::BedrockConverse => {
                let mut named = answer_schema.to_fields("");
                // Converse expects the schema as a JSON string.
                named.insert("schema".to_owned(), json!(schema.to_string()));
                let structure = json!({"jsonSchema": named});
                let format = json!({"type": "json_schema", "structure": structure});
                set_nested_field(extra, "outputConfig", "textFormat", format);
            }
            Self::Cohere => {
                let format = json!({"type": "json_object", "schema": schema});
                extra.insert("response_format".to_owned(), format);
            }
            Self::Ollama => drop(extra.insert("format".to_owned(), schema.clone())),
            Self::ForcedTool => {
                let description = answer_schema.description.unwrap_or("Gives the answer.");
                let tool = ToolDefinition::new(answer_schema.name, description, schema.clone());
                options.tools.retain(|tool| tool.name != answer_schema.name);
                options.tools.push(tool);
                options.tool_choice = Some(ToolChoice::Tool(answer_schema.name.to_owned()));
            }
        }
    }
}

impl AnswerSchema<'_> {
    /// Returns an object with the name, the description and the schema. `strict` is the provider's
    /// field for strict conformance, if any.
    fn to_fields(&self, strict: &str) -> Map<String, Value> {
        let mut fields = Map::new();
        fields.insert("name".to_owned(), json!(self.name));
        if let Some(description) = self.description {
            fields.insert("description".to_owned(), json!(description));
        }
        fields.insert("schema".to_owned(), self.schema.portable().clone());
        if !strict.is_empty() {
            fields.insert(strict.to_owned(), json!(self.schema.is_closed()));
        }
        fields
    }
}

/// Sets a field of the object `name` in `extra`. An object replaces any other value of `name`.
fn set_nested_field(extra: &mut Map<String, Value>, name: &str, field: &str, value: Value) {
    let mut fields = match extra.remove(name) {
        Some(Value::Object(fields)) => fields,
        _ => Map::new(),
    };
    fields.insert(field.to_owned(), value);
    extra.insert(name.to_owned(), Value::Object(fields));
}
