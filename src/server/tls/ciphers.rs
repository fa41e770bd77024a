//! Translates OpenSSL cipher lists, such as `HIGH:!aNULL` or `ECDHE-RSA-AES256-GCM-SHA384`, to rustls suites.

use rustls::{CipherSuite, SupportedCipherSuite};

/// A suite with its OpenSSL name and the OpenSSL keywords that match it.
struct NamedCipherSuite {
    name: &'static str,
    suite: CipherSuite,
    words: &'static [&'static str],
}

/// TLS 1.2 suites, the strongest first.
const KNOWN: [NamedCipherSuite; 6] = [
    NamedCipherSuite {
        name: "ECDHE-ECDSA-AES256-GCM-SHA384",
        suite: CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_256_GCM_SHA384,
        words: &["AES", "AES256", "AESGCM", "AECDSA", "ECDSA"],
    },
    NamedCipherSuite {
        name: "ECDHE-RSA-AES256-GCM-SHA384",
        suite: CipherSuite::TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384,
        words: &["AES", "AES256", "AESGCM", "ARSA"],
    },
    NamedCipherSuite {
        name: "ECDHE-ECDSA-CHACHA20-POLY1305",
        suite: CipherSuite::TLS_ECDHE_ECDSA_WITH_CHACHA20_POLY1305_SHA256,
        words: &["CHACHA20", "AECDSA", "ECDSA"],
    },
    NamedCipherSuite {
        name: "ECDHE-RSA-CHACHA20-POLY1305",
        suite: CipherSuite::TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256,
        words: &["CHACHA20", "ARSA"],
    },
    NamedCipherSuite {
        name: "ECDHE-ECDSA-AES128-GCM-SHA256",
        suite: CipherSuite::TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,
        words: &["AES", "AES128", "AESGCM", "AECDSA", "ECDSA"],
    },
    NamedCipherSuite {
        name: "ECDHE-RSA-AES128-GCM-SHA256",
        suite: CipherSuite::TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256,
        words: &["AES", "AES128", "AESGCM", "ARSA"],
    },
];

/// Keywords that match all suites.
const ALL: [&str; 10] = [
    "ALL", "DEFAULT", "HIGH", "ECDHE", "EECDH", "KECDHE", "KEECDH", "TLSV1.2", "FIPS", "SUITEB",
];

/// Returns OpenSSL's name of a TLS 1.3 suite. It is the standard's name; rustls uses another prefix.
fn modern_name(suite: CipherSuite) -> Option<String> {
    let name = suite.as_str()?;
    Some(name.replacen("TLS13_", "TLS_", 1))
}

/// Result of evaluating a cipher list: suites in order of preference, and the unrecognized names in the list.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chosen {
    pub(super) suites: Vec<CipherSuite>,
    pub(super) unknown: Vec<String>,
}

/// Evaluates a list for TLS 1.2 (`tls-ciphers`); an empty list means all suites.
pub(super) fn of_tls12(list: &str) -> Chosen {
    let mut chosen = Chosen {
        suites: Vec::new(),
        unknown: Vec::new(),
    };
    let mut banned = Vec::new();
    let list = if list.trim().is_empty() { "ALL" } else { list };
    let items = list.split([':', ',', ' ', ';']);
    for item in items.filter(|item| !item.is_empty() && !item.starts_with('@')) {
        let (sign, words) = match item.as_bytes()[0] {
            sign @ (b'!' | b'-' | b'+') => (sign, &item[1..]),
            _ => (0, item),
        };
        let meant = meaning(words);
        match sign {
            b'!' | b'-' => {
                chosen.suites.retain(|suite| !meant.contains(suite));
                if sign == b'!' {
                    banned.extend(meant);
                }
            }
            b'+' => {
                // `+` moves the matching suites to the end, if they are present.
                let (last, first): (Vec<_>, Vec<_>) = std::mem::take(&mut chosen.suites)
                    .into_iter()
                    .partition(|suite| meant.contains(suite));
                chosen.suites = first.into_iter().chain(last).collect();
            }
            _ => {
                if meant.is_empty() {
                    chosen.unknown.push(item.to_owned());
                }
                for suite in meant {
                    if !chosen.suites.contains(&suite) && !banned.contains(&suite) {
                        chosen.suites.push(suite);
                    }
                }
            }
        }
    }
    chosen
}

