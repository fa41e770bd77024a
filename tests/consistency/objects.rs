//! Objects whose histories [`crate::linear`] judges: strings with their deadlines, locks with fences, and keys that are
//! loaded under a lease.

use crate::linear::{Event, Object};

/// A call of one command with one key.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Ask {
    Get,
    Set(String),
    /// Sets the first if the second is there.
    SetIfEq(String, String),
    Incr,
    Append(String),
    Del,
    /// TAG INVALIDATE of a tag that only this key has.
    Invalidate,
    /// Milliseconds from now.
    PExpire(u64),
    /// By this owner.
    Lock(String),
    Unlock(String),
    LGet,
    /// Under this token.
    LFill(u64, String),
}

/// An answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Answer {
    /// None came.
    Unknown,
    Nil,
    Done,
    Text(String),
    Number(i64),
    /// "value is not an integer"
    NotAnInteger,
    NotTheOwner,
    /// A lock's fence, and how often it is held.
    Held(u64, i64),
    /// A lease of a missing value.
    Miss(u64),
    /// Another has the lease.
    Busy,
}

pub(crate) type Call = (Ask, Answer);

/// A deadline may come this much earlier or later than a client reckons: the server reads its clock once for a batch of
/// requests, and the system may keep it off the processor before it uses what it has read.
const LOOSE_NS: u64 = 250_000_000;

/// A string, or none.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Text {
    value: Option<String>,
    /// The earliest and the latest time at which it ends.
    deadline: Option<(u64, u64)>,
}

impl Object for Text {
    type Call = Call;

    fn after(&self, event: &Event<Call>) -> Vec<Text> {
        let Some((earliest, latest)) = self.deadline else {
            return Vec::from_iter(self.while_there(event));
        };
        let mut states = Vec::new();
        if event.began <= latest {
            states.extend(self.while_there(event));
        }
        if event.ended >= earliest {
            states.extend(Text::default().while_there(event));
        }
        states
    }
}

impl Text {
    /// Returns the state after a call, if no deadline passes before it.
    fn while_there(&self, event: &Event<Call>) -> Option<Text> {
        let (ask, answer) = &event.call;
        let mut next = self.clone();
        let expected = match ask {
            Ask::Get => self.value.clone().map_or(Answer::Nil, Answer::Text),
            Ask::Set(value) => {
                next = Text::of(value);
                Answer::Done
            }
            Ask::SetIfEq(value, wanted) if self.value.as_ref() == Some(wanted) => {
                next = Text::of(value);
                Answer::Done
            }
            Ask::SetIfEq(..) => Answer::Nil,
            Ask::Incr => match self.value.as_deref().unwrap_or("0").parse::<i64>() {
                Ok(number) => {
                    next.value = Some((number + 1).to_string());
                    Answer::Number(number + 1)
                }
                Err(_) => Answer::NotAnInteger,
            },
            Ask::Append(more) => {
                let value = next.value.get_or_insert_default();
                value.push_str(more);
                Answer::Number(value.len() as i64)
            }
            Ask::Del | Ask::Invalidate => {
                next = Text::default();
                Answer::Number(i64::from(self.value.is_some()))
            }
            Ask::PExpire(ms) if self.value.is_some() => {
                let ns = ms * 1_000_000;
                let earliest = (event.began + ns).saturating_sub(LOOSE_NS);
                let latest = event.ended.saturating_add(ns + LOOSE_NS);
                next.deadline = Some((earliest, latest));
                Answer::Number(1)
            }
            Ask::PExpire(_) => Answer::Number(0),
            _ => return None,
        };
        (*answer == Answer::Unknown || *answer == expected).then_some(next)
    }

    fn of(value: &str) -> Text {
        Text {
            value: Some(value.to_owned()),
            deadline: None,
        }
    }
}

/// A lock that LOCK takes for longer than the test runs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Lock {
    owner: Option<String>,
    holds: i64,
    /// The last fence that a client was told.
    fence: u64,
    /// True if a later fence was drawn that no client was told.
    is_beyond: bool,
}

impl Object for Lock {
    type Call = Call;

    fn after(&self, event: &Event<Call>) -> Vec<Lock> {
        let (ask, answer) = &event.call;
        let mut next = self.clone();
        let is_possible = match ask {
            Ask::Lock(owner) => {
                let is_mine = self.owner.as_ref() == Some(owner);
                if self.owner.is_some() && !is_mine {
                    matches!(answer, Answer::Nil | Answer::Unknown)
                } else {
                    next.owner = Some(owner.clone());
                    next.holds = if is_mine { self.holds + 1 } else { 1 };
                    match answer {
                        Answer::Held(fence, holds) => {
                            (next.fence, next.is_beyond) = (*fence, false);
                            *holds == next.holds
                                && match is_mine && !self.is_beyond {
                                    true => *fence == self.fence,
                                    false => *fence > self.fence,
                                }
                        }
                        Answer::Unknown => {
                            next.is_beyond |= !is_mine;
                            true
                        }
                        _ => false,
                    }
                }
            }
            Ask::Unlock(owner) if self.owner.as_ref() == Some(owner) => {
                next.holds -= 1;
                if next.holds == 0 {
                    next.owner = None;
                }
                *answer == Answer::Number(next.holds) || *answer == Answer::Unknown
            }
            Ask::Unlock(_) => matches!(answer, Answer::NotTheOwner | Answer::Unknown),
            _ => false,
        };
        Vec::from_iter(is_possible.then_some(next))
    }
}

/// A key that is loaded by who has the lease, and whose lease outlasts the test.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct Leased {
    value: Option<String>,
    /// The token in force; 0 if a client was to get it that got no answer.
    token: Option<u64>,
}

impl Object for Leased {
    type Call = Call;

    fn after(&self, event: &Event<Call>) -> Vec<Leased> {
        let (ask, answer) = &event.call;
        let mut next = self.clone();
        let expected = match ask {
            Ask::Get => self.value.clone().map_or(Answer::Nil, Answer::Text),
            Ask::Set(value) => {
                (next.value, next.token) = (Some(value.clone()), None);
                Answer::Done
            }
            Ask::Del => {
                next = Leased::default();
                Answer::Number(i64::from(self.value.is_some()))
            }
            Ask::LGet => match (&self.value, self.token, answer) {
                (Some(value), ..) => Answer::Text(value.clone()),
                (None, Some(_), _) => Answer::Busy,
                (None, None, Answer::Miss(token)) => {
                    next.token = Some(*token);
                    Answer::Miss(*token)
                }
                (None, None, _) => {
                    next.token = Some(0);
                    Answer::Miss(0)
                }
            },
            Ask::LFill(token, value) if self.token == Some(*token) => {
                (next.value, next.token) = (Some(value.clone()), None);
                Answer::Number(1)
            }
            Ask::LFill(..) => Answer::Number(0),
            _ => return Vec::new(),
        };
        let is_possible = *answer == Answer::Unknown || *answer == expected;
        Vec::from_iter(is_possible.then_some(next))
    }
}

/// Makes an event of a call.
pub(crate) fn event(began: u64, ended: u64, ask: Ask, answer: Answer) -> Event<Call> {
    Event {
        began,
        ended,
        is_answered: answer != Answer::Unknown,
        call: (ask, answer),
    }
}
