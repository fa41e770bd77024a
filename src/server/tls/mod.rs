//! TLS: what the directives ask for as contexts of rustls, and one encrypted socket.
//!
//! ```text
//! ciphers     OpenSSL's names and words for ciphers, as suites
//! files       certificates, keys and authorities, read from files
//! sealed      private keys that a password protects
//! contexts    the configuration as what handshakes begin with; replaced whole, never changed
//! sessions    sessions that clients may resume
//! names       whom a certificate names
//! handshake   from a socket to an encrypted one, within bounds
//! channel     the encrypted socket, which asks and answers as a plain one does
//! asking      for the tools that ask a server: their arguments, and a stream that waits
//! ```
//!
//! Nothing here knows a client or a command. Connections keep the contexts that they began with.

pub mod asking;
pub mod channel;
mod ciphers;
pub mod contexts;
mod files;
pub mod handshake;
pub mod names;
mod sealed;
mod sessions;
