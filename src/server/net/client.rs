//! Connections to other servers: requests are sent, and the replies to them are read.
//!
//! A reply is limited in its bytes, and each wait for the other server in its time.

use std::future::Future;
use std::io::{self, ErrorKind};
use std::net::{IpAddr, SocketAddr};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream, lookup_host};

use super::stream::ClientSocket;
use crate::tls::contexts::Contexts;
use crate::tls::handshake;
use crate::tls::names::Names;
use basalt_core::resp::answer::{Answer, MalformedReply};
use basalt_core::resp::request::append;

/// Maximum time of a wait. Evaluated again during the wait, as the configuration may change meanwhile.
pub type Timeout<'t> = &'t (dyn Fn() -> Duration + Send + Sync);

/// A connection to another server.
pub struct Client {
    /// The socket.
    pub socket: ClientSocket,
    /// Data received and not taken.
    pub input: Vec<u8>,
    /// Whether empty lines before a reply are skipped: a primary sends them as keepalives.
    pub skips_empty_lines: bool,
}

impl Client {
    /// Connects, from the address `from` if given, with TLS if `tls` is given.
    pub async fn connect(
        host: &str,
        port: u16,
        from: Option<IpAddr>,
        tls: Option<&Contexts>,
        timeout: Timeout<'_>,
    ) -> io::Result<Client> {
        let socket = within(timeout, connect(host, port, from)).await?;
        // Requests are sent whole, so waiting for more data would only delay them.
        let _ = socket.set_nodelay(true);
        within(timeout, Client::over(socket, host, tls)).await
    }

    /// Uses a connected socket; with TLS, performs the handshake.
    pub async fn over(socket: TcpStream, host: &str, tls: Option<&Contexts>) -> io::Result<Client> {
        let socket = match tls {
            None => ClientSocket::Tcp(socket),
            Some(contexts) => {
                let channel = handshake::connect(socket, host, contexts).await;
                ClientSocket::Tls(Box::new(channel.map_err(io::Error::other)?))
            }
        };
        Ok(Client {
            socket,
            input: Vec::new(),
            skips_empty_lines: false,
        })
    }

    /// Returns the addresses of the other server's end and of this end.
    pub fn addresses(&self) -> io::Result<(SocketAddr, SocketAddr)> {
        let socket = match &self.socket {
            ClientSocket::Tcp(socket) => socket,
            ClientSocket::Tls(channel) => channel.socket(),
            ClientSocket::Unix(_) => return Err(ErrorKind::Unsupported.into()),
        };
        Ok((socket.peer_addr()?, socket.local_addr()?))
    }

    /// Returns the names in the other server's certificate, if the connection uses TLS.
    pub fn names(&self) -> Option<Names> {
        match &self.socket {
            ClientSocket::Tls(channel) => channel.names(),
            ClientSocket::Tcp(_) | ClientSocket::Unix(_) => None,
        }
    }

    /// Sends bytes.
    pub async fn send(&mut self, bytes: &[u8], timeout: Timeout<'_>) -> io::Result<()> {
        within(timeout, self.socket.write_all(bytes)).await
    }

    /// Sends a request and returns the reply to it.
    pub async fn call(&mut self, words: &[&[u8]], timeout: Timeout<'_>) -> io::Result<Answer> {
        self.send(&request(words), timeout).await?;
        self.read_reply(timeout).await
    }

    /// Returns the next reply; `timeout` limits the wait for each part of it. Cancel-safe: no data is lost.
    pub async fn read_reply(&mut self, timeout: Timeout<'_>) -> io::Result<Answer> {
        loop {
            if let Some(reply) = self.take_reply()? {
                return Ok(reply);
            }
            if within(timeout, self.socket.read_buf(&mut self.input)).await? == 0 {
                return Err(ErrorKind::UnexpectedEof.into());
            }
        }
    }

    /// Returns the next reply, if it was received completely.
    pub fn take_reply(&mut self) -> io::Result<Option<Answer>> {
        if self.skips_empty_lines {
            let is_text = |byte: &u8| !matches!(byte, b'\r' | b'\n');
            let begin = self.input.iter().position(is_text);
            self.input.drain(..begin.unwrap_or(self.input.len()));
        }
        Answer::take(&mut self.input).map_err(|error| io::Error::new(ErrorKind::InvalidData, error))
    }
}

