//! Test doubles for tower-chat: scripted leaf, failing store, store contract, transcript player.
