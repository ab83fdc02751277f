//! Access control: decides which requests the inspector serves, and restricts what a page may do in
//! the browser.

use std::sync::Arc;

use axum::{
    extract::{Request, State},
    middleware::Next,
    response::{IntoResponse as _, Redirect, Response},
};
use http::{
    HeaderMap, HeaderName, HeaderValue, Method, StatusCode, Uri,
    header::{
        AUTHORIZATION, CACHE_CONTROL, CONTENT_SECURITY_POLICY, COOKIE, HOST, ORIGIN,
        REFERRER_POLICY, SET_COOKIE, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
    },
};
use sha2::{Digest as _, Sha256};

use crate::{Inspector, pages::Failure};

const POLICY: &str = "default-src 'none'; style-src 'self'; script-src 'self'; connect-src 'self'; \
                      img-src 'self' data:; form-action 'self'; frame-ancestors 'none'; base-uri 'none'";

/// The prefix of the name of the cookie that replaces the token in later requests.
const TOKEN: &str = "tower_chat_inspector";

/// The header by which a browser reports whether a page of the same origin caused the request.
const SITE: &str = "sec-fetch-site";

/// Calls the next service if the request is admitted. Adds headers that restrict the page.
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
        // With `no-referrer`, a form would have `Origin: null`, and its request would be refused.
        (REFERRER_POLICY, "same-origin"),
        // A page of another origin can neither embed these pages nor use a reference to their
        // window.
        (HeaderName::from_static("cross-origin-resource-policy"), "same-origin"),
        (HeaderName::from_static("cross-origin-opener-policy"), "same-origin"),
        (CACHE_CONTROL, "no-store"),
    ] {
        headers.insert(name, HeaderValue::from_static(value));
    }
    response
}

enum Admission {
    Granted,
    /// The query contained the token. The response sets the cookie, and redirects to the same URI
    /// without the token.
    Remembered(Response),
    Refused(StatusCode, &'static str),
}

fn admit(inspector: &Inspector, request: &Request) -> Admission {
    let headers = request.headers();
    if !is_host_known(inspector, headers) {
        let what = "This host is not one of the inspector's hosts. Open the page at localhost, or \
                    add the host to the inspector's hosts.";
        return Admission::Refused(StatusCode::MISDIRECTED_REQUEST, what);
    }
    let changes = !matches!(*request.method(), Method::GET | Method::HEAD);
    if !is_of_own_page(headers, changes) {
        let what = match changes {
            true => "The request was not sent by a form of these pages. Send the form of a page.",
            false => {
                "The request comes from a page of another origin. Type the address, or open it \
                 from a bookmark."
            }
        };
        return Admission::Refused(StatusCode::FORBIDDEN, what);
    }
    let Some(token) = &inspector.token else { return Admission::Granted };
    match presented(token, headers, request.uri()) {
        Presented::Bearer(hash) | Presented::Parameter { hash, .. } if hash != *token => {
            Admission::Refused(
                StatusCode::UNAUTHORIZED,
                "The token is wrong. Add ?token=TOKEN with the right token to the address, once.",
            )
        }
        Presented::Parameter { remaining_uri, .. } => remembered(inspector, token, &remaining_uri),
        Presented::Bearer(_) => Admission::Granted,
        // Hashes are compared, because the duration of this comparison reveals nothing about the
        // value.
        Presented::Cookie(value) if hash(value) == hash(cookie_value(token)) => Admission::Granted,
        Presented::Cookie(_) => Admission::Refused(
            StatusCode::UNAUTHORIZED,
            "The token is wrong. Add ?token=TOKEN with the right token to the address, once.",
        ),
        Presented::Nothing => {
            let what = "A token is required. Add ?token=TOKEN to the address, once.";
            Admission::Refused(StatusCode::UNAUTHORIZED, what)
        }
    }
}

/// Returns the value of a header, if it is present. Fails if the header occurs twice, or if its
/// value is not visible ASCII.
fn single(
    headers: &HeaderMap,
    name: impl http::header::AsHeaderName,
) -> Result<Option<&str>, Unreadable> {
    let mut values = headers.get_all(name).into_iter();
    let value = values.next().map(HeaderValue::to_str).transpose().map_err(|_| Unreadable)?;
    values.next().map_or(Ok(value), |_| Err(Unreadable))
}

/// The error for a header that another program, such as a proxy, may interpret differently.
struct Unreadable;

/// Returns whether the header `Host` of a request names a loopback host or a host of
/// [`Inspector::with_hosts`].
fn is_host_known(inspector: &Inspector, headers: &HeaderMap) -> bool {
    let Ok(Some(host)) = single(headers, HOST) else { return false };
    let host = host.to_ascii_lowercase();
    let is_port = |port: &str| port.bytes().all(|digit| digit.is_ascii_digit());
    let name = match host.rsplit_once(':') {
        Some((name, port)) if is_port(port) => name,
        _ => host.as_str(),
    };
    matches!(name, "localhost" | "127.0.0.1" | "[::1]") || inspector.hosts.contains(&host)
}

/// The token or cookie that a request contains.
enum Presented<'h> {
    Nothing,
    /// The hash of the token in the header `Authorization`.
    Bearer([u8; 32]),
    Cookie(&'h str),
    /// The hash of the token in the query, and the request's URI without the token.
    Parameter {
        hash: [u8; 32],
        remaining_uri: String,
    },
}

fn hash(text: impl AsRef<[u8]>) -> [u8; 32] {
    Sha256::digest(text).into()
}

/// Returns the value of the cookie for a token with this hash: the hash in hexadecimal, because a
/// token may contain characters that are not allowed in a cookie.
fn cookie_value(token: &[u8; 32]) -> String {
    token.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Returns the name of the cookie for a token with this hash. In a browser, all ports of a host
/// share their cookies. With equal names, inspectors on two ports would overwrite each other's
/// cookie.
fn cookie_name(token: &[u8; 32]) -> String {
    let prefix: String = cookie_value(&hash(token)).chars().take(8).collect();
    format!("{TOKEN}_{prefix}")
}

fn presented<'h>(token: &[u8; 32], headers: &'h HeaderMap, uri: &Uri) -> Presented<'h> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
    if let Some(bearer) = bearer.and_then(|value| value.strip_prefix("Bearer ")) {
        return Presented::Bearer(hash(bearer));
    }
    let (mut parameter, mut others) = (None, Vec::new());
    for part in uri.query().unwrap_or_default().split('&').filter(|it| !it.is_empty()) {
        match part.strip_prefix("token=") {
            Some(found) => parameter = Some(found),
            None => others.push(part),
        }
    }
    if let Some(parameter) = parameter {
        let query =
            if others.is_empty() { String::new() } else { format!("?{}", others.join("&")) };
        let remaining_uri = format!("{}{query}", uri.path());
        return Presented::Parameter { hash: hash(percent_decoded(parameter)), remaining_uri };
    }
    let name = cookie_name(token);
    let cookies = headers.get_all(COOKIE).iter().filter_map(|value| value.to_str().ok());
    let mut cookies = cookies.flat_map(|cookies| cookies.split(';'));
    let of_us = cookies.find_map(|it| it.trim().strip_prefix(name.as_str())?.strip_prefix('='));
    of_us.map_or(Presented::Nothing, Presented::Cookie)
}

