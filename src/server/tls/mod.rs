//! TLS: builds rustls contexts from the directives, and provides one encrypted socket type.
//!
//! ```text
//! ciphers     OpenSSL's names and words for ciphers, as suites
//! groups      OpenSSL's names for groups of key exchange
//! files       certificates, keys and authorities, read from files
//! sealed      password-protected private keys
//! contexts    the contexts for handshakes; replaced as a whole, never changed
//! sessions    sessions that clients may resume
//! names       names of a certificate's holder
//! handshake   from a socket to an encrypted one, within bounds
//! channel     the encrypted socket, with the interface of a plain one
//! asking      for client tools: their arguments, and a blocking stream
//! ```
//!
//! The module is independent of clients and commands. Connections keep the contexts that they started with.

pub mod asking;
pub mod channel;
mod ciphers;
pub mod contexts;
mod files;
mod groups;
pub mod handshake;
pub mod names;
mod sealed;
mod sessions;
