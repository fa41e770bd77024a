//! `maxmemory-db`: the databases' shares of memory.

use super::Config;
use super::parameter::{Mode, Special};
use super::words;

/// The size of a database's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Most {
    /// A number of bytes; 0 for no share.
    Bytes(u64),
    /// Percentage of `maxmemory`; no share if `maxmemory` is 0.
    Percent(u8),
}

/// One database's share.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Share {
    /// Index of the database.
    pub db: usize,
    most: Most,
}

impl Share {
    /// Returns the share in bytes; 0 for none.
    pub fn bytes_of(self, maxmemory: u64) -> u64 {
        match self.most {
            Most::Bytes(bytes) => bytes,
            Most::Percent(percent) => {
                let bytes = u128::from(maxmemory) * u128::from(percent) / 100;
                u64::try_from(bytes).unwrap_or(u64::MAX)
            }
        }
    }

    fn parse(db: &str, most: &str) -> Result<Share, String> {
        let db = words::parse_integer(db).and_then(|db| usize::try_from(db).ok());
        let db = db.ok_or("DB index is out of range")?;
        let most = match most.strip_suffix('%') {
            None => words::parse_memory(most).map(Most::Bytes),
            Some(percent) => match words::parse_integer(percent) {
                Some(percent @ 0..=100) => Some(Most::Percent(percent as u8)),
                Some(101..) => {
                    return Err("percentage argument must be less or equal to 100".to_owned());
                }
                _ => None,
            },
        };
        let most = most.ok_or("argument must be a memory or percent value")?;
        Ok(Share { db, most })
    }
}

/// `maxmemory-db`. For each database the last mention counts; a repeated directive adds to earlier ones.
pub const SHARES: Special = Special {
    default: &[""],
    many: true,
    set: |config, words, mode| {
        let words = match words {
            [one] if one.is_empty() => &[],
            words => words,
        };
        if !words.len().is_multiple_of(2) {
            return Err("argument must be pairs of a database and its share".to_owned());
        }
        let mut shares = match mode {
            Mode::Append => config.maxmemory_db.clone(),
            Mode::Replace | Mode::Default => Vec::new(),
        };
        for pair in words.chunks_exact(2) {
            let share = Share::parse(&pair[0], &pair[1])?;
            shares.retain(|known: &Share| known.db != share.db);
            shares.push(share);
        }
        shares.sort_by_key(|share| share.db);
        config.maxmemory_db = shares;
        Ok(())
    },
    show: |config| written(config, |bytes| bytes.to_string()),
    lines: |config| match config.maxmemory_db.is_empty() {
        true => vec![],
        false => vec![written(config, |bytes| words::memory(bytes.into()))],
    },
    always_written: false,
};

fn written(config: &Config, memory: impl Fn(u64) -> String) -> String {
    let shares = config.maxmemory_db.iter().map(|share| match share.most {
        Most::Bytes(bytes) => format!("{} {}", share.db, memory(bytes)),
        Most::Percent(percent) => format!("{} {percent}%", share.db),
    });
    shares.collect::<Vec<_>>().join(" ")
}

/// Returns the reason if the shares conflict with other parameters; to be called when the values of all parameters
/// are known.
pub(super) fn refusal(config: &Config) -> Option<String> {
    let shares = &config.maxmemory_db;
    let absent = shares
        .iter()
        .find(|share| share.db >= config.databases as usize)?;
    Some(format!(
        "database {} does not exist: databases is {}",
        absent.db, config.databases
    ))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::find;

    fn set(config: &mut Config, words: &str, mode: Mode) -> Result<(), String> {
        let words: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let row = find("maxmemory-db").expect("a row");
        row.set(config, &words, mode)
    }

    #[test]
    fn shares_are_bytes_or_parts_of_maxmemory() {
        let mut config = Config::default();
        assert_eq!(config.maxmemory_db, []);
        set(&mut config, "2 10% 1 2gb", Mode::Replace).expect("two pairs");
        set(&mut config, "3 5mb 2 20%", Mode::Append).expect("two more");
        let row = find("maxmemory-db").expect("a row");
        assert_eq!(row.show(&config), "1 2147483648 2 20% 3 5242880");
        assert_eq!(row.lines(&config), ["maxmemory-db 1 2gb 2 20% 3 5mb"]);
        let bytes = |maxmemory| {
            let shares = config.maxmemory_db.iter();
            shares
                .map(|share| share.bytes_of(maxmemory))
                .collect::<Vec<_>>()
        };
        assert_eq!(bytes(1_000), [2 << 30, 200, 5 << 20]);
        assert_eq!(bytes(0), [2 << 30, 0, 5 << 20]);
        set(&mut config, "", Mode::Replace).expect("none");
        assert!(config.maxmemory_db.is_empty() && row.lines(&config).is_empty());
    }

    #[test]
    fn what_is_no_share_is_refused_with_a_reason() {
        let mut config = Config::default();
        for (words, reason) in [
            ("1", "argument must be pairs of a database and its share"),
            ("-1 5mb", "DB index is out of range"),
            ("one 5mb", "DB index is out of range"),
            ("1 lots", "argument must be a memory or percent value"),
            ("1 -5%", "argument must be a memory or percent value"),
            ("1 5%%", "argument must be a memory or percent value"),
            (
                "1 99999999999gb",
                "argument must be a memory or percent value",
            ),
            ("1 101%", "percentage argument must be less or equal to 100"),
        ] {
            let refused = set(&mut config, words, Mode::Replace);
            assert_eq!(refused, Err(reason.to_owned()), "{words}");
        }
        set(&mut config, "16 1mb", Mode::Replace).expect("a pair");
        assert_eq!(
            refusal(&config).as_deref(),
            Some("database 16 does not exist: databases is 16")
        );
        config.databases = 17;
        assert_eq!(refusal(&config), None);
    }
}
