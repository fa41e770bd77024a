//! What a certificate says of who holds it, and for how long.

use rustls::pki_types::CertificateDer;
use x509_parser::certificate::X509Certificate;
use x509_parser::extensions::GeneralName;
use x509_parser::prelude::FromDer;

/// Names of a certificate's holder; empty where it has none, or where it cannot be read.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names {
    /// The common name (CN) of the subject; the first where it has several, as OpenSSL finds it.
    pub common: Option<String>,
    /// The URIs among the subject's alternative names, in order.
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

/// Unix second at which a certificate ends.
pub(super) fn ends_s(certificate: &CertificateDer<'_>) -> Option<i64> {
    let (_, certificate) = X509Certificate::from_der(certificate).ok()?;
    Some(certificate.validity().not_after.timestamp())
}
