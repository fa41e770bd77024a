//! This server as a node of a Redis Cluster: the state machine of `cluster/` with its sockets, its clock and its file.
//!
//! ```text
//! this file  the machine and its surroundings: calls, and their outputs in order
//! effects    a queue of outputs that affect the rest of the server
//! carrying   carries out these outputs
//! commands   the interface for commands
//! links      connections to other nodes
//! accepting  connections from other nodes
//! local      queries of the machine to the server
//! moving     migration of whole slots to and from other nodes
//! outbox     messages published here that go to other nodes
//! seeds      addresses at which other nodes may be found
//! settings   configuration of the machine
//! file       nodes.conf: the state kept over a restart
//! saving     writes this state on a separate thread
//! ```
//!
//! A dedicated thread serves all sockets of the bus, and its clock, so that this node replies to other nodes
//! however busy the threads are that serve clients.
//!
//! The machine and the table of links share one lock. Effects on the rest of the server are queued while this
//! lock is held and carried out after it is released ([`SerialEffectQueue`]); nodes.conf is also written without the
//! lock ([`saving`]).

mod accepting;
mod carrying;
mod commands;
mod effects;
mod file;
mod links;
mod local;
mod moving;
mod outbox;
mod saving;
mod seeds;
mod settings;
mod telling;

use std::fmt;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::net::TcpListener;
use tokio::runtime::{Builder, Handle, Runtime};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::MissedTickBehavior;

use crate::replication::Replication;
use crate::script::stack;
use crate::state::Service;
use crate::telemetry::{clock, log};
use basalt_commands::cluster::Millis;
use basalt_commands::cluster::machine::Machine;
use basalt_commands::cluster::map::ClusterMap;
use basalt_commands::cluster::output::{Level, LinkId, Output};
use basalt_commands::cluster::packet::Packet;
use basalt_commands::cluster::settings::ClusterSettings;
use basalt_commands::cluster::wire::decode::Refused;
use basalt_commands::cluster::wire::encode::encode;
use basalt_commands::config::Config;
use basalt_commands::config::values::ClusterMode;
use carrying::{DeferredPrimaryWork, NodeEffect};
use effects::SerialEffectQueue;
use file::NodesFile;
use links::{ClusterLinkQueue, Inbound, LinkFigures, Links, Volume};
use local::LocalServer;
use moving::Moves;
use outbox::ClusterPublishQueue;
use saving::NodesConfSaver;

/// Interval between ticks of the machine.
const TICK: Duration = Duration::from_millis(100);
/// Maximum inbound connections. A thousand nodes need one each; the rest is for connections that are not from
/// known nodes.
const INBOUND_MAX: usize = 4096;
/// Maximum time that shutdown waits until the other nodes have been notified.
const FAREWELL: Duration = Duration::from_millis(500);
/// Interval between checks whether the server sleeps (DEBUG SLEEP).
const LOOK_AGAIN: Duration = Duration::from_millis(10);
/// Value of `dropped_kind` if no kind of packet is dropped.
const NO_KIND: u64 = u64::MAX;

/// State of the bus under one lock.
struct Core {
    machine: Machine,
    links: Links,
    settings: ClusterSettings,
    /// Why nodes.conf could not be written, if the last write failed.
    unsaved: Option<String>,
    /// The packet encoded last and its bytes, kept because most packets go to several nodes.
    written: Option<(Arc<Packet>, Bytes)>,
    /// Whether writes are paused, but some admitted earlier have not taken effect yet.
    is_landing: bool,
    /// Whether the bus has begun to tick, that is, loading at startup is complete.
    has_ticked: bool,
}

