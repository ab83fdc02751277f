//! [`PgBouncer`], a connection pooler for a PostgreSQL server.

use std::{
    fs,
    net::TcpStream,
    process::{Child, Stdio},
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{AtTheEnd, Missing, OsUser, PostgresServer, Programs, free_port};

const PROGRAMS: Programs = Programs {
    what: "PgBouncer",
    package: "pgbouncer",
    folders: &["/usr/sbin", "/usr/bin", "/usr/local/bin"],
    names: &["pgbouncer"],
};

/// The maximum number of ports that are tried, because another process may take a free port.
const ATTEMPTS: usize = 5;

/// The maximum time to wait until the pooler accepts connections.
const START_TIMEOUT: Duration = Duration::from_secs(60);

/// How long the pooler assigns a connection of the server to one client.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PoolMode {
    /// Until the client disconnects.
    Session,
    /// For one transaction.
    Transaction,
}

/// A temporary PgBouncer, which pools connections to a [`PostgresServer`].
///
/// The pooler ignores the startup parameter `options`, and uses the default value of
/// `max_prepared_statements`. Versions before 1.21 do not support prepared statements in the pool
/// mode `transaction`.
///
/// ```no_run
/// use tower_chat_testkit::server::{PgBouncer, PoolMode, PostgresServer, required};
///
/// let server = required(PostgresServer::start(), "my store");
/// let pooler = required(PgBouncer::start(&server, PoolMode::Transaction, 2), "my store");
/// println!("{}", pooler.address("postgres"));
/// ```
#[derive(Debug)]
pub struct PgBouncer {
    process: Option<Child>,
    // Runs a script that deletes the folder, after `Drop` has stopped the pooler.
    _end: AtTheEnd,
    folder: TempDir,
    port: u16,
}

impl PgBouncer {
    /// Starts a pooler with at most `pool_size` connections to the server for each user and
    /// database.
    ///
    /// # Errors
    ///
    /// Fails with [`Missing`] if PgBouncer is not installed and cannot be installed.
    ///
    /// # Panics
    ///
    /// Panics if the pooler is installed but does not start.
    pub fn start(
        server: &PostgresServer,
        mode: PoolMode,
        pool_size: usize,
    ) -> Result<Self, Missing> {
        let program = PROGRAMS.find()?.join("pgbouncer");
        let user = OsUser::not_root(&["postgres"]);
        let folder =
            tempfile::Builder::new().prefix("pgbouncer-").tempdir().expect("the folder is created");
        user.own(folder.path());
        let end = AtTheEnd::run(
            "if [ -f \"$1/pid\" ]; then kill -KILL $(cat \"$1/pid\"); sleep 0.1; fi; rm -rf \"$1\"",
            &[&folder.path().to_string_lossy()],
        );
        let mut pooler = Self { process: None, _end: end, folder, port: 0 };
        let path = pooler.folder.path().to_owned();
        let settings = path.join("pgbouncer.ini");
        for _ in 0..ATTEMPTS {
            pooler.port = free_port();
            fs::write(path.join("users"), "\"postgres\" \"\"\n")
                .expect("the list of users is written");
            fs::write(&settings, pooler.settings(server, mode, pool_size))
                .expect("the settings are written");
            let mut command = user.command(&program);
            command.arg("--quiet").arg(&settings).current_dir(&path);
            command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
            if pooler.wait_until_running(command.spawn().expect("PgBouncer is started")) {
                return Ok(pooler);
            }
        }
        let log = fs::read_to_string(path.join("log")).unwrap_or_default();
        panic!("PgBouncer does not start: {log}");
    }

    /// Returns the URL by which the superuser connects to a database of the server through the
    /// pooler.
    pub fn address(&self, database: &str) -> String {
        format!("postgres://postgres@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    fn settings(&self, server: &PostgresServer, mode: PoolMode, pool_size: usize) -> String {
        let mode = match mode {
            PoolMode::Session => "session",
            PoolMode::Transaction => "transaction",
        };
        let folder = self.folder.path().display();
        format!(
            "[databases]\n* = host=127.0.0.1 port={}\n[pgbouncer]\nlisten_addr = 127.0.0.1\n\
             listen_port = {}\nunix_socket_dir =\nauth_type = trust\nauth_file = {folder}/users\n\
             pool_mode = {mode}\ndefault_pool_size = {pool_size}\nmax_client_conn = 500\n\
             ignore_startup_parameters = options,extra_float_digits\npidfile = {folder}/pid\n\
             logfile = {folder}/log\n",
            server.port(),
            self.port,
        )
    }

    /// Waits until the pooler accepts connections. After a timeout, kills it and returns `false`.
    fn wait_until_running(&mut self, mut process: Child) -> bool {
        let end = Instant::now() + START_TIMEOUT;
        while Instant::now() < end {
            if process.try_wait().expect("the state of the process is read").is_some() {
                return false;
            }
            if TcpStream::connect(("127.0.0.1", self.port)).is_ok() {
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

impl Drop for PgBouncer {
    fn drop(&mut self) {
        if let Some(mut process) = self.process.take() {
            drop(process.kill());
            drop(process.wait());
            // Otherwise the script of `_end` could kill another process with the same process id.
            drop(fs::remove_file(self.folder.path().join("pid")));
        }
    }
}
