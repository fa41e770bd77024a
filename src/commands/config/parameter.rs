//! A row of the parameter table: a name, a kind with its default and bounds, traits, one sentence.
//!
//! A row reads and writes its own field of `Config` through plain function pointers, so the table is a constant and
//! everything that handles parameters (files, CONFIG GET, SET and REWRITE, help, tests) is a loop over rows. Nothing
//! here knows a particular parameter, the origin of a value, or how it is applied.
//!
//! Invariant: a `set` that returns an error has left the configuration unchanged.

use crate::config::Config;
use crate::config::{machine, words};
use basalt_core::base::{lossless, text};

/// One parameter: a row of the table.
#[derive(Debug)]
pub struct Parameter {
    /// The name in files and commands, lower-case.
    pub name: &'static str,
    /// The values that the parameter accepts, and the field that holds them.
    pub kind: ParameterKind,
    /// Whether the parameter may change while the server runs, and how it is shown.
    pub traits: Traits,
    /// One sentence for `--help` and the documentation.
    pub summary: &'static str,
}

/// Properties of a parameter besides its values. Built as a constant: `MUTABLE.alias("old-name").since("7.2")`.
#[derive(Debug, Clone, Copy)]
pub struct Traits {
    /// An alias, kept for older files.
    pub alias: Option<&'static str>,
    /// Whether CONFIG SET may change the parameter.
    pub mutable: bool,
    /// Whether CONFIG SET needs `enable-protected-configs`.
    pub protected: bool,
    /// Whether the value is a secret, which is never logged.
    pub sensitive: bool,
    /// Whether CONFIG GET shows the parameter only when it is named in full.
    pub hidden: bool,
    /// Whether CONFIG SET makes a call to the operating system: for a socket, a directory, descriptors.
    pub asks_system: bool,
    /// Whether CONFIG SET is refused while data are loaded.
    pub denied_while_loading: bool,
    /// The version that introduced the parameter: `7.0` stands for that or any earlier one, `basalt` for parameters
    /// that only this server has.
    pub since: &'static str,
    /// The effect of a value other than the default.
    pub support: Support,
}

/// The degree to which a parameter is supported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Support {
    /// The parameter has its documented effect.
    Works,
    /// The parameter is stored and shown but has no effect, which is harmless. The text is the reason, which is
    /// reported at the start if a file sets another value than the default.
    NoEffect(&'static str),
    /// A value other than the default is stored, has no effect, and is warned about at the start.
    Warned(&'static str),
    /// A value other than the default is refused, with this reason.
    Refused(&'static str),
}

impl Support {
    /// Returns the reason why a value is refused; None if it is accepted. `is_default` tells whether the value is the
    /// default.
    pub fn refusal(self, is_default: bool) -> Option<&'static str> {
        match self {
            Support::Refused(why) if !is_default => Some(why),
            _ => None,
        }
    }
}

/// The notation of a number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unit {
    /// Digits, optionally with a sign.
    Plain,
    /// Bytes, optionally with a unit: `64mb`.
    Memory,
    /// Bytes, or a share of maxmemory: `5%`. A share is stored as a negative number.
    MemoryOrPercent,
    /// Bytes, or a share of the memory of the machine, which is stored in bytes: `50%`.
    MemoryOfMachine,
    /// File modes, in octal.
    Octal,
}

/// Whether words of a directive replace the old value or are added to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// The old value is replaced: for the first mention in a layer, and for CONFIG SET.
    Replace,
    /// The words are added: for a repeated directive.
    Append,
    /// The words are the default in the table: applied without checks outside of the program, such as whether a
    /// directory exists.
    Default,
}

/// The values that a parameter accepts, and the access to its field.
#[expect(
    missing_docs,
    reason = "each kind has a default, and reads and writes its field"
)]
pub enum ParameterKind {
    /// `yes` or `no`.
    Flag {
        default: bool,
        read: fn(&Config) -> bool,
        write: fn(&mut Config, bool),
    },
    /// An integer within bounds. All integers fit an `i128`, whatever the field's own type.
    Number {
        default: i128,
        /// The minimum; for shares, the largest percentage, negated.
        lower: i128,
        upper: i128,
        /// Notation of the number.
        unit: Unit,
        read: fn(&Config) -> i128,
        /// Writes the field; the number is within bounds.
        write: fn(&mut Config, i128),
    },
    /// Any text that passes the check.
    Text {
        default: &'static str,
        /// Checks a value; the error is the reason for a refusal.
        check: fn(&str) -> Result<(), &'static str>,
        read: fn(&Config) -> &str,
        write: fn(&mut Config, String),
    },
    /// One of several words, or with `many` any set of them.
    Choice {
        /// The words and their codes; of several words with the same code, the first is shown.
        names: &'static [(&'static str, u32)],
        /// Whether several words may be given; then codes are bits.
        many: bool,
        default: u32,
        /// Checks a code; the error is the reason for a refusal.
        check: fn(u32) -> Result<(), &'static str>,
        read: fn(&Config) -> u32,
        /// Writes the field; the code is one of `names`, or a union of them.
        write: fn(&mut Config, u32),
    },
    /// A value with a syntax of its own.
    Special(Special),
}

