//! The simulated machine: threads with a core each, connections that always have a batch ready, shards with tokens, and
//! cache lines that one thread owns at a time.
//!
//! Time is in nanoseconds; only keys are random, from a seed. A thread takes a connection, pays the cost of a batch
//! once, prefetches, and runs its commands one by one. With [`Runtime::Shared`] any thread takes any connection, after
//! the one I/O driver has reported it; with [`Runtime::PerCore`] each thread has connections and a driver of its own.
//! A read that the thread's copy of a hot key answers takes time and nothing else. For each other command the thread
//! takes the shard's token: lines that another thread has touched since are handed over first, the token's word and
//! then all other lines of the shard together. Meanwhile the lines of a later command's shard are fetched, which others
//! may take away again. A token held by others is awaited for a moment; after that the command is left in the shard's
//! queue, the connection waits, and the thread continues with another one. A thread that releases a token runs queued
//! commands first. Lines of all threads are handed over one thread at a time, in request order.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

/// Minimum number of commands for prefetching, and the number prefetched at a time.
const PREFETCHED: (usize, usize) = (4, 16);

/// Distance of the command whose shard is fetched while one runs.
const COMMANDS_AHEAD: usize = 2;

/// The cost of one command and one batch, in nanoseconds and in lines.
#[derive(Clone, Debug)]
pub(crate) struct Cost {
    /// Work of a read that a copy of a hot key answers.
    pub(crate) copied_ns: f64,
    /// Time of the shared I/O driver for a batch: one thread at a time takes its events.
    pub(crate) driver_ns: f64,
    /// Work of a batch besides its commands.
    pub(crate) batch_ns: f64,
    /// Work of a command, with its shard locked.
    pub(crate) command_ns: f64,
    /// Work of the log's threads, per command.
    pub(crate) log_ns: f64,
    /// The sequential part of it, in one thread.
    pub(crate) sequencer_ns: f64,
    /// Token words that change hands together, where a batch is prefetched.
    pub(crate) together: f64,
    /// Lines of a connection that change hands when another thread serves it.
    pub(crate) connection_lines: f64,
    /// Touches of lines shared by all threads: per batch, with a shared runtime, and per command.
    pub(crate) global_batch_lines: f64,
    pub(crate) global_command_lines: f64,
}

/// The assignment of connections to threads, as the directive `runtime` says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Runtime {
    Shared,
    PerCore,
}

/// Parameters of the simulation.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) runtime: Runtime,
    pub(crate) threads: usize,
    pub(crate) shards: usize,
    pub(crate) connections: usize,
    pub(crate) pipeline: usize,
    pub(crate) commands: usize,
    pub(crate) cost: Cost,
    pub(crate) hand_over_ns: f64,
    /// Time for which a thread spins on a token held by others.
    pub(crate) spin_ns: f64,
    /// Cost of leaving a command in a queue, besides lines; taking it costs as much again.
    pub(crate) queue_ns: f64,
}

/// Result of the simulation.
#[derive(Clone, Debug)]
pub(crate) struct Outcome {
    pub(crate) ops_per_s: f64,
    /// Thread time per command, including waits for lines and tokens.
    pub(crate) cpu_ns_per_op: f64,
    /// Resources, and the share of time for which each was in use.
    pub(crate) uses: Vec<(&'static str, f64)>,
}

#[derive(Clone)]
struct Shard {
    /// The threads that own the token's word, and the other lines.
    word_owner: usize,
    owner: usize,
    /// Time at which the lines fetched by the owner arrive.
    arrives: f64,
    is_held: bool,
    /// Time at which the holder checks the queue.
    held_until: f64,
    busy_ns: f64,
    queue: VecDeque<usize>,
}

/// A line that all threads write.
#[derive(Clone, Default)]
struct Line {
    owner: usize,
    free_at: f64,
    busy_ns: f64,
}

/// A connection: the thread whose caches it is in, and the progress of its batch.
struct Connection {
    thread: usize,
    /// The shard of each command; none for a read that a copy answers.
    shards: Vec<Option<usize>>,
    done: usize,
    /// The first command of the part prefetched last.
    fetched: usize,
    has_begun: bool,
}

/// The next action of a thread.
#[derive(Clone, Copy)]
enum Step {
    /// Look for a connection with work.
    Look,
    /// Continue a connection's batch.
    Go(usize),
    /// Complete a command from the queue of a shard, which is locked because of a connection.
    Ran {
        queued: usize,
        connection: usize,
        shard: usize,
    },
    /// Release a shard that the connection's command has used, unless the next one is for it as well.
    Release { connection: usize, shard: usize },
}

const NOBODY: usize = usize::MAX;

struct Machine<'s> {
    setup: &'s Setup,
    keys: &'s mut dyn FnMut() -> Option<usize>,
    shards: Vec<Shard>,
    connections: Vec<Connection>,
    /// Connections with work: of all threads in the first queue, or of each thread in its own.
    ready: Vec<VecDeque<usize>>,
    idle: Vec<usize>,
    /// Time of each thread's next step.
    agenda: BinaryHeap<Reverse<(u64, usize)>>,
    steps: Vec<Step>,
    driver: Line,
    batch_line: Line,
    log_line: Line,
    busy_ns: f64,
    done: usize,
}

