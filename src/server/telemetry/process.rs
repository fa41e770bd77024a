//! Figures of this process and machine from the operating system: memory, CPU time, kernel.
//!
//! Linux only, through `/proc`: on other systems, and where `/proc` is not mounted, figures are zero. A reading
//! takes a few microseconds and touches no shard.

use std::fs;

use rustix::process::{Resource, getrlimit};
use rustix::time::{ClockId, clock_gettime};

/// CPU seconds by kind.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct CpuSeconds {
    /// CPU seconds in the kernel.
    pub system: f64,
    /// CPU seconds in user space.
    pub user: f64,
}

/// CPU time of the process, its exited children, and its main thread.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Cpu {
    /// CPU time of all threads of the process.
    pub own: CpuSeconds,
    /// CPU time of exited child processes.
    pub children: CpuSeconds,
    /// CPU time of the process's main thread.
    pub main_thread: CpuSeconds,
}

/// Returns the process's resident set size, in bytes.
pub fn rss_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages: u64 = nth(&statm, 1);
    pages * rustix::param::page_size() as u64
}

/// Returns the process's address space size, in bytes.
pub fn virtual_bytes() -> u64 {
    let statm = fs::read_to_string("/proc/self/statm").unwrap_or_default();
    nth(&statm, 0) * rustix::param::page_size() as u64
}

/// Returns the address space limit in bytes; `None` if unlimited.
pub fn virtual_bytes_max() -> Option<u64> {
    getrlimit(Resource::As).current
}

/// Returns the number of open file descriptors, including sockets.
pub fn open_files() -> u64 {
    // One of the descriptors belongs to the directory that is being read.
    let entries = fs::read_dir("/proc/self/fd").map_or(0, Iterator::count);
    entries.saturating_sub(1) as u64
}

/// Returns the limit on open file descriptors; `None` if unlimited.
pub fn open_files_max() -> Option<u64> {
    getrlimit(Resource::Nofile).current
}

/// Returns the machine's memory, in bytes.
pub fn total_memory_bytes() -> u64 {
    let info = rustix::system::sysinfo();
    info.totalram * u64::from(info.mem_unit.max(1))
}

/// Returns the CPU time so far, at clock-tick resolution.
pub fn cpu() -> Cpu {
    let process = fs::read_to_string("/proc/self/stat").unwrap_or_default();
    let main_path = format!("/proc/self/task/{}/stat", std::process::id());
    let main = fs::read_to_string(main_path).unwrap_or_default();
    let (own, children) = parse_stat(&process);
    Cpu {
        own,
        children,
        main_thread: parse_stat(&main).0,
    }
}

/// Returns the CPU time of all threads so far, in nanoseconds.
pub fn cpu_ns() -> u64 {
    clock_ns(ClockId::ProcessCPUTime)
}

/// Returns the CPU time of the calling thread so far, in nanoseconds.
pub fn thread_cpu_ns() -> u64 {
    clock_ns(ClockId::ThreadCPUTime)
}

fn clock_ns(clock: ClockId) -> u64 {
    let time = clock_gettime(clock);
    time.tv_sec.unsigned_abs() * 1_000_000_000 + time.tv_nsec.unsigned_abs()
}

/// Parses the CPU times of a `stat` file: the process's own and its children's.
fn parse_stat(stat: &str) -> (CpuSeconds, CpuSeconds) {
    // The name, in parentheses, may contain anything; the fields after it cannot.
    let fields = stat.rsplit_once(')').map_or("", |(_, fields)| fields);
    let per_second = rustix::param::clock_ticks_per_second().max(1) as f64;
    let seconds = |index: usize| nth(fields, index) as f64 / per_second;
    (
        CpuSeconds {
            user: seconds(11),
            system: seconds(12),
        },
        CpuSeconds {
            user: seconds(13),
            system: seconds(14),
        },
    )
}

fn nth(text: &str, index: usize) -> u64 {
    text.split_ascii_whitespace()
        .nth(index)
        .and_then(|word| word.parse().ok())
        .unwrap_or(0)
}

/// Returns the kernel's name, release and machine, as in INFO's `os`.
pub fn os() -> String {
    let name = rustix::system::uname();
    let parts = [name.sysname(), name.release(), name.machine()];
    parts
        .map(|part| part.to_string_lossy().into_owned())
        .join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_spaces_and_parentheses_does_not_shift_the_fields() {
        let stat = "7 (a ) b) S 1 2 3 4 5 6 7 8 9 10 200 100 40 30 20 0";
        let ticks = rustix::param::clock_ticks_per_second() as f64;
        let (own, children) = parse_stat(stat);
        assert_eq!(
            own,
            CpuSeconds {
                user: 200.0 / ticks,
                system: 100.0 / ticks
            }
        );
        assert_eq!(
            children,
            CpuSeconds {
                user: 40.0 / ticks,
                system: 30.0 / ticks
            }
        );
    }

    #[test]
    fn this_process_uses_memory_on_this_machine() {
        let (rss, total) = (rss_bytes(), total_memory_bytes());
        assert!(rss > 1 << 20 && rss < total, "{rss} of {total}");
        assert!(os().starts_with("Linux "));
        assert!(virtual_bytes() > rss);
        let open = open_files();
        let file = fs::File::open("/dev/null").expect("it is there");
        // Other tests open and close files meanwhile.
        assert!(open > 2 && open_files_max().is_none_or(|max| open <= max));
        drop(file);
    }
}
