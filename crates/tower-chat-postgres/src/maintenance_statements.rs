//! The statements for whole stores and for repairs. The first parameter is the scope, and the
//! second is the id of the conversation, except in statements that list scopes.

use crate::schema::Layout;
#[cfg(test)]
use crate::statements::Scope;

/// The statements, in which `{schema}` is replaced with the schema's name.
#[derive(Debug)]
pub(crate) struct MaintenanceStatements {
    pub(crate) scopes: String,
    /// Lists scopes as `scopes` does, but sorts them by their full names.
    pub(crate) scopes_long: String,
    pub(crate) rewrite_message: String,
    pub(crate) remove_tool: String,
    pub(crate) rewrite_summaries: String,
    pub(crate) count_rewrite: String,
    pub(crate) set_incarnation: String,
    pub(crate) recount_runs: String,
    /// Replaces negative counts of usage with 0.
    pub(crate) recount_usage: String,
    pub(crate) recount_tool_calls: String,
}

impl MaintenanceStatements {
    pub(crate) fn new(layout: &Layout) -> Self {
        let named = |sql: String| layout.with_schema(&sql);
        let each_scope = each_scope();
        Self {
            scopes: named(format!(
                "{each_scope} SELECT f.scope, f.long_scope FROM found AS f LIMIT $2"
            )),
            scopes_long: named(format!(
                "{each_scope} SELECT f.scope, f.long_scope FROM found AS f
                 WHERE $3::bytea IS NULL OR coalesce(f.long_scope, f.scope) > $3
                 ORDER BY coalesce(f.long_scope, f.scope) LIMIT $2"
            )),
            rewrite_message: named(
                "UPDATE {schema}.messages AS m SET body = $4
                 WHERE m.scope = $1 AND m.conversation = $2 AND m.sequence = $3"
                    .to_owned(),
            ),
            remove_tool: named(
                "DELETE FROM {schema}.tool_invocations AS t
                 WHERE t.scope = $1 AND t.conversation = $2 AND t.sequence = $3
                     AND t.call_index = $4"
                    .to_owned(),
            ),
            rewrite_summaries: named(
                "DELETE FROM {schema}.history_summaries AS s
                 WHERE s.scope = $1 AND s.conversation = $2 AND s.covers_to >= $3"
                    .to_owned(),
            ),
            count_rewrite: named(
                "UPDATE {schema}.conversations AS c SET rewrites = c.rewrites + 1
                 WHERE c.scope = $1 AND c.conversation = $2"
                    .to_owned(),
            ),
            set_incarnation: named(
                "UPDATE {schema}.conversations AS c SET incarnation = $3
                 WHERE c.scope = $1 AND c.conversation = $2"
                    .to_owned(),
            ),
            recount_runs: named(
                "UPDATE {schema}.conversations AS c SET runs = $3
                 WHERE c.scope = $1 AND c.conversation = $2"
                    .to_owned(),
            ),
            recount_usage: named(
                "UPDATE {schema}.run_usage AS u SET service_calls = greatest(u.service_calls, 0),
                     tool_calls = greatest(u.tool_calls, 0),
                     input_tokens = greatest(u.input_tokens, 0),
                     cached_input_tokens = greatest(u.cached_input_tokens, 0),
                     output_tokens = greatest(u.output_tokens, 0),
                     reasoning_tokens = greatest(u.reasoning_tokens, 0),
                     cost_nanos = CASE WHEN u.cost_nanos < 0 THEN 0 ELSE u.cost_nanos END
                 WHERE u.scope = $1 AND u.conversation = $2"
                    .to_owned(),
            ),
            // A run has a usage row for each model, and the record does not contain the model that
            // has made a call. Therefore the first row of a run gets all calls of the run.
            recount_tool_calls: named(
                "UPDATE {schema}.run_usage AS u SET tool_calls = CASE
                     WHEN u.model = (SELECT f.model FROM {schema}.run_usage AS f
                         WHERE f.scope = $1 AND f.conversation = $2 AND f.run = $3
                         ORDER BY f.model LIMIT 1)
                     THEN $4::bigint ELSE 0 END
                 WHERE u.scope = $1 AND u.conversation = $2 AND u.run = $3"
                    .to_owned(),
            ),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<(&'static str, Scope, String)> {
        vec![
            ("rewrite_message", Scope::Conversation, self.rewrite_message.clone()),
            ("remove_tool", Scope::Conversation, self.remove_tool.clone()),
            ("rewrite_summaries", Scope::Conversation, self.rewrite_summaries.clone()),
            ("count_rewrite", Scope::Conversation, self.count_rewrite.clone()),
            ("set_incarnation", Scope::Conversation, self.set_incarnation.clone()),
            ("recount_runs", Scope::Conversation, self.recount_runs.clone()),
            ("recount_usage", Scope::Conversation, self.recount_usage.clone()),
            ("recount_tool_calls", Scope::Conversation, self.recount_tool_calls.clone()),
            ("scopes", Scope::All, self.scopes.clone()),
            ("scopes_long", Scope::All, self.scopes_long.clone()),
        ]
    }
}

/// Returns a recursive query of all scopes from `$1` on, with one search in the index for each
/// scope.
fn each_scope() -> String {
    let next = |from: &str| {
        format!(
            "SELECT c.scope, c.long_scope FROM {{schema}}.conversations AS c WHERE c.scope {from}
             ORDER BY c.scope, c.conversation LIMIT 1"
        )
    };
    format!(
        "WITH RECURSIVE found AS (
             ({first})
             UNION ALL
             SELECT n.scope, n.long_scope FROM found AS f CROSS JOIN LATERAL ({after}) AS n
         )",
        first = next(">= $1"),
        after = next("> f.scope"),
    )
}
