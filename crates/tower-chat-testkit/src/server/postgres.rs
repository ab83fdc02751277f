//! [`PostgresServer`], a temporary PostgreSQL server.

use std::{
    fs,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
    process::Command,
    thread,
    time::{Duration, Instant},
};

use tempfile::TempDir;

use super::{AtTheEnd, Missing, OsUser, Programs, free_port};

const PROGRAMS: Programs = Programs {
    what: "PostgreSQL",
    package: "postgresql",
    folders: &["/usr/lib/postgresql/*/bin", "/usr/pgsql/*/bin"],
    names: &["initdb", "pg_basebackup", "pg_ctl", "postgres"],
};

/// The maximum number of ports that are tried, because another process may take a free port.
const ATTEMPTS: usize = 5;

/// The maximum time to wait until all processes of a killed server have ended.
const STOP_TIMEOUT: Duration = Duration::from_secs(60);

/// A temporary PostgreSQL server, which only this process uses. The server accepts every client on
/// the loopback interface, as any user and without a password.
///
/// By default, the server does not sync its files, because tests are then faster. The data survives
/// a crash of the server's processes but not a power loss.
///
/// ```no_run
/// use tower_chat_testkit::server::{PostgresServer, required};
///
/// // Skips the tests if PostgreSQL is not installed and cannot be installed.
/// let server = required(PostgresServer::start(), "my store");
/// let address = server.address("postgres");
/// server.crash();
/// server.start_again();
/// # let _ = address;
/// ```
#[derive(Debug)]
pub struct PostgresServer {
    // Stops the server with a script when this field is dropped. The script needs `folder`, which is
    // dropped later.
    _end: AtTheEnd,
    pub(super) folder: TempDir,
    pub(super) programs: PathBuf,
    pub(super) user: OsUser,
    port: u16,
    pub(super) setup: PostgresSetup,
}

/// The settings of a [`PostgresServer`].
#[derive(Debug, Clone, Default)]
pub struct PostgresSetup {
    durable_under: Option<PathBuf>,
    tls: Option<TlsFiles>,
}

/// The certificate and the private key of a server, in PEM format.
#[derive(Debug, Clone)]
struct TlsFiles {
    certificate: String,
    key: String,
}

impl PostgresServer {
    /// Starts a server.
    ///
    /// # Errors
    ///
    /// Fails with [`Missing`] if PostgreSQL is not installed and cannot be installed.
    ///
    /// # Panics
    ///
    /// Panics if the server is installed but does not start.
    pub fn start() -> Result<Self, Missing> {
        PostgresSetup::default().start()
    }

    /// Returns the default settings, which the caller can change before it starts a server.
    pub fn setup() -> PostgresSetup {
        PostgresSetup::default()
    }

    /// Returns the URL by which the superuser connects to a database. The database `postgres`
    /// always exists.
    pub fn address(&self, database: &str) -> String {
        self.address_for("postgres", database)
    }

