//! Tests that the table of rules in the guide is current.

use std::{collections::BTreeSet, fs, path::Path};

use tower_chat_wire::rules::{KNOWN, ServiceRules, table};

#[test]
fn the_guide_contains_the_current_table_of_services() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/src/services.md");
    if std::env::var_os("TOWER_CHAT_WRITE").is_some() {
        fs::write(&path, table()).unwrap();
    }
    let written = fs::read_to_string(&path).unwrap();
    assert!(written == table(), "run this test with TOWER_CHAT_WRITE=1 to write the chapter again");
}

#[test]
fn every_rule_in_which_a_service_differs_from_the_default_has_a_source() {
    for known in KNOWN {
        let (own, any) = (known.rules(), ServiceRules::unknown(known.wire, known.name));
        let sources: BTreeSet<&str> = known.sources.iter().map(|(field, _)| *field).collect();
        let differs = [
            ("tool_names", own.tool_names != any.tool_names),
            ("call_ids", own.call_ids != any.call_ids),
            ("arguments", own.arguments != any.arguments),
            ("tool_media", own.tool_media != any.tool_media),
            ("user_media", own.user_media != any.user_media),
            ("assistant_media", own.assistant_media != any.assistant_media),
            ("error_results", own.error_results != any.error_results),
            ("own_reasoning", own.own_reasoning != any.own_reasoning),
            ("reasoning_fields", own.reasoning_fields != any.reasoning_fields),
            ("foreign_calls", own.foreign_calls != any.foreign_calls),
            ("thinking_first", own.thinking_first != any.thinking_first),
            ("hosted_ids", own.hosted_ids != any.hosted_ids),
            ("definitions_with_calls", own.definitions_with_calls != any.definitions_with_calls),
            ("empty_assistant", own.empty_assistant != any.empty_assistant),
            ("answer_after_results", own.answer_after_results != any.answer_after_results),
            ("user_first", own.user_first != any.user_first),
            ("content_lists", own.content_lists != any.content_lists),
            ("author_names", own.author_names != any.author_names),
        ];
        for (field, differs) in differs {
            assert!(!differs || sources.contains(field), "{} has no source of {field}", known.name);
        }
        assert!(!known.sources.is_empty(), "{}", known.name);
    }
}
