//! What can be refused to a user.

/// What is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Denied {
    /// The database that it would use.
    Database,
    /// The command.
    Command,
    /// One of its keys.
    Key,
    /// To sign in.
    Auth,
    /// One of its channels.
    Channel,
    /// To be the user that its certificate names.
    Certificate,
}

impl Denied {
    /// The word that ACL LOG has for it.
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
