//! Framing of a snapshot in the stream from a primary: preceded by its length, or terminated by a marker.
//!
//! ```text
//! $<length>\r\n<bytes>                   a snapshot from a file, or for an old replica
//! $EOF:<40 characters>\r\n<bytes><mark>  a snapshot that is generated while it is sent
//! ```
//!
//! Empty lines may precede the snapshot: a primary sends them as keepalives while it prepares the snapshot.

use memchr::memmem;

/// Length of a marker.
pub(super) const MARK_LEN: usize = 40;

/// The rule that determines the end of a snapshot.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum SnapshotFraming {
    /// After this many bytes.
    Length(u64),
    /// At this marker, which is not part of the snapshot.
    Mark([u8; MARK_LEN]),
}

impl SnapshotFraming {
    /// Parses the line before a snapshot; returns `None` for any other line.
    pub(super) fn of_line(line: &[u8]) -> Option<SnapshotFraming> {
        let said = line.strip_prefix(b"$")?;
        if let Some(mark) = said.strip_prefix(b"EOF:") {
            return mark.try_into().ok().map(SnapshotFraming::Mark);
        }
        let is_number = !said.is_empty() && said.iter().all(u8::is_ascii_digit);
        let text = str::from_utf8(said).ok().filter(|_| is_number)?;
        text.parse().ok().map(SnapshotFraming::Length)
    }

    /// Returns the length of the snapshot, if known.
    pub(super) fn length(&self) -> Option<u64> {
        match self {
            SnapshotFraming::Length(length) => Some(*length),
            SnapshotFraming::Mark(_) => None,
        }
    }
}

/// Parser that finds the bytes of a snapshot in the received data.
pub(super) struct Framing {
    extent: SnapshotFraming,
    taken: u64,
}

/// Classification of received bytes (`Framing::take`).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct SnapshotChunkSplit {
    /// Number of leading bytes that belong to the snapshot.
    pub(super) own: usize,
    /// Number of bytes of the end marker after them.
    pub(super) mark: usize,
    /// Whether the snapshot ends after these bytes.
    pub(super) is_end: bool,
}

impl Framing {
    pub(super) fn new(extent: SnapshotFraming) -> Framing {
        Framing { extent, taken: 0 }
    }

    /// Classifies received bytes that were not taken yet. The caller must take the bytes that belong to the
    /// snapshot and the marker; a possible beginning of the marker stays in the input.
    pub(super) fn take(&mut self, come: &[u8]) -> SnapshotChunkSplit {
        let taken = match &self.extent {
            SnapshotFraming::Length(length) => {
                let left = length - self.taken;
                let own = left.min(come.len() as u64);
                SnapshotChunkSplit {
                    own: own as usize,
                    mark: 0,
                    is_end: own == left,
                }
            }
            SnapshotFraming::Mark(mark) => match memmem::find(come, mark) {
                Some(own) => SnapshotChunkSplit {
                    own,
                    mark: MARK_LEN,
                    is_end: true,
                },
                None => SnapshotChunkSplit {
                    own: come.len().saturating_sub(MARK_LEN - 1),
                    mark: 0,
                    is_end: false,
                },
            },
        };
        self.taken += taken.own as u64;
        taken
    }

    /// Returns how many bytes of the snapshot were taken so far.
    pub(super) fn taken(&self) -> u64 {
        self.taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_says_where_the_snapshot_ends_or_is_refused() {
        let mark = [b'a'; MARK_LEN];
        let line = [&b"$EOF:"[..], &mark].concat();
        assert_eq!(
            SnapshotFraming::of_line(&line),
            Some(SnapshotFraming::Mark(mark))
        );
        assert_eq!(
            SnapshotFraming::of_line(b"$17"),
            Some(SnapshotFraming::Length(17))
        );
        for line in [
            &b""[..],
            b"$",
            b"$-1",
            b"$+1",
            b"$1x",
            b"$99999999999999999999",
            b"$EOF:short",
            b"+OK",
            b"$EOF:aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
        ] {
            assert_eq!(SnapshotFraming::of_line(line), None, "{line:?}");
        }
    }

    /// Feeds bytes in pieces of a length; returns the snapshot's bytes and, if the snapshot ended, the data
    /// after it.
    fn feed(extent: &SnapshotFraming, bytes: &[u8], piece: usize) -> (Vec<u8>, Option<Vec<u8>>) {
        let mut framing = Framing::new(extent.clone());
        let (mut found, mut come, mut left) = (Vec::new(), Vec::new(), bytes);
        loop {
            let (next, rest) = left.split_at(piece.min(left.len()));
            come.extend_from_slice(next);
            left = rest;
            let taken = framing.take(&come);
            found.extend(come.drain(..taken.own));
            assert_eq!(framing.taken(), found.len() as u64);
            if taken.is_end {
                come.drain(..taken.mark);
                come.extend_from_slice(left);
                return (found, Some(come));
            }
            if left.is_empty() {
                return (found, None);
            }
        }
    }

    #[test]
    fn it_ends_where_it_should_however_the_bytes_come() {
        let mark: [u8; MARK_LEN] = std::array::from_fn(|at| b'a' + at as u8 % 7);
        let body = [&b"REDIS0010 some bytes "[..], &mark[..20], b" more"].concat();
        let behind = b"*1\r\n$4\r\nPING\r\n";
        let marked = [&body[..], &mark, behind].concat();
        let counted = [&body[..], behind].concat();
        for piece in 1..marked.len() {
            for (extent, bytes) in [
                (SnapshotFraming::Mark(mark), &marked),
                (SnapshotFraming::Length(body.len() as u64), &counted),
            ] {
                let (found, rest) = feed(&extent, bytes, piece);
                assert_eq!(found, body);
                assert_eq!(rest.as_deref(), Some(&behind[..]));
            }
        }
        let (found, rest) = feed(&SnapshotFraming::Mark(mark), &marked[..body.len() + 39], 5);
        assert!(rest.is_none() && found == body);
        assert_eq!(
            feed(&SnapshotFraming::Length(0), b"", 1),
            (Vec::new(), Some(Vec::new()))
        );
    }
}