/// The cluster bus: the state machine with its links, and the state of its effects on the server.
pub(crate) struct Bus {
    service: &'static Service,
    replication: Arc<Replication>,
    runtime: Handle,
    volume: Volume,
    inbound: Inbound,
    core: Mutex<Core>,
    saver: NodesConfSaver,
    effects: SerialEffectQueue<NodeEffect>,
    /// Number of promotions to primary in progress.
    leading: AtomicUsize,
    /// Work that waits until no promotion is in progress.
    held: Mutex<DeferredPrimaryWork>,
    outbox: ClusterPublishQueue,
    moves: Moves,
    admitted: Arc<Semaphore>,
    dropped_kind: AtomicU64,
    closes_on_drop: AtomicBool,
    over_limit: AtomicU64,
    /// When the bus was created: milliseconds since boot, and Unix milliseconds.
    started: (u64, Millis),
}

/// A bus whose sockets are open but not served yet.
pub(crate) struct Opened {
    pub(crate) bus: &'static Bus,
    runtime: Runtime,
    listeners: Vec<TcpListener>,
}

/// Checks that the configuration has a valid bus port if cluster mode is enabled; the error is a message.
pub(crate) fn check(config: &Config) -> Result<(), String> {
    match config.cluster_enabled {
        ClusterMode::Yes => settings::bus_port(config).map(drop),
        _ => Ok(()),
    }
}

