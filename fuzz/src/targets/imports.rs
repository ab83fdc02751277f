//! Fuzz targets that import history files of other systems.

use std::fs;

use rusqlite::{Connection, params};
use tower_chat::{
    import::{Format, read},
    message::Messages,
    validate::validate_messages,
};
use tower_chat_testkit::Rng;

use super::{Entry, Made, rules::replayed};

/// A small file for each JSON format.
const FILES: [(Format, &str); 7] = [
    (
        Format::OpenAiChat,
        r#"{"id":"a","messages":[{"role":"user","content":"Is it cold?"},{"role":"assistant","content":null,"tool_calls":[{"id":"c1","type":"function","function":{"name":"look","arguments":"{}"}}]},{"role":"tool","tool_call_id":"c1","content":"12 degrees"}]}
{"id":"b","messages":[{"role":"system","content":"Be brief."}]}"#,
    ),
    (
        Format::OpenAiResponses,
        r#"[{"role":"user","content":"Is it warm?"},{"type":"reasoning","id":"rs_1","summary":[],"encrypted_content":"gAAA"},{"type":"function_call","call_id":"c1","name":"look","arguments":"{}"},{"type":"function_call_output","call_id":"c1","output":"20 degrees"}]"#,
    ),
    (
        Format::Anthropic,
        r#"{"system":"Be kind.","messages":[{"role":"user","content":"Fog?"},{"role":"assistant","content":[{"type":"thinking","thinking":"hm","signature":"cw=="},{"type":"tool_use","id":"t1","name":"look","input":{}}]},{"role":"user","content":[{"type":"tool_result","tool_use_id":"t1","content":"None.","is_error":true}]}]}"#,
    ),
    (
        Format::Gemini,
        r#"{"contents":[{"role":"user","parts":[{"text":"Wind?"}]},{"role":"model","parts":[{"functionCall":{"name":"look","args":{}},"thoughtSignature":"cw=="}]},{"role":"user","parts":[{"functionResponse":{"name":"look","response":{"output":"Some."}}}]}]}"#,
    ),
    (
        Format::AgentFramework,
        r#"{"type":"message","role":"user","contents":[{"type":"text","text":"Ice?"},{"type":"data","uri":"data:image/png;base64,AAAA"}]}
{"type":"message","role":"assistant","contents":[{"type":"text_reasoning","id":"rs_1","text":"hm","protected_data":"gA"},{"type":"function_call","call_id":"c1","name":"look","arguments":{"a":1}}]}
{"type":"message","role":"tool","contents":[{"type":"function_result","call_id":"c1","result":"Ice.","exception":"x","items":[{"type":"text","text":"Ice."}]}]}"#,
    ),
    (
        Format::PydanticAi,
        r#"[{"kind":"request","timestamp":"2026-11-23T14:52:34.293650Z","parts":[{"part_kind":"user-prompt","content":["Rain?",{"kind":"binary","data":"-_8=","media_type":"image/png"}]}]},{"kind":"response","parts":[{"part_kind":"thinking","content":"hm","signature":"cw==","provider_name":"anthropic"},{"part_kind":"tool-call","tool_name":"look","args":{"a":1},"tool_call_id":"c1"}]},{"kind":"request","parts":[{"part_kind":"tool-return","tool_name":"look","content":{"rain":true},"tool_call_id":"c1","outcome":"failed"}]}]"#,
    ),
    (
        Format::VercelUi,
        r#"[{"id":"c","messages":[{"role":"user","parts":[{"type":"text","text":"Snow?"}]},{"role":"assistant","metadata":{"a":1},"parts":[{"type":"step-start"},{"type":"reasoning","text":"hm","providerMetadata":{"openai":{"itemId":"rs_1"}}},{"type":"tool-look","toolCallId":"c1","state":"output-available","input":{},"output":{"snow":true}},{"type":"data-x","data":[1]}]}]}]"#,
    ),
];

/// A checkpoint of LangGraph, as `JsonPlusSerializer` encodes it in MessagePack, in hexadecimal
/// digits. It contains a question, an answer with a call, and the result of the call.
const CHECKPOINT: &str = "82a17604ae6368616e6e656c5f76616c75657381a86d6573736167657393c7560594b76c616e67636861696e5f636f72652e6d65737361676573ac48756d616e4d65737361676583a7636f6e74656e74a24869a474797065a568756d616ea26964a161b36d6f64656c5f76616c69646174655f6a736f6ec7b70594b76c616e67636861696e5f636f72652e6d65737361676573a941494d65737361676584a7636f6e74656e749282a474797065a474657874a474657874a749206c6f6f6b2e83a474797065a87468696e6b696e67a87468696e6b696e67a2686da97369676e6174757265a463773d3da474797065a26169a26964a162aa746f6f6c5f63616c6c739183a46e616d65a474696465a46172677381a2617401a26964a26331b36d6f64656c5f76616c69646174655f6a736f6ec76f0594b76c616e67636861696e5f636f72652e6d65737361676573ab546f6f6c4d65737361676584a7636f6e74656e74a531383a3430a474797065a4746f6f6cac746f6f6c5f63616c6c5f6964a26331a6737461747573a56572726f72b36d6f64656c5f76616c69646174655f6a736f6e";

