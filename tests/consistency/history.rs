//! Histories of transactions that append to lists and read them: what each client sent, when, and what it saw.

/// A list; each has its own key.
pub(crate) type Key = u64;
/// An element, which is appended at most once in a history.
pub(crate) type Element = u64;

/// One operation of a transaction.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// RPUSH of one element.
    Append(Key, Element),
    /// LRANGE of a whole list; `None` where no answer came.
    Read(Key, Option<Vec<Element>>),
}

impl Op {
    pub(crate) fn key(&self) -> Key {
        match self {
            Op::Append(key, _) | Op::Read(key, _) => *key,
        }
    }
}

/// The end of a transaction as its client knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// Answered.
    Ok,
    /// Refused: it had no effect.
    Fail,
    /// No answer, or one that does not tell: it may have had its effect, or may have it later.
    Info,
}

/// The form in which a transaction is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Form {
    /// MULTI and EXEC.
    Multi,
    /// EVAL.
    Script,
    /// FCALL.
    Function,
    /// One command of a pipeline; each is a transaction of its own.
    Bare,
}

/// A transaction of one client. Times are nanoseconds since the history began.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Txn {
    /// The client; it gets a new number after each outcome that it does not know.
    pub(crate) process: u64,
    pub(crate) form: Form,
    pub(crate) began: u64,
    /// When the answer came; never, if the outcome is unknown.
    pub(crate) ended: u64,
    pub(crate) outcome: Outcome,
    pub(crate) ops: Vec<Op>,
    /// True if it stands in the pipeline of the client's previous transaction, behind it.
    pub(crate) follows: bool,
}

/// The end of what has no end.
pub(crate) const NEVER: u64 = u64::MAX;
