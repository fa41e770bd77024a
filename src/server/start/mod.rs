//! Composition root: builds shards, registries and listeners; starts and stops them in order.

mod accept;
mod advice;
mod announce;
mod background;
mod crash;
mod defrag;
mod fitness;
mod handover;
mod handshaking;
mod host;
mod listening;
mod loading;
mod memory_limit;
mod migrate;
mod observed;
mod oom_score;
mod overload;
mod put_aside;
mod reload_tls;
mod rewriting;
mod runtime;
mod saving;
mod shutdown;
mod supervision;
mod title;
mod users;
mod watchdog;

use std::path::PathBuf;
use std::sync::atomic::AtomicBool;
use std::sync::{Arc, OnceLock};

use arc_swap::ArcSwap;
use rustix::fs::Mode;
use tokio::sync::watch;

use crate::net::buffer_budget;
use crate::node;
use crate::persist::aof::Aof;
use crate::persist::files::disk::Disk;
use crate::persist::oplog::OpLog;
use crate::persist::snapshot::Snapshots;
use crate::persist::snapshot::saver::Saver;
use crate::replication::Replication;
use crate::script;
use crate::shard::Shards;
use crate::shard::job::task::WaiterDispatcher;
use crate::shard::route::Router;
use crate::state::Service;
use crate::state::durability::{Durability, ReplyHolds};
use crate::state::leasing::LeaseConnections;
use crate::state::pause::Pause;
use crate::sys::daemon::{self, DaemonNotifier, Side};
use crate::sys::signals;
use crate::telemetry::{Telemetry, clock, log, memory};
use accept::ConnectionOwner;
use basalt_commands::acl::Users;
use basalt_commands::client::memory::CLIENT_MEMORY;
use basalt_commands::command::catalogue::Commands;
use basalt_commands::command::host::{HostSettings, Server};
use basalt_commands::command::registry;
use basalt_commands::config::values::ClusterMode;
use basalt_commands::config::{Config, Startup, error};
use basalt_commands::pubsub::PubSub;
use basalt_core::base::hash::HashSeed;
use basalt_core::base::lossless;
use basalt_core::resp::reply;
use basalt_engine::Engine;
use basalt_engine::evict::budget::Budget;
use basalt_engine::expire::Rest;
use basalt_engine::fences::FenceSource;
use basalt_engine::hot_counts::HotCounts;
use basalt_engine::record::Log;
use fitness::Pidfile;
use handshaking::Handshaking;
use host::ServerHost;
use listening::Listening;
use loading::StartupLoader;
use runtime::Runtimes;
use saving::SaveCoordinator;
use supervision::Supervision;
use title::Title;

/// Core count assumed if the system does not report it.
const CORES_FALLBACK: usize = 1;

/// Minimum number of file descriptors reserved for the server's own use: files, listening sockets, links.
const DESCRIPTORS_RESERVED_MIN: u64 = 32;

/// Number of file descriptors reserved for each thread, whose event loop has some.
const DESCRIPTORS_PER_THREAD: u64 = 6;

/// Number of file descriptors reserved for the server's own use beside those of its threads, if it has many threads.
const DESCRIPTORS_BESIDE_THREADS: u64 = 16;

/// Returns the advice of `--check-config` on a configuration, or errors with the reason why a server would not
/// start with it. Changes the working directory to the configuration's `dir`.
pub fn check(startup: &Startup) -> Result<Vec<String>, String> {
    let config = &startup.config;
    std::env::set_current_dir(&config.dir)
        .map_err(|error| error::directory_failure(config, &error).to_string())?;
    registry::rename(&config.renamed_commands)
        .map_err(|error| format!("Can't rename a command: {error}"))?;
    fitness::check_folders(config)?;
    node::check(config)?;
    let users = advice::try_out(config)?;
    Ok(advice::of(config, startup.file.as_deref(), &users))
}

