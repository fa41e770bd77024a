//! The reasons for which a request or an authentication is denied.

/// The reason for a denial, as ACL LOG names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The user may not use a database that the command would use.
    Database,
    /// The user may not run the command.
    Command,
    /// The user may not access one of the command's keys.
    Key,
    /// A user name or password was wrong.
    Auth,
    /// The user may not access one of the command's channels.
    Channel,
    /// Authentication as the user named in a TLS client certificate failed.
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
