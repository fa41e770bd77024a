//! Handshakes that turn a socket into an encrypted one, within a bound of bytes; the caller bounds the time.

use std::io::{self, ErrorKind};
use std::os::fd::AsFd;
use std::sync::Arc;

use rustix::event::{PollFd, PollFlags, Timespec, poll};
use rustls::pki_types::{IpAddr, ServerName};
use rustls::{
    AlertDescription, CertificateError, ClientConnection, Connection, Error, InvalidMessage,
    ServerConfig, ServerConnection,
};
use tokio::io::AsyncReadExt;
use tokio::net::TcpStream;

use super::channel::{Channel, send};
use super::contexts::Contexts;
use super::names::Names;

/// Bytes that a peer may send before the handshake completes; enough for long certificate chains.
const HANDSHAKE_BYTES_MAX: usize = 64 * 1024;

const READ_BYTES: usize = 4 * 1024;

/// The first byte of a record that is part of a handshake.
const HANDSHAKE: u8 = 22;

/// Why a handshake failed.
#[derive(Debug, thiserror::Error)]
pub enum HandshakeError {
    /// The socket failed.
    #[error("{0}")]
    Socket(#[from] io::Error),
    /// The peer closed the connection during the handshake.
    #[error("unexpected eof while reading")]
    Eof,
    /// The peer sent more bytes than any handshake takes.
    #[error("excessive message size")]
    TooLong,
    /// The peer closed the connection before its first message was processed.
    #[error("the client gave up before its handshake began")]
    GivenUp,
    /// The handshake took too long.
    #[error("the handshake took too long")]
    Late,
    /// The handshake failed in the TLS protocol, for example because the peers share no protocol parameters.
    #[error("{}", text(.0))]
    Protocol(#[from] Error),
}

/// Formats an error as a message, in OpenSSL's words for common errors.
fn text(error: &Error) -> String {
    match error {
        Error::InvalidMessage(InvalidMessage::InvalidContentType) => {
            "wrong version number (the data is not TLS)".to_owned()
        }
        Error::NoCertificatesPresented => "peer did not return a certificate".to_owned(),
        Error::InvalidCertificate(error) => format!("certificate verify failed ({error})"),
        Error::AlertReceived(alert) => format!("the peer refused: alert {alert:?}"),
        Error::PeerIncompatible(why) => format!("no shared version or cipher ({why:?})"),
        error => error.to_string(),
    }
}

/// Failure reasons, as labels of a metric.
pub const REASONS: [&str; 10] = [
    "no_tls",
    "no_certificate",
    "certificate_expired",
    "certificate_unknown_issuer",
    "certificate_other",
    "incompatible",
    "refused_by_peer",
    "closed_or_late",
    "protocol",
    "given_up",
];

impl HandshakeError {
    /// Returns the reason, as an index into [`REASONS`].
    pub fn reason(&self) -> usize {
        let HandshakeError::Protocol(error) = self else {
            return match self {
                HandshakeError::TooLong => 8,
                HandshakeError::GivenUp => 9,
                _ => 7,
            };
        };
        match error {
            Error::InvalidMessage(InvalidMessage::InvalidContentType) => 0,
            Error::NoCertificatesPresented => 1,
            Error::InvalidCertificate(
                CertificateError::Expired | CertificateError::ExpiredContext { .. },
            ) => 2,
            Error::InvalidCertificate(CertificateError::UnknownIssuer) => 3,
            Error::InvalidCertificate(_) => 4,
            Error::PeerIncompatible(_) => 5,
            Error::AlertReceived(AlertDescription::CloseNotify) => 7,
            Error::AlertReceived(_) => 6,
            _ => 8,
        }
    }
}

/// A completed handshake, which can be moved to another runtime.
pub struct CompletedHandshake {
    socket: std::net::TcpStream,
    tls: Box<Connection>,
    is_held: bool,
    rest: Vec<u8>,
}

impl CompletedHandshake {
    /// Returns the names in the peer's certificate, if it presented one.
    pub fn names(&self) -> Option<Names> {
        Names::of_peer(&self.tls)
    }

    /// Opens the encrypted socket on the current runtime.
    pub fn open(self) -> io::Result<Channel> {
        let socket = TcpStream::from_std(self.socket)?;
        Ok(Channel::new(socket, self.tls, self.is_held, self.rest))
    }
}

/// Returns whether the peer of a new connection has given up, so that a handshake cannot be completed. What is no TLS
/// is left to the handshake, which says so.
pub fn is_given_up(socket: &std::net::TcpStream) -> bool {
    let mut first = [HANDSHAKE];
    has_hung_up(socket) && (socket.peek(&mut first).is_err() || first[0] == HANDSHAKE)
}

/// Returns whether the peer sends nothing more.
fn has_hung_up(socket: &impl AsFd) -> bool {
    let mut polled = [PollFd::new(socket, PollFlags::RDHUP)];
    let now = Timespec::default();
    // Errors and hang-ups are always reported.
    poll(&mut polled, Some(&now)).is_ok_and(|count| count > 0)
}

/// Performs the server side of a handshake.
pub async fn accept(
    socket: TcpStream,
    context: Arc<ServerConfig>,
) -> Result<CompletedHandshake, HandshakeError> {
    let tls = ServerConnection::new(context)?;
    shake(socket, Box::new(tls.into())).await
}

/// Performs the client side of a handshake.
pub async fn connect(
    socket: TcpStream,
    host: &str,
    contexts: &Contexts,
) -> Result<Channel, HandshakeError> {
    // Use an arbitrary IP address if `host` is no valid name: the name is neither verified nor sent.
    let unnamed = ServerName::IpAddress(IpAddr::V4([127, 0, 0, 1].into()));
    let name = ServerName::try_from(host.to_owned()).unwrap_or(unnamed);
    let tls = ClientConnection::new(Arc::clone(&contexts.client), name)?;
    Ok(shake(socket, Box::new(tls.into())).await?.open()?)
}

async fn shake(
    mut socket: TcpStream,
    mut tls: Box<Connection>,
) -> Result<CompletedHandshake, HandshakeError> {
    let mut bytes = [0; READ_BYTES];
    let mut rest: &[u8] = &[];
    let (mut total, mut is_held, mut has_sent, mut first) = (0, false, false, 0);
    loop {
        has_sent |= tls.wants_write();
        send_all(&socket, &mut tls).await?;
        if !tls.is_handshaking() {
            break;
        }
        if rest.is_empty() {
            let count = socket.read(&mut bytes).await?;
            if total == 0 {
                first = bytes[0];
            }
            total += count;
            match count {
                0 if !has_sent => return Err(HandshakeError::GivenUp),
                0 => return Err(HandshakeError::Eof),
                _ if total > HANDSHAKE_BYTES_MAX => return Err(HandshakeError::TooLong),
                // The first answer is what costs: it has a key exchange and a signature.
                _ if !has_sent && first == HANDSHAKE && has_hung_up(&socket) => {
                    return Err(HandshakeError::GivenUp);
                }
                count => rest = &bytes[..count],
            }
        }
        tls.read_tls(&mut rest)?;
        match tls.process_new_packets() {
            Ok(state) => is_held = state.plaintext_bytes_to_read() > 0,
            Err(error) => {
                // Send the peer an alert with the reason, but not to a peer that does not speak TLS, which
                // would take the alert for a reply.
                if error != Error::InvalidMessage(InvalidMessage::InvalidContentType) {
                    let _ = send(&socket, &mut tls);
                }
                return Err(error.into());
            }
        }
    }
    Ok(CompletedHandshake {
        rest: rest.to_vec(),
        socket: socket.into_std()?,
        tls,
        is_held,
    })
}

async fn send_all(socket: &TcpStream, tls: &mut Connection) -> io::Result<()> {
    loop {
        match send(socket, tls) {
            Err(error) if error.kind() == ErrorKind::WouldBlock => socket.writable().await?,
            sent => return sent,
        }
    }
}
