//! Generates exchanges with Gemini's `generateContent`
//! (<https://ai.google.dev/api/generate-content>), served by Google AI and by Vertex AI.

use serde_json::{Value, json};

use super::{
    dialogue::{Answer, Call, Dialogue, Item, Tool},
    exchange::{Provider, sse},
    text::pieces,
};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Gemini {
    /// Calls have no ids.
    GoogleAi,
    /// Calls have ids.
    Vertex,
}

impl Gemini {
    fn contents(self, dialogue: &Dialogue) -> Vec<Value> {
        let mut contents = Vec::new();
        for item in &dialogue.items {
            match item {
                Item::User(text) => {
                    contents.push(json!({"role": "user", "parts": [{"text": text}]}));
                }
                Item::Answer(answer) => {
                    contents.push(json!({"role": "model", "parts": self.parts(answer)}));
                    let results = answer.calls.iter().map(|call| self.result(call));
                    let results: Vec<Value> = results.collect();
                    if !results.is_empty() {
                        contents.push(json!({"role": "user", "parts": results}));
                    }
                }
            }
        }
        contents
    }

    fn named(self, call: &Call, more: &str, value: &Value) -> Value {
        let mut named = json!({"name": call.tool.name, more: value});
        if self == Self::Vertex {
            named["id"] = json!(call.token);
        }
        named
    }

    fn result(self, call: &Call) -> Value {
        json!({"functionResponse": self.named(call, "response", &call.result)})
    }

    /// Returns the parts of an answer. Of parallel calls, only the first one has a signature.
    fn parts(self, answer: &Answer) -> Vec<Value> {
        let mut parts = Vec::new();
        if let Some(thought) = &answer.thought {
            parts.push(json!({"text": thought, "thought": true}));
        }
        if !answer.text.is_empty() {
            parts.push(json!({"text": answer.text}));
        }
        for (index, call) in answer.calls.iter().enumerate() {
            let mut part = json!({"functionCall": self.named(call, "args", &call.arguments)});
            if index == 0 {
                part["thoughtSignature"] = json!(answer.signature());
            }
            parts.push(part);
        }
        parts
    }

    pub(crate) fn event(self, answer: &Answer, parts: &[Value], finish: Option<&str>) -> Value {
        let (input, output) = (answer.input_tokens, answer.output_tokens);
        let mut candidate = json!({"content": {"role": "model", "parts": parts}, "index": 0});
        if let Some(finish) = finish {
            candidate["finishReason"] = json!(finish);
        }
        json!({"candidates": [candidate],
            "usageMetadata": {"promptTokenCount": input, "candidatesTokenCount": output,
                "thoughtsTokenCount": 7, "totalTokenCount": input + output + 7,
                "promptTokensDetails": [{"modality": "TEXT", "tokenCount": input}]},
            "modelVersion": "gemini-3-flash-preview", "responseId": answer.token})
    }

    /// Returns the events of a stream. Only the last event contains the finish reason.
    pub(crate) fn events(self, answer: &Answer, finish: Option<&str>) -> Vec<Value> {
        let mut groups: Vec<Vec<Value>> = Vec::new();
        for part in self.parts(answer) {
            match part["text"].as_str() {
                Some(text) => groups.extend(pieces(text, 27).into_iter().map(|piece| {
                    let mut part = part.clone();
                    part["text"] = json!(piece);
                    vec![part]
                })),
                None => groups.push(vec![part]),
            }
        }
        let last = groups.len() - 1;
        let finish = |at: usize| finish.filter(|_| at == last);
        let events = groups.iter().enumerate();
        events.map(|(at, parts)| self.event(answer, parts, finish(at))).collect()
    }
}

impl Provider for Gemini {
    fn folder(&self) -> &'static str {
        match self {
            Self::GoogleAi => "gemini",
            Self::Vertex => "vertex",
        }
    }

    fn url(&self, is_streamed: bool) -> String {
        let base = match self {
            Self::GoogleAi => "https://generativelanguage.googleapis.com/v1beta/models",
            Self::Vertex => {
                "https://aiplatform.googleapis.com/v1/projects/harbour/locations/global/publishers/\
                 google/models"
            }
        };
        let method = if is_streamed { "streamGenerateContent?alt=sse" } else { "generateContent" };
        format!("{base}/gemini-3-flash-preview:{method}")
    }

    fn request(&self, dialogue: &Dialogue, _: bool) -> Value {
        let tool = |tool: &Tool| {
            json!({"name": tool.name, "description": tool.description,
                "parametersJsonSchema": tool.schema()})
        };
        let tools: Vec<Value> = dialogue.tools.iter().map(tool).collect();
        let mut body = json!({"systemInstruction": {"parts": [{"text": dialogue.system}]},
            "contents": self.contents(dialogue),
            "generationConfig": {"thinkingConfig": {"includeThoughts": true}}});
        if !tools.is_empty() {
            body["tools"] = json!([{"functionDeclarations": tools}]);
        }
        body
    }

    fn whole(&self, answer: &Answer) -> Value {
        self.event(answer, &self.parts(answer), Some("STOP"))
    }

    fn stream(&self, answer: &Answer) -> Vec<u8> {
        sse(&self.events(answer, Some("STOP")))
    }
}
