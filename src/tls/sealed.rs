//! Private keys that a password protects: of PKCS #8, and as OpenSSL wrote them before it.
//!
//! The older shape is PEM with two headers:
//!
//! ```text
//! -----BEGIN RSA PRIVATE KEY-----
//! Proc-Type: 4,ENCRYPTED
//! DEK-Info: AES-256-CBC,3F17F5316E2BAC89C02FB1BD0CF8D1F4
//!
//! the key of PKCS #1 or SEC 1, padded as PKCS #7 has it, in CBC with that vector
//! ```
//!
//! The cipher's key are the first bytes of `M1 M2 …`, where each M is the MD5 of the one before, the password and the
//! first eight bytes of the vector. That is weak against guesses, and what `openssl genrsa -aes256 -traditional` makes.

use aes::{Aes128, Aes192, Aes256};
use cbc::Decryptor;
use cbc::cipher::block_padding::Pkcs7;
use cbc::cipher::{BlockCipherDecrypt, BlockModeDecrypt, KeyInit, KeyIvInit};
use des::TdesEde3;
use md5::{Digest, Md5};
use rustls::pki_types::{PrivateKeyDer, PrivatePkcs1KeyDer, PrivatePkcs8KeyDer, PrivateSec1KeyDer};

use crate::base::hex;

const NO_PASSWORD: &str = "it is encrypted, and no password is configured for it";
const NO_KEY: &str = "what it holds is no encrypted key";
const WRONG: &str = "the password is wrong, or the way in which it is encrypted is not known";

/// The key in a file's text, if it is encrypted; nothing if it is not. An error says what is wrong with it, in words
/// that go on after the file's name.
pub(super) fn open(text: &[u8], password: &[u8]) -> Result<Option<PrivateKeyDer<'static>>, String> {
    let holds = |label: &str| memchr::memmem::find(text, label.as_bytes()).is_some();
    let open: fn(&[u8], &[u8]) -> Result<_, String> = if holds("BEGIN ENCRYPTED PRIVATE KEY") {
        of_pkcs8
    } else if holds("Proc-Type: 4,ENCRYPTED") {
        of_openssl
    } else {
        return Ok(None);
    };
    if password.is_empty() {
        return Err(NO_PASSWORD.to_owned());
    }
    open(text, password).map(Some)
}

fn of_pkcs8(text: &[u8], password: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let text = std::str::from_utf8(text).map_err(|_| "it is no text")?;
    let begin = text.find("-----BEGIN ENCRYPTED").unwrap_or(0);
    let (_, document) = pkcs8::Document::from_pem(text[begin..].trim_end()).map_err(|_| NO_KEY)?;
    let sealed = pkcs8::EncryptedPrivateKeyInfoRef::try_from(document.as_bytes())
        .map_err(|_| "the way in which it is encrypted is not known")?;
    let key = sealed.decrypt(password).map_err(|_| WRONG)?;
    Ok(PrivatePkcs8KeyDer::from(key.as_bytes().to_vec()).into())
}

fn of_openssl(text: &[u8], password: &[u8]) -> Result<PrivateKeyDer<'static>, String> {
    let blocks = pem::parse_many(text).map_err(|_| NO_KEY)?;
    let sealed = blocks
        .iter()
        .find_map(|block| Some((block, block.headers().get("DEK-Info")?)));
    let (block, info) = sealed.ok_or(NO_KEY)?;
    let (cipher, vector) = info.split_once(',').ok_or(NO_KEY)?;
    let (cipher, vector) = (cipher.trim(), vector.trim().as_bytes());
    let body = block.contents();
    let key = match cipher.to_ascii_uppercase().as_str() {
        "AES-128-CBC" => decrypt::<Aes128, 16>(body, vector, password),
        "AES-192-CBC" => decrypt::<Aes192, 16>(body, vector, password),
        "AES-256-CBC" => decrypt::<Aes256, 16>(body, vector, password),
        "DES-EDE3-CBC" => decrypt::<TdesEde3, 8>(body, vector, password),
        _ => {
            return Err(format!(
                "its cipher {} is none of AES-128-CBC, AES-192-CBC, AES-256-CBC and DES-EDE3-CBC",
                cipher.escape_debug()
            ));
        }
    }?;
    match block.tag() {
        "RSA PRIVATE KEY" => Ok(PrivatePkcs1KeyDer::from(key).into()),
        "EC PRIVATE KEY" => Ok(PrivateSec1KeyDer::from(key).into()),
        other => Err(format!(
            "a key of kind {} is not known",
            other.escape_debug()
        )),
    }
}

