//! The parameters of MIGRATE.

/// The keys to be moved, the target and the options.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Name or address of the other server.
    pub host: String,
    /// Port of the other server, as the client wrote it.
    pub port: String,
    /// The database on the other server.
    pub target_db: i64,
    /// The database on this server.
    pub db: usize,
    /// Timeout in milliseconds for each step that depends on the other server.
    pub timeout_ms: u64,
    /// Whether the keys are kept on this server (COPY).
    pub copies: bool,
    /// Whether existing keys of these names are replaced on the other server (REPLACE).
    pub replaces: bool,
    /// Credentials for the other server: user, if any, and password.
    pub credentials: Option<(Option<Vec<u8>>, Vec<u8>)>,
    /// The keys without duplicates, in the order of the request.
    pub keys: Vec<Box<[u8]>>,
}
