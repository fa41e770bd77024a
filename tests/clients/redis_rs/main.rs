//! redis-rs's cluster client for `history.py`, which says what it does: PORT ...

use std::collections::{BTreeMap, HashMap};
use std::io::{self, BufRead};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use redis::Commands;
use redis::cluster::{ClusterClient, ClusterConnection};

const WRITERS: usize = 4;
const KEYS: u64 = 50;

/// What all writers saw.
#[derive(Default)]
struct Saw {
    writes: u64,
    lost: u64,
    errors: BTreeMap<String, u64>,
    wrong: Vec<String>,
}

struct Writer {
    number: usize,
    sent: HashMap<String, u64>,
    acknowledged: HashMap<String, u64>,
    /// What was acknowledged when a kill was announced.
    floor: Option<HashMap<String, u64>>,
    saw: Saw,
}

impl Writer {
    fn check(&mut self, key: &str, value: Option<u64>) {
        let value = value.unwrap_or(0);
        let least = self.acknowledged.get(key).copied().unwrap_or(0);
        let most = self.sent.get(key).copied().unwrap_or(0);
        if (least..=most).contains(&value) {
            return;
        }
        let floor = self.floor.as_ref().map(|floor| floor.get(key).copied().unwrap_or(0));
        if floor.is_some_and(|floor| (floor..least).contains(&value)) {
            self.saw.lost += 1;
            self.acknowledged.insert(key.to_owned(), value);
            return;
        }
        self.saw.wrong.push(format!("{key} is {value}, and {least} was acknowledged and {most} sent"));
    }

    fn write(&mut self, connection: &mut ClusterConnection, number: u64) -> redis::RedisResult<()> {
        let key = format!("writer:{}:{}", self.number, number % KEYS);
        self.sent.insert(key.clone(), number);
        let () = connection.set(&key, number)?;
        self.acknowledged.insert(key.clone(), number);
        self.saw.writes += 1;
        let value = connection.get(&key)?;
        self.check(&key, value);
        Ok(())
    }

    fn run(mut self, client: &ClusterClient, marked: &AtomicBool, ended: &AtomicBool) -> Saw {
        let connect = || {
            let connection = client.get_connection()?;
            connection.set_read_timeout(Some(Duration::from_secs(10)))?;
            redis::RedisResult::Ok(connection)
        };
        let mut connection = connect().expect("a cluster");
        let mut number = 0;
        while !ended.load(Ordering::Relaxed) {
            number += 1;
            if self.floor.is_none() && marked.load(Ordering::Relaxed) {
                self.floor = Some(self.acknowledged.clone());
            }
            if let Err(error) = self.write(&mut connection, number) {
                let kind: String = error.to_string().chars().filter(|letter| !letter.is_ascii_digit()).collect();
                *self.saw.errors.entry(kind).or_default() += 1;
                thread::sleep(Duration::from_millis(20));
                // As applications do: else the address of a node that is gone is tried again and again.
                if let Ok(anew) = connect() {
                    connection = anew;
                }
            }
        }
        for key in self.acknowledged.clone().into_keys() {
            let value = connection.get(&key).expect("a cluster that is up");
            self.check(&key, value);
        }
        self.saw
    }
}

fn main() {
    let nodes = std::env::args().skip(1).map(|port| format!("redis://127.0.0.1:{port}"));
    let client = ClusterClient::new(nodes).expect("ports");
    let (marked, ended) = (AtomicBool::new(false), AtomicBool::new(false));
    let all = Arc::new(Mutex::new(Saw::default()));
    thread::scope(|scope| {
        for number in 0..WRITERS {
            let (client, marked, ended, all) = (&client, &marked, &ended, &all);
            scope.spawn(move || {
                let writer = Writer {
                    number,
                    sent: HashMap::new(),
                    acknowledged: HashMap::new(),
                    floor: None,
                    saw: Saw::default(),
                };
                let saw = writer.run(client, marked, ended);
                let mut all = all.lock().expect("no writer panics");
                all.writes += saw.writes;
                all.lost += saw.lost;
                all.wrong.extend(saw.wrong);
                for (kind, count) in saw.errors {
                    *all.errors.entry(kind).or_default() += count;
                }
            });
        }
        for line in io::stdin().lock().lines() {
            marked.store(line.is_ok(), Ordering::Relaxed);
        }
        ended.store(true, Ordering::Relaxed);
    });
    let all = all.lock().expect("no writer panics");
    let errors: Vec<_> = all.errors.iter().map(|(kind, count)| format!("{kind:?}: {count}")).collect();
    println!(
        "{{\"writes\": {}, \"lost\": {}, \"errors\": {{{}}}, \"wrong\": {:?}}}",
        all.writes,
        all.lost,
        errors.join(", "),
        all.wrong
    );
}
