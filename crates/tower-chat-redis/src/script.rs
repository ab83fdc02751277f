//! The scripts, each of which the server executes atomically.

use std::sync::OnceLock;

use redis::{Cmd, ToRedisArgs, Value, cmd};

/// A script. A server caches the code of a script, and can then execute the script by its hash.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) code: &'static str,
    hash: OnceLock<String>,
}

impl Script {
    const fn new(code: &'static str) -> Self {
        Self { code, hash: OnceLock::new() }
    }

    fn hash(&self) -> &str {
        self.hash.get_or_init(|| redis::Script::new(self.code).get_hash().to_owned())
    }

    /// Creates a call of the script with the given keys. In a cluster, all keys must be on one
    /// server.
    pub(crate) fn on<const COUNT: usize>(&'static self, keys: [String; COUNT]) -> Call {
        let mut command = cmd("EVALSHA");
        command.arg(self.hash()).arg(COUNT);
        for key in &keys {
            command.arg(key);
        }
        Call { script: self, command }
    }
}

/// A call of a script.
pub(crate) struct Call {
    script: &'static Script,
    command: Cmd,
}

impl Call {
    /// Adds an argument.
    pub(crate) fn with(mut self, value: impl ToRedisArgs) -> Self {
        self.command.arg(value);
        self
    }

    /// Adds an argument.
    pub(crate) fn push(&mut self, value: impl ToRedisArgs) {
        self.command.arg(value);
    }

    /// Returns the command that calls the script by its hash.
    pub(crate) fn command(&self) -> &Cmd {
        &self.command
    }

    /// Returns the command that contains the code of the script.
    pub(crate) fn with_code(&self) -> Cmd {
        let mut command = cmd("EVAL");
        command.arg(self.script.code);
        for argument in self.command.args_iter().skip(2) {
            if let redis::Arg::Simple(bytes) = argument {
                command.arg(bytes);
            }
        }
        command
    }
}

/// The first words of replies with which scripts report that they have changed data.
const DONE: [&str; 7] = ["stored", "made", "pruned", "deleted", "adopted", "set", "rewritten"];

/// Returns whether the reply of a script means that nothing was changed.
pub(crate) fn is_refusal(answer: &Value) -> bool {
    let Value::Array(items) = answer else { return false };
    let Some(Value::BulkString(word)) = items.first() else { return false };
    !DONE.iter().any(|done| done.as_bytes() == word)
}

/// Defines a script that uses the functions of `numbers.lua`. The first argument is the flags of
/// the script, and the other arguments are its files.
macro_rules! counting {
    ($flags:literal, $($file:literal),+) => {
        Script::new(concat!(
            "#!lua",
            $flags,
            "\n",
            include_str!("scripts/numbers.lua"),
            $(include_str!($file)),+
        ))
    };
}

pub(crate) static APPEND: Script = counting!("", "scripts/entry.lua", "scripts/append.lua");
/// The script `APPEND` for a discard, which frees memory, and is therefore executed even if the
/// memory is full.
pub(crate) static DISCARD: Script =
    counting!(" flags=allow-oom", "scripts/entry.lua", "scripts/append.lua");
pub(crate) static HEAD: Script = counting!(" flags=no-writes", "scripts/head.lua");
pub(crate) static MESSAGES: Script = counting!(" flags=no-writes", "scripts/messages.lua");
pub(crate) static OPEN_RUN: Script = counting!(" flags=no-writes", "scripts/open_run.lua");
pub(crate) static INVOCATIONS: Script = counting!(" flags=no-writes", "scripts/invocations.lua");
pub(crate) static RUNS: Script = counting!(" flags=no-writes", "scripts/runs.lua");
pub(crate) static HISTORY_SUMMARIES: Script =
    counting!(" flags=no-writes", "scripts/history_summaries.lua");
pub(crate) static ADD_SUMMARY: Script =
    counting!("", "scripts/in_force.lua", "scripts/add_summary.lua");
/// The server executes this script even if the memory is full, because a removal frees memory.
pub(crate) static REMOVE_SUMMARY: Script =
    counting!(" flags=allow-oom", "scripts/in_force.lua", "scripts/remove_summary.lua");
pub(crate) static PRUNE: Script = counting!(" flags=allow-oom", "scripts/prune.lua");
pub(crate) static SUMMARY: Script = counting!(" flags=no-writes", "scripts/summary.lua");
pub(crate) static DESCRIBE: Script = counting!("", "scripts/describe.lua");
/// Executed even if the memory is full, because a discard of a run and a prune (a deletion of old
/// runs) need a directory entry.
pub(crate) static ADOPT: Script = counting!(" flags=allow-oom", "scripts/adopt.lua");
pub(crate) static ROWS: Script = counting!(" flags=no-writes", "scripts/rows.lua");
pub(crate) static ROW_VALUES: Script = counting!(" flags=no-writes", "scripts/row_values.lua");
pub(crate) static REWRITE: Script =
    counting!("", "scripts/recount.lua", "scripts/in_force.lua", "scripts/rewrite.lua");
pub(crate) static DELETE: Script = Script::new(include_str!("scripts/delete.lua"));
pub(crate) static COPY_PART: Script = Script::new(include_str!("scripts/copy_part.lua"));
pub(crate) static COPY_END: Script = Script::new(include_str!("scripts/copy_end.lua"));
pub(crate) static ADD_TO_LIST: Script = Script::new(include_str!("scripts/add_to_list.lua"));
pub(crate) static REMOVE_FROM_LIST: Script =
    Script::new(include_str!("scripts/remove_from_list.lua"));

pub(crate) static ADD_BRANCH: Script = Script::new(include_str!("scripts/add_branch.lua"));
pub(crate) static REMOVE_BRANCH: Script = Script::new(include_str!("scripts/remove_branch.lua"));

#[cfg(feature = "delivery")]
pub(crate) static WRITE_RUN: Script =
    Script::new(concat!("#!lua\n", include_str!("scripts/write_run.lua")));
#[cfg(feature = "delivery")]
pub(crate) static FIND_RUN: Script =
    Script::new(concat!("#!lua flags=no-writes\n", include_str!("scripts/find_run.lua")));
#[cfg(feature = "delivery")]
pub(crate) static ERASE_RUN: Script =
    Script::new(concat!("#!lua flags=allow-oom\n", include_str!("scripts/erase_run.lua")));
#[cfg(feature = "delivery")]
pub(crate) static INDEX_RUN: Script =
    Script::new(concat!("#!lua flags=allow-oom\n", include_str!("scripts/index_run.lua")));

/// The scripts that most calls use. The store sends the other scripts when it first needs them.
pub(crate) static FREQUENT: [&Script; 4] = [&APPEND, &HEAD, &MESSAGES, &INVOCATIONS];
