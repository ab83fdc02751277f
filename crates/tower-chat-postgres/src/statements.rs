//! The SQL statements of a store, except the statements that create the tables.
//!
//! The first parameter of a statement is the scope. The second parameter is the id of the
//! conversation, except in statements that list the conversations of a scope.

use tower_chat_core::ToolStatus;

use crate::{
    directory_statements::DirectoryStatements, maintenance_statements::MaintenanceStatements,
    plain_append::PlainAppends, schema::Layout,
};

/// The columns of a row of the record from the index of the call on, in the order of
/// [`tool_row`](crate::tool_row).
const TOOL: &str = "t.call_index, t.round_index, t.call_id, t.name, t.status, t.result_sequence, \
    t.result_index, t.result, t.error, t.started, t.finished";

pub(crate) const OPEN_RUN: &str = "o.run, o.attempt, o.holder, o.opened, o.renewed, o.until, o.visible, \
    o.changes_service_id, o.service_id, o.partial_text";

/// The SQL expression for the sequence number of the last visible message. The table
/// `conversations` has the alias `c`.
pub(crate) const VISIBLE: &str = "coalesce(c.visible, c.last_sequence)";

/// The SQL expression for the full id of a conversation. The table `conversations` has the alias
/// `c`.
const WHOLE_ID: &str = "coalesce(c.long_conversation, c.conversation)";

/// The statements, in which `{schema}` is replaced with the schema's name.
#[derive(Debug)]
pub(crate) struct Statements {
    /// Calls the database function that stores any write.
    pub(crate) append: String,
    /// The statements for plain appends.
    pub(crate) plain_appends: PlainAppends,
    pub(crate) delete: String,
    /// Reads the row of a conversation, with its open run (the run that is not committed yet) and
    /// its last summary.
    pub(crate) conversation: String,
    /// Reads all summaries of a conversation.
    pub(crate) summaries: String,
    /// Reads the summary with an id.
    pub(crate) summary: String,
    pub(crate) add_summary: String,
    pub(crate) remove_summary: String,
    /// Reads the visible messages.
    pub(crate) messages: String,
    /// Reads the part of the visible messages that a value of the column `load_from` selects. If
    /// the conversation does not have this value, reads all visible messages. The parameters after
    /// the conversation's key are the value, the number of leading messages, and the sequence
    /// number of the last message that the part omits.
    pub(crate) messages_from: String,
    /// Reads the staged messages (those of the open run).
    pub(crate) staged_messages: String,
    pub(crate) staged_tools: String,
    pub(crate) pending_approvals: String,
    /// Reads the rows of the record of tool calls whose messages are visible.
    pub(crate) tools: String,
    pub(crate) copy_conversation: String,
    pub(crate) copy_messages: String,
    pub(crate) copy_tools: String,
    /// Locks the conversation's row before a change of several tables.
    pub(crate) lock_conversation: String,
    /// Reads the first message that is after a given position and belongs to another run than a
    /// given one.
    pub(crate) others_after: String,
    /// Reads the run of each message.
    pub(crate) runs: String,
    /// Reads the status of each recorded call, and the position of its result.
    pub(crate) calls: String,
    pub(crate) prune_messages: String,
    pub(crate) prune_tools: String,
    pub(crate) prune_summaries: String,
    pub(crate) prune_conversation: String,
    pub(crate) list: String,
    pub(crate) list_after: String,
    /// Lists conversations as the two statements above do, but sorts them by their full ids.
    pub(crate) list_long: String,
    pub(crate) list_long_after: String,
    pub(crate) open_runs: String,
    /// Reads the mark that records whether the store contains sealed (encrypted) data.
    pub(crate) holds_sealed: String,
    pub(crate) set_holds_sealed: String,
    pub(crate) directory: DirectoryStatements,
    pub(crate) maintenance: MaintenanceStatements,
    pub(crate) layout: Layout,
}