    /// Returns the URL by which a user connects to a database.
    pub fn address_for(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// Returns the port on which the server listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// Returns the data folder of the server. The owner of the folder is the user that runs the
    /// server.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Stops the server immediately, without a clean shutdown, as in a crash. All clients are
    /// disconnected.
    ///
    /// # Panics
    ///
    /// Panics if the server is not running.
    pub fn crash(&self) {
        let stopped = self.control(&["stop", "--mode=immediate"]);
        stopped.expect("PostgreSQL is stopped");
    }

    /// Shuts the server down without waiting for its clients. The transactions of the clients are
    /// rolled back.
    ///
    /// # Panics
    ///
    /// Panics if the server is not running.
    pub fn stop(&self) {
        self.control(&["stop", "--mode=fast"]).expect("PostgreSQL is stopped");
    }

    /// Kills the main process of the server. The other processes of the server end when they detect
    /// that the main process is gone.
    ///
    /// # Panics
    ///
    /// Panics if the server is not running.
    pub fn kill(&self) {
        let file = self.folder.path().join("data/postmaster.pid");
        let text = fs::read_to_string(&file).expect("the process id of the server is read");
        let process = text.lines().next().expect("the process id of the server is read");
        let killed = Command::new("kill").args(["-KILL", process]).status().expect("`kill` runs");
        assert!(killed.success(), "PostgreSQL is killed");
    }

    /// Restarts the server with the same data and on the same port.
    ///
    /// # Panics
    ///
    /// Panics if the server does not start.
    pub fn start_again(&self) {
        let end = Instant::now() + STOP_TIMEOUT;
        // After `kill`, the server refuses to start until all of its old processes have ended.
        while let Err(error) = self.control(&["start"]) {
            let log = self.log();
            assert!(Instant::now() < end, "PostgreSQL does not start again: {error}\n{log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// Returns the content of the server's log.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Starts a server on a free port, with the data in a folder.
    pub(super) fn run(
        folder: TempDir,
        programs: PathBuf,
        user: OsUser,
        setup: PostgresSetup,
    ) -> Self {
        let end = AtTheEnd::run(
            "pid=$(head -n 1 \"$1/data/postmaster.pid\") && kill -QUIT $pid
             while [ -n \"$pid\" ] && kill -0 $pid; do sleep 0.05; done
             rm -rf \"$1\"",
            &[&folder.path().to_string_lossy()],
        );
        let mut server = PostgresServer { _end: end, folder, programs, user, port: 0, setup };
        let mut failure = String::new();
        for _ in 0..ATTEMPTS {
            server.port = free_port();
            match server.control(&["start"]) {
                Ok(()) => return server,
                Err(error) => failure = error,
            }
        }
        panic!("PostgreSQL does not start: {failure}\n{}", server.log());
    }

    /// Runs `pg_ctl` with these arguments, and waits until the command has ended.
    pub(super) fn control(&self, arguments: &[&str]) -> Result<(), String> {
        let mut command = self.user.command(&self.programs.join("pg_ctl"));
        command.args(arguments).args(["--wait", "--timeout=120", "--silent", "--pgdata"]);
        command.arg(self.folder.path().join("data"));
        if arguments.contains(&"start") {
            let mut options = format!(
                "-p {} -c listen_addresses=127.0.0.1 -c unix_socket_directories= \
                 -c max_connections=300 -c autovacuum=off",
                self.port
            );
            if self.setup.durable_under.is_none() {
                options.push_str(" -c fsync=off");
            }
            if self.setup.tls.is_some() {
                options.push_str(" -c ssl=on");
            }
            command.arg("--log").arg(self.folder.path().join("log")).arg("--options").arg(options);
        }
        run(&mut command, self.folder.path())
    }
}

impl PostgresSetup {
    /// Makes the server sync each commit, which is PostgreSQL's default. Stores the data in a
    /// subfolder of `folder`, because the default folder for temporary files may be in memory. The
    /// user that runs the server must have access to `folder`.
    #[must_use]
    pub fn durable_under(mut self, folder: impl Into<PathBuf>) -> Self {
        self.durable_under = Some(folder.into());
        self
    }

    /// Makes the server require TLS. The certificate and its private key are in PEM format.
    #[must_use]
    pub fn tls(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.tls = Some(TlsFiles { certificate: certificate.into(), key: key.into() });
        self
    }

    /// Starts a server with these settings.
    ///
    /// # Errors
    ///
    /// Fails with [`Missing`] if PostgreSQL is not installed and cannot be installed.
    ///
    /// # Panics
    ///
    /// Panics if the server is installed but does not start.
    pub fn start(self) -> Result<PostgresServer, Missing> {
        let programs = PROGRAMS.find()?;
        let user = OsUser::not_root(&["postgres"]);
        let folder = self.folder(&user);
        let data = folder.path().join("data");
        let mut initdb = user.command(&programs.join("initdb"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--no-sync", "--no-instructions", "--pgdata"]).arg(&data);
        run(&mut initdb, folder.path()).expect("the database cluster is created");
        if let Some(tls) = &self.tls {
            tls.write(&data, &user);
        }
        Ok(PostgresServer::run(folder, programs, user, self))
    }

    pub(super) fn folder(&self, user: &OsUser) -> TempDir {
        let mut temporary = tempfile::Builder::new();
        temporary.prefix("postgres-");
        let folder = match &self.durable_under {
            Some(folder) => temporary.tempdir_in(folder),
            None => temporary.tempdir(),
        };
        let folder = folder.expect("the folder is created");
        user.own(folder.path());
        folder
    }
}

impl TlsFiles {
    /// Writes the certificate and the key, and makes the server require TLS.
    fn write(&self, data: &Path, user: &OsUser) {
        for (name, content) in [
            ("server.crt", self.certificate.as_str()),
            ("server.key", self.key.as_str()),
            ("pg_hba.conf", "hostssl all all 127.0.0.1/32 trust\n"),
        ] {
            let path = data.join(name);
            fs::write(&path, content).expect("the file of the server is written");
            // PostgreSQL refuses a private key that other users can read.
            let owner_alone = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&path, owner_alone).expect("the file of the server is written");
            user.own(&path);
        }
    }
}

/// Runs a command in a folder to which the user of the command has access.
pub(super) fn run(command: &mut Command, folder: &Path) -> Result<(), String> {
    // The output is written to a file instead of a pipe. A pipe would remain open until the server
    // that the command has started ends.
    let printed = folder.join("printed");
    let file = fs::File::create(&printed).map_err(|error| error.to_string())?;
    let other = file.try_clone().map_err(|error| error.to_string())?;
    let status = command.current_dir(folder).stdout(file).stderr(other).status();
    let status = status.map_err(|error| format!("{command:?} does not run: {error}"))?;
    if status.success() {
        return Ok(());
    }
    Err(format!("{status}: {}", fs::read_to_string(printed).unwrap_or_default()))
}
