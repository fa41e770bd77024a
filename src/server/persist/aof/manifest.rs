//! The manifest: the list of files that make up the append-only file, in Redis 7's format.
//!
//! ```text
//! file NAME seq NUMBER type b      the base, one at most
//! file NAME seq NUMBER type h      history: replaced, and not deleted yet
//! file NAME seq NUMBER type i      commands since the base, by rising number
//! ```
//!
//! Names with spaces and the like are quoted as in redis.conf. Lines that begin with `#` are comments; unknown
//! pairs of a key and a value in a line are skipped.

use basalt_commands::config::words;
use basalt_core::base::text;

/// Maximum length of a line, in bytes.
const LINE_BYTES_MAX: usize = 1024;

/// One file of the manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AofManifestFile {
    /// Name of the file within the directory of the append-only file.
    pub name: Vec<u8>,
    /// Sequence number of the file among those of its kind.
    pub seq: u64,
}

/// The list of the files that make up the append-only file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Manifest {
    /// The base file: the dataset as of the start of the last rewrite.
    pub base: Option<AofManifestFile>,
    /// Replaced files that are not deleted yet, the latest first.
    pub history: Vec<AofManifestFile>,
    /// Files with the commands since the base, the earliest first.
    pub incrs: Vec<AofManifestFile>,
    /// Sequence number of the last base file.
    pub base_seq: u64,
    /// Sequence number of the last file of commands.
    pub incr_seq: u64,
}

/// Reason why a manifest is rejected.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AofManifestError {
    /// Line number, from 1; 0 for the file as a whole.
    pub line: usize,
    /// Text of the invalid line.
    pub text: Vec<u8>,
    /// Position of the invalid byte in the line, from 1, if a single byte is to blame.
    pub byte: Option<usize>,
    /// Description of the error.
    pub why: &'static str,
}

const INVALID: &str = "Invalid AOF manifest file format";

impl Manifest {
    /// Parses a manifest.
    pub fn parse(bytes: &[u8]) -> Result<Manifest, AofManifestError> {
        let mut manifest = Manifest::default();
        let mut count = 0;
        let mut rest = bytes;
        while !rest.is_empty() {
            count += 1;
            let refused = |text: &[u8], why| AofManifestError {
                line: count,
                text: text.to_vec(),
                byte: None,
                why,
            };
            let end = memchr::memchr(b'\n', rest).filter(|end| *end < LINE_BYTES_MAX);
            let Some(end) = end else {
                let shown = &rest[..rest.len().min(LINE_BYTES_MAX)];
                return Err(refused(
                    shown,
                    "The AOF manifest file contains too long line",
                ));
            };
            let line = &rest[..end];
            rest = &rest[end + 1..];
            // In a valid manifest, control bytes occur only within quoted names, as escapes. A raw control byte
            // is the result of a power loss, and the line may consist of the beginning of one line and the end
            // of another.
            let is_stray = |byte: &u8| byte.is_ascii_control() && !b"\t\r".contains(byte);
            if let Some(at) = line.iter().position(is_stray) {
                return Err(AofManifestError {
                    byte: Some(at + 1),
                    ..refused(line, "The AOF manifest file contains a control byte")
                });
            }
            if line.first() != Some(&b'#') {
                manifest.add(line).map_err(|why| refused(line, why))?;
            }
        }
        match count {
            0 => Err(AofManifestError {
                line: 0,
                text: Vec::new(),
                byte: None,
                why: "Found an empty AOF manifest",
            }),
            _ => Ok(manifest),
        }
    }

    fn add(&mut self, line: &[u8]) -> Result<(), &'static str> {
        let words = words::split(line.trim_ascii()).ok_or(INVALID)?;
        if words.len() < 6 || words.len() % 2 != 0 {
            return Err(INVALID);
        }
        let (mut name, mut seq, mut kind) = (None, None, None);
        for pair in words.chunks(2) {
            match pair[0].to_ascii_lowercase().as_slice() {
                b"file" if pair[1].contains(&b'/') => {
                    return Err("File can't be a path, just a filename");
                }
                b"file" => name = Some(pair[1].clone()),
                b"seq" => {
                    seq = std::str::from_utf8(&pair[1])
                        .ok()
                        .and_then(|seq| seq.parse().ok())
                }
                b"type" => kind = pair[1].first().copied(),
                _ => {}
            }
        }
        let (Some(name), Some(seq), Some(kind)) = (name, seq, kind) else {
            return Err(INVALID);
        };
        if name.is_empty() || seq == 0 {
            return Err(INVALID);
        }
        let part = AofManifestFile { name, seq };
        match kind {
            b'b' if self.base.is_some() => return Err("Found duplicate base file information"),
            b'b' => {
                self.base_seq = seq;
                self.base = Some(part);
            }
            b'h' => self.history.push(part),
            b'i' if seq <= self.incr_seq => return Err("Found a non-monotonic sequence number"),
            b'i' => {
                self.incr_seq = seq;
                self.incrs.push(part);
            }
            _ => return Err("Unknown AOF file type"),
        }
        Ok(())
    }

    /// Serializes the manifest.
    pub fn to_bytes(&self) -> Vec<u8> {
        let base = self.base.iter().map(|part| (part, 'b'));
        let history = self.history.iter().map(|part| (part, 'h'));
        let incrs = self.incrs.iter().map(|part| (part, 'i'));
        let mut bytes = Vec::new();
        for (part, kind) in base.chain(history).chain(incrs) {
            bytes.extend_from_slice(b"file ");
            match needs_quotes(&part.name) {
                true => bytes.extend_from_slice(text::quoted(&part.name).as_bytes()),
                false => bytes.extend_from_slice(&part.name),
            }
            bytes.extend_from_slice(format!(" seq {} type {kind}\n", part.seq).as_bytes());
        }
        bytes
    }

    /// Returns the name and number of the next base file, without adding it to the manifest.
    pub fn next_base(&self, file: &[u8], is_rdb: bool) -> AofManifestFile {
        let suffix = if is_rdb { ".base.rdb" } else { ".base.aof" };
        part(file, self.base_seq + 1, suffix)
    }

    /// Returns the name and number of the next file of commands, without adding it to the manifest.
    pub fn next_incr(&self, file: &[u8]) -> AofManifestFile {
        part(file, self.incr_seq + 1, ".incr.aof")
    }

    /// Adds a file of commands.
    pub fn add_incr(&mut self, incr: AofManifestFile) {
        self.incr_seq = incr.seq;
        self.incrs.push(incr);
    }

    /// Makes `base` the base file. The former base and all files of commands but the last `kept`, whose data it
    /// contains, move to the history.
    pub fn replace(&mut self, base: AofManifestFile, kept: usize) {
        let replaced = self.incrs.len().saturating_sub(kept);
        let old = self.base.replace(base);
        self.base_seq = self.base.as_ref().map_or(0, |base| base.seq);
        let gone = old.into_iter().chain(self.incrs.drain(..replaced));
        gone.for_each(|part| self.history.insert(0, part));
    }

    /// Returns all files to load, in order.
    pub fn loaded(&self) -> impl DoubleEndedIterator<Item = &AofManifestFile> {
        self.base.iter().chain(&self.incrs)
    }
}

