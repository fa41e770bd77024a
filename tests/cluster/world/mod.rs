//! A simulated cluster in one thread: machines, the links between them, their disks and clocks, and faults of
//! each. A seed determines everything.

mod handling;
mod writes;

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet, BinaryHeap};
use std::sync::Arc;

use basalt_commands::cluster::Millis;
use basalt_commands::cluster::change::ClusterChange;
use basalt_commands::cluster::machine::Machine;
use basalt_commands::cluster::map::ClusterMap;
use basalt_commands::cluster::node_id::NodeId;
use basalt_commands::cluster::output::{LinkId, Output};
use basalt_commands::cluster::packet::{Body, Extension, Packet};
use basalt_commands::cluster::saved::Saved;
use basalt_commands::cluster::settings::{ClusterSettings, Local, PrimaryLink};
use basalt_commands::cluster::slot_set::SlotSet;
use basalt_core::base::random::Random;

/// Time on the clock when a world begins, in milliseconds.
pub(crate) const BEGIN: Millis = 1_000_000;

/// Milliseconds between ticks of a machine.
const TICK: Millis = 100;

/// Milliseconds after which a change that no output waits for begins to be saved, at most.
const SAVED_WITHIN: Millis = 100;

/// Ticks of a server between two checks of its map.
const MAP_LOOKS: u64 = 20;

/// Kinds of faults, and their extent.
#[derive(Clone, Copy)]
pub(crate) struct Faults {
    /// Greatest delay of a packet, in milliseconds.
    pub(crate) delay_max: Millis,
    /// Packets of a thousand that are lost although the link stays.
    pub lost_of_1000: u64,
    /// Packets of a thousand that come twice.
    pub twice_of_1000: u64,
    /// Greatest difference between clocks, in milliseconds.
    pub(crate) skew_max: Millis,
    /// Greatest time that a disk takes for the file, in milliseconds.
    pub(crate) save_max: Millis,
}

/// One server.
pub(crate) struct Server {
    pub(crate) machine: Option<Machine>,
    pub(crate) ip: String,
    pub(crate) settings: ClusterSettings,
    /// Addresses at which the server looks for others (`cluster-seeds`).
    pub(crate) seeds: Vec<String>,
    /// Whether it has keys.
    pub(crate) has_keys: bool,
    pub(crate) disk: Option<Saved>,
    /// State that is being written to the disk, and the last promise in it. A crash leaves the earlier state.
    saving: Option<(Saved, u64)>,
    /// True if more is to be written after that.
    saves_again: bool,
    /// Number of starts: work that was under way before a restart is never completed.
    life: u64,
    /// The last published map, which commands see.
    published: Option<ClusterMap>,
    ticks: u64,
    skew: Millis,
    links: BTreeMap<LinkId, (usize, LinkId)>,
    /// Index of the primary that it follows.
    pub(crate) follows: Option<usize>,
    /// Numbers of its writes, in order.
    pub(crate) writes: Vec<u64>,
    heard_primary: Millis,
    /// The last claim: slots and epoch.
    claimed: (SlotSet, u64),
    stopped_until: Millis,
}

/// The environment that a machine sees of its server.
struct Around {
    offset: u64,
    link: Option<PrimaryLink>,
    has_keys: bool,
}

impl Local for Around {
    fn offset(&self) -> u64 {
        self.offset
    }
    fn keys_in_slot(&self, _: u16) -> u64 {
        0
    }
    fn has_keys(&self) -> bool {
        self.has_keys
    }
    fn primary_link(&self) -> Option<PrimaryLink> {
        self.link
    }
}

#[derive(PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Tick(usize),
    Seek {
        at: usize,
        life: u64,
    },
    Open {
        from: usize,
        link: LinkId,
        to: usize,
    },
    Deliver {
        to: usize,
        link: LinkId,
        packet: u64,
    },
    Close {
        to: usize,
        link: LinkId,
    },
    Save {
        at: usize,
        life: u64,
    },
    Saved {
        at: usize,
        life: u64,
    },
}

