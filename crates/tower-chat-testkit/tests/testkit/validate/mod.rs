//! Tests the validator with requests that providers have accepted or refused.

mod accepted;
mod anything;
mod data;
mod mutation;
mod mutations;
mod neutral;
mod rejected;
mod rules;
mod sites;
mod transcripts;
