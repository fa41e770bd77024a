//! Rounds: clients use a server for a while, beside a fault, and their histories are judged.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fs::File;
use std::path::Path;
use std::sync::atomic::Ordering::SeqCst;
use std::time::{Duration, Instant};

use basalt_testing::replicated::follow;

use crate::appending;
use crate::clients::Shared;
use crate::history::{Element, Key, Op, Outcome, Txn};
use crate::list_append;
use crate::singles::{self, Histories};
use crate::support::{Draw, Options, Oracle, Server, eventually, info_text, is_stand_in};
use crate::survivors::judge_survivors;
use crate::wire::Raw;

/// A disturbance beside the clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    Nothing,
    /// BGSAVE and BGREWRITEAOF, one after the other.
    Saves,
    /// CONFIG SET, of a memory limit too.
    Settings,
    /// SIGSTOP, and SIGCONT soon after.
    Stops,
    /// `kill -9` with `appendfsync always`, several times a round: nothing that was answered is lost.
    KillsAlways,
    /// `kill -9` with `appendfsync everysec`, at the end of a round: the last two seconds may be lost.
    KillEverysec,
    /// FAILOVER to a replica, several times a round: nothing that was answered is lost.
    Failovers,
    /// The primary is killed, or stopped, and its replica promoted, several times a round, with `min-sync-replicas 1`:
    /// nothing that was answered is lost.
    Confirmed,
    /// The primary is killed and its replica promoted at the end of a round: the end of the history may be lost.
    Unconfirmed,
}

pub(crate) const FAULTS: [(Fault, &str); 9] = [
    (Fault::Nothing, "nothing"),
    (Fault::Saves, "saves"),
    (Fault::Settings, "settings"),
    (Fault::Stops, "stops"),
    (Fault::KillsAlways, "kills-always"),
    (Fault::KillEverysec, "kill-everysec"),
    (Fault::Failovers, "failovers"),
    (Fault::Confirmed, "confirmed"),
    (Fault::Unconfirmed, "unconfirmed"),
];

impl Fault {
    fn directives(self) -> &'static [(&'static str, &'static str)] {
        match self {
            Fault::Saves => &[("appendonly", "yes"), ("appendfsync", "no")],
            Fault::KillsAlways => &[("appendonly", "yes"), ("appendfsync", "always")],
            Fault::KillEverysec => &[("appendonly", "yes"), ("appendfsync", "everysec")],
            // A replica follows at once.
            Fault::Failovers | Fault::Confirmed | Fault::Unconfirmed => {
                &[("repl-diskless-sync-delay", "0")]
            }
            Fault::Nothing | Fault::Settings | Fault::Stops => &[],
        }
    }

    fn has_replica(self) -> bool {
        matches!(
            self,
            Fault::Failovers | Fault::Confirmed | Fault::Unconfirmed
        )
    }

    /// True if it comes once, at the end of a round, and may lose what was answered.
    fn ends_round(self) -> bool {
        matches!(self, Fault::KillEverysec | Fault::Unconfirmed)
    }
}

/// Bytes at the end of the log that a loss of power takes with `everysec`: less than clients append in two seconds.
pub(crate) const POWER_CUT: u64 = 1_000;

/// Returns how many clients may use single keys beside a fault, of so many. A limit of memory evicts strings, and a
/// primary that was replaced may still be read: then none.
pub(crate) fn singles_beside(fault: Fault, clients: u64) -> u64 {
    match fault {
        Fault::Settings | Fault::Failovers => 0,
        _ => clients,
    }
}

/// Which server is judged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Make {
    Basalt { threads: usize, shards: usize },
    Redis,
    NewerRedis,
    Valkey,
}

/// A round to run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) fault: Fault,
    pub(crate) time: Duration,
    /// A round goes on until so many values have been written, too.
    pub(crate) writes_min: u64,
    /// Clients that send transactions.
    pub(crate) appenders: u64,
    /// Clients that use single keys.
    pub(crate) singles: u64,
    pub(crate) seed: u64,
}