/// The functions of a parameter with a syntax of its own.
pub struct Special {
    /// The words of the default value.
    pub default: &'static [&'static str],
    /// Whether the directive takes several words; CONFIG SET splits its one argument at spaces.
    pub many: bool,
    /// Applies the words of a directive.
    pub set: fn(&mut Config, &[String], Mode) -> Result<(), String>,
    /// Returns the value as CONFIG GET shows it.
    pub show: fn(&Config) -> String,
    /// Returns the text after the name on each line of a file, as CONFIG REWRITE writes it.
    pub lines: fn(&Config) -> Vec<String>,
    /// Whether CONFIG REWRITE writes the lines even if the value is the default.
    pub always_written: bool,
}

/// Traits of a parameter that may change while the server runs.
pub const MUTABLE: Traits = Traits {
    alias: None,
    mutable: true,
    protected: false,
    sensitive: false,
    hidden: false,
    asks_system: false,
    denied_while_loading: false,
    since: "7.0",
    support: Support::Works,
};

/// Traits of a parameter that is fixed at the start.
pub const IMMUTABLE: Traits = Traits {
    mutable: false,
    ..MUTABLE
};

impl Traits {
    /// Sets the alias.
    pub const fn alias(self, alias: &'static str) -> Self {
        Self {
            alias: Some(alias),
            ..self
        }
    }
    /// Makes CONFIG SET need `enable-protected-configs`.
    pub const fn protected(self) -> Self {
        Self {
            protected: true,
            ..self
        }
    }
    /// Marks the value as a secret.
    pub const fn sensitive(self) -> Self {
        Self {
            sensitive: true,
            ..self
        }
    }
    /// Hides the parameter from patterns.
    pub const fn hidden(self) -> Self {
        Self {
            hidden: true,
            ..self
        }
    }
    /// Declares that CONFIG SET makes a call to the operating system, which may take time and may fail.
    pub const fn asks_system(self) -> Self {
        Self {
            asks_system: true,
            ..self
        }
    }
    /// Forbids changes while data are loaded.
    pub const fn denied_while_loading(self) -> Self {
        Self {
            denied_while_loading: true,
            ..self
        }
    }
    /// Sets the version that introduced the parameter.
    pub const fn since(self, since: &'static str) -> Self {
        Self { since, ..self }
    }
    /// Declares that the parameter is only stored and shown.
    pub const fn no_effect(self, why: &'static str) -> Self {
        Self {
            support: Support::NoEffect(why),
            ..self
        }
    }
    /// Declares that a value other than the default causes a warning.
    pub const fn warned(self, why: &'static str) -> Self {
        Self {
            support: Support::Warned(why),
            ..self
        }
    }
    /// Declares that a value other than the default is refused.
    pub const fn refused(self, why: &'static str) -> Self {
        Self {
            support: Support::Refused(why),
            ..self
        }
    }
}

impl std::fmt::Debug for ParameterKind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Self::Flag { .. } => "flag",
            Self::Number { .. } => "number",
            Self::Text { .. } => "text",
            Self::Choice { .. } => "choice",
            Self::Special(_) => "special",
        })
    }
}

impl Parameter {
    /// Whether a name is the parameter's name or its alias, ignoring case.
    pub fn is_called(&self, name: &str) -> bool {
        self.spelling(name).is_some()
    }