/// See the module.
pub(crate) struct World {
    pub(crate) now: Millis,
    pub(crate) random: Random,
    pub(crate) servers: Vec<Server>,
    pub(crate) faults: Faults,
    events: BinaryHeap<Reverse<(Millis, u64, Event)>>,
    packets: BTreeMap<u64, Arc<Packet>>,
    next: u64,
    /// Pairs of servers of which the first cannot reach the second.
    pub(crate) cut: BTreeSet<(usize, usize)>,
    /// Arrival time of a link's last packet: links keep order.
    arrivals: BTreeMap<(usize, LinkId), Millis>,
    /// Votes that were sent, by voter and epoch.
    votes: BTreeMap<(NodeId, u64), NodeId>,
    /// Claims that were sent, by slot and epoch.
    claims: BTreeMap<(u16, u64), NodeId>,
    /// Violations that were found.
    pub(crate) wrong: Vec<String>,
    pub(crate) sent: u64,
    pub(crate) sent_bytes: u64,
    next_write: u64,
    /// Writes that all replicas of the shard had when they were acknowledged.
    pub(crate) acknowledged: BTreeSet<u64>,
    pub(crate) trace: bool,
    /// True if no node is informed of newer claims by UPDATE, as redis-server does not inform candidates.
    pub(crate) drops_updates: bool,
    /// Number of plans of a new cluster that servers have given up.
    pub(crate) given_up: usize,
}

impl World {
    /// Creates primaries with replicas each, with all slots assigned, and all nodes knowing the first one by
    /// MEET.
    pub(crate) fn new(
        seed: u64,
        primaries: usize,
        replicas: usize,
        node_timeout: Millis,
        faults: Faults,
    ) -> World {
        let count = primaries * (1 + replicas);
        let mut world = World::of_servers(seed, count, node_timeout, faults);
        for at in 0..count {
            world.start(at);
        }
        for at in 0..primaries {
            let share = |of: usize| (of * 16384 / primaries) as u16;
            let slots = (share(at)..share(at + 1)).collect();
            world.change(at, ClusterChange::SetConfigEpoch(at as u64 + 1));
            world.change(at, ClusterChange::AddSlots(slots));
        }
        for at in 1..count {
            let ip = world.servers[0].ip.clone();
            world.change(
                at,
                ClusterChange::Meet {
                    is_by_hand: true,
                    ip,
                    port: 6379,
                    bus_port: 16379,
                },
            );
        }
        world.run(4_000 + 20 * count as u64);
        for at in primaries..count {
            let primary = at % primaries;
            let id = world.machine(primary).id();
            world.change(at, ClusterChange::Replicate(id));
        }
        world.run(6_000);
        world
    }

    /// Creates servers that have not started.
    pub(crate) fn of_servers(
        seed: u64,
        count: usize,
        node_timeout: Millis,
        faults: Faults,
    ) -> World {
        let mut random = Random::new(seed);
        let servers = (0..count).map(|at| {
            let settings = ClusterSettings {
                node_timeout,
                migration_barrier: 1,
                replica_validity_factor: 10,
                require_full_coverage: true,
                replica_ping_period: 10_000,
                forgotten_for: 60_000,
                manual_failover_timeout: 5_000,
                gossip_percent: 10,
                port: 6379,
                bus_port: 16379,
                ..ClusterSettings::default()
            };
            Server {
                machine: None,
                ip: format!("10.0.{}.{}", at / 250, at % 250 + 1),
                settings,
                seeds: Vec::new(),
                has_keys: false,
                disk: None,
                saving: None,
                saves_again: false,
                life: 0,
                published: None,
                ticks: 0,
                skew: random.below(faults.skew_max + 1),
                links: BTreeMap::new(),
                follows: None,
                writes: Vec::new(),
                heard_primary: 0,
                claimed: (SlotSet::default(), 0),
                stopped_until: 0,
            }
        });
        let servers = servers.collect();
        World {
            now: BEGIN,
            random,
            servers,
            faults,
            events: BinaryHeap::new(),
            packets: BTreeMap::new(),
            next: 0,
            cut: BTreeSet::new(),
            arrivals: BTreeMap::new(),
            votes: BTreeMap::new(),
            claims: BTreeMap::new(),
            wrong: Vec::new(),
            sent: 0,
            sent_bytes: 0,
            next_write: 0,
            acknowledged: BTreeSet::new(),
            trace: false,
            drops_updates: false,
            given_up: 0,
        }
    }

