//! TLS for client tools: their arguments, named like redis-cli's, and a blocking stream.
//!
//! With `--cacert`, a server whose certificate is signed by one of those CAs is accepted under any name, as in
//! redis-cli, since cache servers are addressed by IP address. The system's CAs sign certificates for anyone,
//! so if these are used, the name must match, too.

use std::io::{self, ErrorKind};
use std::net::{IpAddr, TcpStream};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use clap::{Arg, ArgAction, ArgMatches};
use rustls::StreamOwned;
use rustls::client::danger::ServerCertVerifier;
use rustls::client::{ClientConfig, ClientConnection, WebPkiServerVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::ServerName;
use rustls::sign::SingleCertAndKey;

use super::contexts::AnyName;
use super::files;

/// An encrypted stream to a server. Reads and writes block, like those of its socket.
pub type TlsClientStream = StreamOwned<ClientConnection, TcpStream>;

/// Paths at which systems keep their trusted CAs.
const AUTHORITIES: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Returns the arguments of a tool that supports TLS.
pub fn arguments() -> [Arg; 5] {
    let file = |name: &'static str, help: &'static str| {
        Arg::new(name).long(name).value_name("FILE").help(help)
    };
    let flag = |name: &'static str, help: &'static str| {
        Arg::new(name)
            .long(name)
            .action(ArgAction::SetTrue)
            .help(help)
    };
    [
        flag("tls", "Use TLS"),
        file(
            "cacert",
            "CA certificates to verify the server's certificate; default: those that this machine trusts, \
             and then the certificate must also name the host",
        )
        .requires("tls"),
        file("cert", "Client certificate")
            .requires("tls")
            .requires("key"),
        file("key", "Private key of the client certificate")
            .requires("tls")
            .requires("cert"),
        flag("insecure", "Accept any certificate, without verification")
            .requires("tls")
            .conflicts_with("cacert"),
    ]
}

/// A tool's TLS settings.
#[derive(Clone, Debug)]
pub struct ToolTls(Arc<ClientConfig>);

impl ToolTls {
    /// Returns the settings given by a tool's arguments; `None` without `--tls`.
    pub fn of(given: &ArgMatches) -> Result<Option<ToolTls>, String> {
        if !given.get_flag("tls") {
            return Ok(None);
        }
        let text = |name: &str| given.get_one::<String>(name).map(String::as_str);
        let provider = Arc::new(aws_lc_rs::default_provider());
        let verifier = verifier(text("cacert"), given.get_flag("insecure"), &provider)?;
        let builder = ClientConfig::builder_with_provider(Arc::clone(&provider))
            .with_safe_default_protocol_versions()
            .map_err(|error| error.to_string())?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let config = match (text("cert"), text("key")) {
            (Some(certificate), Some(key)) => {
                let own = files::certified(&provider, certificate, key, "")?;
                builder.with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)))
            }
            _ => builder.with_no_client_auth(),
        };
        Ok(Some(ToolTls(Arc::new(config))))
    }

    /// Makes an encrypted stream from a socket connected to a host; completes the handshake.
    pub fn open(&self, host: &str, mut socket: TcpStream) -> io::Result<TlsClientStream> {
        let name = match host.parse::<IpAddr>() {
            Ok(address) => ServerName::from(address),
            Err(_) => ServerName::try_from(host.to_owned())
                .map_err(|error| io::Error::new(ErrorKind::InvalidInput, error))?,
        };
        let config = Arc::clone(&self.0);
        let mut tls = ClientConnection::new(config, name).map_err(io::Error::other)?;
        while tls.is_handshaking() {
            tls.complete_io(&mut socket)?;
        }
        Ok(StreamOwned::new(tls, socket))
    }
}

fn verifier(
    authorities: Option<&str>,
    is_insecure: bool,
    provider: &Arc<CryptoProvider>,
) -> Result<Arc<dyn ServerCertVerifier>, String> {
    if is_insecure {
        return Ok(Arc::new(AnyName {
            authorities: None,
            provider: Arc::clone(provider),
        }));
    }
    if let Some(file) = authorities {
        let authorities = Arc::new(files::authorities(file, "")?);
        return Ok(Arc::new(AnyName {
            authorities: Some(authorities),
            provider: Arc::clone(provider),
        }));
    }
    let named = std::env::var_os("SSL_CERT_FILE").map(PathBuf::from);
    let known = AUTHORITIES.into_iter().map(PathBuf::from);
    let file = named
        .into_iter()
        .chain(known)
        .find(|file| Path::is_file(file));
    let file = file.ok_or("No file of trusted CA certificates was found: name one by --cacert")?;
    let authorities = Arc::new(files::authorities(&file.to_string_lossy(), "")?);
    let builder = WebPkiServerVerifier::builder_with_provider(authorities, Arc::clone(provider));
    let verifier = builder.build().map_err(|error| error.to_string())?;
    Ok(verifier)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn given(arguments: &[&str]) -> Result<ArgMatches, clap::Error> {
        let command = clap::Command::new("tool").args(self::arguments());
        command.try_get_matches_from(["tool"].iter().chain(arguments))
    }

    #[test]
    fn arguments_are_those_of_redis_cli_and_need_one_another() {
        let none = given(&[]).expect("nothing is needed");
        assert!(ToolTls::of(&none).expect("nothing is wrong").is_none());
        let insecure = given(&["--tls", "--insecure"]).expect("good arguments");
        assert!(ToolTls::of(&insecure).expect("no file is needed").is_some());
        for wrong in [
            &["--cacert", "file"][..],
            &["--insecure"],
            &["--tls", "--cert", "file"],
            &["--tls", "--key", "file"],
            &["--tls", "--insecure", "--cacert", "file"],
        ] {
            assert!(given(wrong).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn a_file_that_is_not_there_is_named() {
        let given = given(&["--tls", "--cacert", "/nowhere/ca.crt"]).expect("good arguments");
        let error = ToolTls::of(&given).expect_err("there is no such file");
        assert!(error.contains("/nowhere/ca.crt"), "{error}");
    }
}
