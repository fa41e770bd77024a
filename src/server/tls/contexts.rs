//! Builds TLS contexts from the configuration.
//!
//! Invariant: if contexts cannot be built completely, those in force stay unchanged.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwapOption;
use parking_lot::Mutex;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, aws_lc_rs};
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::server::danger::ClientCertVerifier;
use rustls::server::{NoServerSessionStorage, ParsedCertificate, WebPkiClientVerifier};
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{
    ClientConfig, DigitallySignedStruct, RootCertStore, ServerConfig, SignatureScheme,
    SupportedProtocolVersion,
};

use super::ciphers;
use super::files::{self, FileFingerprint};
use super::groups;
use super::names::{self, Names};
use super::sessions::Sessions;
use basalt_commands::config::Config;
use basalt_commands::config::values::TlsAuthClients;
use basalt_core::base::lossless;

/// The contexts that handshakes use.
#[derive(Clone)]
pub struct Contexts {
    /// TLS settings for incoming connections.
    pub server: Arc<ServerConfig>,
    /// For incoming connections that need no client certificate.
    pub no_client_certificate: Arc<ServerConfig>,
    /// For incoming connections from cluster nodes, which must show a certificate, whatever applies to clients.
    /// `None` if no CAs are configured that could have signed it.
    pub peers: Option<Arc<ServerConfig>>,
    /// TLS settings for outgoing connections.
    pub client: Arc<ClientConfig>,
    /// The certificates that this server presents, with their expiry times.
    pub own: Vec<OwnCertificate>,
}

/// A certificate that this server presents.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OwnCertificate {
    /// The directive that names its file.
    pub directive: &'static str,
    /// Path of the file.
    pub file: String,
    /// Unix second at which the certificate, or the first certificate of its chain, expires; `None` if that
    /// cannot be read.
    pub ends_s: Option<i64>,
    /// The host names in it.
    pub hosts: Vec<String>,
}

/// The contexts in force.
#[derive(Default)]
pub struct Live {
    current: ArcSwapOption<Contexts>,
    /// Metadata of the files when they were last read.
    looks: Mutex<Vec<FileFingerprint>>,
    /// Why changed files could not be put in force; `None` after that has succeeded.
    failure: Mutex<Option<String>>,
}

impl Live {
    /// Returns the contexts for new handshakes; `None` while nothing uses TLS.
    pub fn current(&self) -> Option<Arc<Contexts>> {
        self.current.load_full()
    }

    /// Puts earlier contexts in force again.
    pub fn restore(&self, contexts: Option<Arc<Contexts>>) {
        self.current.store(contexts);
    }

    /// Builds the contexts of a configuration and puts them in force. On failure, the previous contexts stay.
    pub fn configure(&self, config: &Config) -> Result<(), String> {
        if !is_wanted(config) {
            self.current.store(None);
            *self.failure.lock() = None;
            return Ok(());
        }
        // Record the metadata before reading the files, so that a change in the meantime is detected next time.
        let looks = look_at_files(config);
        let made = Contexts::make(config);
        *self.looks.lock() = looks;
        self.current.store(Some(Arc::new(made?)));
        *self.failure.lock() = None;
        Ok(())
    }

    /// Returns why the current files are not in force; `None` if they are.
    pub fn failure(&self) -> Option<String> {
        self.failure.lock().clone()
    }

    /// Reloads the files if they have changed. Returns `None` if they have not changed, otherwise the outcome.
    pub fn follow_files(&self, config: &Config) -> Option<Result<(), String>> {
        let has_changed = is_wanted(config) && *self.looks.lock() != look_at_files(config);
        has_changed.then(|| {
            self.configure(config)
                .inspect_err(|why| *self.failure.lock() = Some(why.clone()))
        })
    }
}

/// Whether a configuration uses TLS anywhere.
pub fn is_wanted(config: &Config) -> bool {
    let is_for_metrics = config.metrics_tls && config.metrics_port != 0;
    config.tls_port != 0 || config.tls_replication || config.tls_cluster || is_for_metrics
}

fn look_at_files(config: &Config) -> Vec<FileFingerprint> {
    let named = [
        &config.tls_cert_file,
        &config.tls_key_file,
        &config.tls_client_cert_file,
        &config.tls_client_key_file,
        &config.tls_ca_cert_file,
    ];
    let named = named.into_iter().filter(|path| !path.is_empty());
    let mut paths: Vec<PathBuf> = named.map(|path| lossless::path_of(path)).collect();
    if !config.tls_ca_cert_dir.is_empty() {
        let folder = lossless::path_of(&config.tls_ca_cert_dir);
        paths.extend(files::inside(&folder).unwrap_or_default());
    }
    paths.into_iter().map(files::look).collect()
}