/// Returns the suites that match all of several keywords: `ECDHE+AESGCM`.
fn meaning(words: &str) -> Vec<CipherSuite> {
    let means = |known: &NamedCipherSuite, word: &str| {
        let word = word.to_ascii_uppercase();
        known.name == word || ALL.contains(&&*word) || known.words.contains(&&*word)
    };
    let meant = KNOWN
        .iter()
        .filter(|known| words.split('+').all(|word| means(known, word)));
    meant.map(|known| known.suite).collect()
}

/// Evaluates a list for TLS 1.3 (`tls-ciphersuites`); an empty list means all of `available`.
pub(super) fn of_tls13(list: &str, available: &[SupportedCipherSuite]) -> Chosen {
    let all = available.iter().filter(|suite| suite.tls13().is_some());
    let all: Vec<CipherSuite> = all.map(SupportedCipherSuite::suite).collect();
    let mut chosen = Chosen {
        suites: Vec::new(),
        unknown: Vec::new(),
    };
    if list.trim().is_empty() {
        chosen.suites = all;
        return chosen;
    }
    for name in list.split([':', ',', ' ']).filter(|name| !name.is_empty()) {
        let called = |suite: &&CipherSuite| {
            modern_name(**suite).is_some_and(|known| known.eq_ignore_ascii_case(name))
        };
        match all.iter().find(called) {
            None => chosen.unknown.push(name.to_owned()),
            Some(suite) if chosen.suites.contains(suite) => {}
            Some(suite) => chosen.suites.push(*suite),
        }
    }
    chosen
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> (Vec<&'static str>, Vec<String>) {
        let chosen = of_tls12(list);
        let name = |suite: &CipherSuite| {
            let known = KNOWN.iter().find(|known| known.suite == *suite);
            known.expect("one of the table").name
        };
        (chosen.suites.iter().map(name).collect(), chosen.unknown)
    }

    #[test]
    fn lists_mean_what_openssl_takes_them_for() {
        let all: Vec<&str> = KNOWN.iter().map(|known| known.name).collect();
        for list in ["", "DEFAULT", "HIGH:!aNULL:!MD5", "ALL:@STRENGTH"] {
            assert_eq!(names(list), (all.clone(), vec![]), "{list}");
        }
        let (two, unknown) = names("DHE-RSA-AES256-SHA:ECDHE+CHACHA20");
        assert_eq!(
            two,
            [
                "ECDHE-ECDSA-CHACHA20-POLY1305",
                "ECDHE-RSA-CHACHA20-POLY1305"
            ]
        );
        assert_eq!(unknown, ["DHE-RSA-AES256-SHA"]);
        assert_eq!(
            names("ecdhe-rsa-aes128-gcm-sha256").0,
            ["ECDHE-RSA-AES128-GCM-SHA256"]
        );
        // Banned suites do not come back; removed ones may.
        assert_eq!(names("!AES:ALL").0.len(), 2);
        assert_eq!(names("ALL:-AES:AES256").0.len(), 4);
        assert_eq!(names("AES128:AES256:+ECDSA").0[0], all[5]);
        assert_eq!(names("AES256-SHA").0.len(), 0);
    }

    #[test]
    fn suites_of_the_newer_version_go_by_the_names_of_the_standard() {
        let available = rustls::crypto::aws_lc_rs::default_provider().cipher_suites;
        assert_eq!(of_tls13("", &available).suites.len(), 3);
        let chosen = of_tls13(
            "TLS_CHACHA20_POLY1305_SHA256:TLS_AES_128_CCM_SHA256",
            &available,
        );
        assert_eq!(chosen.suites, [CipherSuite::TLS13_CHACHA20_POLY1305_SHA256]);
        assert_eq!(chosen.unknown, ["TLS_AES_128_CCM_SHA256"]);
    }
}