impl Statements {
    pub(crate) fn new(layout: &Layout) -> Self {
        let seen = |table: &str| {
            format!(
                "{table}.sequence <= (SELECT {VISIBLE} FROM {{schema}}.conversations AS c
                 WHERE c.scope = $1 AND c.conversation = $2)"
            )
        };
        let staged = |table: &str| {
            format!(
                "{table}.sequence > (SELECT c.visible FROM {{schema}}.conversations AS c
                 WHERE c.scope = $1 AND c.conversation = $2)"
            )
        };
        let messages = |condition: String| {
            format!(
                "SELECT m.sequence, m.run, m.run_index, m.body FROM {{schema}}.messages AS m
                 WHERE m.scope = $1 AND m.conversation = $2 AND {condition}
                 ORDER BY m.sequence"
            )
        };
        let tools = |condition: String| {
            format!(
                "SELECT t.sequence, {TOOL} FROM {{schema}}.tool_invocations AS t
                 WHERE t.scope = $1 AND t.conversation = $2 AND {condition}
                 ORDER BY t.sequence, t.call_index"
            )
        };
        let list = |start: &str, id: &str| {
            format!(
                "SELECT c.conversation, c.long_conversation FROM {{schema}}.conversations AS c
                 WHERE c.scope = $1 AND {id} {start}
                     AND (c.service_id IS NOT NULL OR {VISIBLE} > 0)
                 ORDER BY {id} LIMIT $3"
            )
        };
        let named = |sql: String| layout.with_schema(&sql);
        Self {
            append: named(append()),
            plain_appends: PlainAppends::new(layout),
            delete: named("SELECT {schema}.delete($1, $2)".to_owned()),
            conversation: named(format!(
                "SELECT c.incarnation, c.last_sequence, c.service_id, c.pruned, {OPEN_RUN},
                     c.rewrites, f.id, f.covers_to, c.load_from
                 FROM {{schema}}.conversations AS c
                 LEFT JOIN {{schema}}.open_runs AS o ON o.scope = $1 AND o.conversation = $2
                 LEFT JOIN LATERAL (
                     SELECT s.id, s.covers_to FROM {{schema}}.history_summaries AS s
                     WHERE s.scope = $1 AND s.conversation = $2
                     ORDER BY s.covers_to DESC LIMIT 1
                 ) AS f ON true
                 WHERE c.scope = $1 AND c.conversation = $2"
            )),
            summaries: named(
                "SELECT s.covers_to, s.id, s.body FROM {schema}.history_summaries AS s
                 WHERE s.scope = $1 AND s.conversation = $2 ORDER BY s.covers_to"
                    .to_owned(),
            ),
            summary: named(
                "SELECT s.covers_to, s.id, s.body FROM {schema}.history_summaries AS s
                 WHERE s.scope = $1 AND s.conversation = $2 AND s.id = $3"
                    .to_owned(),
            ),
            add_summary: named(
                "SELECT {schema}.add_summary($1, $2, $3, $4, $5, $6, $7, $8)".to_owned(),
            ),
            remove_summary: named("SELECT {schema}.remove_summary($1, $2, $3)".to_owned()),
            messages: named(messages(seen("m"))),
            messages_from: named(messages_from()),
            staged_messages: named(messages(staged("m"))),
            staged_tools: named(tools(staged("t"))),
            pending_approvals: named(format!(
                "SELECT m.sequence, m.run, m.run_index, m.body, t.call_index
                 FROM {{schema}}.tool_invocations AS t
                 JOIN {{schema}}.messages AS m
                     ON m.scope = $1 AND m.conversation = $2 AND m.sequence = t.sequence
                 WHERE t.scope = $1 AND t.conversation = $2 AND t.status = 'pending_approval'
                     AND {}
                 ORDER BY t.sequence, t.call_index",
                seen("t")
            )),
            tools: named(tools(seen("t"))),
            copy_conversation: named(
                "INSERT INTO {schema}.conversations (scope, conversation, long_scope,
                     long_conversation, incarnation, last_sequence, pruned, created, last_active,
                     mode, title, metadata, description_version, runs, last_run, parent_scope,
                     parent_conversation, parent_position, parent_key)
                 VALUES ($1, $2, $3, $4, $5, $6, $7, $8, $8, $9, $10, $11, $12, $13, $14, $15,
                     $16, $17, sha256($15::bytea || $16::bytea))
                 ON CONFLICT DO NOTHING"
                    .to_owned(),
            ),
            copy_messages: named(
                "INSERT INTO {schema}.messages (scope, conversation, sequence, run, run_index, body)
                 SELECT $1::bytea, $2::bytea, r.* FROM unnest($3::bigint[], $4::bytea[], $5::bigint[],
                     $6::text[]) AS r(sequence, run, run_index, body)"
                    .to_owned(),
            ),
            copy_tools: named(
                "INSERT INTO {schema}.tool_invocations (scope, conversation, sequence, call_index,
                     round_index, call_id, name, status, result_sequence, result_index, result,
                     error, started, finished)
                 SELECT $1::bytea, $2::bytea, r.* FROM unnest($3::bigint[], $4::bigint[], $5::bigint[],
                     $6::bytea[], $7::bytea[], $8::text[], $9::bigint[], $10::bigint[],
                     $11::text[], $12::bytea[], $13::bigint[], $14::bigint[]) AS r"
                    .to_owned(),
            ),
            lock_conversation: named(
                "SELECT c.incarnation FROM {schema}.conversations AS c
                 WHERE c.scope = $1 AND c.conversation = $2 FOR UPDATE"
                    .to_owned(),
            ),
            others_after: named(
                "SELECT m.sequence FROM {schema}.messages AS m
                 WHERE m.scope = $1 AND m.conversation = $2 AND m.sequence > $3 AND m.run <> $4
                     AND EXISTS (SELECT 1 FROM {schema}.open_runs AS o
                         WHERE o.scope = $1 AND o.conversation = $2 AND o.run = $4
                             AND o.visible = $3)
                 ORDER BY m.sequence LIMIT 1"
                    .to_owned(),
            ),
            runs: named(
                "SELECT m.sequence, m.run FROM {schema}.messages AS m
                 WHERE m.scope = $1 AND m.conversation = $2 ORDER BY m.sequence"
                    .to_owned(),
            ),
            calls: named(
                "SELECT t.sequence, t.call_index, t.status, t.result_sequence
                 FROM {schema}.tool_invocations AS t
                 WHERE t.scope = $1 AND t.conversation = $2"
                    .to_owned(),
            ),
            prune_messages: named(prune("messages", "m")),
            prune_tools: named(prune("tool_invocations", "t")),
            prune_summaries: named(
                "DELETE FROM {schema}.history_summaries AS s
                 WHERE s.scope = $1 AND s.conversation = $2 AND s.covers_to <= $3
                     AND s.covers_to < (
                         SELECT max(f.covers_to) FROM {schema}.history_summaries AS f
                         WHERE f.scope = $1 AND f.conversation = $2)"
                    .to_owned(),
            ),
            prune_conversation: named(
                "UPDATE {schema}.conversations AS c SET pruned = $3, incarnation = $4
                 WHERE c.scope = $1 AND c.conversation = $2"
                    .to_owned(),
            ),
            list: named(list(">= $2", "c.conversation")),
            list_after: named(list("> $2", "c.conversation")),
            list_long: named(list(">= $2", WHOLE_ID)),
            list_long_after: named(list("> $2", WHOLE_ID)),
            open_runs: named(
                "SELECT coalesce(o.long_conversation, o.conversation)
                 FROM {schema}.open_runs AS o
                 WHERE o.scope = $1 AND ($2::bytea IS NULL
                     OR coalesce(o.long_conversation, o.conversation) > $2)
                 ORDER BY coalesce(o.long_conversation, o.conversation) LIMIT $3"
                    .to_owned(),
            ),
            holds_sealed: named("SELECT holds_sealed FROM {schema}.store_marks".to_owned()),
            set_holds_sealed: named(
                "UPDATE {schema}.store_marks SET holds_sealed = true WHERE NOT holds_sealed"
                    .to_owned(),
            ),
            directory: DirectoryStatements::new(layout),
            maintenance: MaintenanceStatements::new(layout),
            layout: layout.clone(),
        }
    }

    /// Returns the statement that selects rows of the record, and the messages to which they refer.
    /// The parameters are the scope, the id of the conversation (null for a whole scope), the tool,
    /// the status, the bounds of the start time, the sequence numbers of messages if the query
    /// names any, and the limit.
    pub(crate) fn invocations(&self, extent: RecordExtent) -> String {
        let sql = format!(
            "WITH asked AS MATERIALIZED (
                 SELECT t.*, c.long_conversation {clauses}
                 ORDER BY coalesce(c.long_conversation, c.conversation), t.sequence, t.call_index
                 LIMIT {limit}
             ), places AS (
                 SELECT a.conversation, a.sequence FROM asked AS a
                 UNION SELECT a.conversation, a.result_sequence FROM asked AS a
             )
             SELECT true, t.conversation, t.long_conversation, t.sequence, NULL::bytea,
                 NULL::bigint, NULL::text, {TOOL}
             FROM asked AS t
             UNION ALL
             SELECT false, m.conversation, NULL, m.sequence, m.run, m.run_index, m.body,
                 NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL
             FROM {{schema}}.messages AS m
             JOIN places AS p ON m.conversation = p.conversation AND m.sequence = p.sequence
             WHERE m.scope = $1 {of_message}",
            clauses = extent.clauses(),
            limit = if extent.of_messages { "$8" } else { "$7" },
            of_message = extent.in_conversation("m"),
        );
        self.layout.with_schema(&sql)
    }

    /// Returns the statement that counts rows of the record per tool, day and duration, with the
    /// parameters of [`invocations`](Self::invocations) except for the limit.
    pub(crate) fn tool_totals(&self, extent: RecordExtent) -> String {
        let open: Vec<_> = ToolStatus::ALL
            .into_iter()
            .filter(|status| status.is_open())
            .map(|status| format!("'{status}'"))
            .collect();
        // Durations are rounded to two significant digits, as in `CallTimes`, to bound the number
        // of groups.
        let steps: Vec<_> = (2..18)
            .map(|digits| format!("WHEN taken < 1e{digits} THEN 1e{}", digits - 2))
            .collect();
        let sql = format!(
            "WITH calls AS (
                 SELECT t.name, t.status, floor(t.started::float8 / 86400000) AS day,
                     CASE WHEN t.status = '{pending}' AND t.result IS NULL
                         AND t.result_sequence IS NULL THEN NULL
                     WHEN t.finished >= t.started
                     THEN t.finished::float8 - t.started::float8
                     WHEN t.finished < t.started THEN 0::float8 END AS taken
                 {clauses}
             ), rounded AS (
                 SELECT *, (CASE {steps} ELSE 1e16 END)::float8 AS step FROM calls
             )
             SELECT t.name, count(*), count(*) FILTER (WHERE t.status = '{error}'),
                 count(*) FILTER (WHERE t.status IN ({open})), coalesce(sum(t.taken), 0),
                 floor(t.taken / t.step) * t.step, t.day
             FROM rounded AS t
             GROUP BY t.name, t.day, floor(t.taken / t.step) * t.step ORDER BY t.name",
            steps = steps.join(" "),
            error = ToolStatus::Error,
            open = open.join(", "),
            // In the row of a call in progress, `finished` contains the time until which no other
            // process may start it.
            pending = ToolStatus::PendingApproval,
            clauses = extent.clauses(),
        );
        self.layout.with_schema(&sql)
    }

    /// Returns every statement, with its name and the rows that it may access.
    #[cfg(test)]
    pub(crate) fn all(&self) -> Vec<(&'static str, Scope, String)> {
        let mut all = vec![
            ("append", Scope::Conversation, self.append.clone()),
            ("delete", Scope::Conversation, self.delete.clone()),
            ("conversation", Scope::Conversation, self.conversation.clone()),
            ("summaries", Scope::Conversation, self.summaries.clone()),
            ("summary", Scope::Conversation, self.summary.clone()),
            ("add_summary", Scope::Conversation, self.add_summary.clone()),
            ("remove_summary", Scope::Conversation, self.remove_summary.clone()),
            ("messages", Scope::Conversation, self.messages.clone()),
            ("messages_from", Scope::Conversation, self.messages_from.clone()),
            ("staged_messages", Scope::Conversation, self.staged_messages.clone()),
            ("staged_tools", Scope::Conversation, self.staged_tools.clone()),
            ("pending_approvals", Scope::Conversation, self.pending_approvals.clone()),
            ("tools", Scope::Conversation, self.tools.clone()),
            ("copy_conversation", Scope::Conversation, self.copy_conversation.clone()),
            ("copy_messages", Scope::Conversation, self.copy_messages.clone()),
            ("copy_tools", Scope::Conversation, self.copy_tools.clone()),
            ("lock_conversation", Scope::Conversation, self.lock_conversation.clone()),
            ("others_after", Scope::Conversation, self.others_after.clone()),
            ("runs", Scope::Conversation, self.runs.clone()),
            ("calls", Scope::Conversation, self.calls.clone()),
            ("prune_messages", Scope::Conversation, self.prune_messages.clone()),
            ("prune_tools", Scope::Conversation, self.prune_tools.clone()),
            ("prune_summaries", Scope::Conversation, self.prune_summaries.clone()),
            ("prune_conversation", Scope::Conversation, self.prune_conversation.clone()),
            ("list", Scope::One, self.list.clone()),
            ("list_after", Scope::One, self.list_after.clone()),
            ("list_long", Scope::One, self.list_long.clone()),
            ("list_long_after", Scope::One, self.list_long_after.clone()),
            ("open_runs", Scope::One, self.open_runs.clone()),
        ];
        all.extend(self.directory.all());
        all.extend(self.maintenance.all());
        for sql in self.plain_appends.all() {
            all.push(("plain_append", Scope::Conversation, sql.to_owned()));
        }
        for of_conversation in [true, false] {
            let scope = if of_conversation { Scope::Conversation } else { Scope::One };
            for of_messages in [true, false] {
                let extent = RecordExtent { of_conversation, of_messages };
                all.push(("invocations", scope, self.invocations(extent)));
                all.push(("tool_totals", scope, self.tool_totals(extent)));
            }
        }
        all
    }
}