/// Runs the server, started as `program`, until it is stopped, and returns the exit code. Call before any thread
/// exists.
pub fn run(startup: Startup, program: String) -> i32 {
    let mut config = startup.config;
    keep_private(config.file_mode);
    if let Err(error) = signals::ignore() {
        eprintln!("Can't ignore a signal: {error}");
    }
    let (supervision, missing) = Supervision::find(&config);
    let word = match go_to_background(&config, &supervision) {
        Ok(Side::Server(word)) => Some(word),
        Ok(Side::First(first)) => return first.wait(),
        Ok(Side::Alone) => None,
        Err(error) => {
            eprintln!("Can't run in the background: {error}");
            return 1;
        }
    };
    // Setting up the title moves the environment variables, so do this before any thread exists that may read
    // them.
    let title = Title::of_process(&config, program, startup.file.clone());
    if let Err(error) = log::start(&config) {
        eprintln!("Can't open the log file: {error}");
        return 1;
    }
    if let Err(error) = registry::rename(&config.renamed_commands) {
        log::refusal(&format!("Can't rename a command: {error}"));
        return 1;
    }
    let warnings = startup
        .warnings
        .into_iter()
        .chain(missing)
        .collect::<Vec<_>>();
    announce::starting(&config, startup.file.as_deref(), &warnings);
    if let Err(text) = fitness::check_folders(&config) {
        log::refusal(&text);
        return 1;
    }
    raise_descriptor_limit(&mut config);
    let config = Arc::new(config);
    let thread_count = config.thread_count(cores());
    let telemetry = Telemetry::new(startup.file.clone(), thread_count);
    let log = Arc::new(OpLog::default());
    let service = Arc::new(build_on(
        Arc::clone(&config),
        config.shard_count(cores()),
        telemetry,
        Arc::clone(&log) as _,
    ));
    if word.is_some() {
        memory::begin_anew();
    }
    crash::watch(Arc::clone(&service));
    watchdog::watch(Arc::clone(&service));
    let runtimes = Runtimes::new(config.runtime, thread_count);
    buffer_budget::set_thread_count(thread_count);
    service.telemetry.rounds.follow(&runtimes.handles());
    let assembled = Assembled::new(service, runtimes, log, startup.file, title, supervision);
    assembled.serve(&config, word)
}

/// Forks if `daemonize` is set, unless a service manager supervises the process, which must then keep its
/// process id.
fn go_to_background(config: &Config, supervision: &Supervision) -> std::io::Result<Side> {
    match config.daemonize && !supervision.is_there() {
        true => daemon::fork(),
        false => Ok(Side::Alone),
    }
}

/// The connected parts of a server, in the order in which they are dropped.
struct Assembled {
    host: Arc<ServerHost>,
    saving: Arc<SaveCoordinator>,
    replication: Arc<Replication>,
    aof: Arc<Aof>,
    stop: watch::Sender<bool>,
    stopped: watch::Receiver<bool>,
    runtimes: Runtimes,
    supervision: Arc<Supervision>,
    service: &'static Arc<Service>,
}

impl Assembled {
    /// Creates the parts around a service and connects them.
    fn new(
        service: Arc<Service>,
        runtimes: Runtimes,
        log: Arc<OpLog>,
        file: Option<PathBuf>,
        title: Title,
        supervision: Arc<Supervision>,
    ) -> Assembled {
        let (stop, stopped) = watch::channel(false);
        // Sessions borrow the service for the life of the process, instead of counting references on one shared
        // cache line.
        let service: &'static Arc<Service> = Box::leak(Box::new(service));
        let snapshots = Snapshots::new(service);
        let aof = Aof::new(
            service,
            Arc::clone(&log),
            Arc::clone(&snapshots),
            Arc::new(Disk),
        );
        let replication = Replication::new(
            service,
            log,
            Arc::clone(&snapshots),
            Arc::clone(&aof),
            Arc::new(Disk),
            runtimes.main(),
        );
        let listening = Listening::new(
            service,
            runtimes.main().clone(),
            runtimes.spawner(),
            ConnectionOwner {
                replicas: Arc::clone(&replication.primary),
                stop: stop.clone(),
                handshaking: Arc::new(Handshaking::new(service.telemetry.thread_count)),
            },
        );
        let durability: Arc<dyn Durability> = Arc::clone(&aof) as _;
        assert!(
            service.durability.set(durability).is_ok(),
            "durability is set once"
        );
        let saver = Saver::new(&snapshots, Arc::new(Disk));
        let saving = SaveCoordinator::new(service, snapshots, saver, Arc::clone(&aof));
        let host = Arc::new(ServerHost::new(
            Arc::clone(service),
            Arc::clone(&aof),
            Arc::clone(&replication),
            file,
            listening,
            title,
            Arc::clone(&saving),
        ));
        let server: Arc<dyn Server> = Arc::clone(&host) as _;
        assert!(service.server.set(server).is_ok(), "the server is set once");
        let carrier = migrate::Carrier::new(service, runtimes.main().clone());
        assert!(
            service.migrator.set(Box::new(carrier)).is_ok(),
            "the migrator is set once"
        );
        Assembled {
            host,
            saving,
            replication,
            aof,
            stop,
            stopped,
            runtimes,
            supervision,
            service,
        }
    }

