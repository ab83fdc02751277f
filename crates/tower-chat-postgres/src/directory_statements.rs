//! The statements of the directory (descriptions, times, counts and usage of conversations). The
//! first parameter is the scope, and the second parameter is the id of the conversation. A
//! parameter is null if the query does not name a scope or a conversation.

use tower_chat_core::store::UsageSum;

#[cfg(test)]
use crate::statements::Scope;
use crate::{
    activity::COUNTS,
    schema::Layout,
    statements::{OPEN_RUN, VISIBLE},
};

/// The statements, in which `{schema}` is replaced with the schema's name.
#[derive(Debug)]
pub(crate) struct DirectoryStatements {
    pub(crate) summary: String,
    /// Reads a page of the conversations of one scope.
    pub(crate) list: String,
    /// Reads a page of the conversations of all scopes.
    pub(crate) list_all: String,
    /// Reads a page of the branches of a conversation in one scope.
    pub(crate) branches: String,
    /// Reads a page of the branches of a conversation in all scopes.
    pub(crate) branches_of_all: String,
    pub(crate) runs: String,
    pub(crate) last_messages: String,
    pub(crate) describe: String,
    /// Reads the columns of the directory that are copied when a conversation is copied.
    pub(crate) described: String,
    layout: Layout,
}

/// The rows that a query may access.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum QueryExtent {
    Conversation,
    Scope,
    All,
}

impl QueryExtent {
    /// Returns the SQL condition that limits a table to the rows that the query may access.
    fn of(self, table: &str) -> String {
        match self {
            Self::Conversation => format!("{table}.scope = $1 AND {table}.conversation = $2"),
            Self::Scope => format!("{table}.scope = $1 AND $2::bytea IS NULL"),
            Self::All => "$1::bytea IS NULL AND $2::bytea IS NULL".to_owned(),
        }
    }

    /// Returns the SQL condition that limits a table to the rows of the conversation `c`.
    fn joined(self, table: &str) -> String {
        match self {
            Self::Conversation => self.of(table),
            Self::Scope => format!("{table}.scope = $1 AND {table}.conversation = c.conversation"),
            Self::All => {
                format!("{table}.scope = c.scope AND {table}.conversation = c.conversation")
            }
        }
    }
}

/// The grouping of usage. Each variant determines the columns that identify a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Grouping {
    Run,
    Conversation,
    Scope,
    Model,
    Day,
}

const SCOPE: &str = "coalesce(c.long_scope, c.scope)";
const ID: &str = "coalesce(c.long_conversation, c.conversation)";
const MODEL: &str = "coalesce(u.long_model, u.model)";

/// Returns the SQL expressions for the sums of the counts. A negative count is added as 0, and a
/// sum is at most [`UsageSum::LARGEST`].
fn sums() -> String {
    let largest = UsageSum::LARGEST;
    let sum = |count: &str| {
        format!("least(coalesce(sum(greatest(u.{count}, 0)), 0), {largest})::bigint AS {count}")
    };
    // The cost must stay null if it is unknown, and `greatest` and `least` ignore null.
    format!(
        "{counts}, CASE WHEN count(u.cost_nanos) > 0 THEN
             least(sum(greatest(u.cost_nanos, 0)), {largest})::bigint END AS cost_nanos",
        counts = COUNTS.map(sum).join(", "),
    )
}

/// The conditions, the order and the limit of a page. The parameter for an upper bound of times may
/// be null.
const PAGE: &str = "AND c.active_hour BETWEEN $4 AND $5
    AND c.last_active >= $6 AND (c.last_active < $7) IS NOT FALSE
    AND c.created >= $8 AND (c.created < $9) IS NOT FALSE
    AND ($10::bigint IS NULL OR c.last_active < $10
        OR c.last_active = $10 AND ({scope}, {id}) > ($11::bytea, $12::bytea))
    {selected}
    ORDER BY c.active_hour DESC, c.last_active DESC, {scope}, {id}
    LIMIT $3";

