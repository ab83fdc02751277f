//! Planted faults, which simulate faults of a parser.

use std::{thread, time::Duration};

use clap::ValueEnum;

use crate::search::processor_time;

/// A planted fault. A search must find it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum Plant {
    /// Some inputs make the parser panic.
    Panic,
    /// Some inputs overflow the stack, which ends the process.
    Overflow,
    /// Some inputs hang the parser.
    Hang,
    /// For long inputs, the time of the parser is quadratic in the length of the input.
    Quadratic,
    /// For some inputs, the parser needs much more memory than the limit for their length.
    Memory,
    /// The last part of a decoded message is lost when the message is stored.
    Roundtrip,
    /// A stream that arrives in small pieces loses its second half.
    Pieces,
}

/// The minimum length, in bytes, of an input whose time is quadratic.
const LONG: usize = 32 * 1024;

impl Plant {
    /// Applies the fault to an input before the parser reads it.
    pub(crate) fn apply(self, bytes: &[u8]) {
        let is_affected = bytes.len() % 61 == 7;
        match self {
            Self::Panic => assert!(!is_affected, "the planted panic"),
            Self::Overflow if is_affected => drop(overflow(1)),
            Self::Hang if is_affected => thread::sleep(Duration::MAX),
            Self::Memory if is_affected => drop(Vec::<u8>::with_capacity(64 * 1024 * 1024)),
            Self::Quadratic if bytes.len() >= LONG => {
                let length = bytes.len() as u64;
                let time = Duration::from_nanos(length.saturating_mul(length) / 2);
                // This time exceeds the limit for every length of input.
                let until = processor_time() + time.min(Duration::from_secs(4));
                while processor_time() < until {}
            }
            Self::Overflow
            | Self::Hang
            | Self::Memory
            | Self::Quadratic
            | Self::Roundtrip
            | Self::Pieces => {}
        }
    }
}

#[expect(unconditional_recursion, reason = "it is meant to overflow the stack")]
fn overflow(depth: u64) -> u64 {
    std::hint::black_box([depth; 64]).iter().sum::<u64>() + overflow(depth + 1)
}
