//! Translates OpenSSL lists of key exchange groups (`tls-groups`), such as `X25519:P-256`, to rustls groups.

use rustls::NamedGroup;
use rustls::crypto::SupportedKxGroup;
use rustls::crypto::aws_lc_rs::{ALL_KX_GROUPS, DEFAULT_KX_GROUPS};

type Group = &'static dyn SupportedKxGroup;

/// Names of groups in OpenSSL. Not all of these groups are available.
const NAMES: &[(&[&str], NamedGroup)] = &[
    (&["X25519", "ecdh_x25519"], NamedGroup::X25519),
    (&["P-256", "prime256v1", "secp256r1"], NamedGroup::secp256r1),
    (&["P-384", "secp384r1"], NamedGroup::secp384r1),
    (&["P-521", "secp521r1"], NamedGroup::secp521r1),
    (&["X448", "ecdh_x448"], NamedGroup::X448),
    (&["X25519MLKEM768"], NamedGroup::X25519MLKEM768),
    (&["SecP256r1MLKEM768"], NamedGroup::secp256r1MLKEM768),
    (&["MLKEM512"], NamedGroup::MLKEM512),
    (&["MLKEM768"], NamedGroup::MLKEM768),
    (&["MLKEM1024"], NamedGroup::MLKEM1024),
    (&["ffdhe2048"], NamedGroup::FFDHE2048),
    (&["ffdhe3072"], NamedGroup::FFDHE3072),
    (&["ffdhe4096"], NamedGroup::FFDHE4096),
    (&["ffdhe6144"], NamedGroup::FFDHE6144),
    (&["ffdhe8192"], NamedGroup::FFDHE8192),
];

/// Groups in order of preference, and the names of groups of OpenSSL that are not available.
#[derive(Debug)]
pub(super) struct ChosenGroups {
    pub(super) groups: Vec<Group>,
    pub(super) missing: Vec<String>,
}

/// Evaluates a list; an empty one means the defaults. A name that OpenSSL would not know is an error, unless `?` allows
/// it.
pub(super) fn chosen(list: &str) -> Result<ChosenGroups, String> {
    let mut chosen = ChosenGroups {
        groups: Vec::new(),
        missing: Vec::new(),
    };
    let list = if list.trim().is_empty() {
        "DEFAULT"
    } else {
        list
    };
    for item in list.trim().split([':', '/']) {
        // `*` marks groups for which a key is sent at once, which rustls decides itself.
        let name = item.trim_start_matches(['?', '*', '-']);
        let marks = &item[..item.len() - name.len()];
        if name.eq_ignore_ascii_case("DEFAULT") {
            chosen.groups.extend(DEFAULT_KX_GROUPS);
            continue;
        }
        let is_named = |row: &&(&[&str], NamedGroup)| {
            row.0.iter().any(|known| known.eq_ignore_ascii_case(name))
        };
        match NAMES.iter().find(is_named) {
            Some((_, group)) if marks.contains('-') => {
                chosen.groups.retain(|kept| kept.name() != *group);
            }
            Some((_, group)) => match ALL_KX_GROUPS.iter().find(|known| known.name() == *group) {
                Some(known) => chosen.groups.push(*known),
                None => chosen.missing.push(name.to_owned()),
            },
            None if marks.contains('?') => {}
            None => return Err(format!("tls-groups: '{item}' is no group")),
        }
    }
    let mut seen = Vec::new();
    chosen.groups.retain(|group| {
        let is_new = !seen.contains(&group.name());
        seen.push(group.name());
        is_new
    });
    match chosen.groups.is_empty() {
        true => Err(format!(
            "tls-groups: none of {list} is supported; available are X25519, P-256, P-384 and hybrids with ML-KEM"
        )),
        false => Ok(chosen),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(list: &str) -> Vec<NamedGroup> {
        let chosen = chosen(list).expect(list);
        chosen.groups.iter().map(|group| group.name()).collect()
    }

    #[test]
    fn lists_mean_what_openssl_takes_them_for() {
        let defaults: Vec<_> = DEFAULT_KX_GROUPS.iter().map(|group| group.name()).collect();
        for list in ["", " ", "DEFAULT", "default"] {
            assert_eq!(names(list), defaults);
        }
        assert_eq!(
            names("secp384r1:x25519:prime256v1"),
            [
                NamedGroup::secp384r1,
                NamedGroup::X25519,
                NamedGroup::secp256r1
            ]
        );
        assert_eq!(
            names("*X25519:P-256/P-384:?nothing:X25519"),
            [
                NamedGroup::X25519,
                NamedGroup::secp256r1,
                NamedGroup::secp384r1
            ]
        );
        assert_eq!(names("P-384:-P-384:P-256"), [NamedGroup::secp256r1]);
        assert_eq!(names("X25519MLKEM768"), [NamedGroup::X25519MLKEM768]);
        let some = chosen("P-521:X25519:X448").expect("one is there");
        assert_eq!(some.missing, ["P-521", "X448"]);
        for list in [
            "P-521",
            "X25519:nothing",
            "nothing",
            ":",
            "X25519:",
            "X25519,P-256",
            "X25519 P-256",
            "-X25519",
            "?nothing",
            "P-257",
        ] {
            assert!(chosen(list).is_err(), "{list}");
        }
    }
}
