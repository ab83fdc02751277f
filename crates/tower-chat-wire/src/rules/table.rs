//! Formats the rules of the known services as a chapter of the guide.

use std::fmt::Write as _;

use super::{
    known::{KNOWN, KnownService},
    service_rules::{
        EmptyRule, ForeignRule, IdForm, ListRule, MediaRule, Otherwise, ReasoningRule, ResultRule,
        ServiceRules, Unique,
    },
};
use crate::body::BodyWire;

/// Returns the rules of the known services as a chapter in Markdown. The guide contains the text as
/// `services.md`.
pub fn table() -> String {
    let mut text = String::from(HEAD);
    for known in KNOWN {
        let _ = write!(text, "\n## {} ({})\n\n", known.name, wire(known.wire));
        let _ = writeln!(text, "{}\n", when_chosen(known));
        text.push_str("| rule | value | source |\n|---|---|---|\n");
        for (field, value) in rows(&known.rules()) {
            let sources: Vec<&str> =
                known.sources.iter().filter(|(of, _)| *of == field).map(|(_, url)| *url).collect();
            let sources = match sources.as_slice() {
                [] => "the same for every service of this wire".to_owned(),
                urls => urls.iter().map(|url| link(url)).collect::<Vec<_>>().join(", "),
            };
            let _ = writeln!(text, "| `{field}` | {value} | {sources} |");
        }
    }
    text
}

const HEAD: &str = "<!-- Written by tower_chat_wire::rules::table; a test compares it. -->\n\n# Services and their \
                    rules\n\nServices that share a wire format have different rules. A model client chooses the rules \
                    by its provider, its address and its model; `with_rules` of the client sets others. A stored \
                    conversation is changed on its way to a service as far as these rules demand, and never in the \
                    store. `Finish::changes` describes the changes.\n\nAn unknown host receives its own items \
                    unchanged, and no items of other services; names and ids consist of 1 to 64 ASCII letters, \
                    digits, `_` and `-`, and nothing is added.\n";

fn wire(wire: BodyWire) -> &'static str {
    match wire {
        BodyWire::OpenAiChat => "Chat Completions",
        BodyWire::OpenAiResponses => "Responses",
        BodyWire::Anthropic => "Anthropic Messages",
        BodyWire::Gemini => "Gemini",
        BodyWire::BedrockConverse => "Bedrock Converse",
        BodyWire::Cohere => "Cohere",
        BodyWire::Ollama => "Ollama",
    }
}

fn when_chosen(known: &KnownService) -> String {
    if known.hosts.is_empty() {
        return "Its address is the user's own: set the rules, or use its own client.".to_owned();
    }
    let hosts: Vec<String> = known.hosts.iter().map(|host| format!("`{host}`")).collect();
    format!("Chosen for addresses at {}.", hosts.join(", "))
}

fn link(source: &str) -> String {
    if source.starts_with("https://") { format!("<{source}>") } else { source.to_owned() }
}

