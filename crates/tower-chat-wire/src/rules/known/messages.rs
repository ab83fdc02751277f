//! The known services of Anthropic Messages.

use super::{
    ANTHROPIC_TOOLS, CLAUDE_SAME_ID, CLAUDE_THINKING, CLAUDE_THINKING_ELSEWHERE, CLAUDE_UNIONS,
    KnownService, UNIONS, no_change, service, unique_ids,
};
use crate::{
    body::BodyWire,
    rules::service_rules::{ForeignRule, MediaRule, ReasoningRule, ServiceRules},
};

pub(super) const ANTHROPIC: KnownService =
    service("anthropic", BodyWire::Anthropic, &["api.anthropic.com"], claude, CLAUDE_SOURCES);
pub(super) const VERTEX: KnownService =
    service("vertex", BodyWire::Anthropic, &["aiplatform.googleapis.com"], claude, CLAUDE_SOURCES);
pub(super) const BEDROCK: KnownService =
    service("bedrock", BodyWire::Anthropic, &["amazonaws.com"], claude, CLAUDE_SOURCES);
pub(super) const DEEPSEEK: KnownService = service(
    "deepseek",
    BodyWire::Anthropic,
    &["api.deepseek.com"],
    deepseek,
    &[
        ("tool_media", DEEPSEEK_API),
        ("user_media", DEEPSEEK_API),
        ("own_reasoning", "https://github.com/OEvortex/aether/issues/31"),
        ("foreign_calls", "https://github.com/leookun/cursor-byok/pull/276"),
        ("thinking_first", "https://github.com/leookun/cursor-byok/pull/276"),
    ],
);
pub(super) const MINIMAX: KnownService = service(
    "minimax",
    BodyWire::Anthropic,
    &["api.minimax.io", "api.minimaxi.com"],
    unique_ids,
    &[
        ("call_ids", "https://github.com/VicBilibily/GCMP/pull/120"),
        ("own_reasoning", "https://platform.minimax.io/docs/api-reference/text-anthropic-api"),
    ],
);
pub(super) const ZAI: KnownService = service(
    "zai",
    BodyWire::Anthropic,
    &["api.z.ai", "open.bigmodel.cn"],
    no_change,
    &[("issuer", "https://docs.z.ai/devpack/tool/claude")],
);

fn claude(rules: &mut ServiceRules) {
    unique_ids(rules);
    rules.issuer = "anthropic".into();
    rules.user_first = true;
    rules.refused_in_schemas = UNIONS;
    rules.hosted_ids = &[("server_tool_use", "srvtoolu_"), ("mcp_tool_use", "mcptoolu_")];
}

fn deepseek(rules: &mut ServiceRules) {
    (rules.tool_media, rules.user_media) = (MediaRule::NONE, MediaRule::NONE);
    rules.own_reasoning = ReasoningRule::Required;
    rules.thinking_first = false;
    rules.foreign_calls = ForeignRule::Reasoning { field: "thinking", text: "" };
}

const DEEPSEEK_API: &str = "https://api-docs.deepseek.com/guides/anthropic_api";
const ANTHROPIC_API: &str = "https://docs.claude.com/en/api/messages";
const ANTHROPIC_TYPES: &str = "anthropic-sdk-python, types/tool_result_block_param.py";
const CLAUDE_SOURCES: &[(&str, &str)] = &[
    ("tool_names", ANTHROPIC_TOOLS),
    ("call_ids", ANTHROPIC_API),
    ("call_ids", CLAUDE_SAME_ID),
    ("arguments", ANTHROPIC_API),
    ("tool_media", ANTHROPIC_TYPES),
    ("user_media", ANTHROPIC_API),
    ("error_results", ANTHROPIC_TOOLS),
    ("thinking_first", CLAUDE_THINKING),
    ("thinking_first", CLAUDE_THINKING_ELSEWHERE),
    ("hosted_ids", ANTHROPIC_API),
    ("refused_in_schemas", CLAUDE_UNIONS),
    ("user_first", "https://github.com/lobehub/lobehub/issues/1601"),
];