impl Contexts {
    /// Returns a host name of another server by its certificate, if that has one that this server's certificate does
    /// not have: names that both have lead to either.
    pub fn host_of(&self, other: &Names) -> Option<String> {
        let own: Vec<String> = self
            .own
            .iter()
            .flat_map(|own| own.hosts.iter().cloned())
            .collect();
        other.host_besides(&own).map(str::to_owned)
    }

    /// Builds the contexts of a configuration; the error text is for the log.
    pub fn make(config: &Config) -> Result<Contexts, String> {
        if config.tls_cert_file.is_empty() {
            return Err("No tls-cert-file configured!".to_owned());
        }
        if config.tls_key_file.is_empty() {
            return Err("No tls-key-file configured!".to_owned());
        }
        let has_authorities =
            !config.tls_ca_cert_file.is_empty() || !config.tls_ca_cert_dir.is_empty();
        let verifies = (config.tls_port != 0 && config.tls_auth_clients != TlsAuthClients::No)
            || config.tls_cluster
            || config.tls_replication;
        if verifies && !has_authorities {
            return Err(
                "Either tls-ca-cert-file or tls-ca-cert-dir must be specified when tls-cluster, \
                 tls-replication or tls-auth-clients are enabled!"
                    .to_owned(),
            );
        }
        let versions = versions(&config.tls_protocols)?;
        let provider = Arc::new(provider(config)?);
        let authorities = Arc::new(files::authorities(
            &config.tls_ca_cert_file,
            &config.tls_ca_cert_dir,
        )?);
        let own = files::certified(
            &provider,
            &config.tls_cert_file,
            &config.tls_key_file,
            &config.tls_key_file_pass,
        )?;
        let as_client = match config.tls_client_cert_file.is_empty() {
            true => Arc::clone(&own),
            false if config.tls_client_key_file.is_empty() => {
                return Err("No tls-client-key-file configured!".to_owned());
            }
            false => files::certified(
                &provider,
                &config.tls_client_cert_file,
                &config.tls_client_key_file,
                &config.tls_client_key_file_pass,
            )?,
        };
        let peers = match config.tls_cluster {
            true => {
                let verifier = verifier(TlsAuthClients::Yes, &provider, &authorities)?;
                Some(server(
                    config,
                    &provider,
                    &versions,
                    verifier,
                    Arc::clone(&own),
                )?)
            }
            false => None,
        };
        let verifier = match has_authorities {
            true => verifier(config.tls_auth_clients, &provider, &authorities)?,
            false => None,
        };
        Ok(Contexts {
            own: own_certificates(config, &own, &as_client),
            peers,
            server: server(config, &provider, &versions, verifier, Arc::clone(&own))?,
            no_client_certificate: server(config, &provider, &versions, None, own)?,
            client: client(&provider, &versions, authorities, as_client)?,
        })
    }
}

/// Returns the presented certificates, given those for the server and client roles.
fn own_certificates(
    config: &Config,
    own: &CertifiedKey,
    as_client: &CertifiedKey,
) -> Vec<OwnCertificate> {
    let shown = [
        ("tls-cert-file", &config.tls_cert_file, own),
        (
            "tls-client-cert-file",
            &config.tls_client_cert_file,
            as_client,
        ),
    ];
    let shown = shown.into_iter().filter(|(_, file, _)| !file.is_empty());
    let describe = |(directive, file, certified): (_, &String, &CertifiedKey)| OwnCertificate {
        directive,
        file: file.clone(),
        ends_s: certified.cert.iter().filter_map(names::ends_s).min(),
        hosts: certified
            .cert
            .first()
            .map_or(vec![], |first| Names::of(first).hosts),
    };
    shown.map(describe).collect()
}

/// Returns the allowed protocol versions; all supported ones if none is named.
fn versions(words: &str) -> Result<Vec<&'static SupportedProtocolVersion>, String> {
    let mut versions = Vec::new();
    for word in words.split(' ').filter(|word| !word.is_empty()) {
        match word.to_ascii_lowercase().as_str() {
            "tlsv1.2" => versions.push(&rustls::version::TLS12),
            "tlsv1.3" => versions.push(&rustls::version::TLS13),
            "tlsv1" | "tlsv1.1" => {
                return Err(format!(
                    "tls-protocols: {word} is too weak and not supported; use TLSv1.2 and TLSv1.3"
                ));
            }
            _ => {
                return Err(
                    "Invalid tls-protocols specified. Use a combination of 'TLSv1.2' and 'TLSv1.3'."
                        .to_owned(),
                );
            }
        }
    }
    match versions.is_empty() {
        true => Ok(vec![&rustls::version::TLS13, &rustls::version::TLS12]),
        false => Ok(versions),
    }
}

