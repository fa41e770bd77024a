//! Stacks of running threads: each thread captures its own stack when a signal requests that. An external
//! SIGALRM requests the stacks of all threads.
//!
//! ```text
//! the requesting thread                   the requested thread
//! stack_of(): stores the wanted     ───▶  handler: stores frames and client,
//!             thread, sends SIGALRM ◀───           signals completion
//! ```
//!
//! Only one thread makes requests, one at a time. As in [`super::crash`], a handler calls only functions
//! permitted in handlers, and the function that captures frames was called once before.

#![expect(
    unsafe_code,
    reason = "signals are handled, and sent to threads, by calls to the system"
)]

use std::ffi::{c_int, c_void};
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU64, AtomicUsize, Ordering::SeqCst};

use super::crash::{FRAMES_MAX, served, thread_number};

/// Timeout of a request in milliseconds. A thread that is not scheduled may take long to respond.
const WAITS_MAX: usize = 200;

/// The thread whose stack is requested; 0 for none.
static WANTED: AtomicI32 = AtomicI32::new(0);

static FRAMES: [AtomicUsize; FRAMES_MAX] = [const { AtomicUsize::new(0) }; FRAMES_MAX];
static FRAME_COUNT: AtomicUsize = AtomicUsize::new(0);
static CLIENT: AtomicU64 = AtomicU64::new(0);
static HOLDS: AtomicBool = AtomicBool::new(false);

/// Function that returns whether the calling thread has a shard locked. Called by handlers.
static IS_HOLDING: OnceLock<fn() -> bool> = OnceLock::new();

/// The pipe's ends, for reading and writing; -1 before it exists.
static PIPE: [AtomicI32; 2] = [const { AtomicI32::new(-1) }; 2];

/// Why a wait ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Woken {
    /// The timeout passed.
    TimedOut,
    /// [`look_again`] was called.
    Told,
    /// Another process sent SIGALRM.
    Asked,
}

/// The stack of a thread.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stack {
    /// The system's id of the thread.
    pub thread: i32,
    /// The client that it worked for; 0 for none.
    pub client: u64,
    /// Whether the thread had a shard locked.
    pub holds: bool,
    /// Return addresses of the call stack, innermost first; the first ones belong to the handler.
    pub frames: Vec<usize>,
}

/// Installs the SIGALRM handler. Call once. `is_holding` must only read thread-local state, and call nothing.
pub fn install(is_holding: fn() -> bool) -> io::Result<()> {
    let _ = IS_HOLDING.set(is_holding);
    let mut ends = [0; 2];
    // SAFETY: there is room for two descriptors.
    if unsafe { libc::pipe2(ends.as_mut_ptr(), libc::O_CLOEXEC | libc::O_NONBLOCK) } != 0 {
        return Err(io::Error::last_os_error());
    }
    for (place, end) in PIPE.iter().zip(ends) {
        place.store(end, SeqCst);
    }
    // The first call loads the code that captures frames, which allocates.
    note_stack();
    // SAFETY: all zeroes is a valid value of this type, which requests nothing.
    let mut action: libc::sigaction = unsafe { std::mem::zeroed() };
    let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) = handle;
    action.sa_sigaction = handler as *const () as usize;
    action.sa_flags = libc::SA_SIGINFO | libc::SA_RESTART;
    // SAFETY: the action is complete, and its handler has the type that the flags promise and calls only permitted
    // functions.
    match unsafe { libc::sigaction(libc::SIGALRM, &raw const action, std::ptr::null_mut()) } {
        0 => Ok(()),
        _ => Err(io::Error::last_os_error()),
    }
}

/// Sleeps for `timeout_ms`, without limit if `None`, or until it is woken.
pub fn wait(timeout_ms: Option<u32>) -> Woken {
    let mut pipe = libc::pollfd {
        fd: PIPE[0].load(SeqCst),
        events: libc::POLLIN,
        revents: 0,
    };
    let timeout = timeout_ms.map_or(-1, |ms| c_int::try_from(ms).unwrap_or(c_int::MAX));
    let mut word = 0_u8;
    // SAFETY: there is one descriptor to poll.
    if unsafe { libc::poll(&raw mut pipe, 1, timeout) } <= 0 {
        return Woken::TimedOut;
    }
    // SAFETY: there is room for the one byte.
    match unsafe { libc::read(pipe.fd, (&raw mut word).cast(), 1) } {
        1 if word == ASKED => Woken::Asked,
        _ => Woken::Told,
    }
}

const ASKED: u8 = b'a';
const TOLD: u8 = b't';

/// Wakes the waiting thread.
pub fn look_again() {
    send(TOLD);
}

/// Returns the stack of another thread of this process; `None` if it has ended or does not respond in time.
pub fn stack_of(thread: i32) -> Option<Stack> {
    WANTED.store(thread, SeqCst);
    // SAFETY: sends a signal that this process handles to one of its own threads, or to none.
    let sent = unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), thread, libc::SIGALRM) };
    let pause = libc::timespec {
        tv_sec: 0,
        tv_nsec: 1_000_000,
    };
    for _ in 0..WAITS_MAX {
        if sent != 0 || WANTED.load(SeqCst) == 0 {
            break;
        }
        // SAFETY: the time is readable, and no result is requested.
        unsafe { libc::nanosleep(&raw const pause, std::ptr::null_mut()) };
    }
    if WANTED.swap(0, SeqCst) != 0 {
        return None;
    }
    let count = FRAME_COUNT.load(SeqCst).min(FRAMES_MAX);
    let frames = FRAMES[..count].iter();
    Some(Stack {
        thread,
        client: CLIENT.load(SeqCst),
        holds: HOLDS.load(SeqCst),
        frames: frames.map(|frame| frame.load(SeqCst)).collect(),
    })
}

extern "C" fn handle(_: c_int, info: *mut libc::siginfo_t, _: *mut c_void) {
    // SAFETY: the system returns the address of this thread's errno, which the calls below may change.
    let errno = unsafe { *libc::__errno_location() };
    if WANTED.load(SeqCst) == thread_number() {
        note_stack();
        WANTED.store(0, SeqCst);
    } else {
        // SAFETY: the system passes to a handler of this kind what is known about the signal; all fields are
        // numbers.
        let is_ours = unsafe {
            info.as_ref()
                .is_some_and(|info| info.si_code == libc::SI_TKILL)
        };
        // A request of our own that arrives too late is ignored.
        if !is_ours {
            send(ASKED);
        }
    }
    // SAFETY: as above.
    unsafe { *libc::__errno_location() = errno };
}

fn note_stack() {
    let mut frames = [std::ptr::null_mut::<c_void>(); FRAMES_MAX];
    // SAFETY: there is room for this many addresses.
    let count = unsafe { libc::backtrace(frames.as_mut_ptr(), FRAMES_MAX as c_int) };
    for (place, frame) in FRAMES.iter().zip(frames) {
        place.store(frame.addr(), SeqCst);
    }
    FRAME_COUNT.store(usize::try_from(count).unwrap_or(0), SeqCst);
    CLIENT.store(served(), SeqCst);
    HOLDS.store(IS_HOLDING.get().is_some_and(|holds| holds()), SeqCst);
}

fn send(word: u8) {
    let end = PIPE[1].load(SeqCst);
    if end >= 0 {
        // SAFETY: one byte is readable. A full pipe wakes the reader, too.
        unsafe { libc::write(end, (&raw const word).cast(), 1) };
    }
}
