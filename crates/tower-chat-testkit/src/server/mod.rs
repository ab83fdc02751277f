//! Throwaway database servers, for tests that need a real one.
//!
//! A server listens only on the loopback interface, on a free port, stores its data in a temporary
//! folder, and is removed with its data when the process ends for any reason. Tests never use a server
//! that is already running.
//!
//! If the programs of a server are missing, Debian's package is installed if this process is root.
//! Otherwise the tests that need it are reported and skipped. With `TOWER_CHAT_CI=1` in the environment,
//! this is a failure instead.

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

/// The reason why there is no server.
#[derive(Debug, thiserror::Error)]
#[error("{what} is not installed, and installing it failed: {reason}")]
#[non_exhaustive]
pub struct Missing {
    /// The missing program.
    pub what: &'static str,
    /// The reason why it was not installed.
    pub reason: String,
}

/// Returns the server. If it is missing, ends this process with success, after [`skip`](crate::skip) has
/// reported the skipped test. Use it only in programs in which all tests need the server.
///
/// # Panics
///
/// If the server is missing and the environment has `TOWER_CHAT_CI=1`.
pub fn required<Server>(server: Result<Server, Missing>, what_needs_it: &str) -> Server {
    match server {
        Ok(server) => server,
        Err(missing) => {
            crate::skip(what_needs_it, missing);
            std::process::exit(0);
        }
    }
}

/// Returns a port of the loopback interface that was free a moment ago.
///
/// # Panics
///
/// If there is none.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a port is free");
    listener.local_addr().expect("the listener has an address").port()
}