/// The results of a round.
#[derive(Debug, Default)]
pub(crate) struct Shown {
    pub(crate) history: Vec<Txn>,
    pub(crate) transactions: usize,
    /// Transactions with an outcome that their client does not know.
    pub(crate) unknown: usize,
    pub(crate) keys: usize,
    pub(crate) operations: usize,
    pub(crate) faults: usize,
    /// Reads that the server has answered from copies of hot keys, since it was started.
    pub(crate) copy_reads: u64,
    /// Answered transactions that a fault has taken, where that is allowed.
    pub(crate) lost: usize,
    pub(crate) undecided: usize,
    /// Descriptions of anomalies, by name.
    pub(crate) anomalies: BTreeMap<String, Vec<String>>,
}

impl Shown {
    fn add(&mut self, found: BTreeMap<&'static str, Vec<String>>) {
        for (name, texts) in found {
            self.anomalies
                .entry(name.to_owned())
                .or_default()
                .extend(texts);
        }
    }
}

/// The servers of a run: they live for several rounds.
pub(crate) struct Site {
    make: Make,
    fault: Fault,
    server: Server,
    replica: Option<Server>,
    /// A primary that was replaced, and may live on.
    replaced: Option<Server>,
    dir: tempfile::TempDir,
    shared: Shared,
    /// `min-sync-replicas`, of servers that are promoted too.
    sync_replicas: u8,
    /// Bytes of the end of the log that are not on the disk when a killed server starts again, as after a loss of
    /// power. With `always`, a control.
    pub(crate) disk_loses: u64,
}

impl Site {
    /// Starts the servers. `None` if this make is not installed.
    pub(crate) fn start(make: Make, plan: &Plan) -> Option<Site> {
        let dir = tempfile::tempdir().expect("a temporary folder");
        let place = dir.path().display().to_string();
        let server = start(make, plan.fault, &place)?;
        let is_ours = matches!(make, Make::Basalt { .. }) && !is_stand_in();
        let mut shared = Shared::new(server.port, is_ours);
        shared.always_appends = matches!(plan.fault, Fault::Failovers | Fault::Confirmed);
        shared.replaces_server = matches!(plan.fault, Fault::KillsAlways | Fault::Confirmed);
        shared.has_leases = !plan.fault.has_replica() && plan.fault != Fault::KillsAlways;
        if plan.fault.has_replica() {
            shared.patience = Duration::from_secs(2);
        }
        appending::load_function(&mut server.raw());
        let mut site = Site {
            make,
            fault: plan.fault,
            server,
            replica: None,
            replaced: None,
            dir,
            shared,
            disk_loses: 0,
            sync_replicas: 0,
        };
        if plan.fault.has_replica() {
            site.add_replica();
        }
        if plan.fault == Fault::Confirmed {
            site.confirm_writes(true);
        }
        Some(site)
    }

    /// Sets `min-sync-replicas` for this primary and those after it; without it, as a control.
    pub(crate) fn confirm_writes(&mut self, is_on: bool) {
        self.sync_replicas = u8::from(is_on);
        let line = format!("CONFIG SET min-sync-replicas {}", self.sync_replicas);
        call(&mut self.server.raw(), &line);
    }

    pub(crate) fn port(&self) -> u16 {
        self.server.port
    }

