//! Fatal signals: captures what is known about the crash for a reporting thread; then the process ends by the
//! signal as it would have without a handler.
//!
//! ```text
//! the thread that crashed           the thread that reports
//! handler: stores signal, address,  wait() ── sleeps in a pipe
//!          frames; writes the pipe ─▶ gets the Crash, writes the report
//!          sleeps, some seconds   ◀─ over()
//!          ends by the same signal
//! ```
//!
//! A signal handler may interrupt any code, so it calls only functions that the system permits in handlers
//! (async-signal-safe), and stores everything in atomics. The function that captures the stack frames allocates
//! on its first call, which [`install`] makes. The reporting thread may block on a lock that the crashed thread
//! holds: the process then ends with an incomplete report.

#![expect(
    unsafe_code,
    reason = "signals are handled, and stacks for that made, by calls to the system"
)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// Signals caused by a fault of the process.
const SIGNALS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
];

/// Maximum number of stack frames captured.
pub(super) const FRAMES_MAX: usize = 100;

/// Bytes of the stack on which handlers run, because the thread's own stack may be at fault.
const STACK_BYTES: usize = 64 * 1024;

/// Time for which the crashed thread waits for the report, in hundredths of a second.
const WAITS_MAX: usize = 1_000;

/// Progress of the crash.
static STATE: AtomicU32 = AtomicU32::new(RUNNING);
const RUNNING: u32 = 0;
const CRASHED: u32 = 1;
const REPORTED: u32 = 2;

static SIGNAL: AtomicI32 = AtomicI32::new(0);
static CODE: AtomicI32 = AtomicI32::new(0);
static SENDER: AtomicI32 = AtomicI32::new(0);
static THREAD: AtomicI32 = AtomicI32::new(0);
static REPORTER: AtomicI32 = AtomicI32::new(0);
static CLIENT: AtomicU64 = AtomicU64::new(0);
static ADDRESS: AtomicUsize = AtomicUsize::new(0);
static FRAMES: [AtomicUsize; FRAMES_MAX] = [const { AtomicUsize::new(0) }; FRAMES_MAX];
static FRAME_COUNT: AtomicUsize = AtomicUsize::new(0);

thread_local! {
    /// Id of the client that the thread works for; 0 for none. Const-initialized, because a handler reads it.
    static SERVED: Cell<u64> = const { Cell::new(0) };
}

/// Sets the client that the calling thread works for (0 for none). Returns the previous one.
#[inline]
pub fn serve(client: u64) -> u64 {
    SERVED.replace(client)
}

/// Returns the client that the calling thread works for; 0 for none.
pub(super) fn served() -> u64 {
    SERVED.get()
}

/// The pipe's ends, for reading and writing; -1 before it exists.
static PIPE: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

/// Facts about the end of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The signal; 0 if the program itself requested the report, such as after a panic.
    pub signal: i32,
    /// The system's code for the signal's cause.
    pub code: i32,
    /// The faulting address (`si_addr`); meaningful only for signals such as SIGSEGV and SIGBUS.
    pub address: usize,
    /// Id of the process that sent the signal, if any.
    pub sender: Option<i32>,
    /// The system's id of the thread.
    pub thread: i32,
    /// The client that the thread worked for; 0 for none.
    pub client: u64,
    /// Return addresses of the call stack, innermost first.
    pub frames: Vec<usize>,
}

