//! Libraries as FUNCTION DUMP hands them out and FUNCTION RESTORE takes them: each a mark and its source as a string of
//! a snapshot, then the frame of DUMP.

use crate::command::error::CommandError;
use crate::engine::serial::frame;
use crate::engine::serial::reader::Reader;
use crate::engine::serial::writer::Writer;
use crate::engine::serial::{Form, V10};

/// Stands before a library.
const LIBRARY: u8 = 245;

/// Stood before a library in versions that were never released.
const LIBRARY_OF_OLD: u8 = 246;

/// The longest source that is taken.
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

pub(super) fn read(payload: &[u8]) -> Result<Vec<Vec<u8>>, CommandError> {
    let (bytes, _) =
        frame::open(payload).ok_or("ERR DUMP payload version or checksum are wrong")?;
    let mut reader = Reader::new(bytes, SOURCE_BYTES_MAX);
    let mut codes = Vec::new();
    while !reader.rest().is_empty() {
        match reader.byte() {
            Ok(LIBRARY) => {}
            Ok(LIBRARY_OF_OLD) => return Err("ERR Pre-GA function format not supported".into()),
            Ok(_) => return Err("ERR given type is not a function".into()),
            Err(_) => return Err("ERR can not read data type".into()),
        }
        let code = reader
            .string()
            .map_err(|_| "ERR Failed loading library code")?;
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
        assert_eq!(read(&payload).expect("whole"), codes);
        assert_eq!(read(&write(std::iter::empty())).expect("whole").len(), 0);
    }

    #[test]
    fn what_is_no_payload_is_refused() {
        let payload = write([b"#!lua name=a\nx".as_slice()].into_iter());
        for end in 0..payload.len() {
            assert!(read(&payload[..end]).is_err());
        }
        let other = frame::seal(b"\x00\x03bar".to_vec(), V10);
        let error = read(&other).expect_err("a string value");
        assert_eq!(error.text(), "ERR given type is not a function");
        let cut = frame::seal(b"\xf5\x20bar".to_vec(), V10);
        assert!(read(&cut).is_err());
    }
}
