//! Reads a certificate's holder names and its expiry.

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
}

impl Names {
    pub(super) fn of(certificate: &CertificateDer<'_>) -> Names {
        let Ok((_, certificate)) = X509Certificate::from_der(certificate) else {
            return Names::default();
        };
        let common = certificate.subject().iter_common_name().next();
        let alternatives = certificate.subject_alternative_name().ok().flatten();
        let alternatives = alternatives
            .iter()
            .flat_map(|found| &found.value.general_names);
        Names {
            common: common
                .and_then(|name| name.as_str().ok())
                .map(str::to_owned),
            uris: alternatives
                .filter_map(|name| match name {
                    GeneralName::URI(uri) => Some((*uri).to_owned()),
                    _ => None,
                })
                .collect(),
        }
    }
}

/// Returns the Unix second at which a certificate expires.
pub(super) fn ends_s(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