impl Bus {
    /// Reads nodes.conf and opens the sockets; the error is the reason why the server cannot start.
    pub(crate) fn open(
        service: &'static Service,
        replication: &Arc<Replication>,
    ) -> Result<Opened, String> {
        let config = service.config.load_full();
        let (mut file, saved) = NodesFile::open(&config)?;
        let port = settings::bus_port(&config)?;
        let told = settings::of(&config);
        let now = clock::unix_ms();
        let is_new = saved.is_none();
        let machine = Machine::new(told.clone(), saved, rand::random(), now)?;
        let id = machine.id();
        match is_new {
            true => tracing::info!("No cluster configuration found, I'm {id}"),
            false => tracing::info!("Node configuration loaded, I'm {id}"),
        }
        let runtime = Builder::new_current_thread()
            .enable_all()
            .build()
            .map_err(|error| format!("Can't start the cluster bus: {error}"))?;
        let listeners = {
            let _registers_here = runtime.enter();
            accepting::open(&config, port)?
        };
        let bus: &'static Bus = Box::leak(Box::new(Bus {
            service,
            replication: Arc::clone(replication),
            runtime: runtime.handle().clone(),
            volume: Volume::default(),
            inbound: Inbound::default(),
            core: Mutex::new(Core {
                machine,
                links: Links::default(),
                settings: told,
                unsaved: None,
                has_ticked: false,
                written: None,
                is_landing: false,
            }),
            saver: NodesConfSaver::default(),
            effects: SerialEffectQueue::default(),
            leading: AtomicUsize::new(0),
            held: Mutex::default(),
            outbox: ClusterPublishQueue::default(),
            moves: Moves::default(),
            admitted: Arc::new(Semaphore::new(INBOUND_MAX)),
            dropped_kind: AtomicU64::new(NO_KIND),
            closes_on_drop: AtomicBool::new(false),
            over_limit: AtomicU64::new(0),
            started: (clock::since_boot_ms(), now),
        }));
        bus.drain(&mut bus.core.lock());
        if is_new {
            bus.save(&mut file, false);
        }
        let core = bus.core.lock();
        if let Some(why) = &core.unsaved {
            return Err(format!("Fatal: can't update cluster config file: {why}"));
        }
        let map = Arc::new(core.machine.map());
        drop(core);
        if let Some((host, port)) = primary_of(&map, config.tls_replication) {
            // Follow the primary from nodes.conf, so that the loaded data can resume its stream.
            replication.replica.begin_with(host, port);
        }
        service.join(Box::new(bus), map);
        bus.carry_out();
        bus.keep_saved(file)?;
        Ok(Opened {
            bus,
            runtime,
            listeners,
        })
    }

    /// Returns the state machine's time: the Unix time of the start plus the time elapsed since, so that
    /// setting the system clock does not make nodes appear silent.
    fn now(&self) -> Millis {
        let (boot_ms, unix_ms) = self.started;
        unix_ms + clock::since_boot_ms().saturating_sub(boot_ms)
    }

    /// Returns the node timeout.
    fn node_timeout(&self) -> Duration {
        let ms = self.service.config.load().cluster_node_timeout;
        Duration::from_millis(ms.unsigned_abs())
    }

    /// Returns the seconds of silence after which TCP keepalive probes the peer of a link.
    fn keepalive_s(&self) -> u64 {
        self.node_timeout().as_secs() * 2
    }

    /// Waits while the server sleeps (DEBUG SLEEP).
    async fn awake(&self) {
        while self.service.pause.sleeps(clock::unix_ms()) {
            tokio::time::sleep(LOOK_AGAIN).await;
        }
    }

    /// Returns a permit for one more inbound connection, if available.
    fn admit_one(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.admitted).try_acquire_owned().ok()
    }

    /// Saves the state of this node before the process exits. With `announces_end`, tells the other nodes that it
    /// stops, so that one of its replicas is promoted.
    pub(crate) fn leave(&'static self, announces_end: bool) {
        self.save_at_end();
        if !announces_end || !self.call(|core, now, here| core.machine.leave(now, here)) {
            return;
        }
        let until = Instant::now() + FAREWELL;
        while Instant::now() < until && self.core.lock().links.has_waiting() {
            std::thread::sleep(LOOK_AGAIN);
        }
    }

    /// Calls the machine, processes its outputs, and carries out their effects on the rest of the server, unless
    /// another thread is doing so.
    fn call<T>(&'static self, call: impl FnOnce(&mut Core, Millis, &LocalServer) -> T) -> T {
        let mut core = self.core.lock();
        let answer = call(&mut core, self.now(), &LocalServer(self));
        self.drain(&mut core);
        drop(core);
        self.carry_out();
        answer
    }

    /// Processes the outputs of the machine, in order.
    fn drain(&'static self, core: &mut Core) {
        let outputs = core.machine.outputs();
        let (mut is_map_new, mut goes_on) = (false, false);
        for output in outputs {
            match output {
                Output::Connect { link, ip, bus_port } => {
                    let queue = core.links.add(link, false);
                    self.runtime
                        .spawn(links::connect(self, link, ip, bus_port, queue));
                }
                Output::Close(link) => core.links.close(link),
                Output::Send(link, packet) => self.send(core, link, packet),
                Output::Save(_) => drop(self.saver.ask_now()),
                Output::SaveSoon => drop(self.saver.ask_soon()),
                Output::Follow { ip, port } => self.effects.queue(NodeEffect::Follow(ip, port)),
                Output::Lead => self.effects.queue(NodeEffect::Lead),
                Output::Pause(until) => {
                    core.is_landing = true;
                    goes_on = false;
                    self.effects.queue(NodeEffect::Pause(until));
                }
                Output::Unpause => goes_on = true,
                Output::FlushAll => self.effects.queue(NodeEffect::FlushAll),
                Output::DeleteKeys(slots) => self.effects.queue(NodeEffect::DeleteKeys(slots)),
                Output::Deliver { message, is_shard } => {
                    self.effects.queue(NodeEffect::Deliver(message, is_shard));
                }
                Output::Publish => is_map_new = true,
                Output::Log(level, text) => write_line(level, &text),
                Output::LogSeldom(kind, level, text) => {
                    log::seldom(kind, &text, |text| write_line(level, text));
                }
            }
        }
        if is_map_new {
            let map = Arc::new(core.machine.map());
            self.effects.queue(NodeEffect::Publish(map));
        }
        if goes_on {
            // Queue the end of the pause after the slot map, so that paused writes are routed by the current
            // map.
            self.effects.queue(NodeEffect::Unpause);
        }
    }

    fn send(&self, core: &mut Core, link: LinkId, packet: Arc<Packet>) {
        if core.unsaved.is_some() || !core.links.is_open(link) {
            return;
        }
        let mut packet = packet;
        if packet.header.is_paused && core.is_landing {
            // The offset is not final yet, so clear the flag in this packet. The next ping, a tick later, sets
            // it again.
            Arc::make_mut(&mut packet).header.is_paused = false;
        }
        let bytes = match &core.written {
            Some((written, bytes)) if Arc::ptr_eq(written, &packet) => bytes.clone(),
            _ => {
                let bytes = Bytes::from(encode(&packet));
                core.written = Some((packet, bytes.clone()));
                bytes
            }
        };
        if !core.links.send(link, bytes) {
            self.free_over_limit(core, link);
        }
    }

    /// Closes a link with too much waiting to be sent.
    fn free_over_limit(&self, core: &mut Core, link: LinkId) {
        let node = core.machine.link(link);
        let (node, is_inbound, _) = node.unwrap_or((None, false, 0));
        let name = node.map_or(String::new(), |node| node.to_string());
        let direction = if is_inbound { "from" } else { "to" };
        log::warn_seldom(
            "cluster-link-limit",
            format_args!(
                "Freeing cluster link({direction} node {name}) due to exceeding send buffer memory limit."
            ),
        );
        self.over_limit.fetch_add(1, Relaxed);
        core.links.close(link);
        core.machine.closed(link);
    }

    /// Closes the unproven link that holds the most bytes, preferably one over which no known node has sent
    /// packets from its own address. Returns whether a link was closed.
    fn free_fullest(&'static self) -> bool {
        self.call(|core, _, _| {
            let counted = core.links.all().filter(|(_, link)| link.counted_bytes > 0);
            let fullest = counted.max_by_key(|(id, link)| {
                let is_stranger = !core.machine.is_from_its_address(*id);
                (is_stranger, link.counted_bytes)
            });
            let Some((id, link)) = fullest else {
                return false;
            };
            log::warn_seldom(
                "cluster-bus-inbound",
                format_args!(
                    "Freeing a cluster link of {} bytes: all inbound links together use too much memory",
                    link.counted_bytes
                ),
            );
            core.links.discount(id, &self.inbound);
            core.links.close(id);
            core.machine.closed(id);
            true
        })
    }

    /// Carries out waiting effects, unless another thread is doing so.
    fn carry_out(&'static self) {
        self.effects.run(|effect| self.carry_out_one(effect));
    }

    /// Returns the current slot map of the server.
    fn map(&self) -> Arc<ClusterMap> {
        self.service.cluster_map()
    }

    /// Registers a link that another node has opened: returns its number and its send queue.
    fn accepted(&'static self, peer_ip: &str, local_ip: &str) -> (LinkId, Arc<ClusterLinkQueue>) {
        self.call(|core, now, _| {
            let id = core.machine.accepted(peer_ip, local_ip, now);
            (id, core.links.add(id, true))
        })
    }

    /// Notes that an outbound link is open.
    fn opened(&'static self, id: LinkId, peer_ip: &str, local_ip: &str) {
        self.call(|core, now, here| {
            core.links.note_open(id);
            core.machine.opened(id, peer_ip, local_ip, now, here);
        });
    }

    /// Notes that the task of a link has ended.
    fn ended(&'static self, id: LinkId) {
        self.call(|core, _, _| {
            if core.links.forget(id) {
                core.machine.closed(id);
            }
        });
    }

    /// Handles a received packet, or the error of an invalid one; returns whether the link stays open.
    fn receive(
        &'static self,
        id: LinkId,
        packet: Result<Packet, Refused>,
        peer: SocketAddr,
    ) -> bool {
        let packet = match packet {
            Ok(packet) => packet,
            Err(refused) => {
                log::warn_seldom(
                    "cluster-bus-packet",
                    format_args!("A packet from {peer} on the cluster bus is dropped: {refused}"),
                );
                return true;
            }
        };
        if self.dropped_kind.load(Relaxed) == packet.body.kind() as u64 {
            tracing::warn!(
                "A packet from {peer} on the cluster bus is dropped by the DEBUG packet filter"
            );
            if self.closes_on_drop.load(Relaxed) {
                self.call(|core, _, _| {
                    core.links.close(id);
                    core.machine.closed(id);
                });
                return false;
            }
            return true;
        }
        self.call(|core, now, here| {
            core.machine.receive(id, &packet, now, here);
            core.links.is_open(id)
        })
    }

    /// Applies changes of the configuration to the machine.
    pub(crate) fn follow_config(&'static self) {
        let told = settings::of(&self.service.config.load());
        let is_new = self.core.lock().settings != told;
        if is_new {
            self.call(|core, now, here| {
                core.settings = told.clone();
                core.machine.settings(told, now, here);
            });
        }
    }

    fn tick(&'static self) {
        let stopped_after = self.call(|core, now, here| {
            core.has_ticked = true;
            let limit = self.service.config.load().cluster_link_sendbuf_limit;
            let is_over = |(_, figures): &(LinkId, LinkFigures)| {
                limit > 0 && figures.memory_bytes as u64 > limit
            };
            let over: Vec<LinkId> = core.links.all().filter(is_over).map(|(id, _)| id).collect();
            for id in over {
                self.free_over_limit(core, id);
            }
            core.machine.note_unsaved(core.unsaved.is_some(), now);
            core.machine.tick(now, here);
            core.machine.stopped_after()
        });
        self.note_look(stopped_after);
        self.look_at_moves();
    }

    /// Records that the state machine has just run: client threads need not wake the bus for `stopped_after`
    /// milliseconds.
    fn note_look(&self, stopped_after: Millis) {
        if let Some(slots) = self.service.slots.get() {
            slots.note_look(clock::unix_ms().saturating_add(stopped_after));
        }
    }

    /// Sends messages published here to other nodes.
    async fn send_published(&'static self) {
        loop {
            let messages = self.outbox.take().await;
            self.awake().await;
            self.call(|core, _, here| {
                for (message, is_shard) in messages {
                    core.machine.publish(message, is_shard, here);
                    self.drain(core);
                }
            });
        }
    }

    async fn beat(&'static self) {
        let mut ticks = tokio::time::interval(TICK);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            ticks.tick().await;
            self.awake().await;
            self.tick();
        }
    }
}

