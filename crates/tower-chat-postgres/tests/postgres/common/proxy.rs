//! A proxy between a store and the server. The proxy counts requests. On command, it loses an
//! answer or stops forwarding.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncReadExt, AsyncWriteExt, copy, sink},
    net::{TcpListener, TcpStream, tcp},
};

/// A proxy between a store and the server.
#[derive(Debug, Clone, Default)]
pub struct Proxy(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// The number of answers up to and including the lost one; 0 if no answer will be lost.
    lost_at: AtomicUsize,
    lost: AtomicUsize,
    asked: AtomicUsize,
    /// The number of connections that clients have opened.
    made: AtomicUsize,
    /// The number of the request at which the existing connections become silent; 0 if they do not.
    silent_at: AtomicUsize,
    /// The number of silent connections, which are those that were opened first.
    silent: AtomicUsize,
    unread: AtomicUsize,
}

impl Proxy {
    /// Starts a proxy for the server at an address, and returns the address of the proxy.
    pub async fn start(address: &str) -> (Self, String) {
        let server = address.split(['@', '/']).find(|part| part.starts_with("127.")).unwrap();
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let through = address.replace(server, &own);
        let server: SocketAddr = server.parse().unwrap();
        let proxy = Self::default();
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serving.clone().carry(client, server));
            }
        });
        (proxy, through)
    }

    /// Lets the server execute the next request, but forwards no answer and closes the connection.
    pub fn lose_the_next_answer(&self) {
        self.lose_the_answer_after(0);
    }

    /// Forwards `answers` more answers, and then loses an answer.
    pub fn lose_the_answer_after(&self, answers: usize) {
        self.0.lost_at.store(answers + 1, Ordering::SeqCst);
    }

    /// Forwards `questions` more requests, and makes the existing connections silent at the next
    /// request after them. A silent connection stays open and forwards nothing.
    pub fn fall_silent_after(&self, questions: usize) {
        self.0.silent_at.store(self.asked() + questions + 1, Ordering::SeqCst);
    }

    /// Returns the number of lost answers.
    pub fn lost(&self) -> usize {
        self.0.lost.load(Ordering::SeqCst)
    }

    /// Returns the number of connections that clients have opened.
    pub fn connections(&self) -> usize {
        self.0.made.load(Ordering::SeqCst)
    }

    /// Returns the number of connections that received a request while they were silent.
    pub fn unread(&self) -> usize {
        self.0.unread.load(Ordering::SeqCst)
    }

    /// Returns the number of requests after which the client has to wait for an answer: the `Sync`
    /// and `Query` messages of the protocol.
    pub fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    async fn carry(self, client: TcpStream, server: SocketAddr) {
        let Ok(server) = TcpStream::connect(server).await else { return };
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let number = self.0.made.fetch_add(1, Ordering::SeqCst) + 1;
        let asking = self.clone().carry_questions(number, from_client, to_server);
        let answering = self.carry_answers(number, from_server, to_client);
        // When one side is closed, dropping the other future closes the other side.
        tokio::select! { () = asking => {} () = answering => {} }
    }

    async fn carry_questions(
        self,
        number: usize,
        mut from: tcp::OwnedReadHalf,
        mut to: tcp::OwnedWriteHalf,
    ) {
        // The startup message of the protocol has no type byte.
        let mut has_type = false;
        loop {
            let mut message = Vec::new();
            if has_type {
                let Ok(kind) = from.read_u8().await else { return };
                if matches!(kind, b'S' | b'Q') {
                    let asked = self.0.asked.fetch_add(1, Ordering::SeqCst) + 1;
                    if asked == self.0.silent_at.load(Ordering::SeqCst) {
                        self.0.silent.store(self.connections(), Ordering::SeqCst);
                    }
                    if number <= self.0.silent.load(Ordering::SeqCst) {
                        self.0.unread.fetch_add(1, Ordering::SeqCst);
                        // The proxy reads the requests, and ignores them until the client closes
                        // the connection.
                        drop(copy(&mut from, &mut sink()).await);
                        return;
                    }
                }
                message.push(kind);
            }
            let Ok(length) = from.read_u32().await else { return };
            message.extend(length.to_be_bytes());
            let start = message.len();
            message.resize(start + length as usize - 4, 0);
            if from.read_exact(&mut message[start..]).await.is_err() {
                return;
            }
            if to.write_all(&message).await.is_err() {
                return;
            }
            has_type = true;
        }
    }

    async fn carry_answers(
        self,
        number: usize,
        mut from: tcp::OwnedReadHalf,
        mut to: tcp::OwnedWriteHalf,
    ) {
        let mut answer = vec![0; 64 * 1024];
        loop {
            let Ok(length @ 1..) = from.read(&mut answer).await else { return };
            if number <= self.0.silent.load(Ordering::SeqCst) {
                continue;
            }
            let count = |left: usize| left.checked_sub(1);
            if self.0.lost_at.fetch_update(Ordering::SeqCst, Ordering::SeqCst, count) == Ok(1) {
                self.0.lost.fetch_add(1, Ordering::SeqCst);
                return;
            }
            if to.write_all(&answer[..length]).await.is_err() {
                return;
            }
        }
    }
}
