//! Databases: the contents, memory and share of each, from two sections of INFO.

use serde_json::{Value, json};

use super::super::view::View;
use basalt_core::base::info::{InfoText, part};

/// A database with keys, a share, or past activity.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Database {
    pub(crate) number: usize,
    pub(crate) keys: u64,
    /// Keys with a deadline.
    pub(crate) expiring: u64,
    pub(crate) bytes: u64,
    /// Maximum bytes that the database may take; 0 if unlimited.
    pub(crate) share: u64,
    pub(crate) hits: u64,
    pub(crate) misses: u64,
    pub(crate) expired: u64,
    pub(crate) evicted: u64,
}

impl Database {
    /// Returns the percentage of the database's lookups that hit; `None` without lookups.
    pub(crate) fn hit_ratio(&self) -> Option<f64> {
        let all = self.hits + self.misses;
        (all > 0).then(|| 100.0 * self.hits as f64 / all as f64)
    }
}

/// Returns the databases reported by INFO.
pub(crate) fn databases(view: &View<'_>) -> Vec<Database> {
    read(&view.info)
}

fn read(info: &InfoText) -> Vec<Database> {
    let keyspace = info.section("keyspace");
    let of = |(name, value): &(String, String)| {
        let number: usize = name.strip_prefix("database")?.parse().ok()?;
        let line = format!("db{number}");
        let keys = keyspace.iter().find(|(each, _)| *each == line);
        let keys = keys.map_or("", |(_, value)| value.as_str());
        let figure = |text: &str, name: &str| {
            let text = part(text, name);
            text.and_then(|text| text.parse().ok()).unwrap_or(0)
        };
        Some(Database {
            number,
            keys: figure(keys, "keys"),
            expiring: figure(keys, "expires"),
            bytes: figure(value, "bytes"),
            share: figure(value, "share"),
            hits: figure(value, "hits"),
            misses: figure(value, "misses"),
            expired: figure(value, "expired"),
            evicted: figure(value, "evicted"),
        })
    };
    info.section("databases").iter().filter_map(of).collect()
}

/// Formats databases as JSON.
pub(crate) fn json(databases: &[Database]) -> Value {
    let database = |database: &Database| {
        json!({
            "db": database.number,
            "keys": database.keys,
            "expiring": database.expiring,
            "bytes": database.bytes,
            "share": database.share,
            "hits": database.hits,
            "misses": database.misses,
            "hit_ratio": database.hit_ratio(),
            "expired": database.expired,
            "evicted": database.evicted,
        })
    };
    Value::Array(databases.iter().map(database).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_database_is_put_together_of_its_two_lines() {
        let info = InfoText::parse(
            "# Databases\r\n\
             database0:bytes=10,share=0,hits=3,misses=1,expired=2,evicted=4\r\n\
             database12:bytes=0,share=1024,hits=0,misses=0,expired=0,evicted=0\r\n\
             \r\n# Keyspace\r\n\
             db0:keys=7,expires=5,avg_ttl=1,subexpiry=0\r\n",
        );
        let found = read(&info);
        let first = Database {
            number: 0,
            keys: 7,
            expiring: 5,
            bytes: 10,
            share: 0,
            hits: 3,
            misses: 1,
            expired: 2,
            evicted: 4,
        };
        assert_eq!(found[0], first);
        assert_eq!(found[0].hit_ratio(), Some(75.0));
        assert_eq!((found[1].number, found[1].share), (12, 1_024));
        assert_eq!((found[1].keys, found[1].hit_ratio()), (0, None));
        assert_eq!(json(&found)[1]["hit_ratio"], Value::Null);
    }
}