/// Writes a log line of the machine.
fn write_line(level: Level, text: &(impl fmt::Display + ?Sized)) {
    match level {
        Level::Debug => tracing::trace!("{text}"),
        Level::Verbose => tracing::debug!("{text}"),
        Level::Notice => tracing::info!("{text}"),
        Level::Warning => tracing::warn!("{text}"),
    }
}

/// Returns the client address of the primary that this node follows, if known.
fn primary_of(map: &ClusterMap, is_tls: bool) -> Option<(String, u16)> {
    let primary = &map.nodes[usize::from(map.me().primary?)];
    let is_known = !primary.ip.is_empty() && primary.client_port(is_tls) != 0;
    is_known.then(|| (primary.ip.clone(), primary.client_port(is_tls)))
}

impl Opened {
    /// Begins to serve the bus on its own thread, once the data is loaded: Not earlier, because other nodes'
    /// messages about slots affect the data.
    pub(crate) fn begin(self) -> Result<(), String> {
        let Opened {
            bus,
            runtime,
            listeners,
        } = self;
        // This thread locks shards, so it may have to run scripts that are queued for a shard.
        let started = stack::spawn("basalt-cluster".to_owned(), move || {
            runtime.block_on(async {
                let loading = &bus.service.telemetry.persistence.loading;
                while loading.is_loading.load(Relaxed) {
                    tokio::time::sleep(LOOK_AGAIN).await;
                }
                bus.delete_unfinished().await;
                bus.call(|core, now, here| core.machine.loaded(now, here));
                for listener in listeners {
                    tokio::spawn(accepting::accept(bus, listener));
                }
                tokio::spawn(bus.send_published());
                tokio::spawn(bus.seek());
                bus.beat().await;
            });
        });
        let failed = |error| format!("Can't start the thread of the cluster bus: {error}");
        started.map(drop).map_err(failed)
    }
}
