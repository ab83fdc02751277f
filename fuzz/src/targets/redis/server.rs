//! A server that sends prepared replies, or that forwards commands to a real server and records the
//! replies.

use std::{
    collections::VecDeque,
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpListener, TcpStream},
};

use super::reply;

const INFO: &str = "redis_version:7.0.15\r\nmaxmemory:0\r\nmaxmemory_policy:noeviction\r\n\
                    aof_enabled:1\r\ncluster_enabled:0\r\n";

#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// The replies to the next commands. If there is none, the server closes the connection.
    replies: VecDeque<Vec<u8>>,
    has_closed: bool,
    /// The address of the real server, if commands are forwarded.
    real: Option<String>,
    recorded: Vec<Vec<u8>>,
}

impl Server {
    /// Starts the server, and returns its address.
    pub(super) async fn start(real: Option<String>) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = format!("redis://{}", listener.local_addr().expect("an address"));
        let server = Self::default();
        server.state().real = real;
        let serving = server.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let serving = serving.clone();
                tokio::spawn(async move { serving.serve(client).await });
            }
        });
        (server, address)
    }

    pub(super) fn answer_with(&self, replies: Vec<Vec<u8>>) {
        let mut state = self.state();
        state.replies = replies.into();
        state.has_closed = false;
    }

    /// Returns whether the server has closed a connection since the last call of `answer_with`.
    pub(super) fn has_closed(&self) -> bool {
        self.state().has_closed
    }

    pub(super) fn recorded(&self) -> Vec<Vec<u8>> {
        std::mem::take(&mut self.state().recorded)
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn serve(self, mut client: TcpStream) -> io::Result<()> {
        client.set_nodelay(true)?;
        let address = self.state().real.clone();
        let mut real = match address {
            Some(address) => Some(TcpStream::connect(address).await?),
            None => None,
        };
        let mut read = Vec::new();
        loop {
            let command = value(&mut client, &mut read).await?;
            let reply = match &mut real {
                Some(real) => {
                    real.write_all(&command).await?;
                    let reply = value(real, &mut Vec::new()).await?;
                    if !is_prelude(&command) {
                        self.state().recorded.push(reply.clone());
                    }
                    reply
                }
                None if is_prelude(&command) => prelude(&command),
                None => {
                    let next = self.state().replies.pop_front();
                    let reply = next.unwrap_or_default();
                    if reply::length(&reply) != Some(reply.len()) {
                        // A client would wait for the rest of an incomplete reply, and would read
                        // surplus bytes as its next reply.
                        self.state().has_closed = true;
                        client.write_all(&reply).await?;
                        return client.shutdown().await;
                    }
                    reply
                }
            };
            client.write_all(&reply).await?;
        }
    }
}

/// Returns whether a command is part of the setup of a connection or a store.
fn is_prelude(command: &[u8]) -> bool {
    let name = command.split(|byte| *byte == b'\n').nth(2).unwrap_or_default();
    [&b"CLIENT\r"[..], b"INFO\r", b"SCRIPT\r"].iter().any(|it| name.eq_ignore_ascii_case(it))
}

fn prelude(command: &[u8]) -> Vec<u8> {
    let is_info = command.windows(4).any(|some| some.eq_ignore_ascii_case(b"INFO"));
    match command.starts_with(b"*1\r\n") && is_info {
        true => format!("${}\r\n{INFO}\r\n", INFO.len()).into_bytes(),
        false => b"+OK\r\n".to_vec(),
    }
}

/// Reads the next complete value. The bytes after it remain in `read`.
async fn value(stream: &mut TcpStream, read: &mut Vec<u8>) -> io::Result<Vec<u8>> {
    loop {
        if let Some(length) = reply::length(read) {
            let rest = read.split_off(length);
            return Ok(std::mem::replace(read, rest));
        }
        if stream.read_buf(read).await? == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
    }
}