/// Decodes the percent-encoding of a query parameter. A plus sign remains a plus sign, because it
/// may be part of a token, and the links of the inspector encode a space as `%20`.
fn percent_decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, behind)) = rest.split_first() {
        let digits =
            behind.get(..2).filter(|it| *first == b'%' && it.iter().all(u8::is_ascii_hexdigit));
        let byte = digits.and_then(|it| u8::from_str_radix(str::from_utf8(it).ok()?, 16).ok());
        bytes.push(byte.unwrap_or(*first));
        rest = if byte.is_some() { behind.get(2..).unwrap_or_default() } else { behind };
    }
    bytes
}

fn remembered(inspector: &Inspector, token: &[u8; 32], remaining_uri: &str) -> Admission {
    let path = &inspector.path;
    // axum serves the root of a nested router at the path without a slash at the end.
    let is_first = !path.is_empty() && (remaining_uri == "/" || remaining_uri.starts_with("/?"));
    let remaining_uri =
        if is_first { remaining_uri.trim_start_matches('/') } else { remaining_uri };
    let mut response = Redirect::to(&format!("{path}{remaining_uri}")).into_response();
    let cookie_path = if path.is_empty() { "/" } else { path };
    let (name, value) = (cookie_name(token), cookie_value(token));
    let cookie = format!("{name}={value}; Path={cookie_path}; HttpOnly; SameSite=Strict");
    let Ok(cookie) = HeaderValue::try_from(cookie) else {
        let what = "The path of these pages is not valid in a cookie. Send the token in the \
                    header Authorization.";
        return Admission::Refused(StatusCode::UNAUTHORIZED, what);
    };
    response.headers_mut().insert(SET_COOKIE, cookie);
    Admission::Remembered(response)
}

/// Returns whether a request may be served according to the headers `Sec-Fetch-Site` and `Origin`.
///
/// - A page of the same origin must have caused a request that changes the store.
/// - A request that only reads may also come from an address that the user typed, or from a
///   bookmark.
/// - A request without these headers is accepted: browsers send at least one of them, and the
///   request therefore comes from another program.
fn is_of_own_page(headers: &HeaderMap, changes: bool) -> bool {
    let (Ok(site), Ok(origin), Ok(host)) =
        (single(headers, SITE), single(headers, ORIGIN), single(headers, HOST))
    else {
        return false;
    };
    let is_own_site = match site {
        None | Some("same-origin") => true,
        // The user typed the address, opened a bookmark, or followed a link in a program other than
        // the browser.
        Some("none") => !changes,
        Some(_) => false,
    };
    let is_own_origin = origin.is_none_or(|origin| {
        let authority = origin.strip_prefix("http://").or(origin.strip_prefix("https://"));
        authority.is_some_and(|authority| authority.eq_ignore_ascii_case(host.unwrap_or_default()))
    });
    is_own_site && is_own_origin
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_token_of_any_characters_can_be_percent_encoded_in_a_link() {
        for (text, token) in [
            ("open-sesame", "open-sesame"),
            ("t+1", "t+1"),
            ("t%2B1%3b%20%C3%A9", "t+1; é"),
            ("100%", "100%"),
            ("%zz%4", "%zz%4"),
            ("%+1", "%+1"),
        ] {
            assert_eq!(percent_decoded(text), token.as_bytes());
        }
    }
}