/// The condition that selects the branches of one conversation. The index `branches` contains the
/// scope and the key of the parent.
const BRANCHES: &str = "AND c.parent_key = sha256($13::bytea || $14::bytea)
    AND c.parent_scope = $13 AND c.parent_conversation = $14";

/// Returns the statement that reads the summaries of conversations. `selected` is a further
/// condition, or empty.
fn summaries(extent: QueryExtent, selected: &str) -> String {
    let page = match extent {
        QueryExtent::Conversation => String::new(),
        QueryExtent::Scope | QueryExtent::All => {
            PAGE.replace("{scope}", SCOPE).replace("{id}", ID).replace("{selected}", selected)
        }
    };
    let order = match extent {
        QueryExtent::Conversation => String::new(),
        QueryExtent::Scope | QueryExtent::All => {
            format!("ORDER BY c.active_hour DESC, c.last_active DESC, {SCOPE}, {ID}")
        }
    };
    let counts = COUNTS.map(|count| format!("used.{count}")).join(", ");
    format!(
        "WITH found AS MATERIALIZED (
             SELECT c.* FROM {{schema}}.conversations AS c WHERE {asked} {page}
         )
         SELECT c.incarnation, c.last_sequence, NULL::bytea, c.pruned, {open_run},
             {SCOPE}, {ID}, c.created, c.last_active, c.runs, c.mode, c.title, c.metadata,
             c.description_version, c.parent_scope, c.parent_conversation, c.parent_position,
             EXISTS (
                 SELECT 1 FROM {{schema}}.tool_invocations AS t
                 WHERE {of_tool} AND t.status = 'pending_approval' AND t.sequence <= {VISIBLE}
             ), {counts}, used.cost_nanos
         FROM found AS c
         LEFT JOIN {{schema}}.open_runs AS o ON {of_open_run}
         LEFT JOIN LATERAL (
             SELECT {sums} FROM {{schema}}.run_usage AS u WHERE {of_usage}
         ) AS used ON true
         {order}",
        asked = extent.of("c"),
        open_run = OPEN_RUN.replace("o.partial_text", "NULL::bytea"),
        of_tool = extent.joined("t"),
        of_open_run = extent.joined("o"),
        sums = sums(),
        of_usage = extent.joined("u"),
    )
}

impl DirectoryStatements {
    pub(crate) fn new(layout: &Layout) -> Self {
        let named = |sql: String| layout.with_schema(&sql);
        Self {
            summary: named(summaries(QueryExtent::Conversation, "")),
            list: named(summaries(QueryExtent::Scope, "")),
            list_all: named(summaries(QueryExtent::All, "")),
            branches: named(summaries(QueryExtent::Scope, BRANCHES)),
            branches_of_all: named(summaries(QueryExtent::All, BRANCHES)),
            runs: named(format!(
                "SELECT u.run, u.mode, u.began, u.last, {MODEL}, o.run IS NOT NULL, {counts},
                     u.cost_nanos
                 FROM {{schema}}.run_usage AS u
                 LEFT JOIN {{schema}}.open_runs AS o
                     ON o.scope = $1 AND o.conversation = $2 AND o.run = u.run
                 WHERE u.scope = $1 AND u.conversation = $2 AND u.run IN (
                     SELECT DISTINCT r.run FROM {{schema}}.run_usage AS r
                     WHERE r.scope = $1 AND r.conversation = $2
                         AND ($3::bytea IS NULL OR r.run < $3)
                     ORDER BY r.run DESC LIMIT $4
                 )
                 ORDER BY u.run DESC, {MODEL}",
                counts = COUNTS.map(|count| format!("u.{count}")).join(", "),
            )),
            last_messages: named(format!(
                "SELECT m.sequence, m.run, m.run_index, m.body FROM {{schema}}.messages AS m
                 WHERE m.scope = $1 AND m.conversation = $2
                     AND ($3::bigint IS NULL OR m.sequence < $3)
                     AND m.sequence <= (SELECT {VISIBLE} FROM {{schema}}.conversations AS c
                         WHERE c.scope = $1 AND c.conversation = $2)
                 ORDER BY m.sequence DESC LIMIT $4"
            )),
            describe: named("SELECT {schema}.describe($1, $2, $3, $4, $5)".to_owned()),
            described: named(
                "SELECT c.mode, c.title, c.metadata, c.description_version,
                     CASE WHEN c.visible IS NULL THEN c.runs ELSE c.runs_without_open END,
                     CASE WHEN c.visible IS NULL THEN c.last_run
                         ELSE c.last_run_without_open END
                 FROM {schema}.conversations AS c
                 WHERE c.scope = $1 AND c.conversation = $2"
                    .to_owned(),
            ),
            layout: layout.clone(),
        }
    }

