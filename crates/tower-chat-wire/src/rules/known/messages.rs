//! Services of Anthropic Messages.

use super::{ANTHROPIC_TOOLS, KnownService, nothing, service};
use crate::{body::BodyWire, rules::service_rules::ServiceRules};

pub(super) const ANTHROPIC: KnownService =
    service("anthropic", BodyWire::Anthropic, &["api.anthropic.com"], claude, CLAUDE_SOURCES);
pub(super) const VERTEX: KnownService =
    service("vertex", BodyWire::Anthropic, &["aiplatform.googleapis.com"], claude, CLAUDE_SOURCES);
pub(super) const BEDROCK: KnownService =
    service("bedrock", BodyWire::Anthropic, &["amazonaws.com"], claude, CLAUDE_SOURCES);
pub(super) const MINIMAX: KnownService = service(
    "minimax",
    BodyWire::Anthropic,
    &["api.minimax.io", "api.minimaxi.com"],
    nothing,
    &[("error_results", "https://platform.minimax.io/docs/api-reference/text-anthropic-api")],
);
pub(super) const ZAI: KnownService = service(
    "zai",
    BodyWire::Anthropic,
    &["api.z.ai", "open.bigmodel.cn"],
    nothing,
    &[("error_results", "https://docs.z.ai/devpack/tool/claude")],
);

fn claude(rules: &mut ServiceRules) {
    rules.issuer = "anthropic".into();
    rules.hosted_ids = &[("server_tool_use", "srvtoolu_"), ("mcp_tool_use", "mcptoolu_")];
}

const ANTHROPIC_API: &str = "https://docs.claude.com/en/api/messages";
const ANTHROPIC_TYPES: &str = "anthropic-sdk-python, types/tool_result_block_param.py";
const CLAUDE_SOURCES: &[(&str, &str)] = &[
    ("tool_names", ANTHROPIC_TOOLS),
    ("call_ids", ANTHROPIC_API),
    ("arguments", ANTHROPIC_API),
    ("tool_media", ANTHROPIC_TYPES),
    ("user_media", ANTHROPIC_API),
    ("error_results", ANTHROPIC_TOOLS),
    ("hosted_ids", ANTHROPIC_API),
];