/// An item of OpenAI Responses, as the OpenAI Agents SDK stores it in the column `message_data`.
const ITEM: &str = r#"{"type":"function_call","call_id":"c1","name":"look","arguments":"{}"}"#;

const AGENT_MESSAGES: &str = "CREATE TABLE agent_messages (id INTEGER PRIMARY KEY, session_id TEXT, message_data TEXT, created_at TEXT);
    INSERT INTO agent_messages VALUES (1, 's', '{}', '2026-11-23 10:00:00')";

const CHECKPOINTS: &str = "CREATE TABLE writes (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, task_id TEXT, idx INTEGER, channel TEXT, type TEXT, value BLOB);
    CREATE TABLE checkpoints (thread_id TEXT, checkpoint_ns TEXT, checkpoint_id TEXT, parent_checkpoint_id TEXT, type TEXT, checkpoint BLOB);
    INSERT INTO checkpoints VALUES ('t', '', '1', NULL, 'msgpack', x'80')";

pub(crate) fn targets() -> Vec<Entry> {
    let mut targets: Vec<Entry> = FILES
        .into_iter()
        .map(|(format, text)| {
            let name = format!("import-{format}");
            Entry::new(name, "import::read of a file", move || file(format, text)).slow()
        })
        .collect();
    targets.push(row(
        Format::OpenAiAgents,
        AGENT_MESSAGES,
        "UPDATE agent_messages SET message_data = CAST(?1 AS TEXT)",
        || ITEM.into(),
    ));
    targets.push(row(
        Format::LangGraph,
        CHECKPOINTS,
        "UPDATE checkpoints SET checkpoint = ?1",
        checkpoint,
    ));
    targets.push(Entry::new("import-databases", "import::read of a SQLite file", databases).slow());
    targets
}

fn checkpoint() -> Vec<u8> {
    let digits = |at| u8::from_str_radix(&CHECKPOINT[at..at + 2], 16).expect("hexadecimal digits");
    (0..CHECKPOINT.len()).step_by(2).map(digits).collect()
}

/// Creates a target that imports its input as a file of this format. `text` is the only seed input.
fn file(format: Format, text: &str) -> Made {
    let folder = tempfile::tempdir().expect("a folder");
    let run = move |bytes: &[u8], _: &mut Rng| {
        let path = folder.path().join("history");
        fs::write(&path, bytes).expect("the file is written");
        accepts(format, &path)
    };
    (vec![text.into()], Box::new(run))
}

/// Creates a target that stores its input as the only row of a SQLite database, and imports the
/// database. `tables` creates the database, and `update` writes the value.
fn row(
    format: Format,
    tables: &'static str,
    update: &'static str,
    seed: impl Fn() -> Vec<u8> + 'static,
) -> Entry {
    let make = move || -> Made {
        let folder = tempfile::tempdir().expect("a folder");
        let path = folder.path().join("history.db");
        let connection = Connection::open(&path).expect("a database");
        connection.pragma_update(None, "synchronous", "OFF").expect("a setting");
        connection.execute_batch(tables).expect("its tables");
        let run = move |bytes: &[u8], _: &mut Rng| {
            let _of_this_target = &folder;
            connection.execute(update, params![bytes]).expect("the row is written");
            accepts(format, &path)
        };
        (vec![seed()], Box::new(run))
    };
    Entry::new(format!("import-{format}"), "import::read of a row", make).slow()
}

/// Creates a target that imports its input as a SQLite file, in one of two formats. The seed inputs
/// are two whole databases.
fn databases() -> Made {
    let folder = tempfile::tempdir().expect("a folder");
    let seeds = [AGENT_MESSAGES, CHECKPOINTS].map(|tables| {
        let path = folder.path().join("whole.db");
        let connection = Connection::open(&path).expect("a database");
        // In small pages, most changed bytes are content and not unused space.
        connection.pragma_update(None, "page_size", 512).expect("a setting");
        connection.execute_batch(tables).expect("its tables");
        drop(connection);
        let bytes = fs::read(&path).expect("the database is read");
        fs::remove_file(&path).expect("the database is removed");
        bytes
    });
    let run = move |bytes: &[u8], rng: &mut Rng| {
        let path = folder.path().join("history.db");
        fs::write(&path, bytes).expect("the file is written");
        let format = rng.one_of(&[Format::OpenAiAgents, Format::LangGraph]);
        accepts(*format.expect("one of two"), &path)
    };
    (seeds.to_vec(), Box::new(run))
}

/// Returns whether the file can be imported. Panics if an imported conversation has an invalid
/// replay.
fn accepts(format: Format, path: &std::path::Path) -> bool {
    let Ok(conversations) = read(format, path) else { return false };
    for conversation in conversations {
        let messages: Messages = conversation.messages.into_iter().collect();
        let sent = replayed(&messages);
        if let Err(invalid) = validate_messages(sent.iter().map(|message| &**message)) {
            panic!("{invalid}: {messages:?}");
        }
    }
    true
}