    /// Runs and judges a round. Clients go to `front`, if there is one, instead of the server.
    pub(crate) fn round(&mut self, plan: &Plan, front: Option<u16>) -> Shown {
        let lists = appending::lists(&self.shared);
        let pools = singles::Pools::new(&self.shared);
        let shared = std::mem::replace(&mut self.shared, Shared::new(0, false));
        shared.is_over.store(false, SeqCst);
        shared.port.store(front.unwrap_or(self.port()), SeqCst);
        let mut shown = Shown::default();
        let mut crashed = None;
        let (history, single) = std::thread::scope(|scope| {
            let (shared, lists, pools) = (&shared, &lists, &pools);
            let appenders: Vec<_> = (0..plan.appenders)
                .map(|number| {
                    let seed = plan.seed * 1_000 + number;
                    let run = move || appending::run(shared, lists, number, plan.appenders, seed);
                    scope.spawn(run)
                })
                .collect();
            let users: Vec<_> = (0..plan.singles)
                .map(|number| {
                    let seed = plan.seed * 1_000 + 500 + number;
                    scope.spawn(move || singles::run(shared, pools, number, seed))
                })
                .collect();
            // The clients end even if this thread panics.
            let end = End(shared);
            shown.faults = self.disturb(shared, plan);
            if plan.fault.ends_round() {
                // Writes that are answered from here on do not reach the replica.
                if let Some(replica) = &self.replica {
                    replica.signal("STOP");
                    std::thread::sleep(Duration::from_millis(20));
                }
                crashed = Some(shared.now());
                self.server.signal("KILL");
            }
            drop(end);
            let history = appenders
                .into_iter()
                .flat_map(|it| it.join().expect("a client"));
            let history: Vec<Txn> = history.collect();
            let mut single = Histories::new();
            for user in users {
                for (key, events) in user.join().expect("a client") {
                    single.entry(key).or_default().extend(events);
                }
            }
            (history, single)
        });
        self.shared = shared;
        if crashed.is_some() {
            shown.faults += 1;
            self.replace_crashed();
        }
        self.shared.port.store(self.server.port, SeqCst);
        self.judge(&mut shown, history, &single, crashed);
        shown
    }

    /// Brings faults until the time is over and enough was written. Returns their number.
    fn disturb(&mut self, shared: &Shared, plan: &Plan) -> usize {
        let mut draw = Draw::new(plan.seed);
        let began = Instant::now();
        let first = shared.new_element();
        let mut faults = 0;
        while began.elapsed() < plan.time || shared.new_element() - first < plan.writes_min {
            assert!(
                began.elapsed() < plan.time + Duration::from_secs(240),
                "clients are stuck"
            );
            let pause = 20 + draw.below(180) as u64;
            std::thread::sleep(Duration::from_millis(pause).min(plan.time / 4));
            match plan.fault {
                Fault::Saves => call(
                    &mut self.server.raw(),
                    ["BGSAVE", "BGREWRITEAOF"][faults % 2],
                ),
                Fault::Settings => self.set_something(&mut draw),
                Fault::Stops => {
                    self.server.signal("STOP");
                    std::thread::sleep(Duration::from_millis(draw.below(100) as u64));
                    self.server.signal("CONT");
                }
                Fault::KillsAlways => {
                    shared.port.store(0, SeqCst);
                    self.server.signal("KILL");
                    self.server.wait_for_exit();
                    self.restart();
                    shared.port.store(self.server.port, SeqCst);
                }
                Fault::Failovers => self.fail_over(shared),
                Fault::Confirmed => {
                    let signal = if plan.singles == 0 { draw.below(2) } else { 0 };
                    self.promote_replica(shared, ["KILL", "STOP"][signal]);
                }
                Fault::Nothing | Fault::KillEverysec | Fault::Unconfirmed => continue,
            }
            faults += 1;
        }
        faults
    }

    fn set_something(&self, draw: &mut Draw) {
        const SETTINGS: [[&str; 2]; 9] = [
            ["maxmemory 1", "maxmemory 0"],
            ["appendonly yes", "appendonly no"],
            ["appendfsync always", "appendfsync everysec"],
            ["list-max-listpack-size 2", "list-max-listpack-size -2"],
            ["list-compress-depth 1", "list-compress-depth 0"],
            ["hz 100", "hz 10"],
            [
                "maxmemory-policy allkeys-lru",
                "maxmemory-policy noeviction",
            ],
            ["slowlog-log-slower-than 0", "slowlog-log-slower-than 10000"],
            ["latency-tracking no", "latency-tracking yes"],
        ];
        let mut raw = self.server.raw();
        let setting = &SETTINGS[draw.below(SETTINGS.len())];
        for value in setting {
            // Refused where it is not known, or while a rewrite goes on.
            raw.call(&format!("CONFIG SET {value}"));
            std::thread::sleep(Duration::from_millis(draw.below(20) as u64));
        }
    }

