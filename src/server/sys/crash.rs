//! The signals that end a process: what is known at that moment, kept for a thread that can say it, before the process
//! ends as it would have.
//!
//! ```text
//! the thread that crashed           the thread that reports
//! handler: notes signal, address,   wait() ── sleeps in a pipe
//!          frames; writes the pipe ─▶ gets the Crash, writes the report
//!          sleeps, some seconds   ◀─ over()
//!          ends by the same signal
//! ```
//!
//! A handler may be called in the middle of anything, so it calls nothing but what the system says may be called there,
//! and notes everything in atomics. What it calls to find its frames allocates at its first call, which [`install`]
//! makes. Who reports may meet a lock that the crashed thread holds: the process ends all the same, with what was
//! written till then.

#![expect(
    unsafe_code,
    reason = "signals are handled, and stacks for that made, by calls to the system"
)]

use std::cell::Cell;
use std::ffi::{c_int, c_void};
use std::io;
use std::sync::atomic::{AtomicI32, AtomicU32, AtomicU64, AtomicUsize, Ordering::SeqCst};

/// The signals that say that the process is at fault.
const SIGNALS: [c_int; 5] = [
    libc::SIGSEGV,
    libc::SIGBUS,
    libc::SIGFPE,
    libc::SIGILL,
    libc::SIGABRT,
];

/// Frames that are kept.
pub(super) const FRAMES_MAX: usize = 100;

/// The stack on which a handler runs, as the thread's own may be what is at fault.
const STACK_BYTES: usize = 64 * 1024;

/// How long the end waits for the report: so many times a hundredth of a second.
const WAITS_MAX: usize = 1_000;

/// How far the end has come.
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
    /// The number of the client for which the thread works; 0 if there is none. What a handler reads needs no making.
    static SERVED: Cell<u64> = const { Cell::new(0) };
}

/// The calling thread works for this client from now on (0: for none); for which one it did before.
#[inline]
pub fn serve(client: u64) -> u64 {
    SERVED.replace(client)
}

/// For which client the calling thread works; 0 if for none.
pub(super) fn served() -> u64 {
    SERVED.get()
}

/// The pipe's ends, reading and writing; -1 before there is one.
static PIPE: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

/// What is known of the end of the process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Crash {
    /// The signal; 0 where the program ends itself, and says why.
    pub signal: i32,
    /// The system's reason for the signal.
    pub code: i32,
    /// The address that could not be used, of a signal that is about one.
    pub address: usize,
    /// Who sent the signal, if somebody did.
    pub sender: Option<i32>,
    /// The system's number of the thread.
    pub thread: i32,
    /// The client for which the thread worked; 0 if for none.
    pub client: u64,
    /// Addresses of the functions that had been called, the innermost first.
    pub frames: Vec<usize>,
}

/// Takes over the signals, and makes what handlers need. To be called once.
pub fn install() -> io::Result<()> {
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for (place, end) in PIPE.iter().zip(ends) {
        place.store(end, SeqCst);
    }
    // The first look loads the code that looks.
    note_frames();
    prepare_thread();
    for signal in SIGNALS {
        // SAFETY: all of zeroes is a value of this type, which asks for nothing.
        let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
        let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        // SAFETY: the action is whole, and its handler has the type that the flags promise and calls what handlers may.
        if unsafe { libc::sigaction(signal, &raw const action, std::ptr::null_mut()) } != 0 {
            return Err(io::Error::last_os_error());
        }
    }
    Ok(())
}

/// Gives the calling thread a stack for handlers, which it keeps until it ends, and the process for ever.
pub fn prepare_thread() {
    // SAFETY: unused memory is asked for, and given to the thread as a stack whole: nothing else refers to it.
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

/// Sleeps until the process is about to end; for the one thread that reports.
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

/// Everything is said: the process may end.
pub fn over() {
    STATE.store(REPORTED, SeqCst);
}

/// Has the other thread report now, and waits until it has; for who is about to end the process without a signal.
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

/// The next end is reported as well: the process went on.
pub fn go_on() {
    let _ = STATE.compare_exchange(REPORTED, RUNNING, SeqCst, SeqCst);
}

/// Reads where nothing is.
pub fn segfault() {
    let nowhere = std::ptr::without_provenance::<u8>(8);
    // SAFETY: none: the system ends the process, which is what is asked for.
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
        // SAFETY: the system gives a handler of this kind what is known of the signal. Which of it means something the
        // signal says; all of it is numbers.
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
    // Who reports cannot wait for itself.
    if thread_number() != REPORTER.load(SeqCst) {
        await_report();
    }
    // SAFETY: the usual end is put back for this signal, then the signal sent again; both may be called here.
    unsafe {
        libc::signal(signal, libc::SIG_DFL);
        libc::raise(signal);
    }
}

fn note_frames() {
    let mut frames = [std::ptr::null_mut::<c_void>(); FRAMES_MAX];
    // SAFETY: there is room for so many addresses.
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
        // SAFETY: the time is readable, and nothing is asked back.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
}

pub(super) fn thread_number() -> i32 {
    // SAFETY: asks for a number.
    unsafe { libc::gettid() }
}
