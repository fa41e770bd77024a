//! Progress of long work, for people: on a terminal, one line that is rewritten; elsewhere, a line every few
//! seconds. Short work reports nothing.

use std::fmt;
use std::io::{self, IsTerminal, Read, Write};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use super::clock::Ticks;
use super::log;

/// Work shorter than this reports nothing.
const SILENT: Duration = Duration::from_secs(2);

/// Interval between lines where lines are appended.
const ADDED_EVERY: Duration = Duration::from_secs(5);

/// Interval between rewrites of a terminal's line.
const REWRITTEN_EVERY: Duration = Duration::from_millis(250);

/// Clears a line on a terminal.
const CLEARED: &str = "\r\x1b[K";

const MIB: f64 = 1024.0 * 1024.0;

/// The progress of some work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkProgress {
    /// Bytes processed so far.
    pub done_bytes: u64,
    /// Total bytes; 0 if unknown.
    pub total_bytes: u64,
    /// Time taken so far.
    pub spent: Duration,
}

impl fmt::Display for WorkProgress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let done = self.done_bytes as f64;
        let seconds = self.spent.as_secs_f64();
        let rate = if seconds > 0.0 { done / seconds } else { 0.0 };
        if self.total_bytes == 0 {
            return write!(f, "{:.1} MiB, {:.1} MiB/s", done / MIB, rate / MIB);
        }
        let total = self.total_bytes as f64;
        let percent = (100.0 * done / total).min(100.0);
        write!(
            f,
            "{:.1} of {:.1} MiB ({percent:.0} %), {:.1} MiB/s",
            done / MIB,
            total / MIB,
            rate / MIB
        )?;
        if rate > 0.0 {
            let left_s = ((total - done).max(0.0) / rate).ceil() as u64;
            write!(f, ", {} left", HumanDuration(left_s))?;
        }
        Ok(())
    }
}

/// Seconds in readable form: `42 s`, `3 min 20 s`, `2 h 5 min`.
struct HumanDuration(u64);

impl fmt::Display for HumanDuration {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            seconds @ ..60 => write!(f, "{seconds} s"),
            seconds @ ..3_600 => write!(f, "{} min {} s", seconds / 60, seconds % 60),
            seconds => write!(f, "{} h {} min", seconds / 3_600, seconds / 60 % 60),
        }
    }
}

/// Schedule that determines when the next progress line is due.
#[derive(Debug)]
pub struct ProgressSchedule {
    began: Ticks,
    is_rewritten: bool,
    /// When the next line is due, as time since the work began.
    due: Duration,
}

impl ProgressSchedule {
    /// Starts now, for a line that is rewritten or for lines that are appended.
    pub fn begin(is_rewritten: bool) -> ProgressSchedule {
        ProgressSchedule {
            began: Ticks::now(),
            is_rewritten,
            due: SILENT,
        }
    }

    /// Returns the time taken so far.
    pub fn spent(&self) -> Duration {
        Duration::from_nanos(Ticks::now().since_ns(self.began))
    }

    /// Whether a line is due after `spent`. If so, schedules the next one.
    pub fn is_due(&mut self, spent: Duration) -> bool {
        let is_due = spent >= self.due;
        if is_due {
            self.due = spent
                + match self.is_rewritten {
                    true => REWRITTEN_EVERY,
                    false => ADDED_EVERY,
                };
        }
        is_due
    }
}

/// Reports the progress of some work.
pub struct Meter {
    what: String,
    total_bytes: u64,
    schedule: ProgressSchedule,
    to: To,
    is_shown: bool,
}

/// Destination of the lines.
enum To {
    /// The log of the server, or its terminal.
    Log,
    /// Standard error of a tool.
    Stderr,
    #[cfg(test)]
    Writer(Box<dyn Write + Send>),
}

impl To {
    /// Writes a text. A closed terminal does not stop the work.
    fn put(&mut self, text: &str) {
        let write = |out: &mut dyn Write| {
            let _ = out.write_all(text.as_bytes()).and_then(|()| out.flush());
        };
        match self {
            To::Log => {}
            To::Stderr => write(&mut io::stderr()),
            #[cfg(test)]
            To::Writer(out) => write(out),
        }
    }
}

/// Whether standard error's current line is one that is being rewritten.
static IS_LINE_OPEN: AtomicBool = AtomicBool::new(false);

/// A tool's report writer, which first clears an open progress line.
pub struct ReportWriter<'w>(pub &'w mut dyn Write);

impl Write for ReportWriter<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if IS_LINE_OPEN.swap(false, Relaxed) {
            To::Stderr.put(CLEARED);
        }
        self.0.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.0.flush()
    }
}

impl Meter {
    /// Creates a meter for a tool's work on `total_bytes`, which reports on standard error.
    pub fn on_stderr(what: &str, total_bytes: u64) -> Meter {
        Meter::new(To::Stderr, io::stderr().is_terminal(), what, total_bytes)
    }

    /// Creates a meter for the server's work on `total_bytes`, 0 if unknown. It reports in the log or, if that goes
    /// to a terminal, there.
    pub fn in_log(what: &str, total_bytes: u64) -> Meter {
        Meter::new(To::Log, log::is_on_terminal(), what, total_bytes)
    }

    fn new(to: To, is_rewritten: bool, what: &str, total_bytes: u64) -> Meter {
        Meter {
            what: what.to_owned(),
            total_bytes,
            schedule: ProgressSchedule::begin(is_rewritten),
            to,
            is_shown: false,
        }
    }

