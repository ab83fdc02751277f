//! Times in the form in which stores write them: whole milliseconds since 1970 (UTC). The number of
//! an earlier time is negative.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

const NANOSECONDS: u128 = 1_000_000;

/// Returns the millisecond that contains a time.
///
/// ```
/// use std::time::{Duration, SystemTime};
/// use tower_chat_core::store::author::milliseconds;
///
/// let time = SystemTime::UNIX_EPOCH + Duration::from_micros(2_500);
/// assert_eq!((milliseconds::of(time), milliseconds::bound(time)), (2, 3));
/// assert_eq!(milliseconds::time(2), Some(SystemTime::UNIX_EPOCH + Duration::from_millis(2)));
/// ```
pub fn of(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => whole(since.as_nanos() / NANOSECONDS),
        Err(before) => -whole(before.duration().as_nanos().div_ceil(NANOSECONDS)),
    }
}

/// Returns the first whole millisecond that is not before a time. A stored time, which is a whole
/// millisecond, is before this bound if, and only if, the stored time is before the given time.
pub fn bound(time: SystemTime) -> i64 {
    match time.duration_since(UNIX_EPOCH) {
        Ok(since) => whole(since.as_nanos().div_ceil(NANOSECONDS)),
        Err(before) => -whole(before.duration().as_nanos() / NANOSECONDS),
    }
}

/// Returns the time of a millisecond; `None` if [`SystemTime`] cannot represent it.
pub fn time(milliseconds: i64) -> Option<SystemTime> {
    let distance = Duration::from_millis(milliseconds.unsigned_abs());
    if milliseconds < 0 {
        UNIX_EPOCH.checked_sub(distance)
    } else {
        UNIX_EPOCH.checked_add(distance)
    }
}

fn whole(milliseconds: u128) -> i64 {
    i64::try_from(milliseconds).unwrap_or(i64::MAX)
}

/// Serializes a time, for `#[serde(with = "...")]`.
pub(crate) mod required {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};

    use super::{SystemTime, of, optional::in_range};

    pub(crate) fn serialize<S: Serializer>(
        at: &SystemTime,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        of(*at).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<SystemTime, D::Error> {
        in_range(i64::deserialize(deserializer)?)
    }
}

/// Serializes an optional time, for `#[serde(with = "...")]`.
pub(crate) mod optional {
    use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error};

    use super::{SystemTime, of, time};

    pub(crate) fn serialize<S: Serializer>(
        at: &Option<SystemTime>,
        serializer: S,
    ) -> Result<S::Ok, S::Error> {
        at.map(of).serialize(serializer)
    }

    pub(crate) fn deserialize<'de, D: Deserializer<'de>>(
        deserializer: D,
    ) -> Result<Option<SystemTime>, D::Error> {
        let Some(milliseconds) = Option::<i64>::deserialize(deserializer)? else { return Ok(None) };
        in_range(milliseconds).map(Some)
    }

    pub(super) fn in_range<E: Error>(milliseconds: i64) -> Result<SystemTime, E> {
        let out_of_range = || E::custom("the time is out of the range of this machine");
        time(milliseconds).ok_or_else(out_of_range)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn after(nanoseconds: u64) -> SystemTime {
        UNIX_EPOCH + Duration::from_nanos(nanoseconds)
    }

    fn before(nanoseconds: u64) -> SystemTime {
        UNIX_EPOCH - Duration::from_nanos(nanoseconds)
    }

    #[test]
    fn a_time_belongs_to_the_millisecond_it_is_in_on_both_sides_of_1970() {
        assert_eq!([0, 1, 999_999, 1_000_000].map(|time| of(after(time))), [0, 0, 0, 1]);
        assert_eq!([1, 1_000_000, 1_000_001].map(|time| of(before(time))), [-1, -1, -2]);
    }

    #[test]
    fn whole_milliseconds_compare_with_a_bound_as_they_do_with_its_time() {
        for limit in [0, 1, 999_999, 1_000_000, 1_000_001].map(after) {
            for milliseconds in 0..3 {
                let is_before = milliseconds < bound(limit);
                assert_eq!(is_before, time(milliseconds).unwrap() < limit, "{limit:?}");
            }
        }
        for limit in [1, 999_999, 1_000_000, 1_000_001].map(before) {
            for milliseconds in -3..1 {
                let is_before = milliseconds < bound(limit);
                assert_eq!(is_before, time(milliseconds).unwrap() < limit, "{limit:?}");
            }
        }
    }

    #[test]
    fn a_time_is_returned_from_its_millisecond() {
        for milliseconds in [-62_135_596_800_000, -1, 0, 1, 253_402_300_799_999] {
            assert_eq!(time(milliseconds).map(of), Some(milliseconds));
        }
    }
}