    /// Starts the background and then the listeners, serves until the server is stopped, and returns the exit code.
    fn serve(self, config: &Arc<Config>, word: Option<DaemonNotifier>) -> i32 {
        let (service, runtimes, host) = (self.service, &self.runtimes, &self.host);
        background::start_workers(service, runtimes);
        background::start_delivery(service, runtimes);
        background::start_relays(&self.aof, &self.replication.confirmations, runtimes);
        overload::begin(service, runtimes);
        let background = background::start(
            service,
            runtimes.spawner(),
            Arc::clone(&self.saving),
            &self.stopped,
        );
        // Register signal handlers before clients are served: after a client got a reply, a signal must stop
        // the server with a save.
        let signals = {
            let _registers_here = runtimes.main().enter();
            shutdown::Signals::listen()
        };
        let opened = match self.open(config, word.is_some()) {
            Ok(opened) => opened,
            Err(text) => {
                log::refusal(&text);
                return 1;
            }
        };
        reload_tls::begin(service, runtimes.main());
        host.title.show(config);
        host.follow_role();
        for advice in advice::of(config, host.file.as_deref(), &service.users) {
            tracing::warn!("Warning: {advice}");
        }
        let metrics_port = opened.metrics.as_ref().map(|metrics| metrics.port);
        announce::runs(
            config,
            service.telemetry.thread_count,
            service.shards.len(),
            metrics_port,
        );
        announce::initialized();
        // Begin supervision before clients can be served.
        self.supervision.begin(service, &runtimes.handles());
        let failed = opened.start.begin(word);
        let round = || host.round();
        let stopped = self.stopped.clone();
        let ended = shutdown::run_until_shutdown(
            &host.shutdown,
            signals,
            round,
            &self.saving,
            service,
            stopped,
        );
        let has_loaded = runtimes.block_on(async {
            tokio::select! {
                () = ended => true,
                () = failed => false,
            }
        });
        self.supervision.stopping();
        if !has_loaded {
            opened.pidfile.remove();
            remove_socket(config);
            return 1;
        }
        host.leave_cluster();
        let _ = self.stop.send(true);
        // Stop listening before any connection is closed, so that a client whose connection is closed cannot
        // connect again.
        host.listening.stop();
        service.telemetry.set_ready(false);
        drop(opened.metrics);
        for thread in background {
            thread.join().expect("no background thread panics");
        }
        self.aof.shut_down();
        opened.pidfile.remove();
        remove_socket(config);
        announce::stopped();
        0
    }