    pub(crate) fn machine(&self, at: usize) -> &Machine {
        self.servers[at].machine.as_ref().expect("the server runs")
    }

    /// Runs a manual command, which must succeed.
    pub(crate) fn change(&mut self, at: usize, change: ClusterChange) {
        let (now, around) = (self.clock(at), self.around(at));
        let Some(machine) = &mut self.servers[at].machine else {
            return;
        };
        let answer = machine.change(change.clone(), now, &around);
        if let Err(text) = answer {
            self.wrong.push(format!("{at} refuses {change:?}: {text}"));
        }
        self.carry_out(at);
    }

    fn clock(&self, at: usize) -> Millis {
        self.now + self.servers[at].skew
    }

    fn around(&self, at: usize) -> Around {
        let server = &self.servers[at];
        let link = server.follows.map(|primary| PrimaryLink {
            is_up: self.can_reach(at, primary),
            silent_ms: self.now.saturating_sub(server.heard_primary),
        });
        Around {
            offset: server.writes.len() as u64,
            link,
            has_keys: server.has_keys,
        }
    }

    fn can_reach(&self, from: usize, to: usize) -> bool {
        let is_cut = self.cut.contains(&(from, to)) || self.cut.contains(&(to, from));
        !is_cut && self.servers[to].machine.is_some()
    }

    fn at(&mut self, when: Millis, event: Event) {
        self.next += 1;
        self.events.push(Reverse((when, self.next, event)));
    }

    fn delay(&mut self) -> Millis {
        self.random.below(self.faults.delay_max) + 1
    }

    /// Starts a server with the state on its disk.
    pub(crate) fn start(&mut self, at: usize) {
        let seed = self.random.next_u64();
        let (now, settings) = (self.clock(at), self.servers[at].settings.clone());
        let disk = self.servers[at].disk.clone();
        let is_new = disk.is_none();
        let machine = Machine::new(settings, disk, seed, now);
        let mut machine = machine.expect("what was saved can be read");
        self.servers[at].published = Some(machine.map());
        if is_new {
            // A server waits for that.
            self.servers[at].disk = Some(machine.saved());
            machine.safe(machine.promised());
        }
        self.servers[at].life += 1;
        self.servers[at].machine = Some(machine);
        self.carry_out(at);
        let first = self.now + self.random.below(TICK);
        self.at(first, Event::Tick(at));
        if !self.servers[at].seeds.is_empty() {
            let life = self.servers[at].life;
            self.at(first, Event::Seek { at, life });
        }
    }

    /// Stops a server as by kill -9: its links break.
    pub(crate) fn kill(&mut self, at: usize) {
        self.servers[at].machine = None;
        self.servers[at].follows = None;
        self.servers[at].saving = None;
        self.servers[at].saves_again = false;
        let links = std::mem::take(&mut self.servers[at].links);
        for (to, link) in links.into_values() {
            let when = self.now + self.delay();
            self.at(when, Event::Close { to, link });
        }
    }

    pub(crate) fn is_down(&self, at: usize) -> bool {
        self.servers[at].machine.is_none()
    }

    /// Lets time pass.
    pub(crate) fn run(&mut self, millis: Millis) {
        let end = self.now + millis;
        while let Some(Reverse((when, ..))) = self.events.peek()
            && *when <= end
        {
            let Some(Reverse((when, _, event))) = self.events.pop() else {
                break;
            };
            self.now = self.now.max(when);
            self.happen(event);
        }
        self.now = end;
    }

    fn happen(&mut self, event: Event) {
        match event {
            Event::Tick(at) => self.tick(at),
            Event::Open { from, link, to } => self.open(from, link, to),
            Event::Close { to, link } => {
                self.servers[to].links.remove(&link);
                if let Some(machine) = &mut self.servers[to].machine {
                    machine.closed(link);
                }
                self.carry_out(to);
            }
            Event::Deliver { to, link, packet } => self.deliver(to, link, packet),
            Event::Seek { at, life } if self.servers[at].life == life => self.seek(at),
            Event::Save { at, life } if self.servers[at].life == life => self.save(at),
            Event::Saved { at, life } if self.servers[at].life == life => self.saved(at),
            Event::Seek { .. } | Event::Save { .. } | Event::Saved { .. } => {}
        }
    }

