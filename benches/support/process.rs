//! Server processes on chosen cores, their statistics in /proc, and a plain blocking client.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

/// A server that is killed on drop.
pub(crate) struct Process {
    child: Child,
    pub(crate) port: u16,
    pub(crate) name: String,
}

/// Returns the path of basalt's binary: the given one, or the release build, or the `fast` one (with a note on standard
/// error).
pub(crate) fn basalt_binary(told: Option<&str>) -> PathBuf {
    if let Some(path) = told {
        return PathBuf::from(path);
    }
    let target = Path::new(env!("CARGO_MANIFEST_DIR")).join("target");
    let release = target.join("release/basalt");
    let fast = target.join("fast/basalt");
    let choice = if release.is_file() { release } else { fast };
    assert!(choice.is_file(), "build it first: cargo build --release");
    eprintln!("server: {}", choice.display());
    choice
}

impl Process {
    /// Starts a server that takes directives as arguments; `cores` as for [`on_cores`].
    pub(crate) fn start(name: &str, binary: &Path, cores: &str, arguments: &[String]) -> Process {
        let is_basalt = binary.ends_with("basalt");
        let own: &[&str] = match is_basalt {
            true => &["--metrics-port", "0"],
            false => &["--appendonly", "no"],
        };
        let common = [
            "--bind",
            "127.0.0.1",
            "--save",
            "",
            "--enable-debug-command",
            "yes",
        ];
        let common = common.iter().chain(own).map(|word| (*word).to_owned());
        let all: Vec<String> = common.chain(arguments.iter().cloned()).collect();
        Process::start_bare(name, binary, cores, "--port", &all)
    }

