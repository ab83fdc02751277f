//! Tests of encrypted connections.

use std::{
    env, fs,
    path::Path,
    process::{Command, Stdio},
};

use crate::common::{append, key, options, start, texts, write};
use tower_chat_core::store::Revision;
use tower_chat_redis::OpenError;
use tower_chat_testkit::server::free_port;

const ADDRESS: &str = "TOWER_CHAT_REDIS_TLS_ADDRESS";
const IS_KNOWN: &str = "TOWER_CHAT_REDIS_TLS_IS_KNOWN";

/// Creates a self-signed certificate for the loopback address.
fn certificate(folder: &Path) {
    let made = Command::new("openssl")
        .args(["req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"])
        .args(["-subj", "/CN=localhost", "-addext", "subjectAltName=IP:127.0.0.1"])
        .args(["-addext", "basicConstraints=critical,CA:FALSE"])
        .args(["-keyout", "key.pem", "-out", "certificate.pem"])
        .current_dir(folder)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    assert!(made.unwrap().success());
    fs::write(folder.join("nobody.pem"), "").unwrap();
}

#[tokio::test]
async fn connecting_over_tls_succeeds_only_if_the_certificate_is_trusted() {
    let folder = tempfile::tempdir().unwrap();
    certificate(folder.path());
    let path = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let port = free_port().to_string();
    let (certificate, private) = (path("certificate.pem"), path("key.pem"));
    let server = start(&[
        "--tls-port",
        &port,
        "--tls-cert-file",
        &certificate,
        "--tls-key-file",
        &private,
        "--tls-auth-clients",
        "no",
    ]);
    // A process reads the path of its root certificates from its environment.
    for (roots, is_known) in [(certificate.clone(), "1"), (path("nobody.pem"), "0")] {
        let child = Command::new(env::current_exe().unwrap())
            .args(["--exact", "tls::child_connects", "--ignored", "--nocapture"])
            .env(ADDRESS, format!("rediss://127.0.0.1:{port}/"))
            .env(IS_KNOWN, is_known)
            .env("SSL_CERT_FILE", roots)
            .env_remove("SSL_CERT_DIR")
            .status();
        assert!(child.unwrap().success(), "{is_known}: {}", server.log());
    }
}

#[tokio::test]
#[ignore = "the child of another test"]
async fn child_connects() {
    let (Ok(address), Ok(is_known)) = (env::var(ADDRESS), env::var(IS_KNOWN)) else { return };
    let opened = options().connect(&address).await;
    if is_known == "1" {
        let store = opened.unwrap();
        append(&store, write(&key("a"), Revision::ABSENT, &["a"])).await.unwrap();
        assert_eq!(texts(&store, &key("a")).await, ["a"]);
    } else {
        let error = opened.unwrap_err();
        assert!(
            matches!(error, OpenError::Connect { .. } | OpenError::Refused { .. }),
            "{error:?}"
        );
    }
}