    /// Reports that `done_bytes` have been processed, if a progress line is due.
    pub fn reached(&mut self, done_bytes: u64) {
        self.reached_with(done_bytes, &"");
    }

    /// Reports that `done_bytes` have been processed, if a line is due, with the text `more` after the figures.
    pub fn reached_with(&mut self, done_bytes: u64, more: &dyn fmt::Display) {
        self.reached_at(done_bytes, self.schedule.spent(), more);
    }

    fn reached_at(&mut self, done_bytes: u64, spent: Duration, more: &dyn fmt::Display) {
        if !self.schedule.is_due(spent) {
            return;
        }
        let share = WorkProgress {
            done_bytes,
            total_bytes: self.total_bytes,
            spent,
        };
        let line = format!("{}: {share}{more}", self.what);
        self.is_shown = self.schedule.is_rewritten;
        match (&mut self.to, self.schedule.is_rewritten) {
            (To::Log, true) => log::rewrite(&line),
            (To::Log, false) => tracing::info!("{line}"),
            (to, true) => {
                IS_LINE_OPEN.store(matches!(to, To::Stderr), Relaxed);
                to.put(&format!("\r{line}\x1b[K"));
            }
            (to, false) => to.put(&format!("{line}\n")),
        }
    }
}

impl Drop for Meter {
    fn drop(&mut self) {
        match &mut self.to {
            _ if !self.is_shown => {}
            To::Log => log::rewrite(""),
            To::Stderr if !IS_LINE_OPEN.swap(false, Relaxed) => {}
            to => to.put(CLEARED),
        }
    }
}

/// A reader that reports its progress.
pub struct Metered<R> {
    from: R,
    meter: Meter,
    done_bytes: u64,
}

impl<R: Read> Metered<R> {
    /// Wraps a reader, with `meter` reporting its progress.
    pub fn new(from: R, meter: Meter) -> Metered<R> {
        Metered {
            from,
            meter,
            done_bytes: 0,
        }
    }
}

impl<R: Read> Read for Metered<R> {
    fn read(&mut self, buffer: &mut [u8]) -> io::Result<usize> {
        let count = self.from.read(buffer)?;
        self.done_bytes += count as u64;
        self.meter.reached(self.done_bytes);
        Ok(count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use parking_lot::Mutex;
    use std::sync::Arc;

    #[derive(Clone, Default)]
    struct Kept(Arc<Mutex<Vec<u8>>>);

    impl Write for Kept {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.0.lock().extend(bytes);
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }

    fn shown(is_terminal: bool, steps: &[(u64, u64)]) -> String {
        let kept = Kept::default();
        let to = To::Writer(Box::new(kept.clone()));
        let mut meter = Meter::new(to, is_terminal, "Checking x", 100 << 20);
        for (mib, ms) in steps {
            meter.reached_at(mib << 20, Duration::from_millis(*ms), &"");
        }
        drop(meter);
        let bytes = kept.0.lock().clone();
        String::from_utf8(bytes).expect("texts")
    }

    #[test]
    fn a_share_says_how_fast_it_is_and_what_is_left() {
        let share = |done: u64, total: u64, seconds| {
            let spent = Duration::from_secs(seconds);
            let (done_bytes, total_bytes) = (done << 20, total << 20);
            WorkProgress {
                done_bytes,
                total_bytes,
                spent,
            }
            .to_string()
        };
        assert_eq!(
            share(25, 100, 5),
            "25.0 of 100.0 MiB (25 %), 5.0 MiB/s, 15 s left"
        );
        assert_eq!(
            share(1, 201, 1),
            "1.0 of 201.0 MiB (0 %), 1.0 MiB/s, 3 min 20 s left"
        );
        assert_eq!(
            share(1, 7_501, 1),
            "1.0 of 7501.0 MiB (0 %), 1.0 MiB/s, 2 h 5 min left"
        );
        assert_eq!(share(0, 100, 3), "0.0 of 100.0 MiB (0 %), 0.0 MiB/s");
        assert_eq!(share(30, 0, 10), "30.0 MiB, 3.0 MiB/s");
        assert_eq!(
            share(120, 100, 1),
            "120.0 of 100.0 MiB (100 %), 120.0 MiB/s, 0 s left"
        );
    }

    #[test]
    fn what_is_done_soon_says_nothing() {
        for is_terminal in [true, false] {
            assert_eq!(shown(is_terminal, &[(1, 0), (50, 1_000), (100, 1_999)]), "");
        }
    }

    #[test]
    fn lines_are_added_every_few_seconds() {
        let steps: Vec<_> = (0..120).map(|step| (step / 2, step * 100)).collect();
        let text = shown(false, &steps);
        let seconds: Vec<_> = text.lines().collect();
        assert_eq!(seconds.len(), 2, "{text}");
        assert_eq!(
            seconds[0],
            "Checking x: 10.0 of 100.0 MiB (10 %), 5.0 MiB/s, 18 s left"
        );
    }

    #[test]
    fn the_line_on_a_terminal_is_written_anew_and_goes_in_the_end() {
        let text = shown(true, &[(10, 2_000), (11, 2_100), (13, 2_250)]);
        let lines: Vec<_> = text.split('\r').collect();
        assert_eq!(lines.len(), 4, "{text:?}");
        assert!(lines[1].starts_with("Checking x: 10.0 of") && lines[1].ends_with("\x1b[K"));
        assert!(lines[2].starts_with("Checking x: 13.0 of") && !text.contains('\n'));
        assert_eq!(lines[3], "\x1b[K");
    }
}
