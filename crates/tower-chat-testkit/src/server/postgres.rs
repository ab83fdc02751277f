//! A PostgreSQL server.

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

/// How often another port is tried when somebody else takes the one that was free.
const ATTEMPTS: usize = 5;

/// How long the processes of a server that was killed may take to notice.
const PATIENCE: Duration = Duration::from_secs(60);

/// A PostgreSQL server of this process alone. Everybody who can reach it on the loopback is let in,
/// as whichever user they say.
///
/// Unless it is told to, it does not wait for the disk, so it is fast, survives the end of its own
/// processes, and would not survive the loss of power.
///
/// ```no_run
/// use tower_chat_testkit::server::{PostgresServer, required};
///
/// // Skips what needs it where PostgreSQL is not installed and cannot be.
/// let server = required(PostgresServer::start(), "my store");
/// let address = server.address("postgres");
/// server.crash();
/// server.start_again();
/// # let _ = address;
/// ```
#[derive(Debug)]
pub struct PostgresServer {
    // Dropped first: it needs the folder.
    _end: AtTheEnd,
    pub(super) folder: TempDir,
    pub(super) programs: PathBuf,
    pub(super) user: OsUser,
    port: u16,
    pub(super) setup: PostgresSetup,
}

/// How a [`PostgresServer`] is set up.
#[derive(Debug, Clone, Default)]
pub struct PostgresSetup {
    durable_under: Option<PathBuf>,
    tls: Option<TlsFiles>,
}

/// What a server shows of itself, as PEM.
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
    /// [`Missing`], if PostgreSQL is not installed and cannot be.
    ///
    /// # Panics
    ///
    /// If it is there and does not start.
    pub fn start() -> Result<Self, Missing> {
        PostgresSetup::default().start()
    }

    /// A server that is set up in another way.
    pub fn setup() -> PostgresSetup {
        PostgresSetup::default()
    }

    /// The address of a database on the server, for its superuser. There is one called `postgres`.
    pub fn address(&self, database: &str) -> String {
        self.address_for("postgres", database)
    }

    /// The address of a database on the server, for one of its users.
    pub fn address_for(&self, user: &str, database: &str) -> String {
        format!("postgres://{user}@127.0.0.1:{}/{database}?sslmode=disable", self.port)
    }

    /// The port on which it listens.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The folder that holds its data. It belongs to the server's user.
    pub fn folder(&self) -> &Path {
        self.folder.path()
    }

    /// Ends the server as a crash would. Whoever is connected is cut off.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn crash(&self) {
        let stopped = self.control(&["stop", "--mode=immediate"]);
        stopped.expect("PostgreSQL is stopped");
    }

    /// Stops the server in order, without waiting for those who are connected: what they are doing is
    /// rolled back.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn stop(&self) {
        self.control(&["stop", "--mode=fast"]).expect("PostgreSQL is stopped");
    }

    /// Kills the server's first process, which cannot tell the others. They notice, and end.
    ///
    /// # Panics
    ///
    /// If it does not run.
    pub fn kill(&self) {
        let file = self.folder.path().join("data/postmaster.pid");
        let text = fs::read_to_string(&file).expect("the number of the server's process");
        let process = text.lines().next().expect("the number of the server's process");
        let killed = Command::new("kill").args(["-KILL", process]).status().expect("`kill` runs");
        assert!(killed.success(), "PostgreSQL is killed");
    }

    /// Starts the server on the same data and port again.
    ///
    /// # Panics
    ///
    /// If it does not start again.
    pub fn start_again(&self) {
        let end = Instant::now() + PATIENCE;
        // After a kill it refuses while one of the other processes is still there.
        while let Err(error) = self.control(&["start"]) {
            let log = self.log();
            assert!(Instant::now() < end, "PostgreSQL does not start again: {error}\n{log}");
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// What the server said of itself.
    pub fn log(&self) -> String {
        fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }

    /// Runs a server on the data in a folder, on a free port.
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

    /// Lets `pg_ctl` do something, and waits until it is done.
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
    /// Lets the server wait for the disk before it says that a transaction is committed, as
    /// PostgreSQL does by default, and keeps its data under a folder: that for temporary files may be
    /// in memory. The server's user must be able to reach the folder.
    #[must_use]
    pub fn durable_under(mut self, folder: impl Into<PathBuf>) -> Self {
        self.durable_under = Some(folder.into());
        self
    }

    /// Lets nobody in without TLS, for which the server has a certificate and its key, as PEM.
    #[must_use]
    pub fn tls(mut self, certificate: impl Into<String>, key: impl Into<String>) -> Self {
        self.tls = Some(TlsFiles { certificate: certificate.into(), key: key.into() });
        self
    }

    /// Starts the server.
    ///
    /// # Errors
    ///
    /// [`Missing`], if PostgreSQL is not installed and cannot be.
    ///
    /// # Panics
    ///
    /// If it is there and does not start.
    pub fn start(self) -> Result<PostgresServer, Missing> {
        let programs = PROGRAMS.find()?;
        let user = OsUser::not_root(&["postgres"]);
        let folder = self.folder(&user);
        let data = folder.path().join("data");
        let mut initdb = user.command(&programs.join("initdb"));
        initdb.args(["--username=postgres", "--auth=trust", "--encoding=UTF8", "--locale=C"]);
        initdb.args(["--no-sync", "--no-instructions", "--pgdata"]).arg(&data);
        run(&mut initdb, folder.path()).expect("a database cluster is made");
        if let Some(tls) = &self.tls {
            tls.write(&data, &user);
        }
        Ok(PostgresServer::run(folder, programs, user, self))
    }

    /// A folder for a server's data.
    pub(super) fn folder(&self, user: &OsUser) -> TempDir {
        let mut temporary = tempfile::Builder::new();
        temporary.prefix("postgres-");
        let folder = match &self.durable_under {
            Some(folder) => temporary.tempdir_in(folder),
            None => temporary.tempdir(),
        };
        let folder = folder.expect("a folder");
        user.own(folder.path());
        folder
    }
}

impl TlsFiles {
    /// Puts the files where the server looks for them, and lets nobody in without TLS.
    fn write(&self, data: &Path, user: &OsUser) {
        for (name, content) in [
            ("server.crt", self.certificate.as_str()),
            ("server.key", self.key.as_str()),
            ("pg_hba.conf", "hostssl all all 127.0.0.1/32 trust\n"),
        ] {
            let path = data.join(name);
            fs::write(&path, content).expect("a file of the server");
            // PostgreSQL refuses a key that others may read.
            let owner_alone = fs::Permissions::from_mode(0o600);
            fs::set_permissions(&path, owner_alone).expect("a file of the server");
            user.own(&path);
        }
    }
}

/// Runs a command in a folder that its user may be in.
pub(super) fn run(command: &mut Command, folder: &Path) -> Result<(), String> {
    // A pipe would stay open for as long as the server that is started holds it.
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
