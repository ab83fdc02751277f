//! The server: it answers with what it was given, or passes questions on to a real one.

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

/// Clones are one server.
#[derive(Clone, Default)]
pub(super) struct Server(Arc<Mutex<State>>);

#[derive(Default)]
struct State {
    /// What the next questions are answered with; who asks more is hung up on.
    replies: VecDeque<Vec<u8>>,
    has_hung_up: bool,
    /// The address of a real server.
    real: Option<String>,
    /// What it has answered.
    recorded: Vec<Vec<u8>>,
}

impl Server {
    /// Begins to serve; gives the address.
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
        state.has_hung_up = false;
    }

    /// Whether a connection was ended since replies were given.
    pub(super) fn has_hung_up(&self) -> bool {
        self.state().has_hung_up
    }

    /// What the real server has answered, which is forgotten.
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
            let question = value(&mut client, &mut read).await?;
            let reply = match &mut real {
                Some(real) => {
                    real.write_all(&question).await?;
                    let reply = value(real, &mut Vec::new()).await?;
                    if !is_prelude(&question) {
                        self.state().recorded.push(reply.clone());
                    }
                    reply
                }
                None if is_prelude(&question) => prelude(&question),
                None => {
                    let next = self.state().replies.pop_front();
                    let reply = next.unwrap_or_default();
                    if reply::length(&reply) != Some(reply.len()) {
                        // What is not whole, or too much, would be waited for or be the next answer.
                        self.state().has_hung_up = true;
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

/// Whether a command belongs to the beginning of a connection or of a store.
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

/// The next whole value that arrives; what arrives behind it is left for the next.
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
