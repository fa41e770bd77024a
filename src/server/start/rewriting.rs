//! Commands on the append-only file: BGREWRITEAOF, DEBUG LOADAOF. Blocking work never runs on threads that serve
//! connections.

use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use crate::persist::aof::{Aof, RewriteOutcome};
use crate::persist::snapshot::{Snapshots, run_on_all};
use crate::state::Service;
use basalt_commands::command::error::CommandError;
use basalt_commands::command::host::{Awaited, Done, Told};

/// Starts a rewrite: BGREWRITEAOF. Returns `None` if it will begin after the running save or rewrite.
pub(super) fn rewrite(
    aof: &Arc<Aof>,
    snapshots: &Arc<Snapshots>,
    may_begin: bool,
) -> Result<Option<Awaited>, CommandError> {
    if aof.is_rewriting() {
        return Err("ERR Background append only file rewriting already in progress".into());
    }
    if !may_begin || snapshots.current().is_some() {
        aof.schedule(true);
        return Ok(None);
    }
    let (aof, snapshots) = (Arc::clone(aof), Arc::clone(snapshots));
    let begin = move |done: Done| {
        let aof = Arc::clone(&aof);
        snapshots.run(move || match aof.rewrite() {
            RewriteOutcome::Started | RewriteOutcome::Scheduled => match aof.running() {
                // Reply when the cut is made, so that writes after the reply are not part of the snapshot.
                Some(running) => running.when_cut(move || done(Ok(String::new()))),
                None => done(Ok(String::new())),
            },
            RewriteOutcome::UnderWay => done(Err(
                "ERR Background append only file rewriting already in progress".into(),
            )),
            RewriteOutcome::Failed => done(Err(
                "ERR Can't execute an AOF background rewriting. Please check the server logs for more information."
                    .into(),
            )),
        });
    };
    Ok(Some(Awaited {
        begin: Arc::new(begin),
        told: Told::Text("Background append only file rewriting started"),
    }))
}

/// Reloads all data from the append-only file: DEBUG LOADAOF. Clients get LOADING errors from the beginning,
/// because paused clients would have to wait until the whole file is loaded. Commands already admitted are
/// awaited, so that the file contains them and only the file's data enters the emptied shards.
pub(super) fn load_again(service: &'static Service, aof: &Aof) -> Result<(), CommandError> {
    let loading = &service.telemetry.persistence.loading;
    loading.announce();
    let may_load = service.await_under_way().and_then(|()| {
        let written = aof.write_all();
        written.map_err(|_| "ERR The append-only file cannot be written, check server logs.".into())
    });
    if let Err(error) = may_load {
        loading.end();
        return Err(error);
    }
    if aof.load_again(&|| false, || flush_all(service)).is_err() {
        tracing::error!("The data were flushed and cannot be loaded again. Exiting.");
        std::process::exit(1);
    }
    forget_dirty(service);
    tracing::info!("Append Only File loaded by DEBUG LOADAOF");
    Ok(())
}

/// Deletes all data before it is loaded from another source.
pub(super) fn flush_all(service: &Service) {
    run_on_all(service, |engines, _| {
        for engine in engines {
            engine.flush_all();
        }
    });
    service.scripts.functions.flush(&mut || None);
}

/// Marks the current data as saved.
pub(super) fn forget_dirty(service: &Service) {
    let dirty = service.all_published.iter().map(|shard| shard.dirty.get());
    let figures = &service.telemetry.persistence.rdb;
    figures.dirty_at_save.store(dirty.sum(), Relaxed);
}
