//! Formats a server's data as text, for comparisons.

use std::collections::BTreeSet;

use super::Terminal;

/// Returns all observable data of a server, as text.
pub fn state(cli: &mut Terminal) -> String {
    let db_before = cli.connection.db;
    let mut text = String::new();
    for db in 0..16 {
        cli.connection.db = db;
        let reply = cli.run("KEYS *");
        let keys = reply.lines().filter_map(|line| line.split('"').nth(1));
        let mut keys: Vec<String> = keys.map(str::to_owned).collect();
        keys.sort();
        for key in keys {
            let kind = cli.run(&format!("TYPE {key}"));
            let deadline = cli.run(&format!("PEXPIRETIME {key}"));
            text += &format!("{db} {key} {kind} {deadline}\n");
            text += &value(cli, &key, &kind);
            if cli.run(&format!("BLESS GET {key}")).contains("NO-EVICT") {
                text += "blessed\n";
            }
            let tags = cli.run(&format!("TAG OF {key}"));
            let tags: BTreeSet<&str> = tags.split('"').skip(1).step_by(2).collect();
            if !tags.is_empty() {
                text += &format!("{tags:?}\n");
            }
        }
    }
    cli.connection.db = db_before;
    text
}

fn value(cli: &mut Terminal, key: &str, kind: &str) -> String {
    let sorted = |cli: &mut Terminal, line: String, step: usize| {
        let reply = cli.run(&line);
        let items = reply
            .lines()
            .map(|line| line.split_once(") ").unwrap_or(("", line)).1);
        let items: Vec<&str> = items.collect();
        let mut groups: Vec<String> = items.chunks(step).map(|group| group.join(" ")).collect();
        groups.sort();
        groups.join("\n") + "\n"
    };
    match kind {
        "string" => cli.run(&format!("GET {key}")) + "\n",
        "list" => cli.run(&format!("LRANGE {key} 0 -1")) + "\n",
        "zset" => cli.run(&format!("ZRANGE {key} 0 -1 WITHSCORES")) + "\n",
        "set" => sorted(cli, format!("SMEMBERS {key}"), 1),
        "hash" => {
            let fields = sorted(cli, format!("HGETALL {key}"), 2);
            let names = fields.lines().filter_map(|line| line.split('"').nth(1));
            let names: Vec<String> = names.map(str::to_owned).collect();
            let (count, names) = (names.len(), names.join(" "));
            fields + &cli.run(&format!("HPEXPIRETIME {key} FIELDS {count} {names}")) + "\n"
        }
        "stream" => {
            let reply = cli.run(&format!("XINFO STREAM {key} FULL COUNT 0"));
            // Left out: when a consumer was last seen, the layout of nodes, and the number of entries refused as
            // duplicates.
            let mut is_time = false;
            let lines = reply.lines().filter(|line| {
                let was_time = std::mem::take(&mut is_time);
                is_time = [
                    "seen-time",
                    "active-time",
                    "radix-tree-keys",
                    "radix-tree-nodes",
                    "iids-duplicates",
                ]
                .iter()
                .any(|name| line.contains(name));
                !was_time
            });
            lines.collect::<Vec<_>>().join("\n") + "\n"
        }
        _ => cli.run(&format!("DUMP {key}")) + "\n",
    }
}
