//! The process title shown by `ps`: `proc-title-template`, written over the process's own arguments.
//!
//! The kernel shows the memory area where it placed the arguments, and lets the title continue into the
//! environment's area after it:
//!
//! ```text
//! start            arguments_end          end
//! │ basalt\0x.conf\0 │ HOME=/\0LANG=C\0 … \0 │     before
//! │ basalt *:6379\0\0. \0\0\0 … \0\0\0\0\0\0\0 │     after; the dot, see `Area::bytes`
//! ```
//!
//! Writing goes through `/proc/self/mem`, which is outside of what the language guarantees about memory, so the
//! argument must be made here: no reference of ours points into the area. Arguments are read once, in `main`,
//! before the `Title` is created, and copied. std keeps C pointers to the arguments; reading them again would
//! only yield strings that end within the area, because its last byte stays zero. The environment's part is
//! written only once all variables have been moved out (`sys::environment`); otherwise the title ends with the
//! arguments.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::PathBuf;
use std::time::Duration;

use parking_lot::Mutex;

use crate::sys::environment;
use basalt_commands::config::Config;
use basalt_commands::config::values::{self, ClusterMode};

/// The kernel shows fewer than this number of bytes after the arguments.
const SLOP_BYTES_MAX: u64 = 4096;

/// Attempts to wait until the allocator's threads have their names, and (`PAUSE`) the pause between attempts.
const TRIES: usize = 20;
const PAUSE: Duration = Duration::from_micros(200);

/// The process title; see the module.
pub(super) struct Title {
    program: String,
    file: Option<PathBuf>,
    /// `None` if no title is configured or none can be shown.
    area: Mutex<Option<Area>>,
}

/// Addresses in the process's memory.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Area {
    start: u64,
    arguments_end: u64,
    /// Address of the end of the area; at least `arguments_end`.
    end: u64,
}

impl Title {
    /// Finds the area for a title, if one is configured, and moves the environment out of it. Call before any
    /// thread exists.
    pub(super) fn of_process(config: &Config, program: String, file: Option<PathBuf>) -> Title {
        let area = config.set_proc_title.then(Area::of_process).flatten();
        Title {
            program,
            file,
            area: Mutex::new(area),
        }
    }

    /// Shows the configured title. If that is not possible, the process keeps its current one.
    pub(super) fn show(&self, config: &Config) {
        let mut area = self.area.lock();
        let (Some(place), Some(title)) = (*area, self.text(config)) else {
            return;
        };
        if let Err(error) = place.write(title.as_bytes()) {
            tracing::warn!("Can't set the process title: {error}");
            *area = None;
        }
    }

    fn text(&self, config: &Config) -> Option<String> {
        values::checks::fill_title(&config.proc_title_template, |name| {
            Some(match name {
                "title" => self.program.clone(),
                "listen-addr" if config.port != 0 => {
                    let host = config.bind.first().map_or("*", String::as_str);
                    format!("{host}:{}", config.port)
                }
                "listen-addr" => format!("unixsocket:{}", config.unixsocket),
                "port" => config.port.to_string(),
                "tls-port" => config.tls_port.to_string(),
                "unixsocket" => config.unixsocket.clone(),
                "config-file" => match &self.file {
                    Some(path) => path.display().to_string(),
                    None => "-".to_owned(),
                },
                "server-mode" => match config.cluster_enabled {
                    ClusterMode::No => String::new(),
                    ClusterMode::Yes | ClusterMode::Emulated => "[cluster]".to_owned(),
                },
                _ => return None,
            })
        })
    }
}

impl Area {
    fn of_process() -> Option<Area> {
        let stat = fs::read_to_string("/proc/self/stat").ok()?;
        let area = Area::of(&stat)?;
        let is_free = (0..TRIES).any(|_| {
            environment::settle() || {
                std::thread::sleep(PAUSE);
                false
            }
        });
        Some(if is_free {
            area
        } else {
            area.without_environment()
        })
    }

