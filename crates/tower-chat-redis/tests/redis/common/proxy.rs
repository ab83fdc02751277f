//! A proxy between a store and the server. The proxy counts requests. On command, it loses a reply,
//! delays a request or stops forwarding.

use std::{
    net::SocketAddr,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream, tcp},
    sync::Notify,
};

/// A proxy between a store and the server.
#[derive(Debug, Clone, Default)]
pub struct Proxy(Arc<State>);

#[derive(Debug, Default)]
struct State {
    /// The server to which the proxy forwards new connections.
    server: Mutex<Option<SocketAddr>>,
    /// The number of replies up to and including the lost one; 0 if no reply will be lost.
    loses: AtomicUsize,
    lost: AtomicUsize,
    asked: AtomicUsize,
    /// The number of requests up to and including the delayed one; 0 if no request will be delayed.
    holds: AtomicUsize,
    held: Notify,
    let_go: Notify,
    /// The number of connections that clients have opened.
    connected: AtomicUsize,
    /// The number of silent connections, which are those that were opened first.
    silent: AtomicUsize,
    swallowed: Notify,
}

impl Proxy {
    /// Starts a proxy for the server at an address, and returns the address of the proxy.
    pub async fn start(address: &str) -> (Self, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let own = listener.local_addr().unwrap().to_string();
        let through = address.replace(server(address), &own);
        let proxy = Self::default();
        proxy.lead_to(address);
        let serving = proxy.clone();
        tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                tokio::spawn(serving.clone().carry(client));
            }
        });
        (proxy, through)
    }

    /// From now on, forwards new connections to the server at an address.
    pub fn lead_to(&self, address: &str) {
        *self.0.server.lock().unwrap() = Some(server(address).parse().unwrap());
    }

    /// Lets the server execute the next command, but forwards no reply and closes the connection.
    pub fn lose_the_next_answer(&self) {
        self.lose_the_answer_after(0);
    }

    /// Forwards the replies to `others` more requests, and then loses a reply.
    pub fn lose_the_answer_after(&self, others: usize) {
        self.0.loses.store(others + 1, Ordering::SeqCst);
    }

    /// Returns the number of lost replies.
    pub fn lost(&self) -> usize {
        self.0.lost.load(Ordering::SeqCst)
    }

    /// Forwards `others` more requests, and then delays the next request and all later requests on
    /// the same connection.
    pub fn hold_the_question_after(&self, others: usize) {
        self.0.holds.store(others + 1, Ordering::SeqCst);
    }

    /// Waits until the delayed request has arrived.
    pub async fn held(&self) {
        self.0.held.notified().await;
    }

    /// Forwards the delayed request to the server.
    pub fn let_go(&self) {
        self.0.let_go.notify_one();
    }

    /// Makes all existing connections silent: they stay open and forward nothing.
    pub fn fall_silent(&self) {
        self.0.silent.store(self.0.connected.load(Ordering::SeqCst), Ordering::SeqCst);
    }

    /// Waits until a request was sent over a silent connection.
    pub async fn swallowed(&self) {
        self.0.swallowed.notified().await;
    }

    /// Returns the number of commands that the proxy has received from clients.
    pub fn asked(&self) -> usize {
        self.0.asked.load(Ordering::SeqCst)
    }

    async fn carry(self, client: TcpStream) {
        let server = self.0.server.lock().unwrap().unwrap();
        let Ok(server) = TcpStream::connect(server).await else { return };
        let number = self.0.connected.fetch_add(1, Ordering::SeqCst);
        let (from_client, to_client) = client.into_split();
        let (from_server, to_server) = server.into_split();
        let asking = self.clone().carry_questions(number, from_client, to_server);
        let answering = self.carry_answers(from_server, to_client);
        // When one side is closed, dropping the other future closes the other side.
        tokio::select! { () = asking => {} () = answering => {} }
    }

    /// Forwards the requests of a connection. A command is a list of strings, each with its length.
    async fn carry_questions(
        self,
        number: usize,
        from: tcp::OwnedReadHalf,
        mut to: tcp::OwnedWriteHalf,
    ) {
        let mut from = BufReader::new(from);
        loop {
            let mut command = Vec::new();
            let Some(count) = length(&mut from, &mut command, b'*').await else { return };
            for _ in 0..count {
                let Some(length) = length(&mut from, &mut command, b'$').await else { return };
                let start = command.len();
                command.resize(start + length + 2, 0);
                if from.read_exact(&mut command[start..]).await.is_err() {
                    return;
                }
            }
            self.0.asked.fetch_add(1, Ordering::SeqCst);
            if number < self.0.silent.load(Ordering::SeqCst) {
                self.0.swallowed.notify_one();
                continue;
            }
            if is_its_turn(&self.0.holds) {
                self.0.held.notify_one();
                self.0.let_go.notified().await;
            }
            if to.write_all(&command).await.is_err() {
                return;
            }
        }
    }

    async fn carry_answers(self, mut from: tcp::OwnedReadHalf, mut to: tcp::OwnedWriteHalf) {
        let mut answer = vec![0; 64 * 1024];
        loop {
            let Ok(length @ 1..) = from.read(&mut answer).await else { return };
            if is_its_turn(&self.0.loses) {
                self.0.lost.fetch_add(1, Ordering::SeqCst);
                return;
            }
            if to.write_all(&answer[..length]).await.is_err() {
                return;
            }
        }
    }
}

/// Returns the host and the port in an address.
fn server(address: &str) -> &str {
    address.split(['@', '/']).find(|part| part.starts_with("127.")).unwrap()
}

/// Decrements a counter that is not 0. Returns whether the counter has become 0.
fn is_its_turn(left: &AtomicUsize) -> bool {
    let counted = |left: usize| left.checked_sub(1);
    left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, counted) == Ok(1)
}

/// Reads a line that contains a length, and returns the length. Appends the line to `kept`.
async fn length(
    from: &mut BufReader<tcp::OwnedReadHalf>,
    kept: &mut Vec<u8>,
    kind: u8,
) -> Option<usize> {
    let start = kept.len();
    let (1.., Some(&first)) = (from.read_until(b'\n', kept).await.ok()?, kept.get(start)) else {
        return None;
    };
    assert_eq!(first, kind, "the protocol is followed");
    std::str::from_utf8(&kept[start + 1..]).unwrap().trim().parse().ok()
}
