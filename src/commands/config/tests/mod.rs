//! Tests of the configuration, one file for each part; here the shared code.

use std::collections::HashSet;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use proptest::prelude::*;

use basalt_core::base::lossless;

use super::live::{self, ClientLocality, SetError};
use super::parameter::{Mode, ParameterKind};
use super::rewrite::{self, AddedParameters, RewriteError};
use super::values::{
    EventClasses, LogLevel, OomScoreAdj, Protected, Runtime, SavePoint, ShutdownOptions,
};
use super::*;

/// Recorded from redis-server 7.0.15 for each parameter: name, default, outcomes of three bad values.
const RECORDED: &str = include_str!("recorded.txt");
const PROBES: [&str; 3] = ["?!", "-9223372036854775807", "99999999999"];

fn recorded() -> impl Iterator<Item = Vec<&'static str>> {
    RECORDED
        .lines()
        .filter(|line| !line.starts_with('#'))
        .map(|line| line.split('\t').collect())
}

fn arguments(words: &[&str]) -> Vec<OsString> {
    words.iter().map(OsString::from).collect()
}

fn load_all(
    words: &[&str],
    environment: &[(&str, &str)],
    input: &str,
) -> Result<Startup, ConfigError> {
    let environment = environment
        .iter()
        .map(|(key, value)| (key.into(), value.into()))
        .collect();
    layers::load_from(
        "basalt".as_ref(),
        &arguments(words),
        environment,
        &mut input.as_bytes(),
    )
}

fn load_arguments(words: &[&str]) -> Result<Startup, ConfigError> {
    load_all(words, &[], "")
}

fn load_text(text: &str) -> Result<Startup, ConfigError> {
    load_all(&["-"], &[], text)
}

/// Returns the three lines after the header: location, directive, reason.
fn complaint(result: Result<Startup, ConfigError>) -> String {
    let error = result.expect_err("this must not load").to_string();
    let header = format!(
        "*** FATAL CONFIG FILE ERROR (basalt {}) ***\n",
        env!("CARGO_PKG_VERSION")
    );
    error.strip_prefix(&header).unwrap_or(&error).to_owned()
}

/// Returns the configuration of a start without any directives.
fn bare() -> Config {
    load_arguments(&[]).expect("nothing to complain of").config
}

fn get_one(config: &Config, name: &str) -> String {
    let found = live::get(config, &[name]);
    assert_eq!(found.len(), 1, "{name}");
    found[0].1.clone()
}

fn set_one(config: &mut Config, name: &str, value: &str) -> Result<Vec<&'static str>, String> {
    live::set(config, &[(name, value)], ClientLocality::Remote).map_err(|error| error.to_string())
}

mod commands;
mod files;
mod loading;
mod patterns;
mod rewriting;
mod table;
