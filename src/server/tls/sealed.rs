//! Password-protected private keys in PKCS #8.
//!
//! Keys in OpenSSL's older encryption format (`Proc-Type: 4,ENCRYPTED`) are refused: their encryption key is
//! derived by one round of MD5 over the password. The error names the command that converts them.

use rustls::pki_types::{PrivateKeyDer, PrivatePkcs8KeyDer};

const NO_PASSWORD: &str = "the key is encrypted, but no password is configured for it";
const NO_KEY: &str = "the file does not contain an encrypted key";
const WRONG: &str = "the password is wrong, or the encryption method is not supported";
const TRADITIONAL: &str = "the key uses the weak legacy OpenSSL encryption (before PKCS #8); convert it with `openssl \
                           pkcs8 -topk8 -v2 aes-256-cbc -in KEY -out NEW`";

/// Decrypts the key in a file's text; `None` if it is not encrypted. The error text continues a sentence that
/// starts with the file's name.
pub(super) fn open(text: &[u8], password: &[u8]) -> Result<Option<PrivateKeyDer<'static>>, String> {
    let holds = |label: &str| memchr::memmem::find(text, label.as_bytes()).is_some();
    if holds("Proc-Type: 4,ENCRYPTED") {
        return Err(TRADITIONAL.to_owned());
    }
    if !holds("BEGIN ENCRYPTED PRIVATE KEY") {
        return Ok(None);
    }
    if password.is_empty() {
        return Err(NO_PASSWORD.to_owned());
    }
    of_pkcs8(text, password).map(Some)
}

fn of_pkcs8(text: &[u8], password: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "the file is not text")?;
    let begin = text.find("-----BEGIN ENCRYPTED").unwrap_or(0);
    let (_, document) = pkcs8::Document::from_pem(text[begin..].trim_end()).map_err(|_| NO_KEY)?;
    let sealed = pkcs8::EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|_| "the encryption method is not supported")?;
    let key = sealed.decrypt(password).map_err(|_| WRONG)?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key made by openssl pkcs8 -topk8 -v2 aes256 for these tests only; its password is "secret".
    const PKCS8: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjrJRFBLlFpVAICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEAue3m6D4sbDLxVhvdfNuDIEgZCA
yn0m5sMIPgAZrtJTzz3DNEDhSsKlqzz5lkYMNJ2zOtjOuGPCGSD3U7oDCC342vfN
rCDT2/5QqrpYICpCw6UEntoXtKDvUc59GOFUr+rFliJ1lCYUu4P92C8nUcszbH/v
VTBXWLUj38OAMbO3FezPnBd0RQQjf4W7+HenXALelhX4YRS3Tro5ZszCr3HpnNw=
-----END ENCRYPTED PRIVATE KEY-----
";

    fn opened(text: &str, password: &str) -> Result<PrivateKeyDer<'static>, String> {
        let key = open(text.as_bytes(), password.as_bytes())?;
        Ok(key.expect("it is encrypted"))
    }

    /// Returns the error for a refused key.
    fn why(text: &str, password: &str) -> String {
        opened(text, password).expect_err("it is refused")
    }

    #[test]
    fn a_key_is_opened_with_its_password() {
        let key = opened(PKCS8, "secret").expect("its password");
        assert!(matches!(key, PrivateKeyDer::Pkcs8(_)));
        for text in [
            PKCS8.replace('\n', "\r\n"),
            format!("Bag Attributes\r\n{PKCS8}"),
        ] {
            let again = opened(&text, "secret").expect("its password");
            assert_eq!(again.secret_der(), key.secret_der());
        }
        assert!(open(b"-----BEGIN PRIVATE KEY-----\n", b"secret") == Ok(None));
    }

    #[test]
    fn what_can_not_be_opened_is_refused_with_the_reason() {
        assert!(why(PKCS8, "wrong").starts_with("the password is wrong"));
        assert!(why(PKCS8, "").contains("no password is configured"));
        assert!(why(&PKCS8[..200], "secret").contains("not contain an encrypted key"));
        let traditional = "-----BEGIN RSA PRIVATE KEY-----\nProc-Type: 4,ENCRYPTED\n";
        for password in ["", "secret"] {
            assert!(why(traditional, password).contains("openssl pkcs8 -topk8"));
        }
    }
}
