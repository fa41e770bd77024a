//! A command that met a held shard: it owns its bytes, waits in the shard's queue, and comes back with its reply.
//!
//! Whoever holds the shard runs it; a client that disconnects meanwhile loses only the reply.

use std::sync::Arc;
use std::task::{Context, Poll};

use atomic_waker::AtomicWaker;
use parking_lot::Mutex;

use super::execute::{self, Scene};
use super::ownership;
use super::ownership::hands::Hands;
use super::ownership::parcel::Parcel;
use crate::command::args::RoutedKey;
use crate::command::context::{ClientView, Engines, Gather, ShardPlace};
use crate::command::declaration::{Command, CommandResult, Run};
use crate::command::{Args, Out};
use crate::config::Config;
use crate::engine::value::Trash;
use crate::engine::{Engine, Now};
use crate::resp::request::Span;
use crate::telemetry::clock::Ticks;

/// Where a finished message is put for the connection that waits for it.
#[derive(Default)]
pub struct Ticket {
    done: Mutex<Option<Box<Parcel<Message>>>>,
    waker: AtomicWaker,
}

impl Ticket {
    /// Ready with the message once it ran.
    pub fn poll(&self, cx: &mut Context<'_>) -> Poll<Box<Parcel<Message>>> {
        if let Some(message) = self.done.lock().take() {
            return Poll::Ready(message);
        }
        self.waker.register(cx.waker());
        match self.done.lock().take() {
            Some(message) => Poll::Ready(message),
            None => Poll::Pending,
        }
    }
}

/// See the module.
pub struct Message {
    shards: Vec<u16>,
    place: ShardPlace,
    command: &'static Command,
    data: Vec<u8>,
    spans: Vec<Span>,
    keys: Vec<RoutedKey>,
    config: Arc<Config>,
    now: Now,
    trash: Vec<Trash>,
    ticket: Option<Arc<Ticket>>,
    /// The client, with its stamp raised once the message ran.
    pub client: ClientView,
    /// The reply.
    pub out: Out,
    /// Whether the reply is an error.
    pub failed: bool,
    /// How long it ran, the wait for its shards left out.
    pub duration_ns: u64,
    /// For commands that go from shard to shard: what they gathered so far, and whether the visit failed.
    pub gather: Option<(Gather, CommandResult)>,
}

/// All that a message is made of.
pub struct Parts<'a> {
    /// The shards it needs, ascending.
    pub shards: &'a [u16],
    /// The first of them, for cursors.
    pub place: ShardPlace,
    /// The command.
    pub command: &'static Command,
    /// Its arguments, copied.
    pub args: &'a Args<'a>,
    /// Its client.
    pub client: ClientView,
    /// The moment of its request.
    pub now: Now,
    /// The configuration at that moment.
    pub config: &'a Arc<Config>,
    /// Protocol of the reply.
    pub out: Out,
    /// What earlier visits gathered.
    pub gather: Option<Gather>,
}

impl Message {
    /// A message and the ticket on which its end is awaited.
    pub fn new(parts: Parts<'_>) -> (Box<Parcel<Message>>, Arc<Ticket>) {
        let mut data = Vec::with_capacity(parts.args.from(0).map(<[u8]>::len).sum());
        let mut spans = Vec::with_capacity(parts.args.len());
        for argument in parts.args.from(0) {
            spans.push(Span {
                start: data.len() as u32,
                len: argument.len() as u32,
            });
            data.extend_from_slice(argument);
        }
        let ticket = Arc::new(Ticket::default());
        let message = Parcel::new(Message {
            shards: parts.shards.to_vec(),
            place: parts.place,
            command: parts.command,
            data,
            spans,
            keys: parts.args.keys().to_vec(),
            config: Arc::clone(parts.config),
            now: parts.now,
            trash: Vec::new(),
            ticket: Some(Arc::clone(&ticket)),
            client: parts.client,
            out: parts.out,
            failed: false,
            duration_ns: 0,
            gather: parts.gather.map(|gather| (gather, Ok(()))),
        });
        (message, ticket)
    }
}

impl ownership::Message<Engine> for Message {
    fn shards(&self) -> &[u16] {
        &self.shards
    }

    fn run(&mut self, hands: &mut Hands<'_, Engine>) {
        let before = Ticks::now();
        let Message {
            data,
            spans,
            keys,
            client,
            out,
            ..
        } = self;
        let args = Args::new(data, &[], spans, keys);
        let scene = Scene {
            now: self.now,
            config: &self.config,
            place: self.place,
        };
        let mut engines: Vec<&mut Engine> = hands.iter().map(|(_, engine)| engine).collect();
        {
            let engines = match engines.as_mut_slice() {
                [engine] => Engines::One(engine),
                engines => Engines::Many(engines.iter_mut().map(|engine| &mut **engine).collect()),
            };
            match (&mut self.gather, self.command.run) {
                (Some((gather, result)), Run::EachShard(..) | Run::Cursor(..)) => {
                    *result =
                        execute::run_part(self.command, engines, client, scene, &args, gather);
                }
                _ => self.failed = execute::run(self.command, engines, client, scene, &args, out),
            }
        }
        for engine in engines {
            self.trash.append(&mut engine.trash);
        }
        self.duration_ns += Ticks::now().since_ns(before);
    }

    fn finish(mut parcel: Box<Parcel<Self>>) {
        parcel.trash.clear();
        if let Some(ticket) = parcel.ticket.take() {
            *ticket.done.lock() = Some(parcel);
            ticket.waker.wake();
        }
    }
}
