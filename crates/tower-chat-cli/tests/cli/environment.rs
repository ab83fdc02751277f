//! Tests the environment variables that replace options.

use tower_chat::Message;

use crate::support::*;

fn store_with(text: &str) -> Store {
    let store = Store::new();
    fill_many(&store, &["only".to_owned()], || vec![Message::user(text)]);
    store
}

#[test]
fn the_environment_names_the_store_and_the_option_overrides_it() {
    let [of_environment, of_option] = ["by the environment", "by the option"].map(store_with);
    let exported = |arguments: &[&str]| {
        let mut command = tower_chat(arguments);
        command.env("TOWER_CHAT_STORE", of_environment.argument());
        stdout(&command.output().unwrap())
    };
    assert!(exported(&["export"]).contains("by the environment"));
    let exported = exported(&["export", "--store", &of_option.argument()]);
    assert!(exported.contains("by the option") && !exported.contains("environment"), "{exported}");
}

#[test]
fn an_error_without_a_store_names_option_and_variable_and_help_has_no_password() {
    let missing = run(&["export"]);
    assert_eq!(missing.status.code(), Some(2));
    assert!(stderr(&missing).contains("--store <STORE>"), "{}", stderr(&missing));
    let mut help = tower_chat(&["export", "--help"]);
    help.env("TOWER_CHAT_STORE", "postgres://me:secret@host/db");
    let help = stdout(&help.output().unwrap());
    assert!(help.contains("[env: TOWER_CHAT_STORE]") && !help.contains("secret"), "{help}");
    let mut refused = tower_chat(&["export"]);
    refused.env("TOWER_CHAT_STORE", "mysql://me:hidden@host/db");
    let refused = refused.output().unwrap();
    assert_eq!(refused.status.code(), Some(2));
}

#[test]
fn the_help_of_the_command_lists_the_exit_codes() {
    let help = stdout(&run(&["--help"]));
    for line in ["  0    success", "  130  interrupted", "variable TOWER_CHAT_STORE:"] {
        assert!(help.contains(line), "{help}");
    }
}
