//! Finds the end of a value of the Redis protocol.

/// The maximum number of nested levels of a valid value.
const MAX_DEPTH: usize = 200;

/// Returns the length, in bytes, of the value at the beginning of the bytes. `None` if the value is
/// incomplete or invalid.
pub(super) fn length(bytes: &[u8]) -> Option<usize> {
    let (mut at, mut left) = (0_usize, vec![1_usize]);
    while let Some(values) = left.last_mut() {
        let Some(fewer) = values.checked_sub(1) else {
            left.pop();
            continue;
        };
        *values = fewer;
        let kind = *bytes.get(at)?;
        let rest = bytes.get(at + 1..)?;
        let end = rest.windows(2).position(|two| two == b"\r\n")?;
        let number =
            std::str::from_utf8(rest.get(..end)?).ok().and_then(|it| it.parse::<i64>().ok());
        at += end + 3;
        match kind {
            b'+' | b'-' | b':' | b'_' | b'#' | b',' | b'(' => {}
            b'$' | b'!' | b'=' => {
                if let Ok(length) = usize::try_from(number?) {
                    at = at.checked_add(length)?.checked_add(2)?;
                    bytes.get(..at)?;
                }
            }
            b'*' | b'~' | b'>' | b'%' => {
                let times = if kind == b'%' { 2 } else { 1 };
                left.push(usize::try_from(number?).unwrap_or_default().checked_mul(times)?);
            }
            _ => return None,
        }
        if left.len() > MAX_DEPTH {
            return None;
        }
    }
    Some(at)
}
