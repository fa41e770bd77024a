//! Slots move with their keys of all databases (`cluster-databases`).

use super::{TAG, await_end, migrate, valkey_beside};
use crate::clustered::options;
use crate::support::{self, Server, check, eventually};

const DATABASES: usize = 4;

/// Nodes that do not take each other for failed while the machine is busy.
fn several() -> support::Options {
    options()
        .with("cluster-databases", &DATABASES.to_string())
        .with("cluster-node-timeout", "60000")
}

/// Returns the replies of commands that run in a database.
fn within(server: &Server, db: usize, lines: &[String]) -> Vec<String> {
    let mut client = server.raw();
    check(&mut client, &format!("SELECT {db}"), "OK");
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let replies = client.pipeline(&lines);
    replies.iter().map(|reply| reply.text()).collect()
}

fn fill_all(server: &Server, keys: usize) {
    for db in 0..DATABASES {
        let lines: Vec<String> = (0..keys)
            .map(|number| format!("SET {TAG}k{number} {db}:{number}"))
            .collect();
        let said = within(server, db, &lines);
        let refused = said.iter().find(|reply| *reply != "OK");
        assert_eq!(refused, None);
    }
}

fn check_all(server: &Server, keys: usize) {
    let lines: Vec<String> = (0..keys)
        .map(|number| format!("GET {TAG}k{number}"))
        .collect();
    for db in 0..DATABASES {
        let expected: Vec<String> = (0..keys).map(|number| format!("{db}:{number}")).collect();
        assert_eq!(within(server, db, &lines), expected);
    }
}

fn count_all(server: &Server) -> usize {
    let line = [format!("CLUSTER COUNTKEYSINSLOT {}", super::SLOT)];
    let mut sum = 0;
    for db in 0..DATABASES {
        let mut client = server.raw();
        check(&mut client, &format!("SELECT {db}"), "OK");
        sum += client.call(&line[0]).integer() as usize;
    }
    sum
}

#[test]
fn the_keys_of_all_databases_go_with_their_slot_and_so_does_what_changes() {
    if support::is_stand_in() {
        return;
    }
    let (one, two) = (Server::start(&several()), Server::start(&several()));
    crate::clustered::unite(&[&one, &two]);
    let keys = 3_000;
    fill_all(&one, keys);
    for (from, to) in [(&one, &two), (&two, &one)] {
        let stops = std::sync::atomic::AtomicBool::new(false);
        let written = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut clients: Vec<_> = (0..DATABASES).map(|_| from.raw()).collect();
                for (db, client) in clients.iter_mut().enumerate() {
                    check(client, &format!("SELECT {db}"), "OK");
                }
                let mut counts = [0; DATABASES];
                // The wandering key is in one database at a time, and grows in each.
                let lines = [format!("INCR {TAG}count"), format!("APPEND {TAG}wanders x")];
                while !stops.load(std::sync::atomic::Ordering::Relaxed) {
                    for db in 0..DATABASES {
                        let client = &mut clients[db];
                        if client.call(&lines[0]).is_error() {
                            return counts;
                        }
                        counts[db] += 1;
                        let next = (db + 1) % DATABASES;
                        for line in [
                            &lines[1],
                            &format!("MOVE {TAG}wanders {next}"),
                            &format!("COPY {TAG}count {TAG}copy{db} DB {next} REPLACE"),
                        ] {
                            if client.call(line).is_error() {
                                return counts;
                            }
                        }
                    }
                }
                counts
            });
            migrate(from, to);
            await_end(from, "success");
            stops.store(true, std::sync::atomic::Ordering::Relaxed);
            writer.join().expect("it has not failed")
        });
        check_all(to, keys);
        for (db, count) in written.iter().enumerate() {
            let said = within(to, db, &[format!("GET {TAG}count")]);
            assert_eq!(said, [count.to_string()], "database {db}");
            // So that it begins anew on the way back.
            let mut client = to.raw();
            check(&mut client, &format!("SELECT {db}"), "OK");
            let copied = (db + DATABASES - 1) % DATABASES;
            let line = format!("DEL {TAG}count {TAG}wanders {TAG}copy{copied}");
            assert!(client.call(&line).integer() > 0);
        }
        eventually("the keys go", || count_all(from) == 0);
        assert_eq!(count_all(to), DATABASES * keys);
    }
}

#[test]
fn a_slot_goes_to_valkey_and_back_with_its_keys_of_all_databases() {
    let Some((ours, valkey)) = valkey_beside(&[("cluster-databases", "4")]) else {
        return;
    };
    let keys = 500;
    fill_all(&ours, keys);
    for (from, to) in [(&ours, &valkey), (&valkey, &ours)] {
        super::move_over(from, to);
        eventually("it has taken them", || super::owns(to));
        check_all(to, keys);
        eventually("the keys go", || count_all(from) == 0);
    }
}
