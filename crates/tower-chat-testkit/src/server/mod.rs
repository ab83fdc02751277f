//! Throwaway database servers, for tests that need a real one.
//!
//! A server listens on the loopback alone, on a free port, keeps its data in a temporary folder, and
//! is gone with everything when the process ends, however it ends. Nothing depends on a server that
//! is already running.
//!
//! Where its programs are missing, Debian's package is installed if this process is root; otherwise
//! what needs it is named and skipped. With `TOWER_CHAT_CI=1` in the environment that is a failure.

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

/// Why there is no server.
#[derive(Debug, thiserror::Error)]
#[error("{what} is not installed and cannot be: {reason}")]
#[non_exhaustive]
pub struct Missing {
    /// What is missing.
    pub what: &'static str,
    /// Why it was not installed.
    pub reason: String,
}

/// The server, or the end of this process: with success, once [`skip`](crate::skip) has named what was
/// not tested. It is for programs all of whose tests need the server, since it ends them all.
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

/// A port of the loopback that nobody used a moment ago.
///
/// # Panics
///
/// If there is none.
pub fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("an address").port()
}