    fn restart(&mut self) {
        if self.disk_loses > 0 {
            cut_log(self.dir.path(), self.disk_loses);
        }
        let place = self.dir.path().display().to_string();
        loop {
            self.server = start(self.make, self.fault, &place).expect("it was started before");
            if is_loaded(&mut self.server) {
                return;
            }
            // Half a second is the limit for running the code of a library, which a starved machine can take.
            let log = self.server.log();
            assert!(
                log.contains("FUNCTION LOAD timeout"),
                "it ends while it loads: {log}"
            );
        }
    }

    fn add_replica(&mut self) {
        let replica = start_anywhere(self.make, self.fault).expect("it was started before");
        follow(&replica, &self.server);
        self.replica = Some(replica);
    }

    /// Hands the role over to the replica, which all have to follow.
    fn fail_over(&mut self, shared: &Shared) {
        let replica = self.replica.take().expect("a replica");
        let line = format!("FAILOVER TO 127.0.0.1 {}", replica.port);
        call(&mut self.server.raw(), &line);
        let mut raw = replica.raw();
        eventually("the replica is the primary", || {
            raw.call("ROLE").words().starts_with("master")
        });
        shared.port.store(replica.port, SeqCst);
        self.replica = Some(std::mem::replace(&mut self.server, replica));
        basalt_testing::replicated::await_link(self.replica.as_ref().expect("a replica"));
    }

    /// Kills or stops the primary, whose replica receives nothing for a while before, and promotes that; it gets a new
    /// replica. A primary that was only stopped goes on soon, unaware of it.
    fn promote_replica(&mut self, shared: &Shared, signal: &str) {
        let promoted = self.replica.take().expect("a replica");
        promoted.signal("STOP");
        std::thread::sleep(Duration::from_millis(20));
        shared.port.store(0, SeqCst);
        self.server.signal(signal);
        promoted.signal("CONT");
        let mut raw = promoted.raw();
        let line = format!("CONFIG SET min-sync-replicas {}", self.sync_replicas);
        call(&mut raw, &line);
        call(&mut raw, "REPLICAOF NO ONE");
        shared.port.store(promoted.port, SeqCst);
        let replaced = std::mem::replace(&mut self.server, promoted);
        replaced.signal("CONT");
        self.replaced = Some(replaced);
        self.add_replica();
    }

    /// Starts the killed server again, or promotes its replica.
    fn replace_crashed(&mut self) {
        self.server.wait_for_exit();
        match self.replica.take() {
            None => self.restart(),
            Some(promoted) => {
                promoted.signal("CONT");
                call(&mut promoted.raw(), "REPLICAOF NO ONE");
                self.server = promoted;
                self.add_replica();
            }
        }
    }

    fn judge(
        &self,
        shown: &mut Shown,
        mut history: Vec<Txn>,
        single: &Histories,
        crashed: Option<u64>,
    ) {
        /// Under `everysec`, writes that were answered earlier than this before the end are on the disk.
        const EVERYSEC_NS: u64 = 2_000_000_000;
        let keys = history.iter().flat_map(|txn| txn.ops.iter().map(Op::key));
        let keys: BTreeSet<Key> = keys.collect();
        let lists = appending::survey(&self.shared, keys.into_iter());
        shown.transactions = history.len();
        let unknown = history.iter().filter(|txn| txn.outcome == Outcome::Info);
        shown.unknown = unknown.count();
        if let Some(crashed) = crashed {
            let kept_until = match self.fault {
                Fault::KillEverysec => crashed.saturating_sub(EVERYSEC_NS),
                _ => 0,
            };
            let survival = judge_survivors(&history, &as_lists(&lists), kept_until);
            shown.lost = survival.lost;
            shown.add(survival.anomalies.found);
        } else {
            history.push(lists);
        }
        shown.add(list_append::judge(&history).found);
        shown.history = history;
        let copy_reads = info_text(&mut self.server.raw(), "basalt", "hot_key_copy_reads");
        shown.copy_reads = copy_reads.and_then(|text| text.parse().ok()).unwrap_or(0);
        let judgement = singles::judge(single);
        (shown.keys, shown.operations) = (judgement.keys, judgement.operations);
        shown.undecided = judgement.undecided;
        if !judgement.broken.is_empty() {
            let broken = judgement.broken.into_iter().take(3).collect();
            shown
                .anomalies
                .insert("not-linearizable".to_owned(), broken);
        }
    }
}