/// Returns the crypto provider, restricted to the allowed ciphers and groups.
fn provider(config: &Config) -> Result<CryptoProvider, String> {
    let mut provider = aws_lc_rs::default_provider();
    let all = std::mem::take(&mut provider.cipher_suites);
    let lists = [
        (
            "tls-ciphersuites",
            ciphers::of_tls13(&config.tls_ciphersuites, &all),
        ),
        ("tls-ciphers", ciphers::of_tls12(&config.tls_ciphers)),
    ];
    for (directive, chosen) in lists {
        let unknown = chosen.unknown.join(", ");
        if chosen.suites.is_empty() {
            return Err(format!(
                "{directive}: none of {unknown} is supported: available ciphers use ECDHE with AES-GCM or \
                 ChaCha20-Poly1305; RSA and finite-field key exchange and CBC are not available"
            ));
        }
        if !unknown.is_empty() {
            tracing::warn!("{directive}: {unknown} is not supported and is ignored");
        }
        let wanted = chosen.suites.iter();
        let found = wanted.filter_map(|name| all.iter().find(|suite| suite.suite() == *name));
        provider.cipher_suites.extend(found);
    }
    let chosen = groups::chosen(&config.tls_groups)?;
    if !chosen.missing.is_empty() {
        let missing = chosen.missing.join(", ");
        tracing::warn!("tls-groups: {missing} is not supported and is ignored");
    }
    provider.kx_groups = chosen.groups;
    Ok(provider)
}

/// Returns the verifier of client certificates; `None` if they are not verified.
fn verifier(
    wanted: TlsAuthClients,
    provider: &Arc<CryptoProvider>,
    authorities: &Arc<RootCertStore>,
) -> Result<Option<Arc<dyn ClientCertVerifier>>, String> {
    let roots = Arc::clone(authorities);
    let builder = WebPkiClientVerifier::builder_with_provider(roots, Arc::clone(provider));
    let built = match wanted {
        TlsAuthClients::No => return Ok(None),
        TlsAuthClients::Yes => builder.build(),
        TlsAuthClients::Optional => builder.allow_unauthenticated().build(),
    };
    let built = built.map_err(|error| format!("Failed to configure CA certificate(s): {error}"));
    Ok(Some(built?))
}

fn server(
    config: &Config,
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    verifier: Option<Arc<dyn ClientCertVerifier>>,
    own: Arc<CertifiedKey>,
) -> Result<Arc<ServerConfig>, String> {
    let builder = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .map_err(|error| format!("Failed to configure ciphers: {error}"))?;
    let builder = match verifier {
        None => builder.with_no_client_auth(),
        Some(verifier) => builder.with_client_cert_verifier(verifier),
    };
    let mut context = builder.with_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    context.ignore_client_order = config.tls_prefer_server_ciphers;
    context.send_tls13_tickets = 1;
    match config.tls_session_caching {
        true => {
            let lifetime = Duration::from_secs(config.tls_session_cache_timeout.into());
            let sessions = Sessions::new(config.tls_session_cache_size, lifetime);
            context.session_storage = Arc::new(sessions);
        }
        false => {
            context.send_tls13_tickets = 0;
            context.session_storage = Arc::new(NoServerSessionStorage {});
        }
    }
    Ok(Arc::new(context))
}

fn client(
    provider: &Arc<CryptoProvider>,
    versions: &[&'static SupportedProtocolVersion],
    authorities: Arc<RootCertStore>,
    own: Arc<CertifiedKey>,
) -> Result<Arc<ClientConfig>, String> {
    let verifier = AnyName {
        authorities: Some(authorities),
        provider: Arc::clone(provider),
    };
    let mut context = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(versions)
        .map_err(|error| format!("Failed to configure ciphers: {error}"))?
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_client_cert_resolver(Arc::new(SingleCertAndKey::from(own)));
    context.enable_sni = false;
    Ok(Arc::new(context))
}

/// Accepts a server that has its certificate's key, whatever name the certificate is for: as in Redis, replicas
/// know their primary by address.
#[derive(Debug)]
pub(super) struct AnyName {
    /// The CAs that must have signed the certificate. `None`: no signature is required (`--insecure`).
    pub(super) authorities: Option<Arc<RootCertStore>>,
    pub(super) provider: Arc<CryptoProvider>,
}

impl ServerCertVerifier for AnyName {
    fn verify_server_cert(
        &self,
        certificate: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        let Some(authorities) = &self.authorities else {
            return Ok(ServerCertVerified::assertion());
        };
        let certificate = ParsedCertificate::try_from(certificate)?;
        let algorithms = self.provider.signature_verification_algorithms.all;
        rustls::client::verify_server_cert_signed_by_trust_anchor(
            &certificate,
            authorities,
            between,
            now,
            algorithms,
        )?;
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls12_signature(message, certificate, signed, algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signed: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        let algorithms = &self.provider.signature_verification_algorithms;
        rustls::crypto::verify_tls13_signature(message, certificate, signed, algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}
