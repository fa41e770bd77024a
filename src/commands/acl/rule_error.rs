//! Errors in the rules of a user.

/// The error in one word of a user's rules.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RuleError {
    /// No rule begins like the word, or a pattern contains blanks or zero bytes.
    Syntax,
    /// The rule names an unknown command or category.
    Unknown,
    /// A key pattern although all keys are allowed.
    AllKeys,
    /// A channel pattern although all channels are allowed.
    AllChannels,
    /// A password to be removed does not exist.
    NoSuchPassword,
    /// A password hash is not 64 hexadecimal digits.
    BadHash,
    /// A database index is negative, or too large for any server.
    DatabaseRange,
    /// A role does not exist.
    NoSuchRole,
    /// A first argument was given for a subcommand: `container|sub|argument`.
    FirstArgumentOfSubcommand,
}

impl RuleError {
    /// Returns Redis's text of the error.
    pub fn text(self) -> &'static str {
        match self {
            RuleError::Syntax => "Syntax error",
            RuleError::Unknown => "Unknown command or category name in ACL",
            RuleError::AllKeys => {
                "Adding a pattern after the * pattern (or the 'allkeys' flag) is not valid and does not have any \
                 effect. Try 'resetkeys' to start with an empty list of patterns"
            }
            RuleError::AllChannels => {
                "Adding a pattern after the * pattern (or the 'allchannels' flag) is not valid and does not have any \
                 effect. Try 'resetchannels' to start with an empty list of channels"
            }
            RuleError::NoSuchPassword => {
                "The password you are trying to remove from the user does not exist"
            }
            RuleError::BadHash => {
                "The password hash must be exactly 64 characters and contain only lowercase hexadecimal characters"
            }
            RuleError::DatabaseRange => "The provided database ID is out of range",
            RuleError::NoSuchRole => "The role does not exist",
            RuleError::FirstArgumentOfSubcommand => {
                "Allowing first-arg of a subcommand is not supported"
            }
        }
    }
}