/// The rows that a statement may access.
#[cfg(test)]
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Scope {
    Conversation,
    /// The rows of one scope.
    One,
    /// The rows of all scopes. Only statements of the directory may access the rows of all scopes.
    All,
}

/// The kind of a query of the record, which determines its statement.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct RecordExtent {
    /// Whether the query names a conversation.
    pub(crate) of_conversation: bool,
    /// Whether the query names messages.
    pub(crate) of_messages: bool,
}

impl RecordExtent {
    /// Returns the clauses `FROM` and `WHERE`, with the alias `t` for the rows, and `c` for their
    /// conversations.
    fn clauses(self) -> String {
        let of_messages = if self.of_messages { "AND t.sequence = ANY($7)" } else { "" };
        format!(
            "FROM {{schema}}.conversations AS c
             JOIN {{schema}}.tool_invocations AS t ON t.conversation = c.conversation
             WHERE c.scope = $1 AND t.scope = $1 {c} {t} AND t.sequence <= {VISIBLE}
                 AND ($3::bytea IS NULL OR t.name = $3)
                 AND ($4::text IS NULL OR t.status = $4)
                 AND ($5::bigint IS NULL OR t.started >= $5)
                 AND ($6::bigint IS NULL OR t.started < $6)
                 {of_messages}",
            c = self.in_conversation("c"),
            t = self.in_conversation("t"),
        )
    }