/// Runs a setup until its commands are done. `keys` returns the shard of the next command, or none for a read that a
/// copy answers.
pub(crate) fn run(setup: &Setup, keys: &mut dyn FnMut() -> Option<usize>) -> Outcome {
    let shard = Shard {
        word_owner: NOBODY,
        owner: NOBODY,
        arrives: 0.0,
        is_held: false,
        held_until: 0.0,
        busy_ns: 0.0,
        queue: VecDeque::new(),
    };
    let mut machine = Machine {
        setup,
        keys,
        shards: vec![shard; setup.shards],
        connections: (0..setup.connections)
            .map(|number| Connection {
                thread: match setup.runtime {
                    Runtime::Shared => NOBODY,
                    Runtime::PerCore => number % setup.threads,
                },
                shards: Vec::new(),
                done: 0,
                fetched: NOBODY,
                has_begun: false,
            })
            .collect(),
        ready: vec![VecDeque::new(); setup.threads],
        idle: Vec::new(),
        agenda: (0..setup.threads)
            .map(|thread| Reverse((thread as u64, thread)))
            .collect(),
        steps: vec![Step::Look; setup.threads],
        driver: Line::default(),
        batch_line: Line::default(),
        log_line: Line::default(),
        busy_ns: 0.0,
        done: 0,
    };
    for connection in 0..setup.connections {
        let queue = machine.queue_of(connection);
        machine.ready[queue].push_back(connection);
    }
    let mut end = 0;
    while machine.done < setup.commands {
        let Reverse((now, thread)) = machine.agenda.pop().expect("somebody has something to do");
        end = now;
        machine.step(now as f64, thread);
    }
    machine.outcome(end as f64)
}

