//! The database functions that change a conversation. Each call is one round trip and one
//! transaction, and changes one conversation.

use crate::activity;

/// The statement that sets the scope for the policies of the tables, if there are any.
pub(crate) const NAME_SCOPE: &str =
    "PERFORM set_config('tower_chat.scope', '\\x' || encode(p_scope, 'hex'), true);";

/// Stores a write, or returns the reason why the write is refused.
///
/// Most writes append messages to a conversation without an open run (a run that is not committed
/// yet), and claim no tool calls for execution. For such a write the function first executes one
/// `UPDATE`, which changes the conversation's row if the conversation is at the expected revision.
///
/// For all other writes, and if the `UPDATE` finds no row, the function locks the conversation's
/// row and checks the write. The function changes nothing before all checks have passed, except
/// that it inserts the row of a new conversation.
const APPEND: &str = "
CREATE OR REPLACE FUNCTION {schema}.append(
    p_scope bytea, p_conversation bytea, p_long_scope bytea, p_long_conversation bytea,
    p_expected_incarnation bigint, p_expected_sequence bigint,
    p_incarnation bigint, p_sequence bigint,
    p_run bytea, p_index bigint, p_bodies text[],
    p_sequences bigint[], p_call_indexes bigint[], p_round_indexes bigint[], p_call_ids bytea[],
    p_names bytea[], p_statuses text[], p_result_sequences bigint[], p_result_indexes bigint[],
    p_results text[], p_errors bytea[], p_started bigint[], p_finished bigint[],
    p_claim_sequences bigint[], p_claim_indexes bigint[], p_claim_started bigint[],
    p_changes_service_id boolean, p_service_id bytea,
    p_staged boolean, p_attempt bigint, p_holder bigint, p_renewed bigint, p_until bigint,
    p_close text, p_visible bigint, p_partial_text bytea,
    p_at bigint, p_made bigint, p_mode text, p_models bytea[], p_long_models bytea[],
    p_service_calls bigint[], p_tool_calls bigint[], p_input_tokens bigint[],
    p_cached_input_tokens bigint[], p_output_tokens bigint[], p_reasoning_tokens bigint[],
    p_cost_nanos bigint[],
    p_parent_scope bytea, p_parent_conversation bytea, p_parent_position bigint,
    p_load_from text,
    OUT o_outcome text, OUT o_incarnation bigint, OUT o_sequence bigint, OUT o_run bytea,
    OUT o_claim_sequence bigint, OUT o_claim_index bigint
) LANGUAGE plpgsql AS $append$
#variable_conflict use_column
DECLARE
    v_found {schema}.conversations%ROWTYPE;
    v_open {schema}.open_runs%ROWTYPE;
    v_present boolean;
    v_is_open boolean;
    v_ok boolean;
    v_is_counted boolean := false;
