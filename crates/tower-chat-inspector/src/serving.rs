//! The server of the pages.

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

/// How long requests under way may take after the server was told to end.
const GRACE: Duration = Duration::from_secs(3);

/// How long a client may take to send the head of a request, or to begin the next one.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);

/// How long to wait after the system refused a connection, for example because too many files are open.
const PAUSE: Duration = Duration::from_millis(500);

/// Serves the pages until `shutdown` is ready. Then the server accepts no connection any more, finishes the
/// requests under way for a graceful period, and closes what is still open after it: a client that sends
/// half a request, or does not read its page, does not keep the server from ending.
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
            "connections are closed before their requests end"
        );
    }
    connections.shutdown().await;
}

/// The next connection.
async fn accepted(listener: &TcpListener) -> (TcpStream, std::net::SocketAddr) {
    loop {
        match listener.accept().await {
            Ok(accepted) => return accepted,
            Err(error) if is_of_connection(&error) => {}
            Err(error) => {
                tracing::error!(%error, "a connection cannot be accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Whether an error is about one connection, which its client has ended already.
fn is_of_connection(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// Answers the requests of a connection, until its client ends it or the sender of `stopped` is dropped.
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