    fn in_conversation(self, table: &str) -> String {
        if self.of_conversation {
            format!("AND {table}.conversation = $2")
        } else {
            // This condition is always true. PostgreSQL requires that a statement uses all its
            // parameters.
            "AND $2::bytea IS NULL".to_owned()
        }
    }
}

fn prune(table: &str, alias: &str) -> String {
    format!(
        "DELETE FROM {{schema}}.{table} AS {alias}
         WHERE {alias}.scope = $1 AND {alias}.conversation = $2 AND {alias}.sequence <= $3"
    )
}

/// Returns the statement that reads a part of the visible messages. The server evaluates the
/// subqueries once, and then reads two ranges of the primary key.
fn messages_from() -> String {
    let bound = |of_part: &str, otherwise: &str| {
        format!(
            "(SELECT CASE WHEN c.load_from = $3::text
                     AND $5::bigint BETWEEN c.pruned AND {VISIBLE}
                 THEN {of_part} ELSE {otherwise} END
             FROM {{schema}}.conversations AS c
             WHERE c.scope = $1 AND c.conversation = $2)"
        )
    };
    let messages = |condition: String| {
        format!(
            "SELECT m.sequence, m.run, m.run_index, m.body FROM {{schema}}.messages AS m
             WHERE m.scope = $1 AND m.conversation = $2 AND {condition}"
        )
    };
    let leading = messages(format!("m.sequence <= {}", bound("$4::bigint", "0")));
    let rest = messages(format!(
        "m.sequence > {} AND m.sequence <= {}",
        bound("$5::bigint", "0"),
        bound(VISIBLE, VISIBLE)
    ));
    format!("{leading} UNION ALL {rest} ORDER BY sequence")
}

fn append() -> String {
    let parameters: Vec<_> = (1..=52).map(|number| format!("${number}")).collect();
    format!("SELECT * FROM {{schema}}.append({})", parameters.join(", "))
}
