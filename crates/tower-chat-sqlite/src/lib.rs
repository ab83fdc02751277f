//! A tower-chat history store in one SQLite file.
