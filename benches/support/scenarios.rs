//! Scenarios shared by several benches.

use super::closed_loop::{Scenario, ask, nothing};
use super::process::Client;

const LISTS: usize = 1_000;

/// One element pushed to the front of any of 1,000 lists.
pub(crate) const LPUSH: Scenario = Scenario {
    name: "LPUSH",
    prepare: nothing,
    restore: nothing,
    request: |draw, out| {
        let list = format!("list:{}", draw.below(LISTS));
        ask(out, &["LPUSH", &list, "element:00000001"]);
    },
};

/// One element popped from the end of any of 1,000 lists.
pub(crate) const RPOP: Scenario = Scenario {
    name: "RPOP",
    // Popped lists are random, so each has some spare elements: none is ever empty.
    prepare: |client, scale| fill_lists(client, 2_000_000 / scale),
    restore: fill_lists,
    request: |draw, out| {
        let list = format!("pop:{}", draw.below(LISTS));
        ask(out, &["RPOP", &list]);
    },
};

/// Ten of 100 elements.
pub(crate) const LRANGE: Scenario = Scenario {
    name: "LRANGE of 10",
    prepare: |client, _| {
        client.load(LISTS * 100, |index, out| {
            let list = format!("range:{}", index % LISTS);
            ask(out, &["RPUSH", &list, "element:00000001"]);
        });
    },
    restore: nothing,
    request: |draw, out| {
        let list = format!("range:{}", draw.below(LISTS));
        ask(out, &["LRANGE", &list, "0", "9"]);
    },
};

fn fill_lists(client: &mut Client, elements: usize) {
    client.load(elements, |index, out| {
        let list = format!("pop:{}", index % LISTS);
        ask(out, &["LPUSH", &list, "element:00000001"]);
    });
}
