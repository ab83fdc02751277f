//! A test that reads the text of every statement. Each access to a table must have a condition on
//! the scope and a condition on the conversation, unless the statement accesses a whole scope or
//! all scopes.
#![allow(clippy::unwrap_used, clippy::indexing_slicing)]

use std::{fs, path::Path};

use crate::{
    functions,
    schema::{HISTORY_SUMMARIES, Layout, RUN_USAGE, TABLES},
    statements::{Scope, Statements},
};

fn layout() -> Layout {
    Layout { schema: "s".to_owned(), partitions: None, row_level_security: false }
}

/// Removes comments from SQL, and replaces each white space with one space.
fn words(sql: &str) -> String {
    let lines = sql.lines().map(|line| line.split_once("--").map_or(line, |(before, _)| before));
    lines.flat_map(str::split_whitespace).collect::<Vec<_>>().join(" ")
}

/// Returns a description of each access to a table that has no alias or lacks a required condition.
fn faults(sql: &str, scope: Scope) -> Vec<String> {
    let sql = words(sql);
    let mut faults = Vec::new();
    for (table, _) in TABLES.iter().chain([&RUN_USAGE, &HISTORY_SUMMARIES]) {
        for (at, found) in sql.match_indices(&format!("\"s\".{table} ")) {
            let before = &sql[..at];
            let after = &sql[at + found.len()..];
            if before.ends_with("INSERT INTO ") {
                // An `INSERT` must name the columns of the conversation's key first.
                if !after.split_once('(').unwrap().1.starts_with("scope, conversation") {
                    faults.push(format!("{table} is filled without a key"));
                }
                continue;
            }
            let Some(alias) = after.strip_prefix("AS ").and_then(|after| after.split(' ').next())
            else {
                faults.push(format!("{table} is read without a name of its own"));
                continue;
            };
            let is_limited = |column: &str, number: u32| {
                [format!("${number}"), format!("p_{column}")].iter().any(|value| {
                    let condition = format!("{alias}.{column} = {value}");
                    sql.split(&condition).skip(1).any(|rest| !rest.starts_with(char::is_numeric))
                })
            };
            if scope != Scope::All && !is_limited("scope", 1) {
                faults.push(format!("{table} as {alias} is not limited to a scope"));
            }
            if scope == Scope::Conversation && !is_limited("conversation", 2) {
                faults.push(format!("{table} as {alias} is not limited to a conversation"));
            }
        }
    }
    faults
}

#[test]
fn every_statement_is_limited_to_one_conversation() {
    let statements = Statements::new(&layout());
    let mut of_scopes = Vec::new();
    for (name, scope, sql) in statements.all() {
        assert_eq!(faults(&sql, scope), Vec::<String>::new(), "{name}: {sql}");
        if scope != Scope::Conversation {
            of_scopes.push(name);
        }
    }
    of_scopes.dedup();
    let exceptions = ["list", "list_after", "list_long", "list_long_after", "open_runs"];
    let directory = ["directory", "directory_of_all", "branches", "branches_of_all", "usage"];
    let scopes = ["scopes", "scopes_long"];
    let questions = ["invocations", "tool_totals", "invocations", "tool_totals"];
    assert_eq!(of_scopes, [exceptions.as_slice(), &directory, &scopes, &questions].concat());
    for function in [
        &functions::append(),
        functions::DELETE,
        functions::DESCRIBE,
        functions::ADD_SUMMARY,
        functions::REMOVE_SUMMARY,
    ] {
        let sql = layout().with_schema(function);
        for statement in sql.split(';') {
            let found = faults(statement, Scope::Conversation);
            assert_eq!(found, Vec::<String>::new(), "{statement}");
        }
    }
}

#[test]
fn the_inspection_finds_statements_that_reach_beyond_one_conversation() {
    for (sql, scope) in [
        ("SELECT 1 FROM \"s\".messages AS m WHERE m.scope = $1", Scope::Conversation),
        ("SELECT 1 FROM \"s\".messages AS m WHERE m.conversation = $2", Scope::One),
        ("SELECT 1 FROM \"s\".messages AS m WHERE m.scope = $10", Scope::One),
        ("DELETE FROM \"s\".messages WHERE scope = $1 AND conversation = $2", Scope::One),
        ("INSERT INTO \"s\".messages (sequence) VALUES (1)", Scope::Conversation),
        (
            "SELECT 1 FROM \"s\".messages AS m JOIN \"s\".open_runs AS o ON true
             WHERE m.scope = $1 AND m.conversation = $2 AND o.scope = $1",
            Scope::Conversation,
        ),
    ] {
        assert_eq!(faults(sql, scope).len(), 1, "{sql}");
    }
}

#[test]
fn every_index_begins_with_the_scope_and_the_schema_has_no_sequences_or_foreign_keys() {
    let sql = words(&crate::schema::all(&layout()));
    let tables = TABLES.len() + 2;
    assert_eq!(sql.matches("PRIMARY KEY (scope, conversation").count(), tables);
    assert_eq!(sql.matches("PRIMARY KEY").count(), tables);
    for index in sql.split("CREATE INDEX").skip(1) {
        let columns = index.split_once('(').unwrap().1;
        let is_led_by_the_key = ["scope, conversation", "scope, active_hour", "scope, parent_key"]
            .iter()
            .any(|key| columns.starts_with(key));
        assert!(is_led_by_the_key, "{index}");
    }
    let sql = sql.to_lowercase();
    for word in ["serial", "identity", "create sequence", "nextval", "references", "foreign key"] {
        assert!(!sql.contains(word), "{word}");
    }
}

#[test]
fn only_the_listed_source_files_contain_sql_statements() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let apart = [
        "directory_migration.rs",
        "directory_statements.rs",
        "functions.rs",
        "inspection.rs",
        "maintenance_statements.rs",
        "plain_append.rs",
        "schema.rs",
        "server_statements.rs",
        "statements.rs",
        "update_log.rs",
    ];
    let tables = TABLES.iter().chain([&RUN_USAGE, &HISTORY_SUMMARIES]);
    let tables: Vec<_> = tables.map(|(table, _)| format!("}}.{table}")).collect();
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let name = path.file_name().unwrap().to_string_lossy().into_owned();
        if apart.contains(&name.as_str()) {
            continue;
        }
        let text = fs::read_to_string(&path).unwrap();
        for word in tables.iter().map(String::as_str).chain(["{schema}.", "FROM ", "INSERT INTO "])
        {
            assert!(!text.contains(word), "{name} has a statement: {word}");
        }
    }
}