BEGIN
    {name_scope}
    IF NOT p_staged AND p_expected_incarnation <> 0 AND p_sequence > p_expected_sequence
        AND cardinality(p_claim_sequences) = 0 THEN
        UPDATE {schema}.conversations AS c SET last_sequence = p_sequence,
            service_id = CASE WHEN p_changes_service_id THEN p_service_id ELSE c.service_id END,
            load_from = coalesce(p_load_from, c.load_from),
            {counted}
        WHERE c.scope = p_scope AND c.conversation = p_conversation
            AND c.incarnation = p_expected_incarnation
            AND c.last_sequence = p_expected_sequence AND c.visible IS NULL;
        v_is_counted := FOUND;
    END IF;
    WHILE NOT v_is_counted LOOP
        SELECT c.* INTO v_found FROM {schema}.conversations AS c
        WHERE c.scope = p_scope AND c.conversation = p_conversation FOR UPDATE;
        v_present := FOUND;
        o_incarnation := coalesce(v_found.incarnation, 0);
        o_sequence := coalesce(v_found.last_sequence, 0);
        v_is_open := v_found.visible IS NOT NULL;
        IF v_is_open THEN
            SELECT o.* INTO v_open FROM {schema}.open_runs AS o
            WHERE o.scope = p_scope AND o.conversation = p_conversation;
            o_run := v_open.run;
        END IF;

        IF o_incarnation <> p_expected_incarnation OR o_sequence <> p_expected_sequence THEN
            v_ok := o_incarnation = p_incarnation;
            IF v_ok AND cardinality(p_bodies) = 0 THEN
                v_ok := o_sequence = p_sequence;
            ELSIF v_ok THEN
                v_ok := EXISTS (
                    SELECT 1 FROM {schema}.messages AS m
                    WHERE m.scope = p_scope AND m.conversation = p_conversation
                        AND m.sequence = p_expected_sequence + 1
                        AND m.run = p_run AND m.run_index = p_index
                );
            END IF;
            o_outcome := CASE WHEN v_ok THEN 'stored' ELSE 'conflict' END;
            RETURN;
        END IF;

        IF NOT v_is_open AND p_close = 'commit'
            AND o_incarnation = p_incarnation AND o_sequence = p_sequence THEN
            o_outcome := 'stored';
            RETURN;
        END IF;

        IF v_is_open THEN
            v_ok := p_staged AND v_open.run = p_run
                AND (p_attempt > v_open.attempt
                    OR (p_attempt = v_open.attempt AND p_holder = v_open.holder))
                AND (p_close IS DISTINCT FROM 'discard' OR p_visible = v_found.visible);
        ELSE
            v_ok := NOT p_staged OR p_close IS DISTINCT FROM 'discard';
        END IF;
        IF NOT v_ok THEN
            o_outcome := 'conflict';
            RETURN;
        END IF;

        IF cardinality(p_claim_sequences) > 0 THEN
            SELECT q.sequence, q.call_index INTO o_claim_sequence, o_claim_index
            FROM unnest(p_claim_sequences, p_claim_indexes, p_claim_started) WITH ORDINALITY
                AS q(sequence, call_index, started, place)
            LEFT JOIN {schema}.tool_invocations AS t
                ON t.scope = p_scope AND t.conversation = p_conversation
                AND t.sequence = q.sequence AND t.call_index = q.call_index
                AND t.sequence <= coalesce(v_found.visible, o_sequence)
            WHERE CASE WHEN t.sequence IS NULL THEN q.started IS NOT NULL
                ELSE t.status <> 'pending_approval' OR t.started IS DISTINCT FROM q.started END
            ORDER BY q.place LIMIT 1;
            IF FOUND THEN
                o_outcome := 'claimed';
                RETURN;
            END IF;
        END IF;

        EXIT WHEN v_present;
        INSERT INTO {schema}.conversations
            (scope, conversation, long_scope, long_conversation, incarnation, last_sequence,
            created, last_active, parent_scope, parent_conversation, parent_position,
            parent_key)
        VALUES (p_scope, p_conversation, p_long_scope, p_long_conversation, p_incarnation, 0,
            p_made, p_made, p_parent_scope, p_parent_conversation, p_parent_position,
            sha256(p_parent_scope || p_parent_conversation))
        ON CONFLICT DO NOTHING;
        -- If another writer has inserted the row first, the next pass reads it.
        EXIT WHEN FOUND;
    END LOOP;

    IF p_close IS DISTINCT FROM 'discard' AND cardinality(p_bodies) > 0 THEN
        INSERT INTO {schema}.messages (scope, conversation, sequence, run, run_index, body)
        SELECT p_scope, p_conversation, p_expected_sequence + b.place, p_run,
            p_index + b.place - 1, b.body
        FROM unnest(p_bodies) WITH ORDINALITY AS b(body, place);
    END IF;

    IF cardinality(p_sequences) > 0 THEN
        INSERT INTO {schema}.tool_invocations AS t (scope, conversation, sequence, call_index,
            round_index, call_id, name, status, result_sequence, result_index, result, error,
            started, finished)
        SELECT p_scope, p_conversation, r.*
        FROM unnest(p_sequences, p_call_indexes, p_round_indexes, p_call_ids, p_names, p_statuses,
            p_result_sequences, p_result_indexes, p_results, p_errors, p_started, p_finished)
            AS r(sequence, call_index, round_index, call_id, name, status, result_sequence,
                result_index, result, error, started, finished)
        WHERE r.sequence <= p_sequence AND r.sequence > (
            SELECT c.pruned FROM {schema}.conversations AS c
            WHERE c.scope = p_scope AND c.conversation = p_conversation)
        ON CONFLICT (scope, conversation, sequence, call_index) DO UPDATE SET
            round_index = excluded.round_index, call_id = excluded.call_id, name = excluded.name,
            status = excluded.status, result_sequence = excluded.result_sequence,
            result_index = excluded.result_index, result = excluded.result, error = excluded.error,
            started = excluded.started, finished = excluded.finished;
    END IF;

    IF p_at IS NOT NULL THEN
        INSERT INTO {schema}.run_usage AS u {usage_columns}
        SELECT p_scope, p_conversation, p_run, r.model, r.long_model, p_mode, p_made, p_at,
            r.service_calls, r.tool_calls, r.input_tokens, r.cached_input_tokens,
            r.output_tokens, r.reasoning_tokens, r.cost_nanos
        FROM unnest(p_models, p_long_models, p_service_calls, p_tool_calls, p_input_tokens,
            p_cached_input_tokens, p_output_tokens, p_reasoning_tokens, p_cost_nanos)
            AS r(model, long_model, service_calls, tool_calls, input_tokens,
                cached_input_tokens, output_tokens, reasoning_tokens, cost_nanos)
        {add_usage_on_conflict};
    END IF;

    IF NOT p_staged THEN
        IF NOT v_is_counted AND (p_sequence <> o_sequence OR p_changes_service_id
            OR p_load_from IS NOT NULL OR p_at IS NOT NULL) THEN
            UPDATE {schema}.conversations AS c SET last_sequence = p_sequence,
                service_id = CASE WHEN p_changes_service_id THEN p_service_id
                    ELSE c.service_id END,
                load_from = coalesce(p_load_from, c.load_from),
                {counted}
            WHERE c.scope = p_scope AND c.conversation = p_conversation;
        END IF;
    ELSIF p_close IS NULL THEN
        INSERT INTO {schema}.open_runs AS o (scope, conversation, long_conversation, run, attempt,
            holder, opened, renewed, until, visible, changes_service_id, service_id, partial_text)
        VALUES (p_scope, p_conversation, p_long_conversation, p_run, p_attempt, p_holder,
            p_renewed, p_renewed, p_until, p_expected_sequence, p_changes_service_id,
            p_service_id, nullif(p_partial_text, ''))
        ON CONFLICT (scope, conversation) DO UPDATE SET
            attempt = excluded.attempt, holder = excluded.holder, renewed = excluded.renewed,
            until = excluded.until,
            changes_service_id = o.changes_service_id OR excluded.changes_service_id,
            service_id = CASE WHEN excluded.changes_service_id THEN excluded.service_id
                ELSE o.service_id END,
            partial_text = CASE WHEN p_partial_text IS NULL THEN o.partial_text
                ELSE excluded.partial_text END;
        UPDATE {schema}.conversations AS c SET incarnation = p_incarnation,
            last_sequence = p_sequence, visible = coalesce(c.visible, p_expected_sequence),
            runs_without_open = CASE WHEN v_is_open THEN c.runs_without_open ELSE c.runs END,
            last_run_without_open =
                CASE WHEN v_is_open THEN c.last_run_without_open ELSE c.last_run END,
            load_from = coalesce(p_load_from, c.load_from),
            {counted}
        WHERE c.scope = p_scope AND c.conversation = p_conversation;
    ELSE
        IF p_close = 'discard' THEN
            DELETE FROM {schema}.messages AS m
            WHERE m.scope = p_scope AND m.conversation = p_conversation
                AND m.sequence > p_sequence;
            DELETE FROM {schema}.tool_invocations AS t
            WHERE t.scope = p_scope AND t.conversation = p_conversation
                AND t.sequence > p_sequence;
            p_changes_service_id := false;
        ELSIF v_is_open AND NOT p_changes_service_id AND v_open.changes_service_id THEN
            p_changes_service_id := true;
            p_service_id := v_open.service_id;
        END IF;
        DELETE FROM {schema}.open_runs AS o
        WHERE o.scope = p_scope AND o.conversation = p_conversation;
        UPDATE {schema}.conversations AS c SET incarnation = p_incarnation,
            last_sequence = p_sequence, visible = NULL,
            service_id = CASE WHEN p_changes_service_id THEN p_service_id ELSE c.service_id END,
            load_from = coalesce(p_load_from, c.load_from),
            last_active = greatest(c.last_active, p_at), mode = coalesce(p_mode, c.mode),
            runs = CASE WHEN p_close = 'discard' THEN c.runs_without_open ELSE {runs} END,
            last_run = CASE WHEN p_close = 'discard' THEN c.last_run_without_open
                ELSE {last_run} END
        WHERE c.scope = p_scope AND c.conversation = p_conversation;
    END IF;

    o_outcome := 'stored';
    o_incarnation := p_incarnation;
    o_sequence := p_sequence;