/// Waits until a server has its data. False if it ends instead.
fn is_loaded(server: &mut Server) -> bool {
    loop {
        let reply = Raw::try_connect(server.port).and_then(|mut raw| {
            raw.send_unchecked(b"PING\r\n");
            raw.try_read()
        });
        match reply {
            Ok(reply) if !reply.is_error() => return true,
            Ok(_) => std::thread::sleep(Duration::from_millis(5)),
            Err(_) => {
                server
                    .wait_for_exit()
                    .expect("it ends, as it serves nobody");
                return false;
            }
        }
    }
}

/// Takes bytes off the end of the newest part of the append-only file.
fn cut_log(dir: &Path, bytes: u64) {
    let parts = std::fs::read_dir(dir.join("appendonlydir")).expect("a folder of the log");
    let parts = parts.map(|entry| entry.expect("a file").path());
    let parts = parts.filter(|path| path.display().to_string().ends_with(".incr.aof"));
    let newest = parts.max_by_key(|path| path.metadata().and_then(|it| it.modified()).ok());
    let newest = File::options().write(true).open(newest.expect("a part"));
    let newest = newest.expect("a part that can be written");
    let length = newest.metadata().expect("a length").len();
    newest
        .set_len(length.saturating_sub(bytes))
        .expect("a shorter part");
}

/// Ends a round when it goes out of scope.
struct End<'s>(&'s Shared);

impl Drop for End<'_> {
    fn drop(&mut self) {
        self.0.is_over.store(true, SeqCst);
    }
}

fn as_lists(survey: &Txn) -> HashMap<Key, Vec<Element>> {
    let lists = survey.ops.iter().filter_map(|op| match op {
        Op::Read(key, read) => Some((*key, read.clone()?)),
        Op::Append(..) => None,
    });
    lists.collect()
}

#[track_caller]
fn call(raw: &mut Raw, line: &str) {
    let reply = raw.call(line);
    // A save or a rewrite may be under way, or wait for the other one.
    let text = reply.show();
    let is_busy = text.contains("in progress") || text.contains("Another child process is active");
    assert!(!reply.is_error() || is_busy, "{line}: {text}");
}

fn start(make: Make, fault: Fault, dir: &str) -> Option<Server> {
    let directives = fault.directives().iter().copied().chain([("dir", dir)]);
    start_with(make, directives)
}

/// Starts a server in a folder of its own.
fn start_anywhere(make: Make, fault: Fault) -> Option<Server> {
    start_with(make, fault.directives().iter().copied())
}

fn start_with<'d>(
    make: Make,
    directives: impl Iterator<Item = (&'d str, &'d str)>,
) -> Option<Server> {
    let owned = |(name, value): (&str, &str)| (name.to_owned(), value.to_owned());
    match make {
        Make::Basalt { threads, shards } => {
            let mut options = Options::shards(shards).threads(threads);
            if !is_stand_in() {
                options = options.with("hot-keys-sample", "2");
            }
            let options =
                directives.fold(options, |options, (name, value)| options.with(name, value));
            Some(Server::start(&options))
        }
        Make::Redis => {
            let directives: Vec<_> = directives.map(owned).collect();
            Oracle::start_with(&directives).map(|oracle| oracle.0)
        }
        Make::NewerRedis => Oracle::start_newer_redis().map(|oracle| oracle.0),
        Make::Valkey => {
            let directives: Vec<_> = directives.collect();
            Oracle::start_valkey_with(&directives).map(|oracle| oracle.0)
        }
    }
}
