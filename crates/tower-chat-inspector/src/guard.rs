//! Who may look, and what a browser may do with a page.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Redirect, Response},
};
use http::{
    HeaderMap, HeaderValue, Method, StatusCode, Uri,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, ORIGIN,
        REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};
use sha2::{Digest as _, Sha256};

use crate::{Inspector, pages::Failure};

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The cookie that remembers the token.
const TOKEN: &str = "tower_chat_inspector";

pub(crate) async fn guard(
    State(inspector): State<Arc<Inspector>>,
    request: Request,
    next: Next,
) -> Response {
    let mut response = match admit(&inspector, &request) {
        Admission::Granted => next.run(request).await,
        Admission::Remembered(response) => response,
        Admission::Refused(status, what) => Failure::refused(status, what).into_response(),
    };
    let headers = response.headers_mut();
    for (name, value) in [
        (CONTENT_SECURITY_POLICY, POLICY),
        (X_CONTENT_TYPE_OPTIONS, "nosniff"),
        (X_FRAME_OPTIONS, "DENY"),
        // Without a referrer to itself a form would come from the origin `null`.
        (REFERRER_POLICY, "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

enum Admission {
    Granted,
    /// The token stood in the address: from now on it is in a cookie.
    Remembered(Response),
    Refused(StatusCode, &'static str),
}

fn admit(inspector: &Inspector, request: &Request) -> Admission {
    let headers = request.headers();
    if !is_host_known(inspector, headers) {
        let what = "This host is not known here. Open the page under localhost, or tell the inspector its hosts.";
        return Admission::Refused(StatusCode::MISDIRECTED_REQUEST, what);
    }
    if let Some(token) = &inspector.token {
        match presented(headers, request.uri()) {
            Presented::Token { hash, .. } | Presented::Parameter { hash, .. } if hash != *token => {
                return Admission::Refused(StatusCode::UNAUTHORIZED, "This token is another one.");
            }
            Presented::Parameter { rest, token, .. } => {
                return remembered(inspector, &rest, &token);
            }
            Presented::Token { .. } => {}
            Presented::Nothing => {
                let what = "A token is needed: add ?token=TOKEN to the address, once.";
                return Admission::Refused(StatusCode::UNAUTHORIZED, what);
            }
        }
    }
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if changes && !is_of_own_page(headers) {
        let what = "Only forms of these pages can change something.";
        return Admission::Refused(StatusCode::FORBIDDEN, what);
    }
    Admission::Granted
}

fn text<'h>(headers: &'h HeaderMap, name: &http::HeaderName) -> Option<&'h str> {
    headers.get(name).and_then(|value| value.to_str().ok())
}

/// Whether the request is for a host of the loopback or one that was given.
fn is_host_known(inspector: &Inspector, headers: &HeaderMap) -> bool {
    let Some(host) = text(headers, &HOST).map(str::to_ascii_lowercase) else { return false };
    let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host.as_str(),
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]") || inspector.hosts.contains(&host)
}

/// What a request has as a token.
enum Presented {
    Nothing,
    Token {
        hash: [u8; 32],
    },
    /// In its address, which goes on without it.
    Parameter {
        hash: [u8; 32],
        token: String,
        rest: String,
    },
}

fn hash(token: &str) -> [u8; 32] {
    Sha256::digest(token).into()
}

fn presented(headers: &HeaderMap, uri: &Uri) -> Presented {
    let bearer = text(headers, &AUTHORIZATION).and_then(|value| value.strip_prefix("Bearer "));
    if let Some(token) = bearer {
        return Presented::Token { hash: hash(token) };
    }
    let (mut token, mut others) = (None, Vec::new());
    for parameter in uri.query().unwrap_or_default().split('&').filter(|it| !it.is_empty()) {
        match parameter.strip_prefix("token=") {
            Some(found) => token = Some(found.to_owned()),
            None => others.push(parameter),
        }
    }
    if let Some(token) = token {
        let query =
            if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
        let rest = format!("{}{query}", uri.path());
        return Presented::Parameter { hash: hash(&token), token, rest };
    }
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split(';'));
    let of_us = cookies.find_map(|it| it.trim().strip_prefix(TOKEN)?.strip_prefix('='));
    of_us.map_or(Presented::Nothing, |token| Presented::Token { hash: hash(token) })
}

fn remembered(inspector: &Inspector, rest: &str, token: &str) -> Admission {
    let path = &inspector.path;
    // The address of a nested router's first page has no slash at the end.
    let is_first = !path.is_empty() && (rest == "/" || rest.starts_with("/?"));
    let rest = if is_first { rest.trim_start_matches('/') } else { rest };
    let mut response = Redirect::to(&format!("{path}{rest}")).into_response();
    let cookie_path = if path.is_empty() { "/" } else { path };
    let cookie = format!("{TOKEN}={token}; Path={cookie_path}; HttpOnly; SameSite=Strict");
    let Ok(cookie) = HeaderValue::try_from(cookie) else {
        return Admission::Refused(StatusCode::UNAUTHORIZED, "This token is no cookie.");
    };
    response.headers_mut().insert(SET_COOKIE, cookie);
    Admission::Remembered(response)
}

/// Whether a browser says that the request comes from a page of the same origin. Programs that send
/// neither header are no browsers, which always do.
fn is_of_own_page(headers: &HeaderMap) -> bool {
    let site = headers.get("sec-fetch-site").and_then(|value| value.to_str().ok());
    let is_same_site = site.is_none_or(|site| site == "same-origin");
    let (origin, host) = (text(headers, &ORIGIN), text(headers, &HOST).unwrap_or_default());
    let is_same_origin = origin.is_none_or(|origin| {
        let authority = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host))
    });
    is_same_site && is_same_origin
}
