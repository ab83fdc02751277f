//! Starts temporary database servers for tests that need a real server.
//!
//! A server listens on a free port of the loopback interface, and stores its data in a temporary
//! folder. When the process ends for any reason, the server is stopped and its data is deleted.
//! Tests never use a server that was already running.
//!
//! If the programs of a server are missing and this process runs as root, Debian's package is
//! installed. If the programs cannot be installed, the tests that need the server are skipped and
//! reported. With `TOWER_CHAT_CI=1` in the environment, these tests fail instead.

#![allow(clippy::expect_used, reason = "a panic is a failing test")]

mod end;
mod os_user;
mod outages;
mod pgbouncer;
mod postgres;
mod postgres_replica;
mod programs;
mod redis;
mod redis_cluster;

use std::net::TcpListener;

pub use self::{
    end::AtTheEnd,
    os_user::OsUser,
    outages::writes_through_outages,
    pgbouncer::{PgBouncer, PoolMode},
    postgres::{PostgresServer, PostgresSetup},
    programs::Programs,
    redis::RedisServer,
    redis_cluster::RedisCluster,
};

/// The error of starting a server whose programs are not installed.
#[derive(Debug, thiserror::Error)]
#[error("{what} is not installed, and installing it failed: {reason}")]
#[non_exhaustive]
pub struct Missing {
    /// The missing program.
    pub what: &'static str,
    /// The reason why the program could not be installed.
    pub reason: String,
}

/// Returns the server. If the server is missing, reports the skipped tests with
/// [`skip`](crate::skip) and exits the process with the status 0. Call this function only in a test
/// program in which all tests need the server.
///
/// # Panics
///
/// Panics if the server is missing and the environment contains `TOWER_CHAT_CI=1`.
pub fn required<Server>(server: Result<Server, Missing>, what_needs_it: &str) -> Server {
    match server {
        Ok(server) => server,
        Err(missing) => {
            crate::skip(what_needs_it, missing);
            std::process::exit(0);
        }
    }
}

/// Returns a free port of the loopback interface. Another process may take the port before the
/// caller uses it.
///
/// # Panics
///
/// Panics if no port is free.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.local_addr().expect("the listener has an address").port()
}
