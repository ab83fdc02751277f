//! Redis servers that work together.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use super::{Missing, RedisServer, free_port};

/// How many slots the keys of a cluster are divided into.
const SLOTS: usize = 16_384;

/// How long the servers may take until they know each other.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster of Redis servers without replicas, each with its part of the keys.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
}

impl RedisCluster {
    /// Starts a cluster of so many servers.
    ///
    /// # Errors
    ///
    /// [`Missing`], as for [`RedisServer::start`].
    ///
    /// # Panics
    ///
    /// If it does not come about.
    pub fn start(servers: usize) -> Result<Self, Missing> {
        let mut started: Vec<(RedisServer, String)> = Vec::new();
        for _ in 0..servers {
            let bus = free_port().to_string();
            let settings = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            started.push((RedisServer::start_with(&settings)?, bus));
        }
        for (number, (server, _)) in started.iter().enumerate() {
            let (first, next) = (SLOTS * number / servers, SLOTS * (number + 1) / servers);
            let slots = format!("CLUSTER ADDSLOTSRANGE {first} {}", next - 1);
            assert_eq!(ask(server.port(), &slots), "OK");
            for (other, bus) in &started {
                let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port());
                assert_eq!(ask(server.port(), &meet), "OK");
            }
        }
        let cluster = Self { servers: started.into_iter().map(|(server, _)| server).collect() };
        let end = Instant::now() + PATIENCE;
        while !cluster.servers.iter().all(|server| cluster.is_known_to(server)) {
            assert!(Instant::now() < end, "the servers do not find each other");
            thread::sleep(Duration::from_millis(50));
        }
        Ok(cluster)
    }

    /// The addresses of its servers.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect()
    }

    /// Its servers.
    pub fn servers(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// Whether all keys can be reached, as far as a server knows.
    ///
    /// # Panics
    ///
    /// If the server does not answer.
    pub fn is_known_to(&self, server: &RedisServer) -> bool {
        let known = ask(server.port(), "CLUSTER INFO");
        let size = format!("cluster_known_nodes:{}\r\n", self.servers.len());
        known.contains("cluster_state:ok") && known.contains(&size)
    }
}

/// The server's answer to a command.
fn ask(port: u16, command: &str) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", port)).expect("a connection");
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("a question");
    let mut answers = BufReader::new(stream);
    let mut line = String::new();
    answers.read_line(&mut line).expect("an answer");
    let line = line.trim_end();
    if let Some(answer) = line.strip_prefix('+') {
        return answer.to_owned();
    }
    let length = line.strip_prefix('$').and_then(|length| length.parse().ok());
    let mut answer = vec![0; length.unwrap_or_else(|| panic!("`{command}` is answered `{line}`"))];
    answers.read_exact(&mut answer).expect("the whole answer");
    String::from_utf8(answer).expect("text")
}
