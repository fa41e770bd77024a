//! Diagnoses with figures, and the directive or command that fixes them. MEMORY DOCTOR and LATENCY DOCTOR report
//! them, and the console shows them first.
//!
//! Findings about failures come before suggestions for improvement ([`health`]), and MEMORY DOCTOR begins with
//! them.
//!
//! A finding is about the current state or the last minutes ([`recent`]), or names its period, such as "since the
//! start". A finding disappears by itself once its cause is fixed.

pub mod health;
pub mod latency;
pub mod memory;
pub mod recent;

use super::observed::Observed;

/// A diagnosis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    /// The diagnosis with figures, and its fix.
    pub text: String,
    /// The text without the key's name, for viewers who may not see key names; `None` if the text names no key.
    pub unnamed: Option<String>,
    /// The key that the text names, if any.
    pub key: Option<Vec<u8>>,
    /// The directive or command that fixes it; empty if the server has none.
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

    /// Returns the text for a viewer with or without access to key names.
    pub fn shown(&self, with_names: bool) -> &str {
        match &self.unnamed {
            Some(unnamed) if !with_names => unnamed,
            _ => &self.text,
        }
    }
}

/// Returns all findings, each with the name of its subject; failures come first.
pub fn all(service: &dyn Observed) -> Vec<(&'static str, Finding)> {
    let broken = health::findings(&health::Situation::of(service));
    let memory = memory::findings(&memory::MemoryEvidence::of(service));
    let memory = memory.into_iter().map(|finding| ("memory", finding));
    let latency = latency::findings(&latency::LatencyEvidence::of(service));
    let latency = latency.into_iter().map(|finding| ("latency", finding));
    broken.into_iter().chain(memory).chain(latency).collect()
}