    /// Returns the statement that computes sums of the usage in a range of time. The third
    /// parameter is the start of the range, and the fourth parameter its end; both may be null. The
    /// first columns of a row are the scope, the id, the run, the model and the day of the group. A
    /// column that does not identify the group is null. The next columns are the number of runs and
    /// the counts.
    pub(crate) fn usage(&self, extent: QueryExtent, grouping: Grouping) -> String {
        let mut columns =
            ["NULL::bytea", "NULL::bytea", "NULL::bytea", "NULL::bytea", "NULL::bigint"];
        let [scope, id, run, model, day] = &mut columns;
        match grouping {
            Grouping::Run => (*scope, *id, *run) = (SCOPE, ID, "u.run"),
            Grouping::Conversation => (*scope, *id) = (SCOPE, ID),
            Grouping::Scope => *scope = SCOPE,
            Grouping::Model => *model = MODEL,
            Grouping::Day => *day = "floor(u.began / 86400000.0)::bigint",
        }
        let of_something = COUNTS
            .iter()
            .chain(&["cost_nanos"])
            .map(|count| format!("u.{count} > 0"))
            .collect::<Vec<_>>();
        let sql = format!(
            "SELECT {columns}, count(DISTINCT (u.scope, u.conversation, u.run)), {sums}
             FROM {{schema}}.conversations AS c
             JOIN {{schema}}.run_usage AS u ON {of_usage}
             WHERE {asked} AND u.began >= $3 AND (u.began < $4) IS NOT FALSE AND ({of_something})
             GROUP BY 1, 2, 3, 4, 5",
            columns = columns.join(", "),
            sums = sums(),
            of_usage = extent.joined("u"),
            asked = extent.of("c"),
            of_something = of_something.join(" OR "),
        );
        self.layout.with_schema(&sql)
    }

    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<(&'static str, Scope, String)> {
        let mut all = vec![
            ("summary", Scope::Conversation, self.summary.clone()),
            ("runs", Scope::Conversation, self.runs.clone()),
            ("last_messages", Scope::Conversation, self.last_messages.clone()),
            ("describe", Scope::Conversation, self.describe.clone()),
            ("described", Scope::Conversation, self.described.clone()),
            ("directory", Scope::One, self.list.clone()),
            ("directory_of_all", Scope::All, self.list_all.clone()),
            ("branches", Scope::One, self.branches.clone()),
            ("branches_of_all", Scope::All, self.branches_of_all.clone()),
        ];
        for (extent, scope) in [
            (QueryExtent::Conversation, Scope::Conversation),
            (QueryExtent::Scope, Scope::One),
            (QueryExtent::All, Scope::All),
        ] {
            let groupings = [
                Grouping::Run,
                Grouping::Conversation,
                Grouping::Scope,
                Grouping::Model,
                Grouping::Day,
            ];
            all.extend(groupings.map(|grouping| ("usage", scope, self.usage(extent, grouping))));
        }
        all
    }
}