    /// Opens everything that may fail at startup. The error text states what failed.
    fn open(&self, config: &Arc<Config>, is_daemon: bool) -> Result<StartupResources, String> {
        let (service, runtimes) = (self.service, &self.runtimes);
        let tls = service.tls.configure(config);
        tls.map_err(|text| format!("Failed to configure TLS: {text}"))?;
        service.budget.include_process_memory(
            memory::used_bytes().cast_signed(),
            || CLIENT_MEMORY.total_bytes() as i64,
            service.pubsub.tracked_count(),
        );
        self.replication.replica.begin();
        memory_limit::set(service, config);
        background::follow_limit(service);
        // Load the users before the first client can access data.
        users::load(service, config)?;
        let bus = match config.cluster_enabled {
            ClusterMode::Yes => Some(node::Bus::open(service, &self.replication)?),
            _ => None,
        };
        let start = StartupLoader::new(
            service,
            Arc::clone(&self.aof),
            Arc::clone(&self.supervision),
            self.replication.replica,
            Arc::clone(config),
            self.stopped.clone(),
        );
        self.host.listening.start(config).map_err(|text| {
            log::refusal(&format!("Warning: {text}"));
            // Tools that look for a free port read this line.
            format!("Failed listening on port {} (tcp), aborting.", config.port)
        })?;
        let metrics = {
            let _registers_here = runtimes.main().enter();
            accept::metrics(config, service)?
        };
        // Write the PID file only now: the open sockets show that no other server runs with this configuration.
        let pidfile = Pidfile::write(config, is_daemon);
        if let Some(bus) = bus {
            self.host.joined(bus.bus);
            bus.begin()?;
        }
        Ok(StartupResources {
            metrics,
            start,
            pidfile,
        })
    }
}

/// Returns the number of cores that this process may use.
fn cores() -> usize {
    std::thread::available_parallelism().map_or(CORES_FALLBACK, usize::from)
}

/// Resources that a server opens before it serves clients.
struct StartupResources {
    metrics: Option<accept::Metrics>,
    start: StartupLoader,
    pidfile: Pidfile,
}

/// Raises the descriptor limit for `maxclients`, or lowers `maxclients` to what the limit allows.
fn raise_descriptor_limit(config: &mut Config) {
    if let Err(possible) = descriptors_for(config, config.maxclients) {
        tracing::warn!(
            "maxclients {} lowered to {possible}: limit of open files (ulimit -n)",
            config.maxclients
        );
        config.maxclients = possible as u32;
    }
}

/// Raises the descriptor limit for `clients` clients. On failure returns how many clients the limit allows.
fn descriptors_for(config: &Config, clients: u32) -> Result<(), u64> {
    let threads = config.thread_count(cores()) as u64;
    let of_threads = DESCRIPTORS_BESIDE_THREADS + threads * DESCRIPTORS_PER_THREAD;
    let reserved = of_threads.max(DESCRIPTORS_RESERVED_MIN);
    descriptors(u64::from(clients) + reserved)
        .map_err(|granted| granted.saturating_sub(reserved).max(1))
}

/// Raises the descriptor limit to `wanted`. On failure returns the granted number.
fn descriptors(wanted: u64) -> Result<(), u64> {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let limit = getrlimit(Resource::Nofile);
    if limit.current.is_none_or(|current| current >= wanted) {
        return Ok(());
    }
    let both = Rlimit {
        current: Some(wanted),
        maximum: limit.maximum.map(|maximum| maximum.max(wanted)),
    };
    if setrlimit(Resource::Nofile, both).is_ok() {
        return Ok(());
    }
    // Without the privilege to raise the hard limit, raise the soft limit to it.
    let soft = Rlimit {
        current: limit.maximum,
        maximum: limit.maximum,
    };
    let granted = match setrlimit(Resource::Nofile, soft) {
        Ok(()) => limit.maximum,
        Err(_) => limit.current,
    };
    granted.map_or(Ok(()), |granted| {
        if granted >= wanted {
            Ok(())
        } else {
            Err(granted)
        }
    })
}

/// Sets the umask for new files and directories. If a file may be read, a directory may also be entered. The
/// umask is set once, because many modules create files.
fn keep_private(file_mode: u32) {
    let may_enter = (file_mode & 0o444) >> 2;
    let mask = Mode::from_raw_mode(!(file_mode | may_enter) & 0o777);
    rustix::process::umask(mask);
}