/// Returns the name of each field of the rules, and its value in words.
fn rows(rules: &ServiceRules) -> Vec<(&'static str, String)> {
    let names = rules.tool_names;
    let first = if names.begins_with_letter { ", first a letter or `_`" } else { "" };
    let also = match names.also {
        "" => String::new(),
        also => format!(" and `{also}`"),
    };
    let ids = rules.call_ids;
    let form = match ids.form {
        IdForm::Any => "any characters".to_owned(),
        IdForm::Word => format!("1 to {} of `A-Za-z0-9_-`", ids.max_length),
        IdForm::Nine => "9 of `A-Za-z0-9`".to_owned(),
    };
    let unique = match ids.unique {
        Unique::Answer => "in an answer",
        Unique::Request => "in a request",
    };
    let required = if ids.required { "required" } else { "may be missing" };
    let hosted: Vec<String> = rules
        .hosted_ids
        .iter()
        .map(|(kind, prefix)| format!("`{kind}` begins with `{prefix}`"))
        .collect();
    let reasoning = match rules.own_reasoning {
        ReasoningRule::Required => "required with calls",
        ReasoningRule::Sent => "sent",
        ReasoningRule::LeftOut => "left out",
    };
    let fields = match rules.reasoning_fields {
        None => "any".to_owned(),
        Some([]) => "none".to_owned(),
        Some(fields) => format!("`{}`", fields.join("`, `")),
    };
    let foreign = match rules.foreign_calls {
        ForeignRule::Nothing => "nothing".to_owned(),
        ForeignRule::Reasoning { field, text: "" } => format!("an empty `{field}`"),
        ForeignRule::Reasoning { field, text } => format!("`{field}` of `{text:?}`"),
        ForeignRule::Signature(signature) => format!("the signature `{signature}`"),
    };
    let is = |is: bool| if is { "yes" } else { "no" }.to_owned();
    vec![
        ("issuer", format!("`{}`", rules.issuer)),
        ("tool_names", format!("1 to {} of `A-Za-z0-9_-`{also}{first}", names.max_length)),
        ("call_ids", format!("{form}, {required}, each once {unique}")),
        ("arguments", "a JSON object".to_owned()),
        ("tool_media", media(&rules.tool_media, true)),
        ("user_media", media(&rules.user_media, false)),
        ("assistant_media", is(rules.assistant_media)),
        (
            "error_results",
            match rules.error_results {
                ResultRule::TextOnly => "text alone, not empty",
                ResultRule::Any => "as other results",
            }
            .to_owned(),
        ),
        ("own_reasoning", reasoning.to_owned()),
        ("reasoning_fields", fields),
        ("foreign_calls", foreign),
        ("thinking_first", is(rules.thinking_first)),
        ("hosted_ids", if hosted.is_empty() { "any".to_owned() } else { hosted.join(", ") }),
        (
            "refused_in_schemas",
            match rules.refused_in_schemas {
                [] => "nothing".to_owned(),
                keywords => format!("`{}` at the top level", keywords.join("`, `")),
            },
        ),
        ("definitions_with_calls", is(rules.definitions_with_calls)),
        (
            "empty_assistant",
            match rules.empty_assistant {
                EmptyRule::AsStored => "sent in the form that the wire has",
                EmptyRule::LeaveOut => "left out",
            }
            .to_owned(),
        ),
        ("user_first", is(rules.user_first)),
        ("answer_after_results", is(rules.answer_after_results)),
        (
            "content_lists",
            match rules.content_lists {
                ListRule::Any => "in any message",
                ListRule::OfUser => "in messages of the user",
                ListRule::OfUserAndSystem => "in messages of the user and of the system",
                ListRule::None => "in none",
            }
            .to_owned(),
        ),
        (
            "author_names",
            match rules.author_names {
                Some(_) if rules.wire != BodyWire::OpenAiChat => "not sent".to_owned(),
                Some(names) => format!("1 to {} of `A-Za-z0-9_-`", names.max_length),
                None => "refused".to_owned(),
            },
        ),
    ]
}

fn media(rule: &MediaRule, is_of_tool: bool) -> String {
    let kinds: Vec<String> =
        rule.kinds.iter().map(|kind| format!("`{}`", kind.media_type)).collect();
    let mut text = if kinds.is_empty() { "none".to_owned() } else { kinds.join(", ") };
    if let Some(max) = rule.max_images {
        let _ = write!(text, "; at most {max} images");
    }
    if let Some(max) = rule.max_documents {
        let _ = write!(text, "; at most {max} documents");
    }
    if rule.named_documents {
        text.push_str("; documents have different names, and a text beside them");
    }
    if is_of_tool {
        text.push_str(match rule.otherwise {
            Otherwise::AfterResults => "; others follow the results",
            Otherwise::Sentence => "; a sentence in place of others",
        });
    }
    text
}