impl Machine<'_> {
    fn at(&mut self, time: f64, thread: usize, step: Step) {
        self.steps[thread] = step;
        self.agenda.push(Reverse((time.ceil() as u64, thread)));
    }

    fn step(&mut self, now: f64, thread: usize) {
        match self.steps[thread] {
            Step::Look => {
                let queue = if self.is_per_core() { thread } else { 0 };
                match self.ready[queue].pop_front() {
                    Some(connection) => self.go(now, thread, connection),
                    None => self.idle.push(thread),
                }
            }
            Step::Go(connection) => self.go(now, thread, connection),
            Step::Ran {
                queued,
                connection,
                shard,
            } => {
                self.finish(queued);
                self.make_ready(now, queued);
                self.drain(now, thread, connection, shard);
            }
            Step::Release { connection, shard } => self.release(now, thread, connection, shard),
        }
    }

    fn is_per_core(&self) -> bool {
        self.setup.runtime == Runtime::PerCore
    }

    /// Returns the queue that a connection with work is in.
    fn queue_of(&self, connection: usize) -> usize {
        match self.is_per_core() {
            true => self.connections[connection].thread,
            false => 0,
        }
    }

    /// Marks a connection as having work: an idle thread looks for it, its own one if it has one.
    fn make_ready(&mut self, now: f64, connection: usize) {
        let queue = self.queue_of(connection);
        self.ready[queue].push_back(connection);
        let found = match self.is_per_core() {
            true => self.idle.iter().position(|thread| *thread == queue),
            false => self.idle.len().checked_sub(1),
        };
        if let Some(at) = found {
            let thread = self.idle.swap_remove(at);
            self.at(now, thread, Step::Look);
        }
    }

    fn go(&mut self, now: f64, thread: usize, number: usize) {
        let cost = &self.setup.cost;
        let hand_over_ns = self.setup.hand_over_ns;
        let connection = &mut self.connections[number];
        let mut time = now;
        if connection.thread != thread {
            if connection.thread != NOBODY {
                time += cost.connection_lines * hand_over_ns;
            }
            connection.thread = thread;
        }
        if !connection.has_begun {
            connection.has_begun = true;
            connection.done = 0;
            connection.fetched = NOBODY;
            connection.shards = (0..self.setup.pipeline).map(|_| (self.keys)()).collect();
            // The log's threads have no cores of their own: their time is taken evenly from the serving threads.
            time += cost.batch_ns + cost.log_ns * self.setup.pipeline as f64;
            // Its part of one thread's work is in `batch_ns` already; here it is what others must wait for.
            if self.setup.runtime == Runtime::Shared {
                let begins = time.max(self.driver.free_at);
                self.driver.free_at = begins + cost.driver_ns;
                self.driver.busy_ns += cost.driver_ns;
                time = begins;
            }
            if self.setup.runtime == Runtime::Shared {
                time += touch(
                    &mut self.batch_line,
                    (time, thread),
                    cost.global_batch_lines * hand_over_ns,
                    hand_over_ns,
                );
            }
            self.busy_ns += time - now;
            return self.at(time, thread, Step::Go(number));
        }
        let begins_stretch = connection.done.is_multiple_of(PREFETCHED.1);
        if begins_stretch && connection.fetched != connection.done {
            connection.fetched = connection.done;
            let took = self.prefetch(thread, number);
            self.busy_ns += took;
            return self.at(now + took, thread, Step::Go(number));
        }
        self.fetch_ahead(now, thread, number);
        let connection = &self.connections[number];
        let Some(chosen) = connection.shards[connection.done] else {
            return self.run_from_copy(now, thread, number);
        };
        let shard = &mut self.shards[chosen];
        if shard.is_held {
            let wait = (shard.held_until - now).max(1.0);
            if wait <= self.setup.spin_ns {
                self.busy_ns += wait;
                return self.at(now + wait, thread, Step::Go(number));
            }
            let spent = self.setup.spin_ns + self.setup.queue_ns + hand_over_ns;
            shard.queue.push_back(number);
            self.busy_ns += spent;
            return self.at(now + spent, thread, Step::Look);
        }
        self.run(now, thread, number, chosen);
    }

    /// Runs a command that a copy answers.
    fn run_from_copy(&mut self, now: f64, thread: usize, number: usize) {
        let until = now + self.setup.cost.copied_ns;
        self.busy_ns += until - now;
        self.finish(number);
        if self.connections[number].has_begun {
            return self.at(until, thread, Step::Go(number));
        }
        self.make_ready(until, number);
        self.at(until, thread, Step::Look);
    }

    /// Prefetches and takes over the token words of a batch's next part, as many at a time as the processor has misses
    /// in flight; returns the time. Tokens held by others are left out.
    fn prefetch(&mut self, thread: usize, number: usize) -> f64 {
        let connection = &self.connections[number];
        let stretch = connection.shards[connection.done..]
            .iter()
            .take(PREFETCHED.1);
        if stretch.len() < PREFETCHED.0 {
            return 0.0;
        }
        let mut lines = 0.0;
        for chosen in stretch.copied().flatten() {
            let shard = &mut self.shards[chosen];
            if shard.word_owner != thread && !shard.is_held {
                lines += if shard.word_owner == NOBODY { 0.0 } else { 1.0 };
                shard.word_owner = thread;
            }
        }
        (lines / self.setup.cost.together).ceil() * self.setup.hand_over_ns
    }

    /// Starts the fetch of all lines of a later command's shard.
    fn fetch_ahead(&mut self, now: f64, thread: usize, number: usize) {
        let connection = &self.connections[number];
        if let Some(&Some(later)) = connection.shards.get(connection.done + COMMANDS_AHEAD) {
            let shard = &mut self.shards[later];
            if shard.word_owner != thread || shard.owner != thread {
                if shard.owner != NOBODY {
                    shard.arrives = now + self.setup.hand_over_ns;
                }
                (shard.word_owner, shard.owner) = (thread, thread);
            }
        }
    }

    /// Lets a thread hold a token for this time, after which it checks the queue.
    fn hold(&mut self, shard: usize, from: f64, until: f64) {
        let shard = &mut self.shards[shard];
        shard.is_held = true;
        shard.held_until = until;
        shard.busy_ns += until - from;
        self.busy_ns += until - from;
    }

    /// Runs the next command of a connection, whose token is held or free.
    fn run(&mut self, now: f64, thread: usize, number: usize, shard: usize) {
        let until = now + self.command(now, thread, shard);
        self.hold(shard, now, until);
        self.at(
            until,
            thread,
            Step::Release {
                connection: number,
                shard,
            },
        );
    }

    /// Returns the time of one command on a thread that has the token.
    fn command(&mut self, time: f64, thread: usize, shard: usize) -> f64 {
        let cost = &self.setup.cost;
        let hand_over_ns = self.setup.hand_over_ns;
        let shard = &mut self.shards[shard];
        let mut spent = cost.command_ns;
        let others =
            [shard.word_owner, shard.owner].map(|owner| owner != thread && owner != NOBODY);
        if shard.owner == thread {
            spent += (shard.arrives - time).max(0.0);
        }
        spent += others.iter().filter(|other| **other).count() as f64 * hand_over_ns;
        (shard.word_owner, shard.owner) = (thread, thread);
        let lines = cost.global_command_lines;
        spent
            + touch(
                &mut self.log_line,
                (time + spent, thread),
                lines * hand_over_ns,
                lines * hand_over_ns,
            )
    }

    fn release(&mut self, now: f64, thread: usize, number: usize, shard: usize) {
        self.finish(number);
        // The next command of the batch keeps the token if it is for the same shard.
        let connection = &self.connections[number];
        if connection.has_begun && connection.shards[connection.done] == Some(shard) {
            return self.run(now, thread, number, shard);
        }
        self.drain(now, thread, number, shard);
    }

    /// Runs the oldest command of a shard's queue; if none is left the shard is released, and the thread continues.
    fn drain(&mut self, now: f64, thread: usize, connection: usize, shard: usize) {
        if let Some(queued) = self.shards[shard].queue.pop_front() {
            // The message, and the batch that it belongs to.
            let lines_ns = 2.0 * self.setup.hand_over_ns;
            let begins = now + self.setup.queue_ns + lines_ns;
            let until = begins + self.command(begins, thread, shard);
            self.hold(shard, now, until);
            return self.at(
                until,
                thread,
                Step::Ran {
                    queued,
                    connection,
                    shard,
                },
            );
        }
        self.shards[shard].is_held = false;
        if !self.connections[connection].has_begun {
            self.make_ready(now, connection);
            return self.at(now, thread, Step::Look);
        }
        self.at(now, thread, Step::Go(connection));
    }

    /// Completes a command of a connection, and possibly its batch.
    fn finish(&mut self, number: usize) {
        self.done += 1;
        let connection = &mut self.connections[number];
        connection.done += 1;
        if connection.done == self.setup.pipeline {
            connection.has_begun = false;
        }
    }

    fn outcome(&self, end: f64) -> Outcome {
        let busiest = self
            .shards
            .iter()
            .map(|shard| shard.busy_ns)
            .fold(0.0, f64::max);
        let sequencer_ns = self.setup.cost.sequencer_ns * self.done as f64;
        // The sequential work of one thread limits them all.
        let end = end.max(sequencer_ns);
        Outcome {
            ops_per_s: self.done as f64 * 1e9 / end,
            cpu_ns_per_op: self.busy_ns / self.done as f64,
            uses: vec![
                ("a shard's token", busiest / end),
                ("the I/O driver", self.driver.busy_ns / end),
                ("lines of a batch", self.batch_line.busy_ns / end),
                ("the log's ring", self.log_line.busy_ns / end),
                ("the sequencer", sequencer_ns / end),
            ],
        }
    }
}

/// Lets a thread touch lines that all threads write, one after the other; returns the time. For `busiest` of it, the
/// busiest line is unavailable to other threads.
fn touch(line: &mut Line, (time, thread): (f64, usize), takes: f64, busiest: f64) -> f64 {
    if takes == 0.0 {
        return 0.0;
    }
    let begins = time.max(line.free_at);
    let is_own = line.owner == thread;
    let (takes, busiest) = if is_own { (0.0, 0.0) } else { (takes, busiest) };
    line.owner = thread;
    line.free_at = begins + busiest;
    line.busy_ns += busiest;
    begins + takes - time
}
