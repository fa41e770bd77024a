//! Reads certificates, keys and CAs from files.

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::SystemTime;

use rustls::RootCertStore;
use rustls::crypto::CryptoProvider;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::sign::CertifiedKey;

use super::sealed;
use basalt_core::base::lossless;

/// Maximum bytes of a file; real certificate files are far smaller.
const FILE_BYTES_MAX: u64 = 16 << 20;

/// A file's observed metadata: the file is reloaded when this changes.
pub(super) type FileFingerprint = (PathBuf, Option<(SystemTime, u64, u64)>);

/// Returns a file's current metadata.
pub(super) fn look(path: PathBuf) -> FileFingerprint {
    use std::os::unix::fs::MetadataExt;
    let facts = fs::metadata(&path).ok().and_then(|facts| {
        let modified = facts.modified().ok()?;
        Some((modified, facts.len(), facts.ino()))
    });
    (path, facts)
}

/// Loads a certificate with its chain, and its key.
pub(super) fn certified(
    provider: &CryptoProvider,
    certificates: &str,
    key: &str,
    password: &str,
) -> Result<Arc<CertifiedKey>, String> {
    let chain = chain(certificates)?;
    let key = private_key(key, password)?;
    let signing = provider
        .key_provider
        .load_private_key(key)
        .map_err(|error| format!("Failed to load private key: {error}"))?;
    let certified = CertifiedKey::new(chain, signing);
    match certified.keys_match() {
        Err(rustls::Error::InconsistentKeys(rustls::InconsistentKeys::KeyMismatch)) => Err(
            format!("The private key does not belong to the certificate {certificates}"),
        ),
        // If certificate and key cannot be compared, leave the check to the peers.
        _ => Ok(Arc::new(certified)),
    }
}

fn chain(path: &str) -> Result<Vec<CertificateDer<'static>>, String> {
    let failed = |why: String| format!("Failed to load certificate: {path}: {why}");
    let text = read(&lossless::path_of(path)).map_err(&failed)?;
    let chain: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(&text).collect();
    match chain {
        Ok(chain) if !chain.is_empty() => Ok(chain),
        Ok(_) => Err(failed("the file contains no certificate".to_owned())),
        Err(error) => Err(failed(error.to_string())),
    }
}

fn private_key(path: &str, password: &str) -> Result<PrivateKeyDer<'static>, String> {
    let failed = |why: &str| format!("Failed to load private key: {path}: {why}");
    let text = read(&lossless::path_of(path)).map_err(|why| failed(&why))?;
    let sealed = sealed::open(&text, &lossless::bytes_of(password)).map_err(|why| failed(&why))?;
    match sealed {
        Some(key) => Ok(key),
        None => PrivateKeyDer::from_pem_slice(&text).map_err(|error| failed(&error.to_string())),
    }
}

/// Loads the trusted CAs: those in a file, and those in every file of a directory.
pub(super) fn authorities(file: &str, folder: &str) -> Result<RootCertStore, String> {
    let mut store = RootCertStore::empty();
    let failed = |path: &Path, why: String| {
        format!(
            "Failed to configure CA certificate(s) file/directory: {}: {why}",
            path.display()
        )
    };
    if !file.is_empty() {
        let path = lossless::path_of(file);
        let text = read(&path).map_err(|why| failed(&path, why))?;
        if add(&mut store, &text) == 0 {
            return Err(failed(&path, "the file contains no certificate".to_owned()));
        }
    }
    if !folder.is_empty() {
        let path = lossless::path_of(folder);
        for file in inside(&path).map_err(|why| failed(&path, why))? {
            // Ignore files without certificates: CA directories contain other files, too.
            if let Ok(text) = read(&file) {
                add(&mut store, &text);
            }
        }
    }
    Ok(store)
}

/// Lists the files in a directory, sorted.
pub(super) fn inside(folder: &Path) -> Result<Vec<PathBuf>, String> {
    let entries = fs::read_dir(folder).map_err(|error| error.to_string())?;
    let mut files: Vec<PathBuf> = entries
        .filter_map(|entry| Some(entry.ok()?.path()))
        .collect();
    files.retain(|path| path.is_file());
    files.sort();
    Ok(files)
}

fn add(store: &mut RootCertStore, text: &[u8]) -> usize {
    let certificates = CertificateDer::pem_slice_iter(text).filter_map(Result::ok);
    store.add_parsable_certificates(certificates).0
}

fn read(path: &Path) -> Result<Vec<u8>, String> {
    use std::io::Read;
    let file = fs::File::open(path).map_err(|error| error.to_string())?;
    let mut text = Vec::new();
    let read = file.take(FILE_BYTES_MAX).read_to_end(&mut text);
    read.map_err(|error| error.to_string())?;
    Ok(text)
}
