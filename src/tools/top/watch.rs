//! Polls a server. A thread queries it, which may block; the drawing thread checks whether a result has
//! arrived.

use std::io;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::time::{Duration, Instant};

use super::figures::ServerSample;
use super::screen::ScreenState;
use super::wire::{RespConnection, ServerEndpoint, WireError};

/// Time after which a server that does not reply is reported as silent.
const SILENT: Duration = Duration::from_secs(3);

/// A server's address, with the connection to it while there is one.
pub(super) struct Asked {
    place: ServerEndpoint,
    connection: Option<RespConnection>,
}

impl Asked {
    pub(super) fn new(place: ServerEndpoint) -> Asked {
        Asked {
            place,
            connection: None,
        }
    }

    /// Samples the server's figures, over a new connection if the last one was lost.
    pub(super) fn ask(&mut self) -> Result<ServerSample, WireError> {
        let mut connection = match self.connection.take() {
            Some(connection) => connection,
            None => RespConnection::open(&self.place)?,
        };
        let figures = ServerSample::ask(&mut connection)?;
        self.connection = Some(connection);
        Ok(figures)
    }
}

/// The polling thread; see the module.
pub(super) struct TopPoller {
    wants: SyncSender<()>,
    answers: Receiver<Result<ServerSample, WireError>>,
    place: String,
    /// When the current query began.
    since: Option<Instant>,
}

impl TopPoller {
    pub(super) fn begin(mut asked: Asked) -> io::Result<TopPoller> {
        let place = asked.place.shown();
        let (wants, wanted) = sync_channel(1);
        let (told, answers) = sync_channel(1);
        let ask = move || {
            while wanted.recv().is_ok() && told.send(asked.ask()).is_ok() {}
        };
        std::thread::Builder::new()
            .name("asking".to_owned())
            .spawn(ask)?;
        Ok(TopPoller {
            wants,
            answers,
            place,
            since: None,
        })
    }

    /// Starts a query, unless one is in progress.
    pub(super) fn want(&mut self) {
        if self.since.is_none() && self.wants.try_send(()).is_ok() {
            self.since = Some(Instant::now());
        }
    }

    /// Adds an arrived result to `state`, or sets for how long the server has been silent.
    pub(super) fn hear(&mut self, state: &mut ScreenState) {
        match self.answers.try_recv() {
            Ok(Ok(figures)) => {
                self.since = None;
                state.add(figures);
                state.trouble = None;
            }
            Ok(Err(error)) => {
                self.since = None;
                state.trouble = Some(match heard(state) {
                    Some(ago) => format!("{error}; last reply {ago} ago"),
                    None => error.to_string(),
                });
            }
            Err(TryRecvError::Empty) => {
                let is_silent = self.since.is_some_and(|since| since.elapsed() >= SILENT);
                if let (true, Some(ago)) = (is_silent, heard(state)) {
                    let place = &self.place;
                    state.trouble = Some(format!("{place} has not answered for {ago}"));
                }
            }
            Err(TryRecvError::Disconnected) => {
                state.trouble =
                    Some("internal error: the thread that polls the server has ended".to_owned());
            }
        }
    }
}

/// Describes how long ago the server last replied.
fn heard(state: &ScreenState) -> Option<String> {
    Some(format!("{} s", state.heard()?.elapsed().as_secs()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    fn place(listener: &TcpListener) -> ServerEndpoint {
        ServerEndpoint {
            host: "127.0.0.1".to_owned(),
            port: listener.local_addr().expect("a port").port(),
            socket: None,
            user: None,
            password: None,
            tls: None,
        }
    }

    #[test]
    fn a_server_that_hangs_holds_up_nobody_and_is_said_not_to_answer() {
        let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
        let place = place(&listener);
        let mut state = ScreenState::new(place.shown());
        let now = Instant::now().checked_sub(Duration::from_secs(7));
        state.add(crate::top::tests::figures(now.expect("a while ago"), 1, ""));
        let mut watch = TopPoller::begin(Asked::new(place)).expect("a thread");
        watch.want();
        let began = Instant::now();
        watch.hear(&mut state);
        assert!(state.trouble.is_none() && began.elapsed() < Duration::from_secs(1));
        let said = loop {
            watch.want();
            watch.hear(&mut state);
            if let Some(trouble) = state.trouble.take() {
                break trouble;
            }
            std::thread::sleep(Duration::from_millis(20));
        };
        assert!(said.contains(" has not answered for 1"), "{said}");
        // The polling thread gives up, with an error message.
        let said = loop {
            watch.hear(&mut state);
            match state.trouble.take() {
                Some(said) if !said.contains("has not answered") => break said,
                _ => std::thread::sleep(Duration::from_millis(20)),
            }
        };
        assert!(
            said.contains("did not answer within 5 s; last reply"),
            "{said}"
        );
        assert!(!said.contains("os error"), "{said}");
    }
}
