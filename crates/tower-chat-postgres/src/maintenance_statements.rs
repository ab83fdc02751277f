//! The statements for whole stores and for repairs. The first parameter is the scope, the second
//! the conversation. Statements that list scopes have neither.

use crate::schema::Layout;
#[cfg(test)]
use crate::statements::Scope;

/// The statements, with the schema's name inserted.
#[derive(Debug)]
pub(crate) struct MaintenanceStatements {
    pub(crate) scopes: String,
    /// Like `scopes`, for scopes of any length.
    pub(crate) scopes_long: String,
    pub(crate) rewrite_message: String,
    pub(crate) remove_tool: String,
    pub(crate) set_incarnation: String,
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
            set_incarnation: named(
                "UPDATE {schema}.conversations AS c SET incarnation = $3
                 WHERE c.scope = $1 AND c.conversation = $2"
                    .to_owned(),
            ),
        }
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<(&'static str, Scope, String)> {
        vec![
            ("rewrite_message", Scope::Conversation, self.rewrite_message.clone()),
            ("remove_tool", Scope::Conversation, self.remove_tool.clone()),
            ("set_incarnation", Scope::Conversation, self.set_incarnation.clone()),
            ("scopes", Scope::All, self.scopes.clone()),
            ("scopes_long", Scope::All, self.scopes_long.clone()),
        ]
    }
}

/// Returns the query of each scope from `$1` on, in the order of the stored keys. Each scope is one
/// step in the index, however many conversations it has.
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
