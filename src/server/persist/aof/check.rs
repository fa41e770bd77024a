//! `check-aof`: checks whether an append-only file is valid, and how much of it can be kept.
//!
//! Prints the same lines as redis-check-aof, which tools parse. Values are not interpreted: the tool only
//! determines where each record ends, including the records of a leading snapshot.

use std::ffi::{OsStr, OsString};
use std::fs::{File, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use super::manifest::Manifest;
use crate::persist::rdb::{
    self,
    decode::{Decoder, RdbDecodeLimits, RdbPart},
};
use crate::telemetry::clock;
use crate::telemetry::progress::{Meter, Metered, ReportWriter};
use basalt_core::base::text::{Visible, visible};

/// Maximum bytes of a line: a length (`$3`, `*2`) or an annotation (`#TS:…`).
const LINE_BYTES_MAX: u64 = 1024;

/// Number of databases a snapshot may name.
const DATABASES_MAX: usize = i32::MAX as usize;

/// Options of a run: check, repair, or truncate to a time.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Wish {
    fixes: bool,
    /// Truncate the file before the first record after this Unix second.
    until_s: Option<u64>,
}

/// The terminal: prompts are answered on `input`, lines are printed to `out`.
struct CheckTerminal<'t> {
    input: &'t mut dyn BufRead,
    out: &'t mut dyn Write,
}

/// Checks the file named by the arguments; returns true if it is valid or has been repaired.
pub fn run(
    arguments: &[OsString],
    input: &mut dyn BufRead,
    out: &mut dyn Write,
) -> io::Result<bool> {
    let mut out = Visible(out);
    let mut talk = CheckTerminal {
        input,
        out: &mut ReportWriter(&mut out),
    };
    let mut wish = Wish::default();
    let path = match arguments {
        [flag] if flag == "-v" || flag == "--version" => {
            writeln!(talk.out, "redis-check-aof {}", env!("CARGO_PKG_VERSION"))?;
            return Ok(true);
        }
        [path] => path,
        [flag, path] if flag == "--fix" => {
            wish.fixes = true;
            path
        }
        [flag, second, path] if flag == "--truncate-to-timestamp" => {
            let second = second.to_str().and_then(|text| text.parse().ok());
            let Some(second) = second else {
                writeln!(talk.out, "Invalid timestamp, aborting...")?;
                return Ok(false);
            };
            wish.until_s = Some(second);
            path
        }
        _ => {
            writeln!(
                talk.out,
                "Usage: basalt check-aof [--fix|--truncate-to-timestamp $timestamp] <file.manifest|file.aof>"
            )?;
            return Ok(false);
        }
    };
    let path = Path::new(path);
    match is_manifest(path) {
        Ok(true) => talk.check_all(path, wish),
        Ok(false) => {
            writeln!(talk.out, "Start checking Old-Style AOF")?;
            let name = visible(path.as_os_str().as_encoded_bytes());
            talk.check_one(path, &name, "AOF", true, wish)
        }
        Err(error) => {
            writeln!(talk.out, "Cannot open file {}: {error}", path.display())?;
            Ok(false)
        }
    }
}

/// True if the first line that is not a comment belongs to a manifest.
fn is_manifest(path: &Path) -> io::Result<bool> {
    let mut file = BufReader::new(File::open(path)?);
    loop {
        let mut line = Vec::new();
        file.by_ref()
            .take(LINE_BYTES_MAX)
            .read_until(b'\n', &mut line)?;
        if line.first() != Some(&b'#') {
            return Ok(line.starts_with(b"file"));
        }
    }
}

/// Result of checking one file: how much of it is valid.
#[derive(Debug, Default, PartialEq, Eq)]
struct Good {
    offset: u64,
    line: u64,
    /// The first error after the valid part, with its offset.
    wrong: Option<(u64, String)>,
    /// Offset of the first timestamp annotation later than the requested second, if one was requested and
    /// found.
    later_at: Option<u64>,
}

