//! Writes that wait for replicas or disks before they are acknowledged.
//!
//! While a command waits for replicas or disks, the server handles no other request of the same
//! connection. Therefore these writes use separate connections. While a group of writes waits on a
//! connection, further writes form the next group. The store sends a group together, with one
//! command that waits for all of its writes. A write therefore waits for at most one earlier group.

use std::time::Duration;

use redis::{Cmd, Pipeline, Value, cmd};
use tokio::sync::{Mutex, mpsc, oneshot};

use crate::{WriteConcern, connections::Connection, failure::Failure, script::is_refusal};

/// The writes that share a connection.
pub(crate) struct Group {
    submit: mpsc::UnboundedSender<Submitted>,
    /// The lock of the connection. The task that has acquired this lock sends all submitted writes.
    pub(crate) line: Mutex<Line>,
}

/// The connection, and the submitted writes that were not sent yet.
pub(crate) struct Line {
    submitted: mpsc::UnboundedReceiver<Submitted>,
    pub(crate) connection: Connection,
}

struct Submitted {
    command: Cmd,
    reply: oneshot::Sender<Result<Value, Failure>>,
}

/// The senders for the outcomes of writes that were sent together.
pub(crate) struct Replies(Vec<oneshot::Sender<Result<Value, Failure>>>);

impl Group {
    pub(crate) fn new() -> Self {
        let (submit, submitted) = mpsc::unbounded_channel();
        Self { submit, line: Mutex::new(Line { submitted, connection: Connection::default() }) }
    }

    /// Adds a write to the queue. The next owner of the lock sends the write.
    pub(crate) fn submit(&self, command: &Cmd) -> oneshot::Receiver<Result<Value, Failure>> {
        let (reply, outcome) = oneshot::channel();
        // Sending cannot fail, because `self` owns the receiver.
        drop(self.submit.send(Submitted { command: command.clone(), reply }));
        outcome
    }
}

impl Line {
    /// Removes all submitted writes from the queue.
    pub(crate) fn take(&mut self) -> (Pipeline, Replies) {
        let (mut commands, mut replies) = (redis::pipe(), Vec::new());
        commands.ignore_errors();
        while let Ok(Submitted { command, reply }) = self.submitted.try_recv() {
            commands.add_command(command);
            replies.push(reply);
        }
        (commands, Replies(replies))
    }
}

impl Replies {
    /// Sends each write's outcome to the task that has submitted the write.
    pub(crate) fn send(self, outcomes: Result<Vec<Result<Value, Failure>>, Failure>) {
        let (outcomes, all) = match outcomes {
            Ok(outcomes) => (outcomes, Failure::no_answer()),
            Err(failure) => (Vec::new(), failure),
        };
        let outcomes = outcomes.into_iter().chain(std::iter::repeat_with(|| Err(all.clone())));
        for (reply, outcome) in self.0.into_iter().zip(outcomes) {
            // Sending fails if the receiver was dropped, and this error is ignored.
            drop(reply.send(outcome));
        }
    }
}

impl WriteConcern {
    /// Returns the command that waits, at most for the time `longest`, until replicas or disks have
    /// confirmed the earlier writes of the connection.
    pub(crate) fn wait(self, longest: Duration) -> Cmd {
        let milliseconds = u64::try_from(longest.as_millis()).unwrap_or(u64::MAX);
        match self {
            Self::Server => cmd("PING"),
            Self::Replicas(replicas) => {
                let mut wait = cmd("WAIT");
                wait.arg(replicas).arg(milliseconds);
                wait
            }
            Self::Synced { replicas } => {
                let mut wait = cmd("WAITAOF");
                wait.arg(1).arg(replicas).arg(milliseconds);
                wait
            }
        }
    }

    /// Returns the outcomes of writes. The last reply belongs to the command that waited. If this
    /// command reports too few replicas or disks, every write that has changed data fails.
    pub(crate) fn check(self, mut answers: Vec<Value>) -> Vec<Result<Value, Failure>> {
        let waited = answers.pop().unwrap_or(Value::Nil).extract_error();
        let safe = waited.map_err(Failure::of_waiting).and_then(|waited| self.is_met(&waited));
        let answers = answers.into_iter().map(|answer| {
            let answer = answer.extract_error().map_err(Failure::of_command)?;
            if is_refusal(&answer) { Ok(answer) } else { safe.clone().map(|()| answer) }
        });
        answers.collect()
    }

    fn is_met(self, waited: &Value) -> Result<(), Failure> {
        let number = |value: &Value| if let Value::Int(number) = value { *number } else { 0 };
        let (disks, replicas) = match waited {
            Value::Array(both) => (both.first().map_or(0, number), both.get(1).map_or(0, number)),
            other => (0, number(other)),
        };
        let is_met = match self {
            Self::Server => true,
            Self::Replicas(wanted) => replicas >= wanted.into(),
            Self::Synced { replicas: wanted } => disks >= 1 && replicas >= wanted.into(),
        };
        if is_met { Ok(()) } else { Err(Failure::not_safe(disks, replicas)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::failure::Meaning;

    fn answer(word: &str) -> Value {
        Value::Array(vec![Value::BulkString(word.into())])
    }

    #[test]
    fn one_wait_decides_the_outcome_of_all_earlier_writes_that_changed_data() {
        let disk = WriteConcern::Synced { replicas: 0 };
        let both = WriteConcern::Synced { replicas: 1 };
        let counts = |disks, replicas| Value::Array(vec![Value::Int(disks), Value::Int(replicas)]);
        let error = redis::parse_redis_value(b"-UNBLOCKED the state has changed\r\n").unwrap();
        for (write_concern, waited, is_safe) in [
            (WriteConcern::Replicas(2), Value::Int(2), true),
            (WriteConcern::Replicas(2), Value::Int(1), false),
            (disk, counts(1, 0), true),
            (disk, counts(0, 3), false),
            (both, counts(1, 1), true),
            (both, counts(1, 0), false),
            (both, error, false),
        ] {
            let foreign = redis::parse_redis_value(b"-WRONGTYPE no hash\r\n").unwrap();
            let writes = vec![answer("stored"), answer("conflict"), foreign, Value::Nil, waited];
            let outcomes = write_concern.check(writes);
            let meanings = outcomes.iter().map(|outcome| match outcome {
                Ok(_) => None,
                Err(failure) => Some(failure.meaning),
            });
            let written = (!is_safe).then_some(Meaning::NotSafe);
            let expected = [written, None, Some(Meaning::Foreign), written];
            assert_eq!(meanings.collect::<Vec<_>>(), expected, "{write_concern:?}");
        }
    }
}