/// Removes the unix socket on a clean shutdown; it may be gone already.
fn remove_socket(config: &Config) {
    if !config.unixsocket.is_empty() {
        let _ = std::fs::remove_file(lossless::path_of(&config.unixsocket));
    }
}

/// Builds a server's state without files, clients and background, and with a command log that has no reader,
/// for tests and benches.
pub fn build(config: Arc<Config>, shard_count: usize, telemetry: Telemetry) -> Service {
    build_on(config, shard_count, telemetry, Arc::new(OpLog::default()))
}

/// Limits the memory of clients and of the scripts they run.
fn limit_clients(config: &Config) {
    let bytes = config.client_bytes_max();
    CLIENT_MEMORY.set_limit(bytes);
    script::limit_memory(bytes);
}

/// Builds shards, registries and their shared state.
fn build_on(
    config: Arc<Config>,
    shard_count: usize,
    telemetry: Telemetry,
    log: Arc<dyn Log>,
) -> Service {
    limit_clients(&config);
    reply::set_reply_bytes_max(config.proto_max_reply_len);
    let seed = HashSeed {
        k0: rand::random(),
        k1: rand::random(),
    };
    let pubsub = Arc::new(PubSub::default());
    pubsub.configure(&config);
    let rest = Arc::<Rest>::default();
    let (hot_counts, fence_source): (Arc<HotCounts>, Arc<FenceSource>) = Default::default();
    let (dispatcher, leasing) = <(Arc<WaiterDispatcher>, Arc<LeaseConnections>)>::default();
    let mut engines: Vec<Engine> = (0..shard_count)
        .map(|shard| {
            let mut engine = Engine::new(config.databases as usize, seed, rand::random());
            engine.shard = shard as u16;
            if config.cluster_enabled != ClusterMode::No {
                engine.keep_slots(shard_count as u16);
            }
            engine.rest = Arc::clone(&rest);
            engine.hot_counts = Arc::clone(&hot_counts);
            engine.fence_source = Arc::clone(&fence_source);
            let follower = Arc::clone(&pubsub);
            engine.effects.set_follower(pubsub.interest(), follower);
            engine.effects.set_log(Arc::clone(&log));
            engine.waiters.caller = Some(Arc::clone(&dispatcher) as _);
            engine.waiters.connections = Some(Arc::clone(&leasing) as _);
            engine.effects.count_tracked(pubsub.tracked_count());
            engine.published().want_curve(config.miss_ratio_curve);
            engine.toggle_miss_ratio_curve(clock::now());
            engine
        })
        .collect();
    let published = engines.iter().map(|engine| Arc::clone(engine.published()));
    let all_published: Box<[_]> = published.collect();
    let budget = Arc::new(Budget::of(all_published.clone()));
    for engine in &mut engines {
        engine.set_budget(Arc::clone(&budget));
    }
    telemetry.configure_samples(&config);
    let shards = Arc::new(Shards::new(engines));
    dispatcher.reach(&shards);
    Service {
        users: Users::new(&Commands),
        shards,
        all_published,
        budget,
        hot_counts,
        fence_source,
        router: Router::new(seed, shard_count as u16)
            .of_node(config.cluster_enabled == ClusterMode::Yes),
        config: ArcSwap::new(config),
        changing_config: Default::default(),
        clients: Arc::clone(&leasing.0),
        pubsub,
        pause: Pause::new(rest),
        active_expire: AtomicBool::new(true),
        cron_paused: AtomicBool::new(false),
        scripts: Default::default(),
        offload: Default::default(),
        under_way: Default::default(),
        script_calls_unbound: AtomicBool::new(false),
        telemetry,
        server: OnceLock::new(),
        log: OnceLock::from(log),
        changing_libraries: Default::default(),
        durability: OnceLock::new(),
        reply_holds: ReplyHolds::default(),
        is_snapshot_behind: AtomicBool::new(false),
        tls: Default::default(),
        migrator: OnceLock::new(),
        cluster: OnceLock::new(),
        slots: OnceLock::new(),
    }
}