impl CheckTerminal<'_> {
    fn check_all(&mut self, path: &Path, wish: Wish) -> io::Result<bool> {
        writeln!(self.out, "Start checking Multi Part AOF")?;
        let mut bytes = Vec::new();
        File::open(path)?.read_to_end(&mut bytes)?;
        let manifest = match Manifest::parse(&bytes) {
            Ok(manifest) => manifest,
            Err(refused) => {
                writeln!(self.out, "*** FATAL AOF MANIFEST FILE ERROR ***")?;
                writeln!(self.out, "At line {}", refused.line)?;
                writeln!(self.out, ">>> '{}'", visible(&refused.text))?;
                match refused.byte {
                    None => writeln!(self.out, "{}", refused.why)?,
                    Some(byte) => writeln!(self.out, "{} (byte {byte} of the line)", refused.why)?,
                }
                return Ok(false);
            }
        };
        let directory = path.parent().unwrap_or(Path::new(""));
        let place = |name: &[u8]| -> PathBuf { directory.join(OsStr::from_bytes(name)) };
        if let Some(base) = &manifest.base {
            let path = place(&base.name);
            let format = match begins_with_snapshot(&path) {
                true => "RDB",
                false => "RESP",
            };
            writeln!(self.out, "Start to check BASE AOF ({format} format).")?;
            let (is_last, name) = (manifest.incrs.is_empty(), visible(&base.name));
            if !self.check_one(&path, &name, "BASE AOF", is_last, wish)? {
                return Ok(false);
            }
        }
        if !manifest.incrs.is_empty() {
            writeln!(self.out, "Start to check INCR files.")?;
        }
        for (index, incr) in manifest.incrs.iter().enumerate() {
            let is_last = index + 1 == manifest.incrs.len();
            let name = visible(&incr.name);
            if !self.check_one(&place(&incr.name), &name, "INCR AOF", is_last, wish)? {
                return Ok(false);
            }
        }
        writeln!(self.out, "All AOF files and manifest are valid")?;
        Ok(true)
    }

    fn check_one(
        &mut self,
        path: &Path,
        name: &str,
        kind: &str,
        is_last: bool,
        wish: Wish,
    ) -> io::Result<bool> {
        let opened = File::open(path).and_then(|file| Ok((file.metadata()?.len(), file)));
        let (size, file) = match opened {
            Ok(opened) => opened,
            Err(error) => {
                writeln!(
                    self.out,
                    "Cannot open file {}: {error}, aborting...",
                    path.display()
                )?;
                return Ok(false);
            }
        };
        if size == 0 {
            writeln!(self.out, "{kind} {name} is empty")?;
            return Ok(true);
        }
        let file = Metered::new(file, Meter::on_stderr(&format!("Checking {name}"), size));
        let Some(good) = self.follow(file, path, wish.until_s)? else {
            return Ok(false);
        };
        if let Some(second) = wish.until_s {
            return self.cut_late(path, name, kind, is_last, second, &good);
        }
        if let Some((offset, what)) = &good.wrong {
            writeln!(self.out, "0x{offset:16x}: {what}")?;
        }
        let bad = size - good.offset;
        writeln!(
            self.out,
            "AOF analyzed: filename={name}, size={size}, ok_up_to={}, ok_up_to_line={}, diff={bad}",
            good.offset, good.line
        )?;
        if bad == 0 {
            writeln!(self.out, "{kind} {name} is valid")?;
            return Ok(true);
        }
        if !wish.fixes {
            writeln!(
                self.out,
                "AOF {name} is not valid. Use the --fix option to try fixing it."
            )?;
            return Ok(false);
        }
        if !is_last {
            writeln!(
                self.out,
                "Failed to truncate AOF {name} because it is not the last file"
            )?;
            return Ok(false);
        }
        let kept = good.offset;
        writeln!(
            self.out,
            "This will shrink the AOF {name} from {size} bytes, with {bad} bytes, to {kept} bytes"
        )?;
        write!(self.out, "Continue? [y/N]: ")?;
        self.out.flush()?;
        let mut answer = String::new();
        self.input.read_line(&mut answer)?;
        if !answer.to_ascii_lowercase().starts_with('y') {
            writeln!(self.out, "Aborting...")?;
            return Ok(false);
        }
        if let Err(error) = truncate(path, kept) {
            writeln!(self.out, "Failed to truncate AOF {name}: {error}")?;
            return Ok(false);
        }
        writeln!(self.out, "Successfully truncated AOF {name}")?;
        Ok(true)
    }

    fn cut_late(
        &mut self,
        path: &Path,
        name: &str,
        kind: &str,
        is_last: bool,
        second: u64,
        good: &Good,
    ) -> io::Result<bool> {
        let Some(offset) = good.later_at else {
            if let Some((offset, what)) = &good.wrong {
                writeln!(self.out, "0x{offset:16x}: {what}")?;
                writeln!(
                    self.out,
                    "AOF {name} is not valid. Use the --fix option to try fixing it."
                )?;
                return Ok(false);
            }
            writeln!(
                self.out,
                "Truncate nothing in AOF {name} to timestamp {second}"
            )?;
            writeln!(self.out, "{kind} {name} is valid")?;
            return Ok(true);
        };
        if offset == 0 {
            writeln!(
                self.out,
                "AOF {name} has nothing before timestamp {second}, aborting..."
            )?;
            return Ok(false);
        }
        if !is_last {
            writeln!(
                self.out,
                "Failed to truncate AOF {name} to timestamp {second} to offset {offset} because it is not the last file."
            )?;
            writeln!(
                self.out,
                "To truncate it anyway, delete all later files from the manifest, then run this command again"
            )?;
            return Ok(false);
        }
        if let Err(error) = truncate(path, offset) {
            writeln!(
                self.out,
                "Failed to truncate AOF {name} to timestamp {second}: {error}"
            )?;
            return Ok(false);
        }
        writeln!(
            self.out,
            "Successfully truncated AOF {name} to timestamp {second}"
        )?;
        Ok(true)
    }

    /// Reads the records of a file up to its end or the first error. Returns `None` if the leading snapshot is
    /// invalid, after reporting that.
    fn follow(
        &mut self,
        mut file: impl Read,
        path: &Path,
        until_s: Option<u64>,
    ) -> io::Result<Option<Good>> {
        if !begins_with_snapshot(path) {
            return Ok(Some(follow(&mut BufReader::new(file), 0, until_s)));
        }
        let bounds = RdbDecodeLimits {
            databases: DATABASES_MAX,
            checks: true,
            now_ms: clock::unix_ms(),
        };
        let end = Decoder::new(&mut file, Vec::new(), bounds).and_then(|mut decoder| {
            loop {
                if let RdbPart::End(_) = decoder.read()? {
                    return Ok((decoder.consumed(), decoder.rest().to_vec()));
                }
            }
        });
        let (offset, rest) = match end {
            Ok(end) => end,
            Err(fault) => {
                writeln!(self.out, "{fault}")?;
                writeln!(self.out, "RDB preamble of AOF file is not sane, aborting.")?;
                return Ok(None);
            }
        };
        writeln!(self.out, "RDB preamble is OK, proceeding with AOF tail...")?;
        let mut tail = BufReader::new(io::Cursor::new(rest).chain(file));
        Ok(Some(follow(&mut tail, offset, until_s)))
    }
}

