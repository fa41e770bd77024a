//! Kinds of denials.

/// The kind of a denial.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// A database that the command would use.
    Database,
    /// The command.
    Command,
    /// One of its keys.
    Key,
    /// Authentication.
    Auth,
    /// One of its channels.
    Channel,
    /// Authentication as the user named in a certificate.
    Certificate,
}

impl Denied {
    /// Returns the name in ACL LOG.
    pub fn name(self) -> &'static str {
        match self {
            Denied::Database => "database",
            Denied::Command => "command",
            Denied::Key => "key",
            Denied::Auth => "auth",
            Denied::Channel => "channel",
            Denied::Certificate => "tls-cert",
        }
    }
}
