//! Makes a request from a line of text, with its keys routed.

use crate::command::args::{Args, RoutedKey};
use crate::command::declaration::Command;
use crate::command::keys;
use crate::command::registry::{registry, resolve};
use basalt_core::resp::request::{NOTHING_BESIDE, Span};

/// Calls `run` with the request that a line without quotes contains; `route` routes its keys.
pub fn with_request(
    line: &str,
    route: impl Fn(usize, &[u8]) -> RoutedKey,
    run: impl FnOnce(&'static Command, &Args<'_>),
) {
    let mut spans = Vec::new();
    let mut start = 0;
    for word in line.split(' ') {
        spans.push(Span::in_buffer(start, word.len()));
        start += word.len() + 1;
    }
    let argument = |at: usize| spans[at].bytes(line.as_bytes(), &NOTHING_BESIDE);
    let command = registry().find(argument(0)).expect("a command");
    let command = resolve(command, (spans.len() > 1).then(|| argument(1)));
    let mut routed = Vec::new();
    keys::positions(command, spans.len(), argument, |at, _| {
        routed.push(route(at, argument(at)));
    })
    .expect("good counts");
    index_keys(&mut routed);
    run(command, &Args::in_buffer(line.as_bytes(), &spans, &routed));
}

/// Sets the engine index of each key; returns their shards in order.
pub(super) fn index_keys(routed: &mut [RoutedKey]) -> Vec<u16> {
    let mut shards: Vec<u16> = routed.iter().map(|key| key.shard).collect();
    shards.sort_unstable();
    shards.dedup();
    for key in routed {
        key.engine_index = shards.partition_point(|shard| *shard < key.shard) as u16;
    }
    shards
}