/// True if a read failed because the other server sent something that is not a reply.
pub fn is_malformed(error: &io::Error) -> bool {
    error
        .get_ref()
        .is_some_and(|why| why.is::<MalformedReply>())
}

async fn connect(host: &str, port: u16, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let mut last = None;
    for address in lookup_host((host, port)).await? {
        match connect_to(address, from).await {
            Ok(socket) => return Ok(socket),
            Err(error) => last = Some(error),
        }
    }
    Err(last.unwrap_or_else(|| io::Error::new(ErrorKind::NotFound, "the host name has no address")))
}

/// Connects to an address, from the address `from` if given.
pub async fn connect_to(address: SocketAddr, from: Option<IpAddr>) -> io::Result<TcpStream> {
    let socket = match address {
        SocketAddr::V4(_) => TcpSocket::new_v4()?,
        SocketAddr::V6(_) => TcpSocket::new_v6()?,
    };
    if let Some(from) = from {
        socket.bind((from, 0).into())?;
    }
    socket.connect(address).await
}

/// Returns the result of `work`, or a timeout error.
pub async fn within<R>(
    timeout: Timeout<'_>,
    work: impl Future<Output = io::Result<R>>,
) -> io::Result<R> {
    const LOOK_AGAIN: Duration = Duration::from_secs(1);
    let (mut work, began) = (std::pin::pin!(work), Instant::now());
    loop {
        let left = timeout().saturating_sub(began.elapsed());
        match tokio::time::timeout(left.min(LOOK_AGAIN), &mut work).await {
            Ok(result) => return result,
            Err(_) if began.elapsed() >= timeout() => {
                return Err(io::Error::new(
                    ErrorKind::TimedOut,
                    "timed out waiting for a reply",
                ));
            }
            Err(_) => {}
        }
    }
}

/// Encodes a request as a RESP array of bulk strings.
pub fn request(words: &[&[u8]]) -> Vec<u8> {
    let mut bytes = Vec::new();
    append(&mut bytes, words);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio::net::TcpListener;

    /// Connects to a server that sends `parts`, and then closes the connection if `closes` is set.
    async fn client(parts: &'static [&'static [u8]], closes: bool) -> Client {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            let (mut socket, _) = listener.accept().await.expect("a client");
            for part in parts {
                let _ = socket.write_all(part).await;
                tokio::task::yield_now().await;
            }
            if !closes {
                std::future::pending::<()>().await;
            }
        });
        let patience: Timeout<'_> = &|| Duration::from_secs(60);
        let client = Client::connect("127.0.0.1", port, None, None, patience).await;
        client.expect("it listens")
    }

    #[tokio::test]
    async fn replies_arrive_in_parts_and_waits_end() {
        let parts: &[&[u8]] = &[b"+O", b"K\r\n\r", b"\n-ERR why\r\n", b"\nx"];
        let patience: Timeout<'_> = &|| Duration::from_secs(60);
        let mut primary = client(parts, true).await;
        primary.skips_empty_lines = true;
        let status = Answer::Status(b"OK".to_vec());
        assert_eq!(primary.read_reply(patience).await.expect("a reply"), status);
        let error = Answer::Error(b"ERR why".to_vec());
        assert_eq!(primary.read_reply(patience).await.expect("a reply"), error);
        let refused = primary.read_reply(patience).await.expect_err("no reply");
        assert!(is_malformed(&refused), "{refused}");

        let mut server = client(parts, true).await;
        assert_eq!(server.read_reply(patience).await.expect("a reply"), status);
        let refused = server.read_reply(patience).await.expect_err("a keepalive");
        assert!(is_malformed(&refused), "{refused}");

        let closed = client(&[b"+O"], true).await.read_reply(patience).await;
        let closed = closed.expect_err("half a reply");
        assert_eq!(closed.kind(), ErrorKind::UnexpectedEof);
        let late = client(&[b"+O"], false)
            .await
            .read_reply(&|| Duration::ZERO)
            .await;
        assert_eq!(late.expect_err("no more").kind(), ErrorKind::TimedOut);
    }
}
