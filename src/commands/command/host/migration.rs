//! What MIGRATE asks for.

/// What is to be moved, where to, and how.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Migration {
    /// Name or address of the other server.
    pub host: String,
    /// Port of the other server, as the client wrote it.
    pub port: String,
    /// The database there.
    pub target_db: i64,
    /// The database here.
    pub db: usize,
    /// For each thing that the other server is waited for.
    pub timeout_ms: u64,
    /// The keys stay here too.
    pub copies: bool,
    /// Keys of these names are replaced there.
    pub replaces: bool,
    /// With which it is logged in there: user, if any, and password.
    pub credentials: Option<(Option<Vec<u8>>, Vec<u8>)>,
    /// Each once, in the order asked for.
    pub keys: Vec<Box<[u8]>>,
}
