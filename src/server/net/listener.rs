//! Listening sockets: TCP on several addresses and a unix socket.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, ToSocketAddrs};
use std::path::Path;

use rustix::fs::Mode;
use socket2::{Domain, Protocol, Socket, TcpKeepalive, Type};
use tokio::net::{TcpListener, UnixListener};

/// Opens a TCP listener; `*` and `::*` mean every address of their family.
pub fn tcp(address: &str, port: u16, backlog: i32) -> io::Result<TcpListener> {
    let address = resolve(address, port)
        .ok_or_else(|| io::Error::new(io::ErrorKind::NotFound, "no such address"))?;
    let socket = Socket::new(
        Domain::for_address(address),
        Type::STREAM,
        Some(Protocol::TCP),
    )?;
    socket.set_reuse_address(true)?;
    if address.is_ipv6() {
        socket.set_only_v6(true)?;
    }
    socket.set_nonblocking(true)?;
    socket.bind(&address.into())?;
    socket.listen(backlog)?;
    TcpListener::from_std(socket.into())
}

/// Resolves an address of the configuration; `*` and `::*` mean every address of their family.
pub fn resolve(address: &str, port: u16) -> Option<SocketAddr> {
    match address {
        "*" => Some(SocketAddr::new(IpAddr::V4(Ipv4Addr::UNSPECIFIED), port)),
        "::*" | "::" => Some(SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), port)),
        name => (name, port).to_socket_addrs().ok()?.next(),
    }
}

/// Opens a unix socket with these permissions, or with those left by the umask (0), replacing a stale socket. No
/// other user may connect at any moment (CVE-2023-45145), so the socket has no permissions until it gets its own.
pub fn unix(path: &Path, permissions: u32) -> io::Result<UnixListener> {
    use std::os::unix::fs::PermissionsExt;
    let _ = std::fs::remove_file(path);
    let umask = rustix::process::umask(Mode::from_raw_mode(0o777));
    let bound = UnixListener::bind(path);
    rustix::process::umask(umask);
    let listener = bound?;
    let permissions = match permissions {
        0 => 0o777 & !umask.as_raw_mode(),
        given => given,
    };
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(permissions))?;
    Ok(listener)
}

/// Disables Nagle's algorithm, and enables keepalive as Redis does: three probes, at intervals of a third of
/// `keepalive_s`.
pub fn prepare(stream: &tokio::net::TcpStream, keepalive_s: u64) -> io::Result<()> {
    stream.set_nodelay(true)?;
    if keepalive_s > 0 {
        let interval = std::time::Duration::from_secs((keepalive_s / 3).max(1));
        let keepalive = TcpKeepalive::new()
            .with_time(std::time::Duration::from_secs(keepalive_s))
            .with_interval(interval)
            .with_retries(3);
        socket2::SockRef::from(stream).set_tcp_keepalive(&keepalive)?;
    }
    Ok(())
}
