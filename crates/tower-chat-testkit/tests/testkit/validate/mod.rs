//! Tests the validator with requests that real providers accepted and refused.

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