END
$append$;
";

/// Returns the function that stores a write.
///
/// The function of an older release, which has fewer parameters, remains in the database for
/// processes of that release.
pub(crate) fn append() -> String {
    APPEND
        .replace("{counted}", &activity::counted("p_at", "p_run", "p_mode"))
        .replace("{runs}", &activity::runs("p_at", "p_run"))
        .replace("{last_run}", &activity::last_run("p_at", "p_run"))
        .replace("{usage_columns}", activity::USAGE_COLUMNS)
        .replace("{add_usage_on_conflict}", &activity::add_usage_on_conflict())
}

/// Deletes all rows of a conversation, and returns whether the conversation existed.
pub(crate) const DELETE: &str = "
CREATE OR REPLACE FUNCTION {schema}.delete(p_scope bytea, p_conversation bytea)
RETURNS boolean LANGUAGE plpgsql AS $delete$
BEGIN
    {name_scope}
    -- Writers lock this row, so it is deleted first. A waiting writer then finds no conversation.
    DELETE FROM {schema}.conversations AS c
    WHERE c.scope = p_scope AND c.conversation = p_conversation;
    IF NOT FOUND THEN
        RETURN false;
    END IF;
    DELETE FROM {schema}.messages AS m
    WHERE m.scope = p_scope AND m.conversation = p_conversation;
    DELETE FROM {schema}.tool_invocations AS t
    WHERE t.scope = p_scope AND t.conversation = p_conversation;
    DELETE FROM {schema}.open_runs AS o
    WHERE o.scope = p_scope AND o.conversation = p_conversation;
    DELETE FROM {schema}.run_usage AS u
    WHERE u.scope = p_scope AND u.conversation = p_conversation;
    DELETE FROM {schema}.history_summaries AS s
    WHERE s.scope = p_scope AND s.conversation = p_conversation;
    RETURN true;
