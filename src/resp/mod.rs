//! Bytes to requests and replies to bytes. Knows no command.