    /// Returns the table's spelling of `name` if it is this parameter's name or alias.
    pub fn spelling(&self, name: &str) -> Option<&'static str> {
        [Some(self.name), self.traits.alias]
            .into_iter()
            .flatten()
            .find(|known| known.eq_ignore_ascii_case(name))
    }

    /// Whether a directive may have several words after its name.
    pub fn takes_many(&self) -> bool {
        match &self.kind {
            ParameterKind::Choice { many, .. } => *many,
            ParameterKind::Special(special) => special.many,
            _ => false,
        }
    }

    /// Returns the value as CONFIG GET shows it.
    pub fn show(&self, config: &Config) -> String {
        match &self.kind {
            ParameterKind::Flag { read, .. } => yes_or_no(read(config)).to_owned(),
            ParameterKind::Number { unit, read, .. } => match (unit, read(config)) {
                (Unit::MemoryOrPercent, share) if share < 0 => format!("{}%", -share),
                (Unit::Octal, mode) => format!("{mode:o}"),
                (_, number) => number.to_string(),
            },
            ParameterKind::Text { read, .. } => read(config).to_owned(),
            ParameterKind::Choice {
                names, many, read, ..
            } => choice_words(names, *many, read(config)),
            ParameterKind::Special(special) => (special.show)(config),
        }
    }

    /// Applies the words of a directive; the error is the text of Redis.
    pub fn set(&self, config: &mut Config, words: &[String], mode: Mode) -> Result<(), String> {
        if !self.takes_many() && words.len() != 1 {
            return Err("wrong number of arguments".to_owned());
        }
        match &self.kind {
            ParameterKind::Flag { write, .. } => {
                let value = match words[0].to_ascii_lowercase().as_str() {
                    "yes" => true,
                    "no" => false,
                    _ => return Err("argument must be 'yes' or 'no'".to_owned()),
                };
                write(config, value);
            }
            ParameterKind::Number {
                lower,
                upper,
                unit,
                write,
                ..
            } => {
                let number = parse_number(&words[0], *unit)?;
                check_bounds(number, *lower, *upper, *unit)?;
                write(config, number);
            }
            ParameterKind::Text { check, write, .. } => {
                check(&words[0])?;
                write(config, words[0].clone());
            }
            ParameterKind::Choice {
                names,
                many,
                check,
                write,
                ..
            } => {
                let code = parse_choice(names, *many, words)?;
                check(code)?;
                write(config, code);
            }
            ParameterKind::Special(special) => (special.set)(config, words, mode)?,
        }
        Ok(())
    }

    /// Sets the field to the default.
    pub fn reset(&self, config: &mut Config) {
        match &self.kind {
            ParameterKind::Flag { default, write, .. } => write(config, *default),
            ParameterKind::Number { default, write, .. } => write(config, *default),
            ParameterKind::Text { default, write, .. } => write(config, (*default).to_owned()),
            ParameterKind::Choice { default, write, .. } => write(config, *default),
            ParameterKind::Special(special) => {
                let words: Vec<String> = special.default.iter().map(|&word| word.into()).collect();
                (special.set)(config, &words, Mode::Default)
                    .expect("the table's defaults are valid");
            }
        }
    }

    /// Whether the field holds the default.
    pub fn is_default(&self, config: &Config, default: &Config) -> bool {
        self.show(config) == self.show(default)
    }

    /// Returns the lines that CONFIG REWRITE writes; empty if the parameter must not appear in a file.
    pub fn lines(&self, config: &Config) -> Vec<String> {
        match &self.kind {
            ParameterKind::Flag { .. } | ParameterKind::Choice { .. } => {
                vec![format!("{} {}", self.name, self.show(config))]
            }
            ParameterKind::Number { unit, read, .. } => {
                let number = read(config);
                let value = match unit {
                    Unit::Memory | Unit::MemoryOrPercent | Unit::MemoryOfMachine if number >= 0 => {
                        words::memory(number)
                    }
                    _ => self.show(config),
                };
                vec![format!("{} {value}", self.name)]
            }
            // For most texts an empty value is the same as none: the line would only repeat the default.
            ParameterKind::Text { default, read, .. } => match read(config) {
                "" if default.is_empty() => vec![],
                text => vec![format!(
                    "{} {}",
                    self.name,
                    text::quoted(&lossless::bytes_of(text))
                )],
            },
            ParameterKind::Special(special) => {
                let values = (special.lines)(config);
                values
                    .into_iter()
                    .map(|value| format!("{} {value}", self.name))
                    .collect()
            }
        }
    }

    /// Whether CONFIG REWRITE adds the lines to a file that lacks them.
    pub fn must_be_written(&self, config: &Config, default: &Config) -> bool {
        let always =
            matches!(&self.kind, ParameterKind::Special(special) if special.always_written);
        always || !self.is_default(config, default)
    }

    /// Returns the default as text; the working directory is `.` until the server starts.
    pub fn default_text(&self) -> String {
        match &self.kind {
            ParameterKind::Special(special) => special.default.join(" "),
            _ => self.show(&Config::default()),
        }
    }

    /// Describes the values that the parameter accepts, for `--help`.
    pub fn values(&self) -> String {
        match &self.kind {
            ParameterKind::Flag { .. } => "yes|no".to_owned(),
            ParameterKind::Number {
                lower, upper, unit, ..
            } => match unit {
                Unit::Octal => format!("{lower:o}..{upper:o} (octal)"),
                Unit::Memory => "bytes".to_owned(),
                Unit::MemoryOfMachine => "bytes or 0%..100% of the machine's".to_owned(),
                Unit::MemoryOrPercent => format!("bytes or 1%..{}%", -lower),
                Unit::Plain if *upper >= i128::from(i32::MAX) => format!("{lower}.."),
                Unit::Plain => format!("{lower}..{upper}"),
            },
            ParameterKind::Text { .. } => "text".to_owned(),
            ParameterKind::Choice { names, .. } => names
                .iter()
                .map(|(name, _)| *name)
                .collect::<Vec<_>>()
                .join("|"),
            ParameterKind::Special(_) => "words".to_owned(),
        }
    }
}

