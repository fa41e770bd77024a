//! What is wrong, in words: what stands out, with figures, and the directive or command that mends it. MEMORY DOCTOR
//! and LATENCY DOCTOR say it, and the console shows it first.
//!
//! Findings about what is broken go before those about what could be better ([`health`]), and MEMORY DOCTOR begins
//! with them.
//!
//! A finding is about this moment or the last minutes ([`recent`]), or it says since when: one that was mended goes
//! away by itself.

pub mod health;
pub mod latency;
pub mod memory;
pub mod recent;

use super::observed::Observed;

/// Something that stands out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// What is the matter, with figures, and what mends it.
    pub text: String,
    /// The text for eyes that are to see no names of keys, where it names one.
    pub unnamed: Option<String>,
    /// The key that is named.
    pub key: Option<Vec<u8>>,
    /// The directive, or command, that mends it; empty where it is not in the server's hands.
    pub remedy: &'static str,
}

impl Finding {
    fn new(remedy: &'static str, text: impl Into<String>) -> Finding {
        Finding {
            text: text.into(),
            unnamed: None,
            key: None,
            remedy,
        }
    }

    /// The text as it may be shown.
    pub fn shown(&self, with_names: bool) -> &str {
        match &self.unnamed {
            Some(unnamed) if !with_names => unnamed,
            _ => &self.text,
        }
    }
}

/// All findings by the name of what they are about: first what is broken.
pub fn all(service: &dyn Observed) -> Vec<(&'static str, Finding)> {
    let broken = health::findings(&health::Situation::of(service));
    let memory = memory::findings(&memory::Situation::of(service));
    let memory = memory.into_iter().map(|finding| ("memory", finding));
    let latency = latency::findings(&latency::Situation::of(service));
    let latency = latency.into_iter().map(|finding| ("latency", finding));
    broken.into_iter().chain(memory).chain(latency).collect()
}
