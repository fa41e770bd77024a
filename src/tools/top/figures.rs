//! A server's figures, and the rates between two samples of them.

use std::collections::BTreeMap;
use std::time::Instant;

use super::wire::{Reply, RespConnection, WireError};
use basalt_core::base::info::{InfoText, part};
use basalt_core::base::text::visible;

/// Number of hot keys shown.
const HOT_KEYS: &str = "8";

/// Maximum lines of INFO, about ten times what a server reports: fields are searched for among them whenever the screen
/// is drawn.
const LINES_MAX: usize = 20_000;

/// A sample of a server's figures.
#[derive(Clone, Debug)]
pub(super) struct ServerSample {
    pub(super) at: Instant,
    pub(super) info: InfoText,
    /// The commands that were called, by name.
    pub(super) commands: BTreeMap<String, CommandStats>,
    /// Keys with their share of all uses, if the server tracks it.
    pub(super) hot_keys: Vec<(String, f64)>,
}

/// Figures of a command.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct CommandStats {
    pub(super) name: String,
    pub(super) calls: f64,
    pub(super) usec: f64,
    pub(super) failed: f64,
    /// Median and 99th percentile since the start, in microseconds.
    pub(super) p50: Option<f64>,
    pub(super) p99: Option<f64>,
}

impl ServerSample {
    pub(super) fn ask(connection: &mut RespConnection) -> Result<ServerSample, WireError> {
        let info = match connection.ask(&["INFO", "everything"])? {
            Reply::Text(text) => parse(&String::from_utf8_lossy(&text)),
            Reply::Error(text) => return Err(WireError::Refused(text)),
            _ => return Err(WireError::Strange("the reply to INFO is not a string")),
        };
        let hot_keys = match is_basalt(&info) {
            true => hot_keys(&connection.ask(&["HOTKEYS", "TOP", "COUNT", HOT_KEYS])?),
            false => Vec::new(),
        };
        Ok(ServerSample::new(Instant::now(), info, hot_keys))
    }

    pub(super) fn new(at: Instant, info: InfoText, hot_keys: Vec<(String, f64)>) -> ServerSample {
        ServerSample {
            at,
            commands: commands(&info),
            info,
            hot_keys,
        }
    }

    /// Returns the server's name and version.
    pub(super) fn server(&self) -> String {
        let text = |name| visible(self.info.text(name).unwrap_or_default().as_bytes());
        if is_basalt(&self.info) {
            return format!("basalt (as Redis {})", text("redis_version"));
        }
        match self.info.text("valkey_version") {
            Some(_) => format!("Valkey {}", text("valkey_version")),
            None => format!("Redis {}", text("redis_version")),
        }
    }

    /// Returns the number of keys, and of keys with a deadline, over all databases.
    pub(super) fn keys(&self) -> (f64, f64) {
        let mut sums = (0.0, 0.0);
        for (_, value) in self.info.section("keyspace") {
            let figure = |name| part(value, name).and_then(|text| text.parse::<f64>().ok());
            sums.0 += figure("keys").unwrap_or(0.0);
            sums.1 += figure("expires").unwrap_or(0.0);
        }
        sums
    }
}

/// Parses INFO up to the line limit.
fn parse(text: &str) -> InfoText {
    let ends = text.match_indices('\n');
    let end = ends.map(|(at, _)| at).nth(LINES_MAX - 1);
    InfoText::parse(&text[..end.unwrap_or(text.len())])
}

/// Returns the commands that were called, according to INFO.
fn commands(info: &InfoText) -> BTreeMap<String, CommandStats> {
    let latencies = info.section("latencystats").iter();
    let latencies: BTreeMap<&str, &str> = latencies
        .filter_map(|(field, value)| {
            let name = field.strip_prefix("latency_percentiles_usec_")?;
            Some((name, value.as_str()))
        })
        .collect();
    let rows = info.section("commandstats").iter();
    let row = |(field, value): &(String, String)| {
        let name = field.strip_prefix("cmdstat_")?;
        let figure = |of: &str, name| part(of, name).and_then(|text| text.parse::<f64>().ok());
        let percentile = |percent| figure(latencies.get(name)?, percent);
        let rejected = figure(value, "rejected_calls").unwrap_or(0.0);
        let shown = visible(name.replace('|', " ").to_uppercase().as_bytes());
        let figures = CommandStats {
            name: shown.clone(),
            calls: figure(value, "calls")?,
            usec: figure(value, "usec")?,
            failed: rejected + figure(value, "failed_calls").unwrap_or(0.0),
            p50: percentile("p50"),
            p99: percentile("p99"),
        };
        Some((shown, figures))
    };
    rows.filter_map(row).collect()
}

fn is_basalt(info: &InfoText) -> bool {
    !info.section("basalt").is_empty()
}

/// Returns keys with their share of all uses from a reply to HOTKEYS TOP.
fn hot_keys(reply: &Reply) -> Vec<(String, f64)> {
    let fields = reply.elements().chunks_exact(2);
    let find = |name: &[u8]| {
        let mut found = fields.clone().filter(|pair| pair[0].text() == name);
        found.next().map(|pair| &pair[1])
    };
    let all = find(b"all-commands").map_or(0, Reply::integer).max(1) as f64;
    let keys = find(b"by-commands").map_or(&[][..], Reply::elements);
    let pairs = keys.chunks_exact(2);
    pairs
        .map(|pair| {
            (
                visible(pair[0].text()),
                100.0 * pair[1].integer() as f64 / all,
            )
        })
        .collect()
}

/// Returns a field's growth per second between two samples.
pub(super) fn rate(before: &ServerSample, now: &ServerSample, field: &str) -> f64 {
    let seconds = now.at.duration_since(before.at).as_secs_f64();
    let more = now.info.figure(field) - before.info.figure(field);
    if seconds > 0.0 {
        more.max(0.0) / seconds
    } else {
        0.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_an_info_without_end_a_part_is_read_and_each_command_is_looked_up_once() {
        let mut text = "# Server\r\nredis_version:7.4.0\r\n# Commandstats\r\n".to_owned();
        for number in 0..60_000 {
            text += &format!("cmdstat_c{number}:calls=1,usec=1\r\n");
        }
        text += "# Latencystats\r\n";
        for number in 0..60_000 {
            text += &format!("latency_percentiles_usec_c{number}:p50=1.003,p99=12.031\r\n");
        }
        let figures = ServerSample::new(Instant::now(), parse(&text), Vec::new());
        assert_eq!(figures.commands.len(), LINES_MAX - 3);
        assert_eq!(figures.info.text("redis_version"), Some("7.4.0"));
        let few = InfoText::parse(
            "# Commandstats\ncmdstat_config|get:calls=3,usec=9,failed_calls=1\n# Latencystats\n\
             latency_percentiles_usec_config|get:p50=1.5,p99=2.5\n",
        );
        let found = &commands(&few)["CONFIG GET"];
        assert_eq!(
            (found.failed, found.p50, found.p99),
            (1.0, Some(1.5), Some(2.5))
        );
    }

    #[test]
    fn hot_keys_are_read_with_their_parts_and_shown_as_plain_text() {
        let text = |text: &[u8]| Reply::Text(text.to_vec());
        let reply = Reply::Array(vec![
            text(b"all-commands"),
            Reply::Integer(200),
            text(b"by-commands"),
            Reply::Array(vec![text(b"a\x1b[2J"), Reply::Integer(50)]),
        ]);
        assert_eq!(hot_keys(&reply), [("a\\u{1b}[2J".to_owned(), 25.0)]);
        assert!(hot_keys(&Reply::Error("ERR".to_owned())).is_empty());
    }
}