    /// Begins to write the file; if a write is under way, another one follows it.
    fn save(&mut self, at: usize) {
        if self.is_down(at) {
            return;
        }
        if self.servers[at].saving.is_some() {
            self.servers[at].saves_again = true;
            return;
        }
        let machine = self.machine(at);
        let saving = (machine.saved(), machine.promised());
        self.servers[at].saving = Some(saving);
        let (when, life) = (
            self.now + self.random.below(self.faults.save_max) + 1,
            self.servers[at].life,
        );
        self.at(when, Event::Saved { at, life });
    }

    /// Reports the file as safe. A stopped server learns of it later.
    fn saved(&mut self, at: usize) {
        let Some((saved, promise)) = self.servers[at].saving.clone() else {
            return;
        };
        self.servers[at].disk = Some(saved);
        let (frozen, life) = (self.servers[at].stopped_until, self.servers[at].life);
        if frozen > self.now {
            return self.at(frozen, Event::Saved { at, life });
        }
        self.servers[at].saving = None;
        if let Some(machine) = &mut self.servers[at].machine {
            machine.safe(promise);
        }
        self.carry_out(at);
        if std::mem::take(&mut self.servers[at].saves_again) {
            self.save(at);
        }
    }

    fn tick(&mut self, at: usize) {
        if self.is_down(at) {
            return;
        }
        self.at(self.now + TICK, Event::Tick(at));
        if self.servers[at].stopped_until > self.now {
            return;
        }
        self.replicate(at);
        self.servers[at].ticks += 1;
        if self.servers[at].ticks.is_multiple_of(MAP_LOOKS) {
            self.look_at_map(at);
        }
        let (now, around) = (self.clock(at), self.around(at));
        if let Some(machine) = &mut self.servers[at].machine {
            machine.tick(now, &around);
        }
        self.carry_out(at);
    }

    /// Copies the primary's writes to a replica.
    fn replicate(&mut self, at: usize) {
        if let Some(primary) = self.servers[at].follows
            && primary != at
            && self.can_reach(at, primary)
            && self.servers[primary].stopped_until <= self.now
        {
            self.servers[at].heard_primary = self.now;
            let theirs = &self.servers[primary].writes;
            let own = &self.servers[at].writes;
            if theirs != own {
                let writes = theirs.clone();
                self.servers[at].writes = writes;
            }
        }
    }

    /// Checks that each slot has one owner in an epoch, and that the owner's disk has the epoch before others
    /// receive it.
    fn note_claims(&mut self, at: usize, packet: &Packet) {
        let header = &packet.header;
        let disk = self.servers[at].disk.as_ref().expect("it has a name");
        let mut nodes = disk.nodes.iter();
        let own = nodes.find(|node| node.id == header.sender);
        let saved = own.map_or(0, |own| own.config_epoch);
        if header.primary.is_none() && header.config_epoch > saved {
            self.wrong.push(format!(
                "{:?} tells of its epoch {}, and has saved {saved}",
                header.sender, header.config_epoch
            ));
        }
        if packet.body == Body::VoteRequest && header.current_epoch > disk.current_epoch {
            self.wrong.push(format!(
                "{:?} asks for votes in epoch {}, and has saved {}",
                header.sender, header.current_epoch, disk.current_epoch
            ));
        }
        let claimed = (header.slots.clone(), header.config_epoch);
        if header.primary.is_some() || self.servers[at].claimed == claimed {
            return;
        }
        self.servers[at].claimed = claimed;
        for (first, last) in header.slots.ranges() {
            // The ends of a range stand for it: slots move together here.
            for slot in [first, last] {
                let claim = self.claims.entry((slot, header.config_epoch));
                let owner = *claim.or_insert(header.sender);
                if owner != header.sender {
                    self.wrong.push(format!(
                        "{owner:?} and {:?} own {slot} in epoch {}",
                        header.sender, header.config_epoch
                    ));
                }
            }
        }
    }

