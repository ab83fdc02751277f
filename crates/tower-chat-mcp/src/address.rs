//! Removes secrets from addresses in the texts of errors.

/// The characters, in addition to white space, that end an address in a text.
const ENDS: [char; 5] = ['"', '`', '<', '>', '\u{0}'];

/// The punctuation after an address that belongs to the surrounding sentence.
const PUNCTUATION: [char; 9] = [')', ']', '}', '\'', ',', '.', ';', ':', '!'];

/// Shortens every address in the text of an error or a log line to its scheme, host, port and path,
/// because the user, the password and the query of an address may be secrets.
///
/// ```
/// use tower_chat_mcp::without_secrets;
/// let error = "error sending request for url (https://me:pw@host:8080/mcp?api_key=s3cret): refused";
/// assert_eq!(
///     without_secrets(error),
///     "error sending request for url (https://host:8080/mcp): refused"
/// );
/// ```
pub fn without_secrets(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once("://") {
        safe.push_str(before);
        safe.push_str("://");
        let ends = |character: char| character.is_whitespace() || ENDS.contains(&character);
        let end = after.find(ends).unwrap_or(after.len());
        let (token, following) = after.split_at(end);
        let address = token.trim_end_matches(PUNCTUATION);
        // The path of an address may contain another address.
        safe.push_str(&without_secrets(&host_and_path(address)));
        safe.push_str(token.get(address.len()..).unwrap_or_default());
        rest = following;
    }
    safe.push_str(rest);
    safe
}

/// Returns the text after `://` of an address, without its user, password, query and fragment.
fn host_and_path(address: &str) -> String {
    let authority = address.split(['/', '?', '#']).next().unwrap_or_default();
    let shown = match authority.rsplit_once('@') {
        Some(_) => address.get(authority.rfind('@').map_or(0, |at| at.saturating_add(1))..),
        None if has_port_only(authority) => Some(address),
        // The user or the password contains a character that ends an authority. The host begins
        // after the last `@`.
        None => address.rsplit_once('@').map(|(_, shown)| shown),
    };
    let shown = shown.unwrap_or_default();
    shown.split(['?', '#']).next().unwrap_or_default().to_owned()
}

/// Returns whether an authority without an `@` is a host, with or without a port, and not the
/// beginning of a user name and a password.
fn has_port_only(authority: &str) -> bool {
    let after_host = match authority.strip_prefix('[') {
        Some(address) => address.split_once(']').map_or(address, |(_, rest)| rest),
        None => authority
            .split_once(':')
            .map_or("", |(host, _)| authority.get(host.len()..).unwrap_or_default()),
    };
    let port = after_host.strip_prefix(':').unwrap_or(after_host);
    port.chars().all(|character| character.is_ascii_digit())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_are_shown_with_only_host_and_path() {
        for (text, expected) in [
            ("no address", "no address"),
            ("http://h", "http://h"),
            ("at http://h:80/a/b.", "at http://h:80/a/b."),
            ("http://h/a?key=S then https://u:P@h2#S", "http://h/a then https://h2"),
            ("(http://h/?a=S)b", "(http://h/"),
            ("postgres://u:P@x@h:5432/d?password=S", "postgres://h:5432/d"),
            ("postgres://u:P/S@h/d", "postgres://h/d"),
            ("postgres://u:P?S@h/d", "postgres://h/d"),
            ("postgres://u:P#S", "postgres://"),
            ("redis://:P@[::1]:6379/0", "redis://[::1]:6379/0"),
            ("http://[::1]:80/a", "http://[::1]:80/a"),
            ("http://h/@user/page", "http://h/@user/page"),
            (r#"{"url":"http://h/p?k=S"}"#, r#"{"url":"http://h/p"}"#),
            ("a://b://u:P@c?S", "a://b://c"),
            ("://", "://"),
        ] {
            let safe = without_secrets(text);
            assert_eq!(safe, expected, "{text}");
            assert!(!safe.contains('S') && !safe.contains('P'), "{safe}");
        }
    }
}
