//! Sorted sets as delayed queues, by polling and by waiting: each job is done exactly once, by the first
//! client to take it.

use std::collections::BTreeSet;

use crate::support::{self, blocked, check, eventually};
use crate::wire::{Raw, encode};

#[test]
fn many_workers_of_a_delayed_queue_do_each_job_once() {
    const QUEUES: usize = 4;
    const JOBS_EACH: usize = 400;
    const WORKERS: usize = 12;
    support::at_each_shard_count(|server| {
        let port = server.port;
        let mut producer = server.raw();
        for job in 0..JOBS_EACH {
            for queue in 0..QUEUES {
                // Every other one is due, the others an hour later.
                let due_s = 1000 + (job % 2) * 3600 + job % 7;
                producer.call(&format!("ZADD delayed:{queue} {due_s} job:{queue}:{job}"));
            }
        }
        let workers: Vec<_> = (0..WORKERS)
            .map(|number| {
                std::thread::spawn(move || {
                    let mut raw = Raw::connect(port);
                    let mut done: Vec<String> = Vec::new();
                    let mut idle = 0;
                    let mut turn = number;
                    while idle < QUEUES {
                        turn += 1;
                        let queue = format!("delayed:{}", turn % QUEUES);
                        let due = raw.call(&format!("ZRANGEBYSCORE {queue} -inf 2000 LIMIT 0 3"));
                        let jobs = due.items();
                        idle = if jobs.is_empty() { idle + 1 } else { 0 };
                        for job in jobs {
                            let job = job.text();
                            if raw.command(&["ZREM", &queue, &job]).integer() == 1 {
                                done.push(job);
                            }
                        }
                    }
                    done
                })
            })
            .collect();
        let mut done = Vec::new();
        for worker in workers {
            done.extend(worker.join().expect("a worker does its jobs"));
        }
        let distinct: BTreeSet<&String> = done.iter().collect();
        assert_eq!(distinct.len(), done.len(), "no job twice");
        assert_eq!(done.len(), QUEUES * JOBS_EACH / 2, "every job that is due");
        for queue in 0..QUEUES {
            let left = producer.call(&format!("ZCARD delayed:{queue}")).integer();
            assert_eq!(left as usize, JOBS_EACH / 2);
        }
    });
}

#[test]
fn who_waits_first_is_served_first_with_the_least_or_the_greatest() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        let mut first = blocked(server, &mut other, "BZPOPMIN z 0");
        let mut second = blocked(server, &mut other, "BZPOPMAX none z also 0");
        let mut third = blocked(server, &mut other, "BZMPOP 0 2 also z MIN COUNT 2");
        check(&mut other, "ZADD z 3 c 1 a 2 b 4 d 5 e", "(integer) 5");
        assert_eq!(first.read().show(), "1) \"z\"\n2) \"a\"\n3) \"1\"");
        assert_eq!(second.read().show(), "1) \"z\"\n2) \"e\"\n3) \"5\"");
        let third = third.read();
        assert_eq!(third.items()[0].text(), "z");
        assert_eq!(third.items()[1].items().len(), 2);
        check(&mut other, "ZRANGE z 0 -1", "1) \"d\"");
    });
}

#[test]
fn a_set_made_by_any_command_wakes_who_waits_for_it() {
    support::at_each_shard_count(|server| {
        let mut other = server.raw();
        check(&mut other, "ZADD source{t} 1 a 2 b", "(integer) 2");
        check(&mut other, "GEOADD places{t} 1 1 a", "(integer) 1");
        for (line, served) in [
            ("ZUNIONSTORE z{t} 1 source{t}", "a"),
            ("ZRANGESTORE z{t} source{t} 1 1", "b"),
            ("ZINCRBY z{t} 5 c", "c"),
            ("GEOADD z{t} 1 1 place", "place"),
            ("COPY source{t} z{t}", "a"),
            ("GEORADIUS places{t} 1 1 1 km STORE z{t}", "a"),
        ] {
            other.call("DEL z{t}");
            let mut raw = blocked(server, &mut other, "BZPOPMIN z{t} 0");
            other.call(line);
            assert_eq!(raw.read().items()[1].text(), served, "{line}");
        }
        // A key of another type does not.
        other.call("DEL z{t}");
        let mut raw = blocked(server, &mut other, "BZPOPMIN z{t} 0.3");
        check(&mut other, "LPUSH z{t} x", "(integer) 1");
        assert_eq!(raw.read().show(), "(nil array)");
    });
}

#[test]
fn waiting_consumers_of_many_queues_lose_and_double_nothing() {
    const QUEUES: usize = 8;
    const CONSUMERS: usize = 40;
    const ITEMS: usize = 2000;
    support::at_each_shard_count(|server| {
        let port = server.port;
        let consumers: Vec<_> = (0..CONSUMERS)
            .map(|number| {
                std::thread::spawn(move || {
                    let mut raw = Raw::connect(port);
                    let stop = format!("stop:{number}");
                    let one = format!("queue:{}", number % QUEUES);
                    let two = format!("queue:{}", (number * 3 + 1) % QUEUES);
                    let request = match number % 2 {
                        0 => encode(&["BZPOPMIN", &one, &two, &stop, "0"]),
                        _ => encode(&["BZMPOP", "0", "3", &one, &two, &stop, "MAX", "COUNT", "2"]),
                    };
                    let mut got = Vec::new();
                    loop {
                        raw.send(&request);
                        let reply = raw.read();
                        let items = reply.items();
                        if items[0].text() == stop {
                            return got;
                        }
                        match number % 2 {
                            0 => got.push(items[1].text()),
                            _ => {
                                let pairs = items[1].items().iter();
                                got.extend(pairs.map(|pair| pair.items()[0].text()));
                            }
                        }
                    }
                })
            })
            .collect();
        let mut producer = server.raw();
        for item in 0..ITEMS {
            let queue = item * 5 % QUEUES;
            producer.call(&format!("ZADD queue:{queue} {} item:{item}", item % 13));
        }
        eventually("all is taken", || {
            (0..QUEUES).all(|queue| producer.call(&format!("EXISTS queue:{queue}")).integer() == 0)
        });
        for number in 0..CONSUMERS {
            producer.call(&format!("ZADD stop:{number} 1 stop"));
        }
        let mut got: Vec<String> = Vec::new();
        for consumer in consumers {
            got.extend(consumer.join().expect("a consumer stops"));
        }
        let distinct: BTreeSet<&String> = got.iter().collect();
        assert_eq!(distinct.len(), got.len(), "nothing twice");
        assert_eq!(got.len(), ITEMS, "nothing lost");
    });
}