    fn open(&mut self, from: usize, link: LinkId, to: usize) {
        if !self.can_reach(from, to) {
            return self.happen(Event::Close { to: from, link });
        }
        let (from_ip, to_ip) = (self.servers[from].ip.clone(), self.servers[to].ip.clone());
        let (now, around) = (self.clock(from), self.around(from));
        let to_now = self.clock(to);
        if self.is_down(from) {
            return;
        }
        let Some(machine) = &mut self.servers[to].machine else {
            return;
        };
        let other = machine.accepted(&from_ip, &to_ip, to_now);
        self.servers[to].links.insert(other, (from, link));
        self.servers[from].links.insert(link, (to, other));
        if let Some(machine) = &mut self.servers[from].machine {
            machine.opened(link, &to_ip, &from_ip, now, &around);
        }
        self.carry_out(from);
    }

    fn deliver(&mut self, to: usize, link: LinkId, packet: u64) {
        let Some(packet) = self.packets.remove(&packet) else {
            return;
        };
        let Some((from, other)) = self.servers[to].links.get(&link).copied() else {
            return;
        };
        if !self.can_reach(from, to) {
            // The connection breaks, for both ends.
            self.happen(Event::Close { to, link });
            return self.happen(Event::Close {
                to: from,
                link: other,
            });
        }
        let frozen = self.servers[to].stopped_until;
        if frozen > self.now {
            self.next += 1;
            let number = self.next;
            self.packets.insert(number, packet);
            return self.at(
                frozen,
                Event::Deliver {
                    to,
                    link,
                    packet: number,
                },
            );
        }
        let (now, around) = (self.clock(to), self.around(to));
        if let Some(machine) = &mut self.servers[to].machine {
            machine.receive(link, &packet, now, &around);
        }
        self.carry_out(to);
    }

    fn carry_out(&mut self, at: usize) {
        let Some(machine) = &mut self.servers[at].machine else {
            return;
        };
        for output in machine.outputs() {
            self.carry_out_one(at, output);
        }
    }

    fn carry_out_one(&mut self, at: usize, output: Output) {
        match output {
            Output::Connect { link, ip, .. } => {
                let to = self.servers.iter().position(|server| server.ip == ip);
                let when = self.now + self.delay();
                match to {
                    Some(to) => self.at(when, Event::Open { from: at, link, to }),
                    None => self.at(when, Event::Close { to: at, link }),
                }
            }
            Output::Close(link) => {
                if let Some((to, other)) = self.servers[at].links.remove(&link) {
                    let when = self.now + self.delay();
                    self.at(when, Event::Close { to, link: other });
                }
            }
            Output::Send(link, packet) => self.send(at, link, packet),
            Output::Save(_) => self.save(at),
            Output::SaveSoon => {
                let (within, life) = (self.random.below(SAVED_WITHIN), self.servers[at].life);
                self.at(self.now + within, Event::Save { at, life });
            }
            Output::Follow { ip, .. } => {
                self.servers[at].follows = self.servers.iter().position(|server| server.ip == ip);
                self.servers[at].heard_primary = self.now;
            }
            Output::Lead => self.servers[at].follows = None,
            Output::Publish => self.servers[at].published = Some(self.machine(at).map()),
            Output::Log(_, text) | Output::LogSeldom(_, _, text) => {
                self.given_up += usize::from(text.starts_with("Giving up the plan"));
                if self.trace {
                    eprintln!("{} {at}: {text}", self.now);
                }
            }
            _ => {}
        }
    }

    fn send(&mut self, from: usize, link: LinkId, packet: Arc<Packet>) {
        let Some((to, other)) = self.servers[from].links.get(&link).copied() else {
            return;
        };
        if self.drops_updates && matches!(packet.body, Body::Update { .. }) {
            return;
        }
        self.sent += 1;
        self.sent_bytes += wire_bytes(&packet);
        self.note_vote(from, to, &packet);
        self.note_claims(from, &packet);
        self.note_notice(from, &packet);
        let times = match self.random.below(1000) {
            drawn if drawn < self.faults.lost_of_1000 => 0,
            drawn if drawn < self.faults.lost_of_1000 + self.faults.twice_of_1000 => 2,
            _ => 1,
        };
        for _ in 0..times {
            self.next += 1;
            let number = self.next;
            self.packets.insert(number, Arc::clone(&packet));
            let due = self.now + self.delay();
            let last = self.arrivals.entry((to, other)).or_insert(0);
            let when = due.max(*last);
            *last = when;
            self.at(
                when,
                Event::Deliver {
                    to,
                    link: other,
                    packet: number,
                },
            );
        }
    }