/// Installs the signal handlers and their resources. Call once.
pub fn install() -> io::Result<()> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for (place, end) in PIPE.iter().zip(ends) {
        place.store(end, SeqCst);
    }
    // The first call loads the code that captures frames, which allocates.
    note_frames();
    prepare_thread();
    for signal in SIGNALS {
        // SAFETY: all zeroes is a valid value of this type, which requests nothing.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the action is complete, and its handler has the type that the flags promise and calls only
        // permitted functions.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Gives the calling thread a separate stack for signal handlers. The thread keeps it until it ends; the memory
/// is never freed.
pub fn prepare_thread() {
    // SAFETY: new memory is requested and given to the thread entirely as a stack: nothing else refers to it.
    unsafe {
        let memory = libc::mmap(
            std::ptr::null_mut(),
            STACK_BYTES,
            libc::PROT_READ | libc::PROT_WRITE,
            libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE,
            -1,
            0,
        );
        if memory == libc::MAP_FAILED {
            return;
        }
        let stack = libc::stack_t {
            ss_sp: memory,
            ss_flags: 0,
            ss_size: STACK_BYTES,
        };
        libc::sigaltstack(&raw const stack, std::ptr::null_mut());
    }
}

/// Sleeps until the process is about to end; for the single reporting thread.
pub fn wait() -> Crash {
    REPORTER.store(thread_number(), SeqCst);
    let mut byte = 0_u8;
    loop {
        // SAFETY: there is room for the one byte.
        let read = unsafe { libc::read(PIPE[0].load(SeqCst), (&raw mut byte).cast(), 1) };
        if read == 1 {
            break;
        }
    }
    let count = FRAME_COUNT.load(SeqCst).min(FRAMES_MAX);
    let code = CODE.load(SeqCst);
    Crash {
        signal: SIGNAL.load(SeqCst),
        code,
        address: ADDRESS.load(SeqCst),
        sender: (code <= 0)
            .then(|| SENDER.load(SeqCst))
            .filter(|sender| *sender > 0),
        thread: THREAD.load(SeqCst),
        client: CLIENT.load(SeqCst),
        frames: FRAMES[..count]
            .iter()
            .map(|frame| frame.load(SeqCst))
            .collect(),
    }
}

/// Marks the report as complete: the process may end.
pub fn over() {
    STATE.store(REPORTED, SeqCst);
}

/// Makes the reporting thread report now, and waits until it has; for a thread that is about to end the process
/// without a signal.
pub fn report() {
    if STATE
        .compare_exchange(RUNNING, CRASHED, SeqCst, SeqCst)
        .is_ok()
    {
        THREAD.store(thread_number(), SeqCst);
        CLIENT.store(served(), SeqCst);
        note_frames();
        wake();
    }
    await_report();
}

/// Re-enables reporting after a reported panic that did not end the process.
pub fn go_on() {
    let _ = STATE.compare_exchange(REPORTED, RUNNING, SeqCst, SeqCst);
}

/// Crashes the process by reading from an invalid address (DEBUG SEGFAULT).
pub fn segfault() {
    let nowhere = std::ptr::without_provenance::<u8>(8);
    // SAFETY: none: the system ends the process, as intended.
    unsafe { nowhere.read_volatile() };
}

extern "C" fn handle(signal: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    let is_first = STATE
        .compare_exchange(RUNNING, CRASHED, SeqCst, SeqCst)
        .is_ok();
    if is_first {
        SIGNAL.store(signal, SeqCst);
        THREAD.store(thread_number(), SeqCst);
        CLIENT.store(served(), SeqCst);
        // SAFETY: the system passes to a handler of this kind what is known about the signal. The signal determines
        // which fields are meaningful; all of them are numbers.
        unsafe {
            if let Some(info) = info.as_ref() {
                CODE.store(info.si_code, SeqCst);
                if info.si_code > 0 {
                    ADDRESS.store(info.si_addr().addr(), SeqCst);
                } else {
                    SENDER.store(info.si_pid(), SeqCst);
                }
            }
        }
        note_frames();
        wake();
    }
    // The reporting thread cannot wait for itself.
    if thread_number() != REPORTER.load(SeqCst) {
        await_report();
    }
    // SAFETY: the default action is restored for this signal, then the signal is sent again; both calls are
    // permitted here.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

fn note_frames() {
    let mut frames = [std::ptr::null_mut::<c_void>(); FRAMES_MAX];
    // SAFETY: there is room for this many addresses.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as c_int) };
    for (place, frame) in FRAMES.iter().zip(frames) {
        place.store(frame.addr(), SeqCst);
    }
    FRAME_COUNT.store(usize::try_from(count).unwrap_or(0), SeqCst);
}

fn wake() {
    // SAFETY: one byte is readable.
    unsafe { libc::write(PIPE[1].load(SeqCst), b"!".as_ptr().cast(), 1) };
}

fn await_report() {
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 10_000_000,
    };
    for _ in 0..WAITS_MAX {
        if STATE.load(SeqCst) != CRASHED || PIPE[1].load(SeqCst) < 0 {
            return;
        }
        // SAFETY: the time is readable, and no result is requested.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
}

pub(super) fn thread_number() -> i32 {
    // SAFETY: only returns a number.
    unsafe { libc::gettid() }
}
