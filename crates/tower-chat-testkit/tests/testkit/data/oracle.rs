//! Generates request bodies that services accept, and request bodies that services refuse for a
//! documented reason.

use serde_json::{Value, json};

use super::{
    anthropic::Claude,
    bedrock::Converse,
    chat,
    cohere::Cohere,
    dialogue::Dialogue,
    exchange::Provider,
    gemini::Gemini,
    ollama::Ollama,
    responses,
    text::{Texts, text},
};

/// Returns the accepted bodies of each wire, with the name of the wire's file.
pub(crate) fn accepted(texts: &mut Texts) -> Vec<(&'static str, String)> {
    vec![
        ("openai-chat", bodies("openai-chat", &[&chat::OPENAI, &chat::COMPATIBLE[1]], texts)),
        ("openai-responses", bodies("openai-responses", &[&responses::OPENAI], texts)),
        ("anthropic", bodies("anthropic", &[&Claude::Anthropic], texts)),
        ("bedrock-invoke", bodies("bedrock-invoke", &[&Claude::BedrockInvoke], texts)),
        ("gemini", bodies("gemini", &[&Gemini::GoogleAi, &Gemini::Vertex], texts)),
        ("bedrock-converse", bodies("bedrock-converse", &[&Converse], texts)),
        ("cohere", bodies("cohere", &[&Cohere], texts)),
        ("ollama", bodies("ollama", &[&Ollama], texts)),
    ]
}

fn bodies(wire: &str, providers: &[&dyn Provider], texts: &mut Texts) -> String {
    let mut lines = String::new();
    for provider in providers {
        let folder = provider.folder();
        let dialogues = [
            ("parallel", texts.parallel()),
            ("rounds", texts.rounds()),
            ("thinking", texts.thinking()),
        ];
        for (name, dialogue) in dialogues {
            let items = dialogue.items.iter().cloned().chain([texts.user()]).collect();
            let body = provider.request(&Dialogue { items, ..dialogue }, name == "rounds");
            let line = json!({"id": format!("generated {wire} {folder} {name}"), "flavor": wire,
                "status": 200, "request": body});
            lines += &(text(&line) + "\n");
        }
    }
    lines
}

pub(crate) fn rejected(texts: &mut Texts) -> String {
    let call = json!({"type": "function_call", "call_id": "call_alone", "name": "tide",
        "arguments": "{}"});
    let user_message = |texts: &mut Texts| json!({"role": "user", "content": texts.question()});
    let output =
        json!({"type": "function_call_output", "call_id": "call_alone", "output": "06:40"});
    let unanswered = json!({"model": "gpt-5-mini", "input": [user_message(texts), call, user_message(texts), output]});
    let role = json!({"contents": [{"role": "assistant", "parts": [{"text": texts.question()}]}]});
    let long =
        json!({"model": "claude-sonnet-4-5", "max_tokens": 16, "messages": [user_message(texts)]});
    let limited = json!({"model": "gpt-4.1-mini", "messages": [user_message(texts)]});
    let lines: [(&str, &str, u16, Value); 4] = [
        ("openai-responses", "No tool output found for function call call_alone.", 400, unanswered),
        ("gemini", "Please use a valid role: user, model.", 400, role),
        ("anthropic", "prompt is too long: 200001 tokens > 200000 maximum", 400, long),
        ("openai-chat", "Rate limit reached for requests per min.", 429, limited),
    ];
    let lines = lines.into_iter().enumerate().map(|(number, (flavor, error, status, request))| {
        let line = json!({"id": format!("generated rejected {number}"), "flavor": flavor,
            "status": status, "error": {"message": error}, "request": request});
        text(&line) + "\n"
    });
    lines.collect()
}
