//! [`RedisCluster`], a temporary cluster of Redis servers.

use std::{
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    process::Command,
    thread,
    time::{Duration, Instant},
};

use super::{Missing, RedisServer, free_port};

/// The number of hash slots of a cluster.
const SLOTS: usize = 16_384;

/// The maximum time that [`RedisCluster::until`] waits.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A cluster of Redis servers. Each primary server owns a part of the hash slots, and may have a
/// replica.
#[derive(Debug)]
pub struct RedisCluster {
    servers: Vec<RedisServer>,
}

/// The time in milliseconds after which a replica replaces an unreachable primary server.
const NODE_TIMEOUT: &str = "2000";

impl RedisCluster {
    /// Starts a cluster of `servers` primary servers without replicas.
    ///
    /// # Errors
    ///
    /// Fails with [`Missing`] under the same conditions as [`RedisServer::start`].
    ///
    /// # Panics
    ///
    /// Panics if the servers do not form a cluster.
    pub fn start(servers: usize) -> Result<Self, Missing> {
        Self::start_with(servers, servers, &[])
    }

    /// Starts a cluster of `servers` primary servers, each with a replica. The replica replaces its
    /// primary server if that server is unreachable for two seconds. The replica of server `n` is
    /// server `servers + n`.
    ///
    /// # Errors
    ///
    /// Fails with [`Missing`] under the same conditions as [`RedisServer::start`].
    ///
    /// # Panics
    ///
    /// Panics if the servers do not form a cluster.
    pub fn start_with_replicas(servers: usize) -> Result<Self, Missing> {
        let settings =
            ["--cluster-node-timeout", NODE_TIMEOUT, "--cluster-replica-validity-factor", "0"];
        let cluster = Self::start_with(2 * servers, servers, &settings)?;
        for number in 0..servers {
            let primary = cluster.ask(number, "CLUSTER MYID");
            let replica = servers + number;
            cluster.until(|| cluster.ask(replica, "CLUSTER NODES").contains(&primary));
            assert_eq!(cluster.ask(replica, &format!("CLUSTER REPLICATE {primary}")), "OK");
        }
        for replica in servers..2 * servers {
            cluster.until(|| cluster.is_following(replica));
        }
        Ok(cluster)
    }

    fn start_with(servers: usize, primaries: usize, settings: &[&str]) -> Result<Self, Missing> {
        let mut started: Vec<(RedisServer, String)> = Vec::new();
        for _ in 0..servers {
            let bus = free_port().to_string();
            let of_cluster = ["--cluster-enabled", "yes", "--cluster-port", &bus];
            let settings = [&of_cluster, settings].concat();
            started.push((RedisServer::start_with(&settings)?, bus));
        }
        for (number, (server, _)) in started.iter().enumerate() {
            if number < primaries {
                let first = SLOTS * number / primaries;
                let next = SLOTS * (number + 1) / primaries;
                let slots = format!("CLUSTER ADDSLOTSRANGE {first} {}", next - 1);
                assert_eq!(ask(server.port(), &slots), "OK");
            }
            for (other, bus) in &started {
                let meet = format!("CLUSTER MEET 127.0.0.1 {} {bus}", other.port());
                assert_eq!(ask(server.port(), &meet), "OK");
            }
        }
        let cluster = Self { servers: started.into_iter().map(|(server, _)| server).collect() };
        cluster.until(|| cluster.servers.iter().all(|server| cluster.is_known_to(server)));
        Ok(cluster)
    }

    /// Waits until a condition is true.
    ///
    /// # Panics
    ///
    /// Panics if the condition is not true within two minutes.
    pub fn until(&self, mut is_so: impl FnMut() -> bool) {
        let end = Instant::now() + TIMEOUT;
        while !is_so() {
            assert!(Instant::now() < end, "the servers do not find each other");
            thread::sleep(Duration::from_millis(20));
        }
    }

    /// Sends a command to one of the servers and returns the reply, which must be a single string
    /// or number.
    ///
    /// # Panics
    ///
    /// Panics if the server does not reply.
    pub fn ask(&self, server: usize, command: &str) -> String {
        ask(self.server(server).port(), command)
    }

    fn server(&self, number: usize) -> &RedisServer {
        self.servers.get(number).expect("the server is in the cluster")
    }

    /// Returns whether a server is a replica that is in sync with its primary server.
    ///
    /// # Panics
    ///
    /// Panics if the server does not reply.
    pub fn is_following(&self, server: usize) -> bool {
        self.ask(server, "INFO replication").contains("master_link_status:up")
    }

    /// Returns whether a server considers itself a primary server.
    ///
    /// # Panics
    ///
    /// Panics if the server does not reply.
    pub fn is_primary(&self, server: usize) -> bool {
        self.ask(server, "INFO replication").contains("role:master")
    }

    /// Moves hash slots with their keys from one server to another, with
    /// `redis-cli --cluster reshard`. A server that has no slots afterwards may become a replica.
    ///
    /// # Panics
    ///
    /// Panics if the slots cannot be moved.
    pub fn move_slots(&self, from: usize, to: usize, slots: usize) {
        let server = self.server(from);
        let program = server.program.to_string_lossy().replace("-server", "-cli");
        let moved = Command::new(program)
            .args(["--cluster", "reshard", &format!("127.0.0.1:{}", server.port())])
            .args(["--cluster-from", &self.ask(from, "CLUSTER MYID")])
            .args(["--cluster-to", &self.ask(to, "CLUSTER MYID")])
            .args(["--cluster-slots", &slots.to_string(), "--cluster-yes"])
            .output()
            .expect("`redis-cli` runs");
        let printed = String::from_utf8_lossy(&moved.stdout);
        assert!(moved.status.success(), "the slots were not moved: {printed}");
    }

    /// Returns the URLs of the servers.
    pub fn addresses(&self) -> Vec<String> {
        self.servers.iter().map(|server| format!("redis://127.0.0.1:{}", server.port())).collect()
    }

    /// Returns the servers of the cluster.
    pub fn servers(&mut self) -> &mut [RedisServer] {
        &mut self.servers
    }

    /// Returns whether a server has found all servers of the cluster, and considers all hash slots
    /// reachable.
    ///
    /// # Panics
    ///
    /// Panics if the server does not reply.
    pub fn is_known_to(&self, server: &RedisServer) -> bool {
        let known = ask(server.port(), "CLUSTER INFO");
        let size = format!("cluster_known_nodes:{}\r\n", self.servers.len());
        known.contains("cluster_state:ok") && known.contains(&size)
    }
}

/// Sends a command to the server on a port and returns the reply.
fn ask(port: u16, command: &str) -> String {
    let mut stream =
        TcpStream::connect(("127.0.0.1", port)).expect("the server accepts connections");
    stream.write_all(format!("{command}\r\n").as_bytes()).expect("the command is sent");
    let mut answers = BufReader::new(stream);
    let mut line = String::new();
    answers.read_line(&mut line).expect("the server answers");
    let line = line.trim_end();
    if let Some(answer) = line.strip_prefix(['+', ':']) {
        return answer.to_owned();
    }
    let length = line.strip_prefix('$').and_then(|length| length.parse().ok());
    let mut answer =
        vec![0; length.unwrap_or_else(|| panic!("the server answers `{command}` with `{line}`"))];
    answers.read_exact(&mut answer).expect("the answer is complete");
    String::from_utf8(answer).expect("the answer is UTF-8")
}
