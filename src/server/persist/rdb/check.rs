//! `check-rdb`: reads a snapshot as a server would, and reports its contents and errors in the words of
//! redis-check-rdb.

use std::fs::File;
use std::io::{self, Read, Write};
use std::path::Path;

use super::decode::{Decoder, NonKeyRecord, RawEntry, RdbDecodeLimits, RdbPart, RdbRecordBatch};
use super::fault::Fault;
use crate::telemetry::clock;
use crate::telemetry::progress::{Meter, Metered, ReportWriter};
use basalt_commands::command::generic::dump;
use basalt_commands::config::Config;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::text::{Visible, visible};
use basalt_engine::Now;
use basalt_engine::serial::reader::Reader;
use basalt_engine::serial::{self, Limits, Malformed};

/// Maximum length of a key or a function library that is read.
const STRING_BYTES_MAX: usize = 512 * 1024 * 1024;

/// Number of databases that a file may use: unlimited, because the number configured on its server is unknown.
const DATABASES_MAX: usize = i32::MAX as usize;

/// Counts so far.
#[derive(Debug, Default)]
struct RdbCheckCounts {
    keys: u64,
    expires: u64,
    expired: u64,
    empty: u64,
    db: Option<usize>,
}

/// Checks a file and writes a report; returns whether the file is valid.
pub fn check_file(path: &Path, out: &mut dyn Write) -> io::Result<bool> {
    let out = &mut Visible(out);
    let shown = visible(path.as_os_str().as_encoded_bytes());
    let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
    let (bytes, file) = match opened {
        Ok(opened) => opened,
        Err(error) => {
            writeln!(out, "Cannot open file {shown}: {error}")?;
            return Ok(false);
        }
    };
    writeln!(out, "[offset 0] Checking RDB file {shown}")?;
    let meter = Meter::on_stderr(&format!("Checking {shown}"), bytes);
    let mut from = Metered::new(file, meter);
    check(&mut from, clock::now(), &mut ReportWriter(out))
}

/// Checks a snapshot as of `now` and writes a report; returns whether it is valid.
pub fn check(from: &mut dyn Read, now: Now, out: &mut dyn Write) -> io::Result<bool> {
    let bounds = RdbDecodeLimits {
        databases: DATABASES_MAX,
        checks: true,
        now_ms: now.unix_ms,
    };
    let mut found = RdbCheckCounts::default();
    let mut decoder = match Decoder::new(from, Vec::new(), bounds) {
        Ok(decoder) => decoder,
        Err(fault) => {
            found.wrong(0, &fault, out)?;
            return Ok(false);
        }
    };
    // Encoding thresholds do not affect validity, so use the defaults.
    let seed = HashSeed { k0: 0, k1: 0 };
    let limits = dump::limits(&Config::default(), seed, now);
    loop {
        let record = decoder.record_offset();
        let next = match decoder.read() {
            Ok(next) => next,
            Err(fault) => {
                let offset = match fault {
                    Fault::Short | Fault::Read(_) => decoder.offset(),
                    _ => decoder.record_offset().max(record),
                };
                found.wrong(offset, &fault, out)?;
                return Ok(false);
            }
        };
        let offset = decoder.offset();
        match next {
            RdbPart::Entries(stretch) => {
                if !found.check_entries(&stretch, &limits, now, out)? {
                    return Ok(false);
                }
                decoder.give_back(stretch);
            }
            RdbPart::End(stretch) => {
                if !found.check_entries(&stretch, &limits, now, out)? {
                    return Ok(false);
                }
                match decoder.is_summed() {
                    true => writeln!(out, "[offset {offset}] Checksum OK")?,
                    false => writeln!(
                        out,
                        "[offset {offset}] RDB file was saved with checksum disabled: no check performed."
                    )?,
                }
                writeln!(out, "[offset {offset}] \\o/ RDB looks OK! \\o/")?;
                found.write_totals(out)?;
                return Ok(true);
            }
            RdbPart::NonKey(aside) => found.aside(&aside, offset, out)?,
        }
    }
}

