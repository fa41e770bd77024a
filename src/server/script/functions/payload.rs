//! The payload of FUNCTION DUMP and FUNCTION RESTORE: for each library a type byte and its source as an RDB
//! string, then the same footer as that of DUMP.

use basalt_commands::command::error::CommandError;
use basalt_engine::serial::frame;
use basalt_engine::serial::reader::Reader;
use basalt_engine::serial::writer::Writer;
use basalt_engine::serial::{Form, Malformed, V10};

/// Type byte of a library.
const LIBRARY: u8 = 245;

/// Type byte of a library in prereleases.
const LIBRARY_OF_OLD: u8 = 246;

/// Maximum length of a source, in bytes.
const SOURCE_BYTES_MAX: usize = 512 * 1024 * 1024;

pub(super) fn write<'a>(codes: impl Iterator<Item = &'a [u8]>) -> Vec<u8> {
    let mut writer = Writer::new(Form::Oldest, true);
    for code in codes {
        writer.byte(LIBRARY);
        writer.string(code);
    }
    let (bytes, _) = writer.finish();
    frame::seal(bytes, V10)
}

/// Returns the sources of a payload, or an error if they take more than `room` bytes together. Sources may be
/// compressed, so their claimed lengths are checked before memory is allocated.
pub(super) fn read(payload: &[u8], room: usize) -> Result<Vec<Vec<u8>>, CommandError> {
    let (bytes, _) =
        frame::open(payload).ok_or("ERR DUMP payload version or checksum are wrong")?;
    let mut reader = Reader::new(bytes, SOURCE_BYTES_MAX.min(room));
    let mut left = room;
    let mut codes = Vec::new();
    while !reader.rest().is_empty() {
        match reader.byte() {
            Ok(LIBRARY) => {}
            Ok(LIBRARY_OF_OLD) => return Err("ERR Pre-GA function format not supported".into()),
            Ok(_) => return Err("ERR given type is not a function".into()),
            Err(_) => return Err("ERR can not read data type".into()),
        }
        let code = reader.string().map_err(|error| match error {
            Malformed::BEYOND_LIMIT if room < SOURCE_BYTES_MAX => CommandError::OutOfMemory,
            _ => "ERR Failed loading library code".into(),
        })?;
        left = left
            .checked_sub(code.len())
            .ok_or(CommandError::OutOfMemory)?;
        codes.push(code.into_owned());
    }
    Ok(codes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn libraries_come_back_from_their_payload() {
        let long = b"-- again and again\n".repeat(100);
        let codes: [&[u8]; 2] = [b"#!lua name=a\nx", &long];
        let payload = write(codes.into_iter());
        assert!(payload.len() < long.len(), "text is compressed");
        assert_eq!(read(&payload, usize::MAX).expect("whole"), codes);
        assert_eq!(
            read(&write(std::iter::empty()), usize::MAX)
                .expect("whole")
                .len(),
            0
        );
    }

    #[test]
    fn what_is_no_payload_is_refused() {
        let payload = write([b"#!lua name=a\nx".as_slice()].into_iter());
        for end in 0..payload.len() {
            assert!(read(&payload[..end], usize::MAX).is_err());
        }
        let other = frame::seal(b"\x00\x03bar".to_vec(), V10);
        let error = read(&other, usize::MAX).expect_err("a string value");
        assert_eq!(error.text(), "ERR given type is not a function");
        let sum = write([vec![b'x'; 600].as_slice(), &[b'y'; 600]].into_iter());
        assert!(sum.len() < 100, "it compresses well");
        for room in [0, 599, 600, 1_199] {
            let error = read(&sum, room).expect_err("it becomes longer");
            assert_eq!(error, CommandError::OutOfMemory, "{room}");
        }
        assert!(read(&sum, 1_200).is_ok());
        let cut = frame::seal(b"\xf5\x20bar".to_vec(), V10);
        assert!(read(&cut, usize::MAX).is_err());
    }
}