    /// Starts any server that takes its port after this option.
    pub(crate) fn start_bare(
        name: &str,
        binary: &Path,
        cores: &str,
        port_word: &str,
        arguments: &[String],
    ) -> Process {
        let port = TcpListener::bind("127.0.0.1:0")
            .expect("a port")
            .local_addr()
            .expect("its number")
            .port();
        let mut command = Command::new(binary);
        command.args([port_word, &port.to_string()]);
        command
            .args(arguments)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::inherit());
        let child = on_cores(cores, || command.spawn()).expect("start a server");
        let process = Process {
            child,
            port,
            name: name.to_owned(),
        };
        let started = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            assert!(
                started.elapsed() < Duration::from_secs(20),
                "{name} does not start"
            );
            std::thread::sleep(Duration::from_millis(5));
        }
        process
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    pub(crate) fn client(&self) -> Client {
        Client::connect(self.port)
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// Returns the CPU time of all live threads of a process, in nanoseconds.
pub(crate) fn cpu_ns(pid: u32) -> u64 {
    sum_over_tasks(pid, "schedstat", |text| {
        text.split_whitespace()
            .next()
            .and_then(|word| word.parse().ok())
            .unwrap_or(0)
    })
}

/// CPU cost on a server.
#[derive(Clone, Copy, Default)]
pub(crate) struct Cost {
    /// Microseconds of CPU.
    pub(crate) us: f64,
    /// Microseconds of them in the server itself and not in the kernel.
    pub(crate) own_us: f64,
}

/// CPU time of a process so far.
#[derive(Clone, Copy, Default)]
pub(crate) struct CpuTime {
    ns: u64,
    /// Clock ticks in user space: accurate enough for shares of long times.
    user: u64,
    /// Clock ticks in the kernel.
    kernel: u64,
}

impl CpuTime {
    pub(crate) fn of(pid: u32) -> CpuTime {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
        // The program's name may contain spaces; after it the 12th and 13th field are needed.
        let behind_name = stat.rsplit(") ").next().unwrap_or_default();
        let mut fields = behind_name.split_whitespace().skip(11);
        let mut next = || {
            fields
                .next()
                .and_then(|word| word.parse().ok())
                .unwrap_or(0)
        };
        CpuTime {
            ns: cpu_ns(pid),
            user: next(),
            kernel: next(),
        }
    }

    /// Returns the time since an earlier reading.
    pub(crate) fn since(self, earlier: CpuTime) -> CpuTime {
        CpuTime {
            ns: self.ns - earlier.ns,
            user: self.user - earlier.user,
            kernel: self.kernel - earlier.kernel,
        }
    }

    pub(crate) fn plus(self, more: CpuTime) -> CpuTime {
        CpuTime {
            ns: self.ns + more.ns,
            user: self.user + more.user,
            kernel: self.kernel + more.kernel,
        }
    }

    /// Returns the cost per item.
    pub(crate) fn per(self, count: usize) -> Cost {
        let us = self.ns as f64 / 1_000.0 / count as f64;
        let own_us = us * self.user as f64 / (self.user + self.kernel) as f64;
        Cost { us, own_us }
    }
}

/// Returns the context switches of all live threads, voluntary or not.
pub(crate) fn context_switches(pid: u32) -> u64 {
    sum_over_tasks(pid, "status", |text| {
        let lines = text.lines().filter(|line| line.contains("ctxt_switches"));
        lines
            .filter_map(|line| line.split_whitespace().nth(1)?.parse::<u64>().ok())
            .sum()
    })
}

/// Returns the voluntary context switches: times that a thread went to sleep.
pub(crate) fn sleeps(pid: u32) -> u64 {
    sum_over_tasks(pid, "status", |text| {
        let mut lines = text.lines();
        let count = lines.find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
        count
            .and_then(|count| count.trim().parse().ok())
            .unwrap_or(0)
    })
}

fn sum_over_tasks(pid: u32, file: &str, read: impl Fn(&str) -> u64) -> u64 {
    let Ok(tasks) = std::fs::read_dir(format!("/proc/{pid}/task")) else {
        return 0;
    };
    let texts = tasks
        .flatten()
        .filter_map(|task| std::fs::read_to_string(task.path().join(file)).ok());
    texts.map(|text| read(&text)).sum()
}

pub(crate) fn resident_bytes(pid: u32) -> u64 {
    let status = std::fs::read_to_string(format!("/proc/{pid}/status")).unwrap_or_default();
    let line = status
        .lines()
        .find(|line| line.starts_with("VmRSS:"))
        .unwrap_or_default();
    line.split_whitespace()
        .nth(1)
        .and_then(|word| word.parse::<u64>().ok())
        .unwrap_or(0)
        * 1024
}

/// Returns the busy time of the whole machine so far, in seconds.
pub(crate) fn machine_busy_s() -> f64 {
    let stat = std::fs::read_to_string("/proc/stat").unwrap_or_default();
    let fields: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .filter_map(|word| word.parse().ok())
        .collect();
    let idle: f64 = fields.iter().skip(3).take(2).sum();
    (fields.iter().take(8).sum::<f64>() - idle) / 100.0
}

pub(crate) fn machine() -> String {
    let text = std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default();
    let model = text
        .lines()
        .find(|line| line.starts_with("model name"))
        .and_then(|line| line.split(": ").nth(1));
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    format!(
        "{} x {}, Linux {}",
        core_count(),
        model.unwrap_or("unknown CPU"),
        kernel.trim()
    )
}

pub(crate) fn core_count() -> usize {
    std::thread::available_parallelism().map_or(1, std::num::NonZero::get)
}

pub(crate) fn date() -> String {
    let output = Command::new("date").arg("+%Y-%m-%d %H:%M").output();
    output
        .map(|output| String::from_utf8_lossy(&output.stdout).trim().to_owned())
        .unwrap_or_default()
}

/// A blocking connection for loading data and sending queries.
pub(crate) struct Client {
    reader: BufReader<TcpStream>,
    writer: TcpStream,
}

impl Client {
    pub(crate) fn connect(port: u16) -> Client {
        let writer = TcpStream::connect(("127.0.0.1", port)).expect("connect");
        writer.set_nodelay(true).expect("no delay");
        writer
            .set_read_timeout(Some(Duration::from_secs(120)))
            .expect("a time-out");
        Client {
            reader: BufReader::new(writer.try_clone().expect("a second handle")),
            writer,
        }
    }

    /// Sends one command and returns its reply: a bulk's text, or the line itself without its type mark.
    pub(crate) fn ask(&mut self, words: &[&str]) -> String {
        let mut bytes = Vec::new();
        encode_into(&mut bytes, words);
        self.writer.write_all(&bytes).expect("send");
        self.read()
    }

    /// Returns the bare connection, for callers that read replies themselves.
    pub(crate) fn into_stream(self) -> TcpStream {
        self.writer
    }

    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.writer.write_all(bytes).expect("send");
    }

    pub(crate) fn read(&mut self) -> String {
        let mut line = String::new();
        self.reader.read_line(&mut line).expect("a reply");
        assert!(!line.starts_with("-"), "the server says {line}");
        let line = line.trim_end();
        let Some(length) = line.strip_prefix('$') else {
            return line[1..].to_owned();
        };
        let Ok(length) = length.parse::<usize>() else {
            return String::new();
        };
        let mut text = vec![0; length + 2];
        self.reader.read_exact(&mut text).expect("a bulk");
        String::from_utf8_lossy(&text[..length]).into_owned()
    }

    /// Returns one numeric field of INFO.
    pub(crate) fn info(&mut self, section: &str, field: &str) -> Option<f64> {
        let text = self.ask(&["INFO", section]);
        let found = text
            .lines()
            .find_map(|line| line.strip_prefix(field)?.strip_prefix(':'))?;
        found.trim().parse().ok()
    }

    /// Sends `count` requests in pipelines and reads their one-line replies.
    pub(crate) fn load(&mut self, count: usize, request: impl Fn(usize, &mut Vec<u8>)) {
        let mut bytes = Vec::new();
        let mut done = 0;
        while done < count {
            let until = count.min(done + 1000);
            bytes.clear();
            for index in done..until {
                request(index, &mut bytes);
            }
            self.send(&bytes);
            for _ in done..until {
                self.read();
            }
            done = until;
        }
    }
}

pub(crate) fn encode_into<A: AsRef<[u8]>>(out: &mut Vec<u8>, words: &[A]) {
    out.extend_from_slice(format!("*{}\r\n", words.len()).as_bytes());
    for word in words {
        let word = word.as_ref();
        out.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
        out.extend_from_slice(word);
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns the CPU nanoseconds of this thread, independent of other load.
pub(crate) fn thread_cpu_ns() -> u64 {
    let now = clock_gettime(ClockId::ThreadCPUTime);
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}

/// Pins this thread, and those that it starts, to some cores.
pub(crate) fn pin(cores: &str) {
    sched_setaffinity(None, &set_of(cores)).expect("cores of this machine");
}

/// Runs `work` on some cores, such as `0-1,3`: a process started by it stays on them.
pub(crate) fn on_cores<T>(cores: &str, work: impl FnOnce() -> T) -> T {
    let before = sched_getaffinity(None).expect("this thread's cores");
    pin(cores);
    let done = work();
    sched_setaffinity(None, &before).expect("the cores of before");
    done
}

fn set_of(cores: &str) -> CpuSet {
    let mut set = CpuSet::new();
    for part in cores.split(',') {
        let (first, last) = part.split_once('-').unwrap_or((part, part));
        let number = |text: &str| text.parse::<usize>().expect("cores as 0-1,3");
        (number(first)..=number(last)).for_each(|core| set.set(core));
    }
    set
}
