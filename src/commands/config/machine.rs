//! The memory available to this process: that of the host, or less if a control group limits it.

use std::fs;

/// Memory available to the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Memory {
    /// Total bytes available.
    pub bytes: u64,
    /// Whether a control group, such as a container's, allows less than the host has.
    pub is_limited: bool,
}

/// Returns the available memory.
pub fn memory() -> Memory {
    let info = rustix::system::sysinfo();
    let machine = info.totalram * u64::from(info.mem_unit.max(1));
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = paths(&groups)
        .into_iter()
        .filter_map(|path| fs::read_to_string(path).ok()?.trim().parse::<u64>().ok());
    let bytes = limits.fold(machine, u64::min);
    Memory {
        bytes,
        is_limited: bytes < machine,
    }
}

/// Returns the files that may contain a limit, for the control groups in `/proc/self/cgroup` and all their parents.
/// Inside a container the root is often the container's own group.
fn paths(groups: &str) -> Vec<String> {
    let mut paths = Vec::new();
    for line in groups.lines() {
        let mut fields = line.splitn(3, ':');
        let (_, Some(kinds), Some(group)) = (fields.next(), fields.next(), fields.next()) else {
            continue;
        };
        let (root, file) = match kinds {
            "" => ("/sys/fs/cgroup", "memory.max"),
            kinds if kinds.split(',').any(|kind| kind == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let mut group = group.trim_end_matches('/');
        loop {
            paths.push(format!("{root}{group}/{file}"));
            match group.rfind('/') {
                Some(end) => group = &group[..end],
                None => break,
            }
        }
    }
    paths
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_in_the_group_and_all_above_it() {
        assert_eq!(
            paths("0::/a/b\n"),
            [
                "/sys/fs/cgroup/a/b/memory.max",
                "/sys/fs/cgroup/a/memory.max",
                "/sys/fs/cgroup/memory.max"
            ]
        );
        assert_eq!(
            paths("4:cpu,memory:/x\n3:pids:/x\nnonsense\n"),
            [
                "/sys/fs/cgroup/memory/x/memory.limit_in_bytes",
                "/sys/fs/cgroup/memory/memory.limit_in_bytes"
            ]
        );
    }

    #[test]
    fn there_is_some_memory() {
        assert!(memory().bytes > 1 << 20);
    }
}
