//! Data queued to be sent to the other node of a migration.

use std::collections::VecDeque;

use bytes::Bytes;

use basalt_engine::snapshot::Chunk;

/// Data to be sent, in order. Long strings are not copied but shared with the stored values.
#[derive(Default)]
pub(super) struct MigrationSendQueue {
    pieces: VecDeque<ToSend>,
}

/// A part of the data to be sent.
pub(super) enum ToSend {
    Bytes(Vec<u8>),
    Shared(Bytes),
}

impl ToSend {
    pub(super) fn bytes(&self) -> &[u8] {
        match self {
            ToSend::Bytes(bytes) => bytes,
            ToSend::Shared(bytes) => bytes,
        }
    }
}

impl MigrationSendQueue {
    /// Returns the last text part, to which more bytes can be appended.
    pub(super) fn text(&mut self) -> &mut Vec<u8> {
        if !matches!(self.pieces.back(), Some(ToSend::Bytes(_))) {
            self.pieces.push_back(ToSend::Bytes(Vec::new()));
        }
        match self.pieces.back_mut() {
            Some(ToSend::Bytes(bytes)) => bytes,
            _ => unreachable!("one was put there"),
        }
    }

    pub(super) fn append(&mut self, mut others: MigrationSendQueue) {
        self.pieces.append(&mut others.pieces);
    }

    /// Appends data encoded from a shard.
    pub(super) fn put(&mut self, chunk: Chunk) {
        let Chunk {
            mut bytes, blocks, ..
        } = chunk;
        // Go from the last block to the first, so that the text after each can be split off.
        let mut cut = Vec::with_capacity(2 * blocks.len() + 1);
        for (position, block) in blocks.into_iter().rev() {
            cut.push(ToSend::Bytes(bytes.split_off(position)));
            cut.push(ToSend::Shared(block.into_bytes()));
        }
        cut.push(ToSend::Bytes(bytes));
        let parts = cut.into_iter().rev();
        self.pieces
            .extend(parts.filter(|part| !part.bytes().is_empty()));
    }

    /// Takes the first part of the queued data.
    pub(super) fn pop(&mut self) -> Option<ToSend> {
        self.pieces.pop_front()
    }

    /// Returns the queued bytes, except those shared with stored values.
    pub(super) fn held_bytes(&self) -> u64 {
        let held = self.pieces.iter().map(|part| match part {
            ToSend::Bytes(bytes) => bytes.capacity() as u64,
            ToSend::Shared(_) => 0,
        });
        held.sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use basalt_commands::command::testing::Terminal;
    use basalt_core::base::hash::slot;
    use basalt_core::resp::reply::Protocol;
    use basalt_engine::snapshot::alone;

    #[test]
    fn long_strings_are_sent_where_they_stand_and_not_copied() {
        let mut cli = Terminal::with(1, Protocol::Resp2);
        cli.be_cluster();
        let values = ["a", "b"].map(|letter| letter.repeat(100_000));
        for (number, value) in values.iter().enumerate() {
            cli.run(&format!("SET {{t}}{number} {value}"));
        }
        let mut chunk = Chunk::default();
        let into = (&mut chunk, alone::Larges::Whole);
        let now_ms = cli.now_ms;
        let written = cli.engines[0].write_slot((0, slot(b"t")), 0, usize::MAX, into, now_ms);
        assert_eq!((written.next, written.keys), (0, 2));
        let mut pieces = MigrationSendQueue::default();
        pieces.text().extend_from_slice(b"first\r\n");
        pieces.put(chunk);
        pieces.text().extend_from_slice(b"last\r\n");
        assert!(pieces.held_bytes() < 10_000);
        let (mut all, mut shared) = (String::new(), 0);
        while let Some(part) = pieces.pop() {
            shared += usize::from(matches!(part, ToSend::Shared(_)));
            all.push_str(std::str::from_utf8(part.bytes()).expect("it is text"));
        }
        assert_eq!(shared, 2);
        assert!(all.starts_with("first\r\n*3\r\n$3\r\nSET\r\n") && all.ends_with("\r\nlast\r\n"));
        for (number, value) in values.iter().enumerate() {
            let expected =
                format!("*3\r\n$3\r\nSET\r\n$4\r\n{{t}}{number}\r\n$100000\r\n{value}\r\n");
            assert!(all.contains(&expected), "{number}");
        }
    }
}
