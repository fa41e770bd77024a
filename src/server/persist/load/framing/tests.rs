//! Tests of `framing`.

use super::*;
use basalt_core::resp::request::NOTHING_BESIDE;

const SET: &[u8] = b"*3\r\n$3\r\nSET\r\n$1\r\nk\r\n$1\r\nv\r\n";

/// A reader that returns bytes in pieces of one size.
struct Drip<'b>(&'b [u8], usize);

impl Read for Drip<'_> {
    fn read(&mut self, out: &mut [u8]) -> io::Result<usize> {
        let count = self.0.len().min(self.1).min(out.len());
        let (now, later) = self.0.split_at(count);
        out[..count].copy_from_slice(now);
        self.0 = later;
        Ok(count)
    }
}

/// Commands, each with its arguments, bytes, and end offset.
type Found = Vec<(Vec<Vec<u8>>, Vec<u8>, u64)>;

/// Returns the commands of a file that is read `piece` bytes at a time, and whether the file ends properly.
fn all(bytes: &[u8], piece: usize) -> (Found, Result<(), CommandFramingError>) {
    let mut from = Drip(bytes, piece);
    let mut commands = CommandFileReader::new(&mut from, Vec::new(), 0);
    let mut found = Vec::new();
    loop {
        match commands.next() {
            Ok(Some(place)) => {
                let end = commands.offset();
                let command = commands.bytes(place).to_vec();
                let arguments = commands.spans().iter();
                let arguments =
                    arguments.map(|span| span.bytes(&command, &NOTHING_BESIDE).to_vec());
                found.push((arguments.collect(), command, end));
            }
            Ok(None) => return (found, Ok(())),
            Err(broken) => return (found, Err(broken)),
        }
    }
}

#[test]
fn commands_are_found_in_whatever_pieces_they_come_and_lines_are_passed() {
    let mut file = b"#TS:1700000000\r\n".to_vec();
    file.extend_from_slice(SET);
    file.extend_from_slice(b"# anything\n");
    file.extend_from_slice(SET);
    for piece in [1, 2, 3, 7, 1000] {
        let (found, end) = all(&file, piece);
        assert!(end.is_ok());
        let end = file.len() as u64;
        let set = |end| {
            let arguments = [&b"SET"[..], b"k", b"v"].map(<[u8]>::to_vec);
            (arguments.to_vec(), SET.to_vec(), end)
        };
        assert_eq!(found, [set(16 + SET.len() as u64), set(end)]);
    }
}

#[test]
fn a_file_that_is_cut_anywhere_is_short_behind_its_last_whole_command() {
    let file = [SET, SET].concat();
    for len in 0..file.len() {
        let (found, end) = all(&file[..len], 5);
        assert_eq!(found.len(), len / SET.len());
        match len % SET.len() {
            0 => assert!(end.is_ok()),
            _ => assert!(matches!(end, Err(CommandFramingError::Short)), "{len}"),
        }
    }
}

#[test]
fn zeros_behind_the_last_command_are_a_short_file_and_zeros_before_one_are_not() {
    let file = [SET, &[0; 5000]].concat();
    assert!(matches!(all(&file, 100).1, Err(CommandFramingError::Short)));
    let file = [SET, &[0; 5000], SET].concat();
    assert!(matches!(
        all(&file, 100).1,
        Err(CommandFramingError::Format)
    ));
}

#[test]
fn zeros_behind_a_part_of_a_command_are_a_short_file_wherever_it_ends() {
    for len in 1..SET.len() {
        for zeros in [1, 2, 40, 5000, READ_BYTES + 1] {
            let mut file = [SET, &SET[..len], &vec![0; zeros]].concat();
            for piece in [7, 4096] {
                let (found, end) = all(&file, piece);
                assert_eq!(found.len(), 1);
                assert!(
                    matches!(end, Err(CommandFramingError::Short)),
                    "{len}, {zeros}: {end:?}"
                );
            }
            file.extend_from_slice(SET);
            let (_, end) = all(&file, 4096);
            assert!(
                matches!(end, Err(CommandFramingError::Format)),
                "{len}, {zeros}: {end:?}"
            );
        }
    }
    let file = [&SET[..4], b"X", &[0; 40]].concat();
    assert!(
        matches!(all(&file, 4096).1, Err(CommandFramingError::Format)),
        "damage before the zeros"
    );
}

#[test]
fn what_is_no_command_is_refused() {
    for bad in [
        &b"SET k v\r\n"[..],
        b"*0\r\n",
        b"*-1\r\n",
        b"*1\n",
        b"*\r\n",
        b"*1\r\n:3\r\n",
        b"*1\r\n$x\r\n",
        b"*1\r\n$1\r\nab\r\n",
        b"*99999999999\r\n",
        b"\n",
    ] {
        let (found, end) = all(bad, 3);
        assert!(found.is_empty());
        assert!(matches!(end, Err(CommandFramingError::Format)), "{bad:?}");
    }
    // A claimed length takes no memory before its bytes arrive.
    let (_, end) = all(b"*1\r\n$2000000000\r\nabc", 7);
    assert!(matches!(end, Err(CommandFramingError::Short)));
}