fn begins_with_snapshot(path: &Path) -> bool {
    let mut begun = [0; rdb::MAGIC_BYTES];
    let read = File::open(path).and_then(|mut file| file.read_exact(&mut begun));
    read.is_ok() && rdb::is_snapshot(&begun)
}

fn truncate(path: &Path, len: u64) -> io::Result<()> {
    let file = OpenOptions::new().write(true).open(path)?;
    file.set_len(len)?;
    file.sync_all()
}

/// A file of commands being read.
struct AofCheckReader<'r> {
    from: &'r mut dyn BufRead,
    offset: u64,
    line: u64,
}

/// The offset of an error, and its description.
type Wrong = (u64, String);

impl AofCheckReader<'_> {
    /// Returns the next line without its terminator.
    fn line(&mut self) -> Result<Vec<u8>, Wrong> {
        let at = self.offset;
        let mut line = Vec::new();
        let read = self.from.take(LINE_BYTES_MAX).read_until(b'\n', &mut line);
        let read = read.map_err(|error| (at, error.to_string()))?;
        self.offset += read as u64;
        match line.strip_suffix(b"\n") {
            Some(text) => {
                self.line += 1;
                Ok(text.strip_suffix(b"\r").unwrap_or(text).to_vec())
            }
            None if (read as u64) < LINE_BYTES_MAX => {
                Err((at, "Unexpected EOF reading the next line".to_owned()))
            }
            None => Err((at, "A line is too long".to_owned())),
        }
    }

    fn number(&mut self, prefix: u8) -> Result<u64, Wrong> {
        let at = self.offset;
        let line = self.line();
        let first = match &line {
            Ok(line) => line.first().copied(),
            // Ignore the read error: a message about the partial line is more useful.
            Err(_) => None,
        };
        let line = match (line, first) {
            (Ok(line), Some(first)) if first == prefix => line,
            (Ok(_), first) => {
                let got = char::from(first.unwrap_or(b' '));
                let expected = char::from(prefix);
                return Err((at, format!("Expected prefix '{expected}', got: '{got}'")));
            }
            (Err(wrong), _) => return Err(wrong),
        };
        let number = std::str::from_utf8(&line[1..])
            .ok()
            .and_then(|text| text.parse().ok());
        number.ok_or_else(|| (at, "Expected a length".to_owned()))
    }

    /// Skips an argument and returns its first bytes.
    fn argument(&mut self) -> Result<Vec<u8>, Wrong> {
        const SHOWN: u64 = 8;
        let len = self.number(b'$')?;
        let at = self.offset;
        let short = |_| (at, "Unexpected EOF reading an argument".to_owned());
        let mut begun = vec![0; len.min(SHOWN) as usize];
        self.from.read_exact(&mut begun).map_err(short)?;
        let rest = len - begun.len() as u64;
        let skipped = io::copy(&mut self.from.take(rest), &mut io::sink());
        if skipped.map_err(|error| (at, error.to_string()))? != rest {
            return Err((at, "Unexpected EOF reading an argument".to_owned()));
        }
        let mut end = [0; 2];
        self.from.read_exact(&mut end).map_err(short)?;
        self.offset += len + 2;
        self.line += 1;
        match &end {
            b"\r\n" => Ok(begun),
            _ => Err((
                at + len,
                format!("Expected \\r\\n, got: {:02x}{:02x}", end[0], end[1]),
            )),
        }
    }

    /// Skips the next command and returns the first bytes of its name.
    fn command(&mut self) -> Result<Vec<u8>, Wrong> {
        let count = self.number(b'*')?;
        let mut name = Vec::new();
        for index in 0..count {
            let argument = self.argument()?;
            if index == 0 {
                name = argument;
            }
        }
        Ok(name)
    }

    /// Returns the next byte without consuming it.
    fn peek(&mut self) -> Result<Option<u8>, Wrong> {
        let at = self.offset;
        let bytes = self
            .from
            .fill_buf()
            .map_err(|error| (at, error.to_string()))?;
        Ok(bytes.first().copied())
    }
}