    /// Checks that each voter gives one vote in an epoch.
    fn note_vote(&mut self, from: usize, to: usize, packet: &Packet) {
        if packet.body != Body::Vote || self.is_down(to) {
            return;
        }
        let (voter, replica) = (packet.header.sender, self.machine(to).id());
        let epoch = packet.header.current_epoch;
        let for_whom = *self.votes.entry((voter, epoch)).or_insert(replica);
        if for_whom != replica {
            self.wrong
                .push(format!("{voter:?} votes twice in epoch {epoch}"));
        }
        let saved = self.servers[from]
            .disk
            .as_ref()
            .map(|disk| disk.last_vote_epoch);
        if saved < Some(epoch) {
            self.wrong.push(format!(
                "{voter:?} votes in epoch {epoch}, and has saved {saved:?}"
            ));
        }
    }

    /// Checks that commands see all changes: the published map equals the machine's, except for the parts
    /// that are updated on request.
    fn look_at_map(&mut self, at: usize) {
        let Some(published) = &self.servers[at].published else {
            return;
        };
        if self.machine(at).is_promising() {
            return;
        }
        let mut seen = published.clone();
        self.machine(at).refresh(&mut seen);
        let [seen, is] = [seen, self.machine(at).map()].map(|map| format!("{map:?}"));
        if seen != is {
            let from = seen.bytes().zip(is.bytes()).position(|(a, b)| a != b);
            let shown = |text: &str| {
                let from = from.unwrap_or(0).saturating_sub(200);
                text.chars().skip(from).take(400).collect::<String>()
            };
            self.wrong.push(format!(
                "{at} has the map ...{}\nand commands see ...{}",
                shown(&is),
                shown(&seen)
            ));
        }
    }

    /// Checks that all servers run, consider the cluster up and agree about every slot.
    pub(crate) fn agree(&self) -> Result<(), String> {
        let mut first = None;
        for (at, server) in self.servers.iter().enumerate() {
            let machine = server
                .machine
                .as_ref()
                .ok_or_else(|| format!("{at} is down"))?;
            if !machine.is_up() {
                return Err(format!("{at} holds the cluster to be down"));
            }
            let map = machine.map();
            let owners: Vec<_> = (0..16384)
                .map(|slot| map.owner(slot).map(|owner| (owner.id, owner.config_epoch)))
                .collect();
            let epochs: Vec<u64> = map
                .nodes
                .iter()
                .filter(|node| node.is_primary())
                .map(|node| node.config_epoch)
                .collect();
            let distinct: BTreeSet<u64> = epochs.iter().copied().collect();
            if distinct.len() != epochs.len() {
                return Err(format!("{at} sees one epoch twice: {epochs:?}"));
            }
            match &first {
                None => first = Some(owners),
                Some(first) if *first == owners => {}
                Some(_) => return Err(format!("{at} sees other owners than 0")),
            }
        }
        Ok(())
    }

    /// Lets time pass until all agree.
    pub(crate) fn settle(&mut self, within: Millis) -> Result<Millis, String> {
        let begun = self.now;
        loop {
            let state = self.agree();
            if state.is_ok() {
                return Ok(self.now - begun);
            }
            if self.now - begun > within {
                return state.map(|()| 0);
            }
            self.run(500);
        }
    }
}

/// Returns the size of a gossip packet on the wire, in bytes.
fn wire_bytes(packet: &Packet) -> u64 {
    let (Body::Ping(news) | Body::Pong(news) | Body::Meet(news)) = &packet.body else {
        return 2_256;
    };
    let extensions = news.extensions.iter().map(|extension| match extension {
        Extension::Hostname(name) | Extension::HumanName(name) => {
            8 + (name.len() as u64 + 1).next_multiple_of(8)
        }
        Extension::Forgotten { .. } => 56,
        Extension::Zone(zone) => 8 + (zone.len() as u64 + 1).next_multiple_of(8),
        Extension::Assembly(_) => 64,
        Extension::ShardId(_) => 48,
    });
    2_256 + 104 * news.gossip.len() as u64 + extensions.sum::<u64>()
}