fn needs_quotes(name: &[u8]) -> bool {
    let is_plain = |byte: &u8| byte.is_ascii_graphic() && !b"\\\"'".contains(byte);
    !name.iter().all(is_plain)
}

fn part(file: &[u8], seq: u64, suffix: &str) -> AofManifestFile {
    let mut name = file.to_vec();
    name.extend_from_slice(format!(".{seq}{suffix}").as_bytes());
    AofManifestFile { name, seq }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn why(text: &str) -> &'static str {
        Manifest::parse(text.as_bytes()).expect_err("refused").why
    }

    #[test]
    fn what_redis_writes_is_read_and_written_the_same() {
        let text = "file appendonly.aof.7.base.rdb seq 7 type b\n\
                    file appendonly.aof.2.incr.aof seq 2 type h\n\
                    file appendonly.aof.6.base.rdb seq 6 type h\n\
                    file appendonly.aof.3.incr.aof seq 3 type i\n\
                    file \" file seq \\n\\n.aof .4.incr.aof\" seq 4 type i\n";
        let manifest = Manifest::parse(text.as_bytes()).expect("it is good");
        assert_eq!(String::from_utf8_lossy(&manifest.to_bytes()), text);
        assert_eq!(manifest.incrs[1].name, b" file seq \n\n.aof .4.incr.aof");
        assert_eq!((manifest.base_seq, manifest.incr_seq), (7, 4));
        let more = "# a comment\nfile a seq 1 type b newkey newvalue\nfile c seq 1 type i\nfile d seq 3 type i\n";
        let manifest = Manifest::parse(more.as_bytes()).expect("it is good");
        assert_eq!(manifest.loaded().count(), 3);
    }

    #[test]
    fn what_is_wrong_is_refused_in_redis_words() {
        let (base, incr) = ("file a seq 1 type b\n", "file c seq 1 type i\n");
        assert_eq!(why(""), "Found an empty AOF manifest");
        assert_eq!(
            why(&format!("{base}{base}")),
            "Found duplicate base file information"
        );
        assert_eq!(
            why(&format!("{incr}{incr}")),
            "Found a non-monotonic sequence number"
        );
        assert_eq!(why("file a seq 1 type x\n"), "Unknown AOF file type");
        assert_eq!(
            why("file a/b seq 1 type b\n"),
            "File can't be a path, just a filename"
        );
        let long = format!("file a seq 1 type b {}\n", "x y ".repeat(300));
        assert_eq!(why(&long), "The AOF manifest file contains too long line");
        let stray = "file a seq 1 type b\0\0\0\0 c seq 1 type i\n";
        let refused = Manifest::parse(stray.as_bytes()).expect_err("zeros");
        assert_eq!((refused.line, refused.byte), (1, Some(20)));
        for bad in [
            "\n",
            "filx a seq 1 type b\n",
            "file a seq 1\n",
            "file a seq 1 type b new\n",
            "file a seq x type b\n",
            "file a seq 0 type b\n",
            "file \"a seq 1 type b\n",
        ] {
            assert_eq!(why(bad), INVALID, "{bad:?}");
        }
        assert_eq!(
            why(&base[..10]),
            "The AOF manifest file contains too long line"
        );
        let refused =
            Manifest::parse(format!("{incr}\n{base}").as_bytes()).expect_err("a blank line");
        assert_eq!(refused.line, 2);
    }

    #[test]
    fn rewrites_turn_what_they_replace_into_history() {
        let mut manifest = Manifest::default();
        manifest.replace(manifest.next_base(b"a", true), 0);
        manifest.add_incr(manifest.next_incr(b"a"));
        for _ in 0..2 {
            manifest.add_incr(manifest.next_incr(b"a"));
            manifest.replace(manifest.next_base(b"a", false), 1);
        }
        let expected = "file a.3.base.aof seq 3 type b\n\
                        file a.2.incr.aof seq 2 type h\n\
                        file a.2.base.aof seq 2 type h\n\
                        file a.1.incr.aof seq 1 type h\n\
                        file a.1.base.rdb seq 1 type h\n\
                        file a.3.incr.aof seq 3 type i\n";
        assert_eq!(String::from_utf8_lossy(&manifest.to_bytes()), expected);
    }
}