fn follow(from: &mut dyn BufRead, offset: u64, until_s: Option<u64>) -> Good {
    let mut reading = AofCheckReader {
        from,
        offset,
        line: 1,
    };
    let mut good = Good {
        offset,
        line: 1,
        ..Good::default()
    };
    let mut opened_at = None;
    let mut step = |reading: &mut AofCheckReader<'_>, good: &mut Good| -> Result<bool, Wrong> {
        let Some(first) = reading.peek()? else {
            return match opened_at {
                Some(at) => Err((at, "Reached EOF before reading EXEC for MULTI".to_owned())),
                None => Ok(false),
            };
        };
        let at = reading.offset;
        if first == b'#' {
            let note = reading.line()?;
            let second = note.strip_prefix(b"#TS:").map(|text| {
                std::str::from_utf8(text)
                    .ok()
                    .and_then(|text| text.parse::<u64>().ok())
            });
            match (second, until_s) {
                (Some(None), Some(_)) => {
                    return Err((at, "Invalid timestamp annotation".to_owned()));
                }
                (Some(Some(second)), Some(until_s)) if second > until_s => {
                    good.later_at = Some(at);
                    return Ok(false);
                }
                _ => {}
            }
        } else {
            let name = reading.command()?;
            if name.eq_ignore_ascii_case(b"multi") {
                if opened_at.replace(at).is_some() {
                    return Err((at, "Unexpected MULTI".to_owned()));
                }
            } else if name.eq_ignore_ascii_case(b"exec") && opened_at.take().is_none() {
                return Err((at, "Unexpected EXEC".to_owned()));
            }
        }
        if opened_at.is_none() {
            good.offset = reading.offset;
            good.line = reading.line;
        }
        Ok(true)
    };
    loop {
        match step(&mut reading, &mut good) {
            Ok(true) => {}
            Ok(false) => return good,
            Err(wrong) => {
                good.wrong = Some(wrong);
                return good;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SET: &str = "*3\r\n$3\r\nset\r\n$3\r\nfoo\r\n$5\r\nhello\r\n";

    fn followed(text: &str, until_s: Option<u64>) -> Good {
        follow(&mut BufReader::new(text.as_bytes()), 0, until_s)
    }

    #[test]
    fn files_are_good_as_far_as_whole_commands_and_transactions_go() {
        let len = SET.len() as u64;
        let multi = "*1\r\n$5\r\nMULTI\r\n";
        let exec = "*1\r\n$4\r\nEXEC\r\n";
        let good = followed(&format!("{SET}#TS:5\r\n{multi}{SET}{exec}"), None);
        assert_eq!((good.wrong, good.line), (None, 22));
        for (behind, offset) in [
            ("!!!", len),
            (&SET[..10], len),
            (multi, len),
            (exec, len),
            ("*1\r\n$-1\r\n", len),
        ] {
            let good = followed(&format!("{SET}{behind}"), None);
            assert!(good.wrong.is_some(), "{behind}");
            assert_eq!((good.offset, good.line), (offset, 8), "{behind}");
        }
        let good = followed(&format!("{multi}{SET}{multi}"), None);
        assert_eq!(good.offset, 0);
    }

    #[test]
    fn what_comes_after_a_second_is_found_by_its_note() {
        let text = format!("#TS:10\r\n{SET}#TS:12\r\n#TS:13\r\n{SET}");
        let late = |second| followed(&text, Some(second)).later_at;
        assert_eq!(late(13), None);
        assert_eq!(late(12), Some(2 * 8 + SET.len() as u64));
        assert_eq!(late(11), Some(8 + SET.len() as u64));
        assert_eq!(late(9), Some(0));
    }

    #[test]
    fn a_file_is_repaired_once_that_is_confirmed() {
        let path = std::env::temp_dir().join(format!("basalt-check-{}.aof", std::process::id()));
        let check = |flag: &[&str], answer: &str| {
            let arguments: Vec<OsString> = flag
                .iter()
                .map(OsString::from)
                .chain([path.clone().into_os_string()])
                .collect();
            let mut out = Vec::new();
            let is_good = run(&arguments, &mut answer.as_bytes(), &mut out).expect("no error");
            (is_good, String::from_utf8(out).expect("text"))
        };
        std::fs::write(&path, format!("{SET}!!!")).expect("written");
        let (is_good, text) = check(&[], "");
        assert!(!is_good && text.contains("Start checking Old-Style AOF"));
        assert!(text.contains("ok_up_to_line=8, diff=3") && text.contains("is not valid"));
        assert!(!check(&["--fix"], "n\n").0);
        let (is_good, text) = check(&["--fix"], "y\n");
        assert!(is_good && text.contains("Successfully truncated AOF"));
        assert_eq!(std::fs::read(&path).expect("read"), SET.as_bytes());
        assert!(check(&[], "").0);
        assert!(!check(&["--truncate-to-timestamp", "x"], "").0);
        std::fs::remove_file(&path).expect("removed");
    }
}
