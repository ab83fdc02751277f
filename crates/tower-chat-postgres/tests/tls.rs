//! Who the server is, as its certificate says.
#![allow(clippy::unwrap_used, clippy::indexing_slicing, reason = "in helpers of tests too")]

mod common;

use std::sync::LazyLock;

use common::{append, key, options, server, texts, write};
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, IsCa, KeyPair};
use tower_chat_core::store::Revision;
use tower_chat_postgres::{OpenError, PostgresStore};
use tower_chat_testkit::server::{PostgresServer, required};

/// The name in the server's certificate.
const NAME: &str = "chat.test";

type Authority = CertifiedIssuer<'static, KeyPair>;

static AUTHORITY: LazyLock<Authority> = LazyLock::new(authority);

/// A server that lets nobody in without TLS.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| {
    let key = KeyPair::generate().unwrap();
    let parameters = CertificateParams::new([NAME.to_owned()]).unwrap();
    let certificate = parameters.signed_by(&key, &AUTHORITY).unwrap();
    let server = PostgresServer::setup().tls(certificate.pem(), key.serialize_pem()).start();
    required(server, "TLS of the PostgreSQL store")
});

fn authority() -> Authority {
    let mut parameters = CertificateParams::new([]).unwrap();
    parameters.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    CertifiedIssuer::self_signed(parameters, KeyPair::generate().unwrap()).unwrap()
}

/// The address of the server under a name.
fn address(name: &str, sslmode: &str) -> String {
    let port = SERVER.port();
    format!(
        "host={name} hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres sslmode={sslmode}"
    )
}

async fn open(address: &str, authority: &Authority) -> Result<PostgresStore, OpenError> {
    options().root_certificates(authority.pem()).connect(address).await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_with_the_right_certificate_is_used_over_tls() {
    for sslmode in ["require", "prefer"] {
        let store = open(&address(NAME, sslmode), &AUTHORITY).await.unwrap();
        let key = key(sslmode);
        let revision = append(&store, write(&key, Revision::ABSENT, &["a"])).await.unwrap();
        append(&store, write(&key, revision, &["b"])).await.unwrap();
        assert_eq!(texts(&store, &key).await, ["a", "b"]);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_authority_is_refused() {
    for sslmode in ["require", "prefer"] {
        let error = open(&address(NAME, sslmode), &authority()).await.unwrap_err();
        assert!(matches!(error, OpenError::Untrusted { .. }), "{error:?}");
        assert!(!error.is_retryable());
    }
    // That of a server for tests is not among the operating system's.
    let error = options().connect(&address(NAME, "require")).await.unwrap_err();
    assert!(matches!(error, OpenError::Untrusted { .. }), "{error:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_certificate_of_another_name_is_refused() {
    let error = open(&address("other.test", "require"), &AUTHORITY).await.unwrap_err();
    assert!(matches!(error, OpenError::Untrusted { .. }), "{error:?}");
    assert!(!error.is_retryable());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_wants_tls_lets_nobody_in_without() {
    let error = open(&address(NAME, "disable"), &AUTHORITY).await.unwrap_err();
    assert!(matches!(error, OpenError::Connect { .. }), "{error:?}");
    assert!(!error.is_retryable(), "the server has answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_wants_tls_uses_no_server_without() {
    let address = server().address("postgres").replace("sslmode=disable", "sslmode=require");
    let error = open(&address, &AUTHORITY).await.unwrap_err();
    assert!(matches!(error, OpenError::Connect { .. }), "{error:?}");
}