END
$delete$;
";

/// Sets the description of a conversation if the stored one has the expected version. Returns the
/// version before the change, or null if the conversation does not exist.
pub(crate) const DESCRIBE: &str = "
CREATE OR REPLACE FUNCTION {schema}.describe(
    p_scope bytea, p_conversation bytea, p_title bytea, p_metadata text, p_expected bigint
) RETURNS bigint LANGUAGE plpgsql AS $describe$
DECLARE
    v_found bigint;
BEGIN
    {name_scope}
    SELECT c.description_version INTO v_found FROM {schema}.conversations AS c
    WHERE c.scope = p_scope AND c.conversation = p_conversation FOR UPDATE;
    IF v_found = p_expected THEN
        UPDATE {schema}.conversations AS c SET title = p_title, metadata = p_metadata,
            description_version = p_expected + 1
        WHERE c.scope = p_scope AND c.conversation = p_conversation;
    END IF;
    RETURN v_found;
END
$describe$;
";

/// Adds a summary, and returns the outcome. If a summary with this id is stored, changes nothing.
pub(crate) const ADD_SUMMARY: &str = "
CREATE OR REPLACE FUNCTION {schema}.add_summary(
    p_scope bytea, p_conversation bytea, p_covers_to bigint, p_id bigint, p_run bytea,
    p_index bigint, p_body text, p_rewrites bigint
) RETURNS text LANGUAGE plpgsql AS $add_summary$
DECLARE
    v_found {schema}.conversations%ROWTYPE;
BEGIN
    {name_scope}
    SELECT c.* INTO v_found FROM {schema}.conversations AS c
    WHERE c.scope = p_scope AND c.conversation = p_conversation FOR UPDATE;
    IF EXISTS (
        SELECT 1 FROM {schema}.history_summaries AS s
        WHERE s.scope = p_scope AND s.conversation = p_conversation AND s.id = p_id
    ) THEN
        RETURN 'stored';
    END IF;
    IF NOT EXISTS (
        SELECT 1 FROM {schema}.messages AS m
        WHERE m.scope = p_scope AND m.conversation = p_conversation
            AND m.sequence = p_covers_to AND m.run = p_run AND m.run_index = p_index
            AND m.sequence > v_found.pruned
            AND m.sequence <= coalesce(v_found.visible, v_found.last_sequence)
    ) THEN
        RETURN 'no such message';
    END IF;
    IF v_found.rewrites <> p_rewrites THEN
        RETURN 'rewritten';
    END IF;
    IF EXISTS (
        SELECT 1 FROM {schema}.history_summaries AS s
        WHERE s.scope = p_scope AND s.conversation = p_conversation
            AND s.covers_to >= p_covers_to
    ) THEN
        RETURN 'superseded';
    END IF;
    INSERT INTO {schema}.history_summaries (scope, conversation, covers_to, id, body)
    VALUES (p_scope, p_conversation, p_covers_to, p_id, p_body);
    RETURN 'stored';
END
$add_summary$;
";

/// Removes the summary in force if it has the given id, and returns whether it was removed.
pub(crate) const REMOVE_SUMMARY: &str = "
CREATE OR REPLACE FUNCTION {schema}.remove_summary(
    p_scope bytea, p_conversation bytea, p_id bigint
) RETURNS boolean LANGUAGE plpgsql AS $remove_summary$
BEGIN
    {name_scope}
    PERFORM 1 FROM {schema}.conversations AS c
    WHERE c.scope = p_scope AND c.conversation = p_conversation FOR UPDATE;
    DELETE FROM {schema}.history_summaries AS s
    WHERE s.scope = p_scope AND s.conversation = p_conversation AND s.id = p_id
        AND s.covers_to = (
            SELECT max(f.covers_to) FROM {schema}.history_summaries AS f
            WHERE f.scope = p_scope AND f.conversation = p_conversation
        );
    RETURN FOUND;
END
$remove_summary$;
";
