//! The payloads of redis-server 7.0.15 (`command/testing/payloads.rs`) can be read, and are written in the same form.

use super::{dump, restore};
use crate::command::testing::on_every_setup;
use crate::command::testing::payloads::{Recorded, all};

#[test]
fn what_redis_dumped_is_the_same_here_and_goes_back_as_the_same() {
    on_every_setup(|cli| {
        for Recorded {
            name,
            encoding,
            digest,
            payload,
        } in all()
        {
            assert_eq!(restore(cli, name, &payload, ""), "OK", "{name}");
            // From 7.2 on a list that fits one node is a listpack.
            let encoding = if name == "list:small" {
                "listpack"
            } else {
                encoding
            };
            assert_eq!(cli.encoding(name), encoding, "{name}");
            let ours = cli.run(&format!("DEBUG DIGEST-VALUE {name}"));
            assert_eq!(ours, format!("1) {digest}"), "{name}");
            let again = dump(cli, name);
            assert_eq!(restore(cli, name, &again, "replace"), "OK", "{name}");
            let ours = cli.run(&format!("DEBUG DIGEST-VALUE {name}"));
            assert_eq!(ours, format!("1) {digest}"), "{name}, there and back");
        }
    });
}
