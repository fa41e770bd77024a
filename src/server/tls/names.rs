//! Reads a certificate's holder names and its expiry.

use rustls::Connection;
use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Names of a certificate's holder; empty if it has none or cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The subject's common name (CN); the first of several, as in OpenSSL.
    pub common: Option<String>,
    /// The URIs among the subject alternative names, in order.
    pub uris: Vec<String>,
    /// The host names among them, in order.
    pub hosts: Vec<String>,
}

impl Names {
    /// Returns the names in the certificate that a peer presented.
    pub(super) fn of_peer(tls: &Connection) -> Option<Names> {
        let shown = tls.peer_certificates()?;
        shown.first().map(Names::of)
    }

    pub(super) fn of(certificate: &CertificateDer<'_>) -> Names {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
            return Names::default();
        };
        let common = certificate.subject().iter_common_name().next();
        let mut names = Names {
            common: common
                .and_then(|name| name.as_str().ok())
                .map(str::to_owned),
            ..Names::default()
        };
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        for name in alternatives
            .iter()
            .flat_map(|found| &found.value.general_names)
        {
            match name {
                GeneralName::URI(uri) => names.uris.push((*uri).to_owned()),
                GeneralName::DNSName(host) => names.hosts.push((*host).to_owned()),
                _ => {}
            }
        }
        names
    }

    /// Returns the first host name that is none of these, nor a pattern.
    pub(super) fn host_besides(&self, others: &[String]) -> Option<&str> {
        let is_own = |host: &&String| !host.contains('*') && !others.contains(*host);
        self.hosts.iter().find(is_own).map(String::as_str)
    }
}

/// Returns the Unix second at which a certificate expires.
pub(super) fn ends_s(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
