//! Connects to the MCP servers of a chat and provides their tools.

mod environment;

use std::{
    ffi::OsString,
    process::Stdio,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use clap::ValueEnum;
use rmcp::{
    RoleClient, ServiceExt,
    service::RunningService,
    transport::{IntoTransport, StreamableHttpClientTransport, TokioChildProcess},
};
use tokio::{
    io::AsyncReadExt,
    process::{ChildStderr, Command},
    sync::mpsc,
    task::JoinHandle,
};
use tower_chat::{
    Tools,
    mcp::{McpTools, without_secrets},
};

use super::{
    error::ChatError,
    tool_events::{ReportingTool, ToolEvent},
};
use crate::output::EscapedStderr;

/// The time within which a server must begin a session.
const SESSION_TIME: Duration = Duration::from_secs(30);

/// The maximum number of the first bytes of a server's standard error in an error message.
const OUTPUT_LIMIT: usize = 4096;

/// The tool calls that run without asking the user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub(crate) enum Approve {
    /// Calls of tools that their server declares as read-only. The command asks you about other calls
    Ask,
    /// No calls: the command asks you about each call, even of a tool that is declared as read-only
    AskAll,
    /// All calls
    Always,
    /// Calls of tools that their server declares as read-only; other calls are rejected, and the
    /// model is informed
    Never,
}

impl Approve {
    /// Returns whether the user may be asked about calls.
    pub(super) fn asks(self) -> bool {
        match self {
            Self::Ask | Self::AskAll => true,
            Self::Always | Self::Never => false,
        }
    }

    /// Returns whether a call of a tool must be approved before it runs.
    fn holds(self, is_read_only: bool) -> bool {
        match self {
            Self::Ask | Self::Never => !is_read_only,
            Self::AskAll => true,
            Self::Always => false,
        }
    }
}

/// The options of a chat for its MCP servers.
#[derive(Debug)]
pub(crate) struct ServerArguments<'a> {
    pub(crate) commands: &'a [String],
    /// The names of additional environment variables for the servers.
    pub(crate) variables: &'a [String],
    pub(crate) urls: &'a [String],
    pub(crate) approve: Approve,
    pub(crate) verbose: bool,
}

/// The connections to MCP servers. Dropping this value closes the connections.
#[derive(Debug, Default)]
pub(crate) struct Servers {
    connections: Vec<RunningService<RoleClient, ()>>,
    tools: Tools,
}

impl Servers {
    /// Connects to all servers and lists their tools, which send events about their calls.
    pub(crate) async fn connect(
        arguments: &ServerArguments<'_>,
        events: &mpsc::UnboundedSender<ToolEvent>,
    ) -> Result<Self, ChatError> {
        let mut servers = Self::default();
        let environment = environment::of_servers(arguments.variables)?;
        for command in arguments.commands {
            let (transport, output) = start(command, &environment, arguments.verbose)?;
            servers.add(command, transport, output, arguments.approve, events).await?;
        }
        for url in arguments.urls {
            let transport = StreamableHttpClientTransport::from_uri(url.as_str());
            // Errors contain this name, which would otherwise appear to end at a space.
            let server = without_secrets(&url.replace(char::is_whitespace, "%20"));
            servers
                .add(&server, transport, ServerOutput::default(), arguments.approve, events)
                .await?;
        }
        Ok(servers)
    }

    pub(crate) fn tools(&self) -> &Tools {
        &self.tools
    }

    /// Ends the sessions.
    pub(crate) async fn close(self) {
        for connection in self.connections {
            // Cancelling fails only if the server has exited and thereby ended the session.
            let _ = connection.cancel().await;
        }
    }

    async fn add<T, E, A>(
        &mut self,
        server: &str,
        transport: T,
        output: ServerOutput,
        approve: Approve,
        events: &mpsc::UnboundedSender<ToolEvent>,
    ) -> Result<(), ChatError>
    where
        T: IntoTransport<RoleClient, E, A>,
        E: std::error::Error + Send + Sync + 'static,
    {
        let server = server.to_owned();
        let session = tokio::time::timeout(SESSION_TIME, ().serve(transport)).await;
        let connection = match session {
            Ok(Ok(connection)) => connection,
            Ok(Err(error)) => {
                let (output, source) = (output.text().await, Box::new(error));
                return Err(ChatError::ServerSession { server, output, source });
            }
            Err(_) => {
                let (seconds, output) = (SESSION_TIME.as_secs(), output.text().await);
                return Err(ChatError::ServerSilent { server, seconds, output });
            }
        };
        let tools = McpTools::new(&connection)
            .needs_approval(move |tool| approve.holds(tool.hints().read_only))
            .safe_to_retry(|tool| tool.hints().idempotent);
        let listed = tools.list().await;
        let listed = listed.map_err(|source| ChatError::ServerTools { server, source })?;
        for tool in listed {
            let tool = ReportingTool::new(tool, events.clone());
            let tools = std::mem::take(&mut self.tools);
            self.tools = tools.try_with(tool).map_err(ChatError::DuplicateTool)?;
        }
        self.connections.push(connection);
        Ok(())
    }
}

/// Starts a server as a child process.
fn start(
    command: &str,
    environment: &[(OsString, OsString)],
    verbose: bool,
) -> Result<(TokioChildProcess, ServerOutput), ChatError> {
    let words = shlex::split(command).filter(|words| !words.is_empty());
    let Some(words) = words else {
        return Err(ChatError::ServerCommand { command: command.to_owned() });
    };
    let mut process = Command::new(words.first().map_or("", String::as_str));
    process.args(words.iter().skip(1));
    process.env_clear().envs(environment.iter().map(|(name, value)| (name, value)));
    // The server gets its own process group, because on Ctrl-C the terminal sends the signal to the
    // whole process group of the chat.
    #[cfg(unix)]
    process.process_group(0);
    let spawned = TokioChildProcess::builder(process).stderr(Stdio::piped()).spawn();
    let (transport, stderr) = spawned
        .map_err(|source| ChatError::ServerNotStarted { command: command.to_owned(), source })?;
    let mut output = ServerOutput::default();
    output.reader = stderr.map(|stderr| tokio::spawn(output.begun.clone().read(stderr, verbose)));
    Ok((transport, output))
}

/// The standard error of a server, which a task reads.
#[derive(Debug, Default)]
struct ServerOutput {
    begun: OutputBeginning,
    reader: Option<JoinHandle<()>>,
}

impl ServerOutput {
    /// Returns the beginning of the output. Waits up to 1 s for its end, because the task may not
    /// have read the last output of a server that has just exited.
    async fn text(self) -> String {
        if let Some(reader) = self.reader {
            let _ = tokio::time::timeout(Duration::from_secs(1), reader).await;
        }
        let begun = self.begun.0.lock().unwrap_or_else(PoisonError::into_inner);
        String::from_utf8_lossy(&begun).into_owned()
    }
}

/// The first bytes of an output, for an error message.
#[derive(Debug, Clone, Default)]
struct OutputBeginning(Arc<Mutex<Vec<u8>>>);

impl OutputBeginning {
    async fn read(self, mut stderr: ChildStderr, verbose: bool) {
        let mut buffer = [0; 1024];
        while let Ok(count @ 1..) = stderr.read(&mut buffer).await {
            let read = buffer.get(..count).unwrap_or_default();
            if verbose {
                for line in String::from_utf8_lossy(read).lines() {
                    EscapedStderr::write_line(line);
                }
            }
            let mut begun = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            let room = OUTPUT_LIMIT.saturating_sub(begun.len());
            begun.extend(read.iter().take(room));
        }
    }
}
