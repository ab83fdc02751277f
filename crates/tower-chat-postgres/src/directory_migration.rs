//! The migration that adds the directory to a database of an older release.

use crate::schema::Layout;

/// The SQL expression for the start of the transaction, in milliseconds since 1970. In the default
/// of a column, this is the transaction that inserts the row.
const NOW: &str = "floor(extract(epoch FROM now()) * 1000)::bigint";

/// The SQL expression for the creation time of a run, which its id contains if the id is a UUID of
/// version 7.
const RUN_CREATED_AT: &str = "CASE WHEN get_byte(m.run, 6) >> 4 = 7
        THEN (get_byte(m.run, 0)::bigint << 40) | (get_byte(m.run, 1)::bigint << 32)
            | (get_byte(m.run, 2)::bigint << 24) | (get_byte(m.run, 3)::bigint << 16)
            | (get_byte(m.run, 4)::bigint << 8) | get_byte(m.run, 5)::bigint
        ELSE {now} END";

/// Returns the statements that add the directory's columns to the table `conversations`, and the
/// index for lists of conversations.
///
/// The defaults of the columns are for conversations without messages, and for conversations that a
/// process of an older release creates. While a run is open, the columns `..._without_open` contain
/// the values without this run.
pub(crate) fn columns() -> String {
    format!(
        "ALTER TABLE {{schema}}.conversations
             ADD COLUMN created bigint NOT NULL DEFAULT {NOW}, -- milliseconds since 1970
             ADD COLUMN last_active bigint NOT NULL DEFAULT {NOW},
             ADD COLUMN active_hour bigint NOT NULL
                 GENERATED ALWAYS AS (last_active / {HOUR}) STORED,
             ADD COLUMN runs bigint NOT NULL DEFAULT 0,
             ADD COLUMN last_run bytea,
             ADD COLUMN runs_without_open bigint NOT NULL DEFAULT 0, -- while a run is open
             ADD COLUMN last_run_without_open bytea,
             ADD COLUMN mode text,
             ADD COLUMN title bytea,
             ADD COLUMN metadata text, -- JSON
             ADD COLUMN description_version bigint NOT NULL DEFAULT 0;
         CREATE INDEX conversations_by_activity
             ON {{schema}}.conversations (scope, active_hour);\n"
    )
}

/// The number of milliseconds in an hour, the unit of the index of conversations.
pub(crate) const HOUR: i64 = 3_600_000;

/// Returns the statements that fill the directory: the times from the ids of the runs, and the
/// counts from the messages and the record of tool calls. They ignore messages with a damaged run
/// id.
///
/// Policies also apply to the owner of the tables. The statements disable them temporarily, which
/// no other process sees, because the transaction has locked the tables.
pub(crate) fn fill(layout: &Layout) -> String {
    let tables = ["conversations", "messages", "tool_invocations"];
    let force = |word: &str| {
        if !layout.row_level_security {
            return String::new();
        }
        let alter = |table| format!("ALTER TABLE {{schema}}.{table} {word} ROW LEVEL SECURITY;\n");
        tables.map(alter).concat()
    };
    [force("NO FORCE"), filling(), force("FORCE")].concat()
}

fn filling() -> String {
    let run_created_at = RUN_CREATED_AT.replace("{now}", NOW);
    format!(
        "WITH numbered AS (
             SELECT m.scope, m.conversation, m.sequence, m.run,
                 lag(m.run) OVER (PARTITION BY m.scope, m.conversation ORDER BY m.sequence)
                     AS before
             FROM {{schema}}.messages AS m WHERE length(m.run) = 16
         ), turns AS (
             SELECT m.scope, m.conversation, m.sequence, m.run, {run_created_at} AS made
             FROM numbered AS m WHERE m.before IS DISTINCT FROM m.run
         ), found AS (
             SELECT t.scope, t.conversation, max(t.made) AS last_active, count(*) AS runs,
                 (array_agg(t.made ORDER BY t.sequence))[1] AS created,
                 (array_agg(t.run ORDER BY t.sequence DESC))[1] AS last_run,
                 count(*) FILTER (WHERE t.sequence <= c.visible) AS runs_without_open,
                 (array_agg(t.run ORDER BY t.sequence DESC)
                     FILTER (WHERE t.sequence <= c.visible))[1] AS last_run_without_open
             FROM turns AS t
             JOIN {{schema}}.conversations AS c
                 ON c.scope = t.scope AND c.conversation = t.conversation
             GROUP BY t.scope, t.conversation
         )
         UPDATE {{schema}}.conversations AS c SET created = f.created,
             last_active = f.last_active, runs = f.runs, last_run = f.last_run,
             runs_without_open = f.runs_without_open,
             last_run_without_open = f.last_run_without_open
         FROM found AS f WHERE c.scope = f.scope AND c.conversation = f.conversation;
         INSERT INTO {{schema}}.run_usage (scope, conversation, run, model, began, last,
             service_calls, tool_calls, input_tokens, cached_input_tokens, output_tokens,
             reasoning_tokens)
         SELECT m.scope, m.conversation, m.run, '', {run_created_at}, {run_created_at}, 0, sum((
                 SELECT count(*) FROM {{schema}}.tool_invocations AS t
                 WHERE t.scope = m.scope AND t.conversation = m.conversation
                     AND t.sequence = m.sequence
             )), 0, 0, 0, 0
         FROM {{schema}}.messages AS m WHERE length(m.run) = 16
         GROUP BY m.scope, m.conversation, m.run;\n"
    )
}

/// Returns the statements that add policies for queries of the directory over all scopes. These
/// policies apply to a transaction that has set `tower_chat.all_scopes`. The table of messages gets
/// no such policy.
pub(crate) fn policies() -> String {
    let policy = |table| {
        format!(
            "CREATE POLICY all_scopes ON {{schema}}.{table} FOR SELECT
             USING (current_setting('tower_chat.all_scopes', true) = 'on');\n"
        )
    };
    ["conversations", "tool_invocations", "open_runs", "run_usage"].map(policy).concat()
}
