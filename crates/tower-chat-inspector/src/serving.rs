//! The HTTP server of the pages.

use std::{future::Future, io, pin::pin, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::Request;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::{TokioIo, TokioTimer};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::watch,
    task::JoinSet,
    time::{sleep, timeout},
};
use tower::ServiceExt as _;

/// The maximum time for which the server waits for in-flight requests after the shutdown has begun.
const GRACE: Duration = Duration::from_secs(3);

/// The maximum time in which a client must send the headers of a request. For a connection that is
/// kept open, the time begins when the previous response was sent.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// The pause after `accept` failed, for example because the process has too many open files.
const PAUSE: Duration = Duration::from_millis(500);

/// Serves the pages until `shutdown` completes. The server then accepts no more connections, waits
/// up to [`GRACE`] for in-flight requests, and closes the remaining connections, even if a client
/// has sent an incomplete request or does not read its response.
pub(crate) async fn serve(
    listener: TcpListener,
    router: Router,
    shutdown: impl Future<Output = ()>,
) {
    let (stop, stopped) = watch::channel(());
    let mut connections = JoinSet::new();
    let mut shutdown = pin!(shutdown);
    loop {
        tokio::select! {
            () = &mut shutdown => break,
            (stream, from) = accepted(&listener) => {
                connections.spawn(connection(stream, ConnectInfo(from), router.clone(), stopped.clone()));
            }
            Some(_) = connections.join_next() => {}
        }
    }
    drop((listener, stop));
    let finished = async { while connections.join_next().await.is_some() {} };
    if timeout(GRACE, finished).await.is_err() {
        tracing::info!(
            open = connections.len(),
            "connections are closed before their requests have ended"
        );
    }
    connections.shutdown().await;
}

/// Accepts the next connection. Logs errors that concern more than one connection.
async fn accepted(listener: &TcpListener) -> (TcpStream, std::net::SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "accepting a connection failed");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Returns whether `accept` failed because the client has already closed the new connection.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Serves the requests of a connection until the client closes the connection. After the sender of
/// `stopped` is dropped, the connection is closed when the current request has ended.
async fn connection(
    stream: TcpStream,
    from: ConnectInfo<std::net::SocketAddr>,
    router: Router,
    mut stopped: watch::Receiver<()>,
) {
    let service = service_fn(move |mut request: Request<Incoming>| {
        request.extensions_mut().insert(from);
        router.clone().oneshot(request.map(Body::new))
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_TIMEOUT)
        .serve_connection(TokioIo::new(stream), service);
    let mut served = pin!(served);
    let done = tokio::select! {
        done = served.as_mut() => done,
        _ = stopped.changed() => {
            served.as_mut().graceful_shutdown();
            served.await
        }
    };
    if let Err(error) = done {
        tracing::debug!(%error, "a connection failed");
    }
}