/// What was encrypted. A wrong password mostly leaves a wrong padding, and where it does not, no ASN.1 value that is as
/// long as what it stands in.
fn decrypt<C, const BLOCK: usize>(
    body: &[u8],
    vector: &[u8],
    password: &[u8],
) -> Result<Vec<u8>, &'static str>
where
    C: BlockCipherDecrypt + KeyInit,
    Decryptor<C>: KeyIvInit + BlockModeDecrypt,
{
    let vector = hex::parse::<BLOCK>(vector).ok_or("its DEK-Info has no vector of its cipher")?;
    let key = stretched(password, &vector[..8], C::key_size());
    let cipher = Decryptor::<C>::new_from_slices(&key, &vector)
        .expect("the lengths are those of the cipher");
    let plain = cipher
        .decrypt_padded_vec::<Pkcs7>(body)
        .map_err(|_| "the password is wrong")?;
    match pkcs8::Document::try_from(&*plain) {
        Ok(_) => Ok(plain),
        Err(_) => Err("the password is wrong"),
    }
}

/// The key of a cipher, as the head of this file has it.
fn stretched(password: &[u8], salt: &[u8], len: usize) -> Vec<u8> {
    let mut key = Vec::new();
    let mut sum: Vec<u8> = Vec::new();
    while key.len() < len {
        let digest = Md5::new()
            .chain_update(&sum)
            .chain_update(password)
            .chain_update(salt);
        sum = digest.finalize().to_vec();
        key.extend_from_slice(&sum);
    }
    key.truncate(len);
    key
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A key that openssl pkcs8 -topk8 -v2 aes256 made, for these tests alone, as all others here; the password of each
    /// is "secret".
    const PKCS8: &str = "-----BEGIN ENCRYPTED PRIVATE KEY-----
MIHsMFcGCSqGSIb3DQEFDTBKMCkGCSqGSIb3DQEFDDAcBAjrJRFBLlFpVAICCAAw
DAYIKoZIhvcNAgkFADAdBglghkgBZQMEASoEEAue3m6D4sbDLxVhvdfNuDIEgZCA
yn0m5sMIPgAZrtJTzz3DNEDhSsKlqzz5lkYMNJ2zOtjOuGPCGSD3U7oDCC342vfN
rCDT2/5QqrpYICpCw6UEntoXtKDvUc59GOFUr+rFliJ1lCYUu4P92C8nUcszbH/v
VTBXWLUj38OAMbO3FezPnBd0RQQjf4W7+HenXALelhX4YRS3Tro5ZszCr3HpnNw=
-----END ENCRYPTED PRIVATE KEY-----
";

    /// One key four times, as openssl ec -aes128, -aes192, -aes256 and -des3 write it.
    const EC: [&str; 4] = [
        "-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-128-CBC,E19A59D089EDDD979A0C2523C7BC12DB

TdQWMb9KhhIkKWqgV2bkabSPzdGlEQnK1HuEKMK2IkAYpy+wvddJsR5p66snt48p
xRnP7Y009VQLSPdkpboHqgClq7Iul8wAz7R/ZJkz30jFNky6t3ZMi/px130iUKUg
eftnhh3HmPS0AOBqfAe7NNI+iKgYp1gbE6c/+PMAvus=
-----END EC PRIVATE KEY-----
",
        "-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-192-CBC,ABC972C2D2A86EC1E98D0708E548E00B

oTMamFzY43YFd5635lP0/w0H1aKjtnnpYti0tHokC0c+UOoEaGWmavavKPA44EFA
qKO5sppbx9m6OZdLxvTkT8dkZVyGyStukzTzCEIEPQJZREtb+iaCmiGR97rWjIDD
qmB5TvFkRuRkq5YVcrMXmGaLLFTf+Z57hrpGkIj6JhU=
-----END EC PRIVATE KEY-----
",
        "-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,0CDBD5EBFCBF68805FAAE754E06FE5D8

I064pTYH5/9j679K7wbokRlSfIRmIxqQE3h8kqcUOGat2mcAuFtoAfk8qLw/GKwG
rwSJ1PZWkNhT3OSfJN5ZMmeK0XCuyhk561u2XPKQx0oZC+Jbv5dKjgXbo6YNxTZw
BYNR1+wySWe+V6oDjAaQG5D8KGcikcEt54NfR8JGzAs=
-----END EC PRIVATE KEY-----
",
        "-----BEGIN EC PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: DES-EDE3-CBC,AF036A75635458B9

4fY91pUkAnOuxoJJOITKdmmgkXtZWZVPkCjfDjfY3Z94+6pKz04GH2N38vfyYzqn
G/f4QQLnlROhgPCBXPsK41999q0KaQih7+3UKdaRTmhv97b2TU9mDNsUSHjhpz5Y
jCQZ/p3OexqzsgRBg850h+3HZt8dFb7Sh9F43UE5Liw=
-----END EC PRIVATE KEY-----
",
    ];

    /// By openssl genrsa -aes256 -traditional.
    const RSA: &str = "-----BEGIN RSA PRIVATE KEY-----
Proc-Type: 4,ENCRYPTED
DEK-Info: AES-256-CBC,CCAD1DBC0391DF005EDD4E40EFC4258C

8BXGU4irfNSeTVq23AHQ84j2BLVjubu3el3KQtWIjBevYwjpSjQQRqDIDsjNcMPD
emqQPqXqAw6hEi0caE27B/UKBKi0U9Gbvw1Nc+fVr8U105yoJBrOMPW+NwVQ27mL
tRbR7GRhxvvN4KnqjR19rNBEfvT+x0lc8v6vROjSn8WiztLYEiswUUAwwgxFRvp4
pYnFECy4H23RpItPDRJYaQkr934iX1wqv7NJN9H/GKK5ug9k772zXHOYlO6MCyr2
X9+6SRLmAC4bLiS9sfNrw0S2CBk2wfGaSa4DCZVtulWyk/Q5OIikhK7N1J9kOQQ6
lzDxZqjxqrlNTPAIJRLxbFcXFXvf3nhDulne/+kCekfp7MEZWMclFV1ONYHvrAea
89bvuQiGOVNx3fARZOckuym2+Oacwq1whpEkjProJUk=
-----END RSA PRIVATE KEY-----
";

    fn opened(text: &str, password: &str) -> Result<PrivateKeyDer<'static>, String> {
        let key = open(text.as_bytes(), password.as_bytes())?;
        Ok(key.expect("it is encrypted"))
    }

    /// What is told of the text of a key.
    fn why(text: &str, password: &str) -> String {
        opened(text, password).expect_err("it is refused")
    }

    #[test]
    fn keys_of_all_shapes_are_opened_with_their_password() {
        assert!(matches!(
            opened(PKCS8, "secret"),
            Ok(PrivateKeyDer::Pkcs8(_))
        ));
        let keys = EC.map(|text| opened(text, "secret").expect("its password"));
        assert!(matches!(keys[0], PrivateKeyDer::Sec1(_)));
        // What openssl ec -outform DER makes of it.
        let sum = hex::text(&Md5::digest(keys[0].secret_der()));
        assert_eq!(sum, "8a82ae952863a706aea1beb21cdf91be");
        for key in &keys[1..] {
            assert_eq!(key.secret_der(), keys[0].secret_der());
        }
        let rsa = opened(RSA, "secret").expect("its password");
        assert!(matches!(rsa, PrivateKeyDer::Pkcs1(_)));
        let sum = hex::text(&Md5::digest(rsa.secret_der()));
        assert_eq!(sum, "f72dbfa10b6d2f47981ab5bbd56737ba");
        let behind = format!(
            "Bag Attributes\r\n{}{}",
            "-----BEGIN EC PARAMETERS-----\nBggqhkjOPQMBBw==\n\
            -----END EC PARAMETERS-----\n",
            EC[2]
        );
        for text in [
            behind,
            EC[2].replace('\n', "\r\n"),
            EC[2].replace("AES-256-CBC", "aes-256-cbc"),
        ] {
            let key = opened(&text, "secret").expect("its password");
            assert_eq!(key.secret_der(), keys[0].secret_der());
        }
        assert!(open(b"-----BEGIN PRIVATE KEY-----\n", b"secret") == Ok(None));
    }

    #[test]
    fn a_wrong_password_is_named_as_such_whatever_padding_it_leaves() {
        assert!(why(PKCS8, "wrong").starts_with("the password is wrong"));
        // Of 600 passwords some leave a padding that could be one.
        for attempt in 0..600 {
            let text = if attempt % 2 == 0 { EC[3] } else { RSA };
            let password = format!("wrong{attempt}");
            assert_eq!(why(text, &password), "the password is wrong", "{password}");
        }
        for text in [PKCS8, EC[0], RSA] {
            assert!(why(text, "").contains("no password is configured"));
        }
    }

    #[test]
    fn what_is_broken_or_not_known_is_refused_with_the_reason() {
        let info = "DEK-Info: AES-256-CBC,";
        let (before, behind) = EC[2].split_once(info).expect("it has one");
        let with = |info: &str| format!("{before}{info}{behind}");
        for (text, expected) in [
            (PKCS8[..200].to_owned(), "no encrypted key"),
            (EC[2][..100].to_owned(), "no encrypted key"),
            (EC[2][..200].to_owned(), "no encrypted key"),
            (EC[2].replace("DEK-Info", "DEK-Data"), "no encrypted key"),
            (with("DEK-Info: AES-256-CBC;"), "no encrypted key"),
            (
                with("DEK-Info: CAMELLIA-256-CBC,"),
                "its cipher CAMELLIA-256-CBC is none of AES-128-CBC",
            ),
            (with("DEK-Info: DES-EDE3-CBC,"), "no vector of its cipher"),
            (with("DEK-Info: AES-256-CBC,00"), "no vector of its cipher"),
            (
                with("DEK-Info: AES-256-CBC,")
                    .replace("DEK-Info: AES-256-CBC,0", "DEK-Info: AES-256-CBC,x"),
                "no vector of its cipher",
            ),
            (
                EC[2].replace("EC PRIVATE KEY", "DSA PRIVATE KEY"),
                "a key of kind DSA PRIVATE KEY is not known",
            ),
        ] {
            let why = why(&text, "secret");
            assert!(why.contains(expected), "{text}: {why}");
        }
    }
}
