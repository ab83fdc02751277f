//! Writes request bodies of generated histories with unusual content. The request models in the
//! packages of the providers validate these bodies.

use std::{
    env,
    fs::File,
    io::{BufWriter, Write as _},
};

use serde_json::json;

use super::{all_rules, body, total, wire_name};

/// Writes the bodies to a file, one per line. The script `.ci/request_models` validates the file.
#[test]
#[ignore = "writes the file that TOWER_CHAT_BODIES names; `.ci/release request_models` runs it"]
fn bodies_are_written_for_the_request_models() {
    let path = env::var_os("TOWER_CHAT_BODIES").expect("TOWER_CHAT_BODIES names a file");
    let mut file = BufWriter::new(File::create(path).unwrap());
    let all_rules = all_rules();
    for case in total::cases() {
        let request = total::request(case);
        for (service, rules) in &all_rules {
            let wire = wire_name(rules.wire);
            let line = json!({"wire": wire, "service": service, "case": case, "body": body(&request, rules)});
            writeln!(file, "{line}").unwrap();
        }
    }
    file.flush().unwrap();
}
