//! Tests of the verification of the server's certificate.

use std::{fs, process::Command, sync::LazyLock};

use crate::common::{append, key, options, server, texts, write};
use tempfile::TempDir;
use tower_chat_core::store::Revision;
use tower_chat_postgres::{OpenError, PostgresStore};
use tower_chat_testkit::server::{PostgresServer, required};

/// The name in the server's certificate.
const NAME: &str = "chat.test";

static AUTHORITY: LazyLock<Authority> = LazyLock::new(Authority::new);

/// A server that refuses connections without TLS.
static SERVER: LazyLock<PostgresServer> = LazyLock::new(|| {
    let (certificate, key) = AUTHORITY.sign(NAME);
    let server = PostgresServer::setup().tls(certificate, key).start();
    required(server, "TLS of the PostgreSQL store")
});

/// A certificate authority, which the program `openssl` creates.
struct Authority {
    folder: TempDir,
}

impl Authority {
    fn new() -> Self {
        let authority = Self { folder: tempfile::tempdir().unwrap() };
        authority.make("authority", &["-addext", "basicConstraints=critical,CA:TRUE"]);
        authority
    }

    /// Returns a certificate for a server with the given name, and the private key of the
    /// certificate.
    fn sign(&self, name: &str) -> (String, String) {
        let name = format!("subjectAltName=DNS:{name}");
        let is_no_authority = "basicConstraints=critical,CA:FALSE";
        let signed_by = ["-CA", "authority.pem", "-CAkey", "authority.key"];
        let named = ["-addext", &name, "-addext", is_no_authority];
        self.make("server", &[named, signed_by].concat());
        (self.read("server.pem"), self.read("server.key"))
    }

    fn pem(&self) -> String {
        self.read("authority.pem")
    }

    fn make(&self, file: &str, options: &[&str]) {
        let (key, certificate) = (format!("{file}.key"), format!("{file}.pem"));
        let made = Command::new("openssl")
            .args(["req", "-x509", "-nodes", "-days", "2", "-subj", &format!("/CN={file}")])
            .args(["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1"])
            .args(["-keyout", &key, "-out", &certificate])
            .args(options)
            .current_dir(self.folder.path())
            .output()
            .expect("the program openssl");
        assert!(made.status.success(), "{}", String::from_utf8_lossy(&made.stderr));
    }

    fn read(&self, file: &str) -> String {
        fs::read_to_string(self.folder.path().join(file)).unwrap()
    }
}

/// Returns an address that contains the given host name and connects to the server.
fn address(name: &str, sslmode: &str) -> String {
    let port = SERVER.port();
    format!(
        "host={name} hostaddr=127.0.0.1 port={port} user=postgres dbname=postgres sslmode={sslmode}"
    )
}

async fn open(address: &str, authority: &Authority) -> Result<PostgresStore, OpenError> {
    options().with_root_certificates(authority.pem()).connect(address).await
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
        let error = open(&address(NAME, sslmode), &Authority::new()).await.unwrap_err();
        assert!(matches!(error, OpenError::Untrusted { .. }), "{error:?}");
        assert!(!error.is_retryable());
    }
    // The certificate of the test authority is not one of the root certificates of the operating
    // system.
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
async fn a_server_that_requires_tls_refuses_a_client_without_tls() {
    let error = open(&address(NAME, "disable"), &AUTHORITY).await.unwrap_err();
    assert!(matches!(error, OpenError::Connect { .. }), "{error:?}");
    assert!(!error.is_retryable(), "the server has answered");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_requires_tls_refuses_a_server_without_tls() {
    let address = server().address("postgres").replace("sslmode=disable", "sslmode=require");
    let error = open(&address, &AUTHORITY).await.unwrap_err();
    assert!(matches!(error, OpenError::Connect { .. }), "{error:?}");
}