impl RdbCheckCounts {
    fn aside(&mut self, aside: &NonKeyRecord, offset: u64, out: &mut dyn Write) -> io::Result<()> {
        match aside {
            NonKeyRecord::Aux(name, value) => {
                let (name, value) = (visible(name), visible(value));
                writeln!(out, "[offset {offset}] AUX FIELD {name} = '{value}'")
            }
            NonKeyRecord::Slots(note) => {
                let text = note.text();
                let text = visible(&text);
                writeln!(out, "[offset {offset}] Slots being migrated: {text}")
            }
            NonKeyRecord::Module(_) => writeln!(out, "[offset {offset}] MODULE AUX: skipped"),
            NonKeyRecord::Function(raw) => {
                let mut reader = Reader::new(raw, STRING_BYTES_MAX);
                let bytes = reader.string().map_or(0, |source| source.len());
                writeln!(out, "[offset {offset}] Function library, {bytes} bytes")
            }
            NonKeyRecord::Sizes { .. } => Ok(()),
        }
    }

    /// Checks the keys of a stretch; returns whether they are valid.
    fn check_entries(
        &mut self,
        stretch: &RdbRecordBatch,
        limits: &Limits,
        now: Now,
        out: &mut dyn Write,
    ) -> io::Result<bool> {
        for raw in &stretch.entries {
            let offset = stretch.offset + raw.at as u64;
            if self.db != Some(raw.db) {
                self.db = Some(raw.db);
                writeln!(out, "[offset {offset}] Selecting DB ID {}", raw.db)?;
            }
            self.keys += 1;
            if let Some(at_ms) = raw.deadline {
                self.expires += 1;
                self.expired += u64::from(at_ms < now.unix_ms);
            }
            match value(stretch, raw, limits) {
                Ok(()) => {}
                Err((_, Malformed::EMPTY)) => self.empty += 1,
                Err((key, error)) => {
                    let fault = stretch.fault(raw, key, error);
                    self.wrong(offset, &fault, out)?;
                    return Ok(false);
                }
            }
        }
        Ok(true)
    }

    fn wrong(&self, offset: u64, fault: &Fault, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "--- RDB ERROR DETECTED ---")?;
        let what = fault.to_string();
        writeln!(out, "[offset {offset}] {}", visible(what.as_bytes()))?;
        if let Fault::Value { key, rdb_type, .. } = fault {
            writeln!(out, "[additional info] Reading key '{}'", visible(key))?;
            writeln!(out, "[additional info] Reading type {rdb_type}")?;
        }
        self.write_totals(out)
    }

    fn write_totals(&self, out: &mut dyn Write) -> io::Result<()> {
        writeln!(out, "[info] {} keys read", self.keys)?;
        writeln!(out, "[info] {} expires", self.expires)?;
        writeln!(out, "[info] {} already expired", self.expired)?;
        match self.empty {
            0 => Ok(()),
            empty => writeln!(out, "[info] {empty} empty keys (skipped)"),
        }
    }
}

/// Checks that a value can be decoded; otherwise returns its key and the error.
fn value(
    stretch: &RdbRecordBatch,
    raw: &RawEntry,
    limits: &Limits,
) -> Result<(), (Vec<u8>, Malformed)> {
    let bytes = &stretch.bytes[raw.at..raw.end];
    let mut reader = Reader::new(bytes, limits.string_bytes_max).from(&stretch.origin);
    let rdb_type = reader.byte().map_err(|error| (Vec::new(), error))?;
    let key = reader.string().map_err(|error| (Vec::new(), error))?;
    match serial::read_as(rdb_type, &key, None, &mut reader, limits) {
        Ok(_) if reader.rest().is_empty() => Ok(()),
        Ok(_) => Err((key.into_owned(), Malformed("unexpected bytes at the end"))),
        Err(error) => Err((key.into_owned(), error)),
    }
}
