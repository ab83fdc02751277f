//! Provider wire formats of tower-chat messages as JSON.
