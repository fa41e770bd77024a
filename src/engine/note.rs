//! Notes: records that servers of this kind apply and other servers ignore.
//!
//! ```text
//! COMMAND INFO basalt:note TAG ADD key tag …
//!                          TAG REM key tag …
//!                          TAG INVALIDATE tag …
//!                          LSTALE key milliseconds
//!                          BLESS SET|CLEAR key NO-EVICT
//!                          FENCE number [key owner]          the digest of the owner, in hexadecimal
//!                          SLOTS COMING|GOING name range …   of a cluster, see `cluster::slot_note`
//!                          SLOTS OVER name
//! ```
//!
//! Redis and Valkey look up commands of these names and drop the reply: as replicas, from an append-only file, in
//! transactions, and during slot migration. This server runs the arguments after the head as a command, but only in
//! notes from its primary, from an append-only file or from a node that migrates slots here.
//!
//! Clients cannot cause a note to be logged. COMMAND changes nothing and is not sent to replicas, so no request of
//! that name is ever logged, and no other command is logged under that name. A client that sends the same request
//! gets the reply of COMMAND INFO.

/// The arguments at the start of each note.
pub const HEAD: [&[u8]; 3] = [b"COMMAND", b"INFO", b"basalt:note"];

/// Maximum number of tags in one record. Redis takes a million arguments from its primary.
const TAGS_MAX: usize = 4096;

/// Maximum bytes of tags in one record. Redis takes 512 MiB from its primary.
const TAGS_BYTES_MAX: usize = 1024 * 1024;

/// True if `count` arguments, each readable through `argument`, are a note.
pub fn is_note<'a>(count: usize, argument: impl Fn(usize) -> &'a [u8]) -> bool {
    count > HEAD.len()
        && HEAD
            .iter()
            .enumerate()
            .all(|(at, word)| argument(at) == *word)
}

/// Returns a note's arguments: the head and `words`.
pub fn words<'a>(words: &[&'a [u8]]) -> Vec<&'a [u8]> {
    [&HEAD[..], words].concat()
}

/// Splits tags into pieces that fit into one record each.
pub fn pieces<'a, 't>(mut tags: &'a [&'t [u8]]) -> impl Iterator<Item = &'a [&'t [u8]]> {
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |tag: &&&[u8]| {
            bytes += tag.len();
            bytes <= TAGS_BYTES_MAX
        };
        let count = tags.iter().take(TAGS_MAX).take_while(fits).count();
        // No tag is as long as a whole piece; if one were, it would be a piece by itself.
        let (piece, rest) = tags.split_at(count.max(1).min(tags.len()));
        tags = rest;
        (!piece.is_empty()).then_some(piece)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_has_the_head_as_it_is_written_and_something_behind_it() {
        let is_it = |words: &[&str]| is_note(words.len(), |at| words[at].as_bytes());
        assert!(is_it(&["COMMAND", "INFO", "basalt:note", "TAG"]));
        for other in [
            &["COMMAND", "INFO", "basalt:note"][..],
            &["command", "INFO", "basalt:note", "TAG"],
            &["COMMAND", "info", "basalt:note", "TAG"],
            &["COMMAND", "INFO", "basalt:notes", "TAG"],
            &["COMMAND", "DOCS", "basalt:note", "TAG"],
            &["TAG"],
            &[],
        ] {
            assert!(!is_it(other), "{other:?}");
        }
        let note = words(&[b"LSTALE", b"k", b"1"]);
        assert!(is_note(note.len(), |at| note[at]) && note[3..] == [&b"LSTALE"[..], b"k", b"1"]);
    }

    #[test]
    fn many_tags_and_long_ones_are_cut_into_pieces_with_each_tag_once() {
        let names: Vec<Vec<u8>> = (0..10_000).map(|n| format!("t{n}").into_bytes()).collect();
        let long: Vec<Vec<u8>> = (0..1_000).map(|_| vec![b'x'; 4096]).collect();
        let longest = vec![vec![b'x'; TAGS_BYTES_MAX + 1]; 2];
        for (tags, wanted) in [
            (&names[..], &[4096, 4096, 1808][..]),
            (&long[..], &[256, 256, 256, 232]),
            (&longest[..], &[1, 1]),
            (&names[..1], &[1]),
            (&[], &[]),
        ] {
            let tags: Vec<&[u8]> = tags.iter().map(Vec::as_slice).collect();
            let cut: Vec<&[&[u8]]> = pieces(&tags).collect();
            let lens: Vec<usize> = cut.iter().map(|piece| piece.len()).collect();
            assert_eq!(lens, wanted);
            assert!(cut.concat() == tags);
        }
    }
}
