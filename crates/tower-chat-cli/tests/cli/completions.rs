//! Tests `tower-chat completions`.

use crate::support::*;

#[test]
fn the_completion_script_of_every_shell_contains_the_commands() {
    for (shell, begins) in [
        ("bash", "_tower__chat() {"),
        ("zsh", "#compdef tower-chat"),
        ("fish", "# Print an optspec"),
        ("elvish", "\nuse builtin;"),
        ("powershell", "\nusing namespace"),
    ] {
        let output = run(&["completions", shell]);
        assert_eq!((output.status.code(), stderr(&output)), (Some(0), String::new()), "{shell}");
        let script = stdout(&output);
        assert!(script.starts_with(begins), "{shell}: {script}");
        for command in ["export", "prune", "completions"] {
            assert!(script.contains(command), "{shell}: {command}");
        }
    }
    let unknown = run(&["completions", "tcsh"]);
    assert_eq!(unknown.status.code(), Some(2));
    assert!(
        stderr(&unknown).contains("[possible values: bash, elvish, fish"),
        "{}",
        stderr(&unknown)
    );
}