/// Formats a flag as `yes` or `no`.
pub fn yes_or_no(value: bool) -> &'static str {
    if value { "yes" } else { "no" }
}

fn parse_number(text: &str, unit: Unit) -> Result<i128, String> {
    let memory = matches!(
        unit,
        Unit::Memory | Unit::MemoryOrPercent | Unit::MemoryOfMachine
    );
    if memory && let Some(bytes) = words::parse_memory(text) {
        return Ok(i128::from(bytes));
    }
    if unit == Unit::MemoryOrPercent
        && let Some(share) = text.strip_suffix('%').and_then(words::parse_integer)
        && share >= 0
    {
        return Ok(-i128::from(share));
    }
    if unit == Unit::MemoryOfMachine
        && let Some(share) = text.strip_suffix('%').and_then(words::parse_integer)
        && (0..=100).contains(&share)
    {
        return Ok(i128::from(machine::memory().bytes) * i128::from(share) / 100);
    }
    let parsed = match unit {
        Unit::Plain => words::parse_integer(text).map(i128::from),
        Unit::Octal => i64::from_str_radix(text, 8).ok().map(i128::from),
        Unit::Memory | Unit::MemoryOrPercent | Unit::MemoryOfMachine => None,
    };
    parsed.ok_or_else(|| {
        match unit {
            Unit::Plain => "argument couldn't be parsed into an integer",
            Unit::Octal => "argument couldn't be parsed as an octal number",
            Unit::Memory | Unit::MemoryOfMachine => "argument must be a memory value",
            Unit::MemoryOrPercent => "argument must be a memory or percent value",
        }
        .to_owned()
    })
}

fn check_bounds(number: i128, lower: i128, upper: i128, unit: Unit) -> Result<(), String> {
    if unit == Unit::MemoryOrPercent && number < 0 {
        if number < lower {
            return Err(format!(
                "percentage argument must be less or equal to {}",
                -lower
            ));
        }
        return Ok(());
    }
    if (lower..=upper).contains(&number) {
        return Ok(());
    }
    Err(match unit {
        Unit::Octal => format!("argument must be between {lower:o} and {upper:o} inclusive"),
        _ => format!("argument must be between {lower} and {upper} inclusive"),
    })
}

fn parse_choice(names: &[(&str, u32)], many: bool, words: &[String]) -> Result<u32, String> {
    let mut code = 0;
    let known = |word: &String| {
        names
            .iter()
            .find(|(name, _)| name.eq_ignore_ascii_case(word))
    };
    let count_fits = if many {
        !words.is_empty()
    } else {
        words.len() == 1
    };
    if count_fits && words.iter().all(|word| known(word).is_some()) {
        for word in words {
            code |= known(word).map_or(0, |(_, bits)| *bits);
        }
        return Ok(code);
    }
    let all: Vec<&str> = names.iter().map(|(name, _)| *name).collect();
    Err(format!(
        "argument(s) must be one of the following: {}",
        all.join(", ")
    ))
}

fn choice_words(names: &[(&str, u32)], many: bool, code: u32) -> String {
    if let Some((name, _)) = names.iter().find(|(_, known)| *known == code) {
        return (*name).to_owned();
    }
    debug_assert!(many, "a code without a word");
    let set = names
        .iter()
        .filter(|(_, bits)| *bits != 0 && code & bits == *bits);
    set.map(|(name, _)| *name).collect::<Vec<_>>().join(" ")
}