    /// Parses the kernel's line about a process.
    fn of(stat: &str) -> Option<Area> {
        // The name, in parentheses, may contain anything; the third field follows it. Fields 48 to 51 are the
        // bounds of the arguments and of the environment.
        let (_, fields) = stat.rsplit_once(") ")?;
        let mut addresses = fields
            .split_ascii_whitespace()
            .skip(48 - 3)
            .map_while(|field| field.parse::<u64>().ok());
        let (start, arguments_end) = (addresses.next()?, addresses.next()?);
        let (environment_start, environment_end) = (addresses.next()?, addresses.next()?);
        // Without permission to see the addresses, all are zero.
        if start == 0 || arguments_end <= start {
            return None;
        }
        let area = Area {
            start,
            arguments_end,
            end: arguments_end,
        };
        if environment_start != arguments_end || environment_end < environment_start {
            return Some(area);
        }
        let shown_end = arguments_end.saturating_add(SLOP_BYTES_MAX - 1);
        Some(Area {
            end: environment_end.min(shown_end),
            ..area
        })
    }

    fn without_environment(self) -> Area {
        Area {
            end: self.arguments_end,
            ..self
        }
    }

    /// Returns the content of the whole area for a title, truncated to fit.
    fn bytes(self, title: &[u8]) -> Vec<u8> {
        let size = usize::try_from(self.end - self.start).unwrap_or(0);
        let arguments_size = usize::try_from(self.arguments_end - self.start).unwrap_or(0);
        let mut bytes = vec![0; size];
        let shown = title.len().min(size.saturating_sub(1));
        bytes[..shown].copy_from_slice(&title[..shown]);
        // If the argument area does not end with a zero, the kernel takes it for a title that ends at its first
        // zero. Otherwise it would show all zeros after a shorter title as blanks. A zero must follow the marker.
        if (shown + 1..size - 1).contains(&(arguments_size - 1)) {
            bytes[arguments_size - 1] = b'.';
        }
        bytes
    }

    fn write(self, title: &[u8]) -> io::Result<()> {
        let memory = File::options().write(true).open("/proc/self/mem")?;
        memory.write_all_at(&self.bytes(title), self.start)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stat(addresses: [u64; 4]) -> String {
        let [a, b, c, d] = addresses;
        let between = "7 ".repeat(44);
        format!("31 (a ) b) R {between}{a} {b} {c} {d} 0\n")
    }

    #[test]
    fn the_area_is_found_behind_a_name_with_brackets() {
        let found = Area {
            start: 100,
            arguments_end: 120,
            end: 300,
        };
        assert_eq!(Area::of(&stat([100, 120, 120, 300])), Some(found));
        let long = Area::of(&stat([100, 120, 120, 90_000])).map(|area| area.end);
        assert_eq!(long, Some(120 + 4095), "more is not shown");
        let apart = Area::of(&stat([100, 120, 128, 300]));
        assert_eq!(apart, Some(found.without_environment()));
    }

    #[test]
    fn what_the_kernel_hides_is_no_area() {
        assert_eq!(Area::of(&stat([0, 0, 0, 0])), None);
        assert_eq!(Area::of("31 (a) R 1 2 3"), None);
        assert_eq!(Area::of(""), None);
    }

    #[test]
    fn a_title_always_ends_within_the_area() {
        for arguments_size in 1..20 {
            for environment_size in 0..20 {
                let area = Area {
                    start: 1000,
                    arguments_end: 1000 + arguments_size,
                    end: 1000 + arguments_size + environment_size,
                };
                for len in 0..45 {
                    let title = vec![b't'; len];
                    let bytes = area.bytes(&title);
                    assert_eq!(bytes.len() as u64, arguments_size + environment_size);
                    assert_eq!(bytes.last(), Some(&0));
                    let shown = bytes.iter().take_while(|byte| **byte == b't').count();
                    assert_eq!(shown, len.min(bytes.len() - 1));
                    assert_eq!(bytes[shown], 0);
                }
            }
        }
    }

    #[test]
    fn variables_stand_for_what_the_server_listens_on() {
        let mut config = Config {
            proc_title_template: "{{{title}} {listen-addr} {port} {tls-port} {config-file} "
                .to_owned(),
            port: 7000,
            bind: vec!["127.0.0.1".to_owned(), "::1".to_owned()],
            ..Config::default()
        };
        let title = Title {
            program: "./basalt".to_owned(),
            file: None,
            area: Mutex::new(None),
        };
        assert_eq!(
            title.text(&config).as_deref(),
            Some("{./basalt} 127.0.0.1:7000 7000 0 -")
        );
        config.proc_title_template = "{listen-addr} {server-mode}".to_owned();
        config.port = 0;
        config.unixsocket = "/s".to_owned();
        assert_eq!(title.text(&config).as_deref(), Some("unixsocket:/s"));
        config.proc_title_template = "{other}".to_owned();
        assert_eq!(title.text(&config), None);
    }
}
