//! [`RedisServer`], a temporary server of Valkey if it is installed, and of Redis otherwise.

use std::{
    fs,
    io::{Read, Write},
    net::TcpStream,
    path::PathBuf,
    process::{Child, Command, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{AtTheEnd, Missing, Programs, free_port};

const REDIS: Programs = Programs {
    what: "Redis",
    package: "redis-server",
    folders: &["/usr/bin", "/usr/local/bin"],
    names: &["redis-server"],
};

const VALKEY: Programs =
    Programs { what: "Valkey", package: "valkey-server", names: &["valkey-server"], ..REDIS };

/// The maximum number of ports that are tried, because another process may take a free port.
const ATTEMPTS: usize = 5;

/// The maximum time to wait until a server replies.
const TIMEOUT: Duration = Duration::from_secs(120);

/// A temporary Redis server, which only this process uses.
///
/// The server appends each write to its append-only file, and syncs the file before it replies
/// (`appendfsync always`). Acknowledged writes therefore survive [`crash`](Self::crash).
///
/// ```no_run
/// use tower_chat_testkit::server::{RedisServer, required};
///
/// let server = required(RedisServer::start(), "my store");
/// println!("{}", server.address(0));
/// ```
#[derive(Debug)]
pub struct RedisServer {
    process: Option<Child>,
    // Runs a script that deletes the folder, after `Drop` has stopped the server.
    _end: AtTheEnd,
    folder: TempDir,
    pub(super) program: PathBuf,
    settings: Vec<String>,
    port: u16,
}

impl RedisServer {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// Fails with [`Missing`] if neither Redis nor Valkey is installed, and Redis cannot be
    /// installed.
    ///
    /// # Panics
    ///
    /// Panics if the server is installed but does not start.
    pub fn start() -> Result<Self, Missing> {
        Self::start_with(&[])
    }

    /// Starts a server with additional command line arguments, such as `--requirepass` and a
    /// password.
    ///
    /// # Errors
    ///
    /// Fails with [`Missing`] under the same conditions as [`start`](Self::start).
    ///
    /// # Panics
    ///
    /// Panics if the server is installed but does not start.
    pub fn start_with(settings: &[&str]) -> Result<Self, Missing> {
        let program = match VALKEY.installed() {
            Some(folder) => folder.join("valkey-server"),
            None => REDIS.find()?.join("redis-server"),
        };
        let folder =
            tempfile::Builder::new().prefix("redis-").tempdir().expect("the folder is created");
        let end = AtTheEnd::run(
            "if [ -f \"$1/pid\" ]; then kill -KILL $(cat \"$1/pid\"); sleep 0.1; fi; rm -rf \"$1\"",
            &[&folder.path().to_string_lossy()],
        );
        let mut server = Self {
            process: None,
            _end: end,
            folder,
            program,
            settings: settings.iter().map(|&setting| setting.to_owned()).collect(),
            port: 0,
        };
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            if server.run() {
                return Ok(server);
            }
        }
        panic!("Redis does not start: {}", server.log());
    }

    /// Returns the port on which the server listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the URL of one of the server's 16 databases, whose numbers begin with 0.
    pub fn address(&self, database: u32) -> String {
        format!("redis://127.0.0.1:{}/{database}", self.port)
    }

    /// Returns the data folder of the server.
    pub fn folder(&self) -> &std::path::Path {
        self.folder.path()
    }

    /// Kills the server with `SIGKILL`. All clients are disconnected.
    ///
    /// # Panics
    ///
    /// Panics if the server is not running.
    pub fn crash(&mut self) {
        let mut process = self.process.take().expect("the server is running");
        process.kill().expect("Redis is killed");
        process.wait().expect("Redis has ended");
        // Otherwise the script of `_end` could kill another process with the same process id.
        drop(fs::remove_file(self.folder.path().join("pid")));
    }

    /// Suspends the process of the server with `SIGSTOP`. The server then does not reply until
    /// [`resume`](Self::resume) is called.
    ///
    /// # Panics
    ///
    /// Panics if the server is not running.
    pub fn pause(&self) {
        self.signal("-STOP");
    }

    /// Resumes a suspended server with `SIGCONT`.
    ///
    /// # Panics
    ///
    /// Panics if the server is not running.
    pub fn resume(&self) {
        self.signal("-CONT");
    }

    fn signal(&self, signal: &str) {
        let process = self.process.as_ref().expect("the server is running").id().to_string();
        let status = Command::new("kill").args([signal, &process]).status().expect("`kill` runs");
        assert!(status.success(), "`kill {signal}` of the server succeeds");
    }

    /// Restarts the server with the same data and on the same port.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn start_again(&mut self) {
        assert!(self.run(), "Redis does not start again: {}", self.log());
    }

    /// Returns the content of the server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts the server and waits until it replies. After a timeout, kills it and returns `false`.
    fn run(&mut self) -> bool {
        let folder = self.folder.path().to_string_lossy().into_owned();
        let port = self.port.to_string();
        let mut process = Command::new(&self.program)
            .args(["--bind", "127.0.0.1", "--port", &port, "--daemonize", "no"])
            .args(["--dir", &folder, "--pidfile", &format!("{folder}/pid")])
            .args(["--logfile", &format!("{folder}/log"), "--save", ""])
            .args(["--appendonly", "yes", "--appendfsync", "always"])
            .args(&self.settings)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .expect("Redis is started");
        let end = Instant::now() + TIMEOUT;
        while Instant::now() < end {
            if process.try_wait().expect("the state of the process is read").is_some() {
                return false;
            }
            if is_ready(self.port) {
                self.process = Some(process);
                return true;
            }
            thread::sleep(Duration::from_millis(10));
        }
        drop(process.kill());
        drop(process.wait());
        false
    }
}

impl Drop for RedisServer {
    fn drop(&mut self) {
        if self.process.is_some() {
            self.crash();
        }
    }
}

/// Returns whether a server replies on a port and has loaded its data.
fn is_ready(port: u16) -> bool {
    let ask = || {
        let mut stream = TcpStream::connect(("127.0.0.1", port))?;
        stream.set_read_timeout(Some(Duration::from_secs(5)))?;
        stream.write_all(b"PING\r\n")?;
        let mut answer = [0; 5];
        stream.read_exact(&mut answer)?;
        std::io::Result::Ok(answer)
    };
    // A server that requires a password is ready if it replies with the error `NOAUTH`.
    ask().is_ok_and(|answer| matches!(&answer, b"+PONG" | b"-NOAU"))
}
