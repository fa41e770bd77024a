//! Compression of snapshots on their way to a file or to replicas; see [`packed`](crate::persist::rdb::packed).

use std::io;

use super::{BaseForm, Purpose, Sink};
use crate::persist::rdb::packed::{Codec, Packer};
use basalt_commands::config::Config;
use basalt_commands::config::values::RdbCompression;

impl Purpose {
    /// Returns the codec with which a snapshot is compressed as a whole, if any.
    pub(super) fn codec(self, config: &Config) -> Option<Codec> {
        match self {
            Purpose::AofBase(BaseForm::Commands) => None,
            Purpose::Replicas(contents) => contents.codec,
            Purpose::Save | Purpose::BackgroundSave | Purpose::AofBase(BaseForm::Rdb) => {
                match config.rdbcompression {
                    RdbCompression::No | RdbCompression::Strings => None,
                    RdbCompression::Lz4 => Some(Codec::Lz4),
                    RdbCompression::Zstd => Some(Codec::Zstd),
                }
            }
        }
    }

    /// Whether long strings are compressed one by one. A file for replicas is not compressed as a whole, as not all
    /// replicas could read it.
    pub(super) fn compresses_strings(self, config: &Config) -> bool {
        self.codec(config).is_none() && config.rdbcompression.compresses_values()
    }
}

/// A sink that compresses what goes to another one.
struct PackingSink {
    to: Box<dyn Sink>,
    codec: Codec,
    has_checksums: bool,
    packer: Option<Packer>,
}

/// Returns a sink that compresses what goes to `to`.
pub(super) fn pack(to: Box<dyn Sink>, codec: Codec, has_checksums: bool) -> Box<dyn Sink> {
    Box::new(PackingSink {
        to,
        codec,
        has_checksums,
        packer: None,
    })
}

impl PackingSink {
    fn end(&mut self) -> io::Result<()> {
        let packed = self.packer.take().map(Packer::finish);
        packed.map_or(Ok(()), |packed| self.to.write(packed?))
    }
}

impl Sink for PackingSink {
    fn write(&mut self, chunk: Vec<u8>) -> io::Result<()> {
        let packer = match &mut self.packer {
            Some(packer) => packer,
            none => none.insert(Packer::new(self.codec, self.has_checksums)?),
        };
        match packer.add(&chunk)? {
            Some(packed) => self.to.write(packed),
            None => Ok(()),
        }
    }

    fn finish(mut self: Box<Self>, ok: bool) -> io::Result<()> {
        let ended = match ok {
            true => self.end(),
            false => Ok(()),
        };
        let finished = self.to.finish(ok && ended.is_ok());
        ended.and(finished)
    }
}
