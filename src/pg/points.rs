//! Wait and fault points: named places where a test can stop a process, make it fail, or kill it.
//!
//! They exist only with the cargo feature `points`. In a release build the macros expand to nothing, not even a string.
//!
//! ```text
//!   $PGDATA/pg_bulk_points/NAME                what a process that comes to the point NAME is to do; no file, nothing
//!   $PGDATA/pg_bulk_points/NAME.waiting.PID    made by a process while it waits there
//!   $PGDATA/pg_bulk_points/NAME.once           a command with `once`, after a process has taken it
//! ```
//!
//! Files, because they are seen by every process of the cluster at once (parallel workers, other sessions, those that
//! start later), by tests while the server is down, and without a library that must be preloaded. A server process's
//! working directory is its data directory, so a point costs one `open` that fails.
//!
//! A command is one line of words: one action and any restrictions.
//!
//! | action | what the process does |
//! |---|---|
//! | `wait` | waits until the file is gone, or says something else, which it then does |
//! | `sleep=MS` | waits that long |
//! | `signal=N` | sends itself the signal: 9 dies here and now, 6 is what a PANIC does, 15 and 2 are noticed when interrupts are |
//! | `error` | raises an ERROR; `point!` and `point_plain!` only |
//! | `errno=N` | takes the next system call for failed; `point_errno!` only |
//!
//! | restriction | who obeys |
//! |---|---|
//! | `leader`, `worker` | processes that are not parallel workers, or that are |
//! | `pid=N` | that process |
//! | `after=N` | a process that has passed the point N times since the command was given |
//! | `once` | the first process that all other restrictions allow |
//!
//! The tricky point is where a point may stand. [`point!`] raises and is interrupted as guarded frames are, and
//! [`point_plain!`] as plain frames are (see [`super`]). [`point_quiet!`] and [`point_errno!`] raise nothing, allocate
//! nothing of the server's, and serve no interrupt: they may stand where locks are held and interrupts are not served.
//! A command that the point cannot obey, or that cannot be read, aborts the process: a test that has it wrong must not
//! pass.

#[cfg(feature = "points")]
pub use enabled::{Frame, Point};

/// A point in a guarded frame; interruptible.
#[cfg(feature = "points")]
macro_rules! point {
    ($name:literal) => {
        $crate::pg::points::reach!($name, Guarded)
    };
}

/// A point in a plain frame; interruptible.
#[cfg(feature = "points")]
macro_rules! point_plain {
    ($name:literal) => {
        $crate::pg::points::reach!($name, Plain)
    };
}

/// A point where nothing may be raised or interrupted.
#[cfg(feature = "points")]
macro_rules! point_quiet {
    ($name:literal) => {
        $crate::pg::points::reach!($name, Quiet)
    };
}

/// A point before a system call, where nothing may be raised or interrupted: `Some(errno)` when the call is to be taken
/// for failed, and not made.
#[cfg(feature = "points")]
macro_rules! point_errno {
    ($name:literal) => {
        $crate::pg::points::reach!($name, Errno)
    };
}

#[cfg(feature = "points")]
macro_rules! reach {
    ($name:literal, Errno) => {{
        static POINT: $crate::pg::points::Point =
            $crate::pg::points::Point::new(concat!("pg_bulk_points/", $name, "\0"));
        POINT.reach($crate::pg::points::Frame::Errno)
    }};
    ($name:literal, $frame:ident) => {{
        static POINT: $crate::pg::points::Point =
            $crate::pg::points::Point::new(concat!("pg_bulk_points/", $name, "\0"));
        let _: Option<i32> = POINT.reach($crate::pg::points::Frame::$frame);
    }};
}

#[cfg(not(feature = "points"))]
macro_rules! point {
    ($name:literal) => {};
}

#[cfg(not(feature = "points"))]
macro_rules! point_plain {
    ($name:literal) => {};
}

#[cfg(not(feature = "points"))]
macro_rules! point_quiet {
    ($name:literal) => {};
}

#[cfg(not(feature = "points"))]
macro_rules! point_errno {
    ($name:literal) => {
        None::<i32>
    };
}

// Which of them are called is other modules' business.
#[allow(unused_imports)]
pub(crate) use {point, point_errno, point_plain, point_quiet};

#[cfg(feature = "points")]
pub(crate) use reach;

#[cfg(feature = "points")]
mod enabled {
    use std::ffi::{CStr, c_int};
    use std::io::Write;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

    use pgrx::{PgSqlErrorCode as Code, check_for_interrupts, pg_guard, pg_sys};

    use crate::error::Error;
    use crate::pg::unguarded;

    /// How often a waiting process looks whether it still has to.
    const LOOK_EVERY: u32 = 5_000; // microseconds
    /// Longest command.
    const COMMAND_MAX: usize = 200;
    /// Longest path of a point's files.
    const PATH_MAX: usize = 150;

    /// What may happen at a point.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum Frame {
        Guarded,
        Plain,
        Quiet,
        Errno,
    }

    /// A place in the code.
    pub struct Point {
        path: &'static CStr,
        /// The command whose `after` is being counted, known by the time its file was written.
        counted: AtomicI64,
        passed: AtomicU32,
    }

    #[derive(Clone, Copy, PartialEq, Eq)]
    enum Action {
        Wait,
        Sleep(u32),
        Signal(c_int),
        Error,
        Errno(c_int),
    }

    #[derive(Clone, Copy)]
    struct Command {
        action: Action,
        /// `Some(true)`: workers only.
        worker: Option<bool>,
        pid: Option<u32>,
        after: u32,
        once: bool,
    }

    impl Command {
        fn parse(text: &str) -> Option<Command> {
            let (mut action, mut worker, mut pid, mut after, mut once) = (None, None, None, 0, false);
            for word in text.split_ascii_whitespace() {
                let (key, value) = word.split_once('=').unwrap_or((word, ""));
                let new = match (key, value) {
                    ("wait", "") => Action::Wait,
                    ("error", "") => Action::Error,
                    ("sleep", ms) => Action::Sleep(ms.parse().ok()?),
                    ("signal", number) => Action::Signal(number.parse().ok()?),
                    ("errno", number) => Action::Errno(number.parse().ok()?),
                    (restriction, value) => {
                        match (restriction, value) {
                            ("leader", "") => worker = Some(false),
                            ("worker", "") => worker = Some(true),
                            ("once", "") => once = true,
                            ("pid", number) => pid = Some(number.parse().ok()?),
                            ("after", number) => after = number.parse().ok()?,
                            _ => return None,
                        }
                        continue;
                    }
                };
                if action.replace(new).is_some() {
                    return None;
                }
            }
            Some(Command { action: action?, worker, pid, after, once })
        }
    }

    /// A path in a buffer of its own, so that nothing has to be dropped when an error jumps past.
    struct Path {
        bytes: [u8; PATH_MAX],
    }

    impl Path {
        fn new(point: &CStr, suffix: std::fmt::Arguments) -> Path {
            let mut path = Path { bytes: [0; PATH_MAX] };
            // One byte is kept for the end of the string; a longer path is cut, and its file not found.
            if let Some(mut space) = path.bytes.get_mut(..PATH_MAX - 1) {
                let _ = space.write_all(point.to_bytes()).and_then(|()| space.write_fmt(suffix));
            }
            path
        }

        fn as_ptr(&self) -> *const libc::c_char {
            self.bytes.as_ptr().cast()
        }
    }

    impl Point {
        /// `path` ends with a NUL.
        #[expect(clippy::panic, reason = "while it is compiled")]
        pub const fn new(path: &'static str) -> Point {
            match CStr::from_bytes_with_nul(path.as_bytes()) {
                Ok(path) => Point { path, counted: AtomicI64::new(0), passed: AtomicU32::new(0) },
                Err(_) => panic!("a name of a point is a literal without NUL"),
            }
        }

        /// Do what the point's file says, if there is one.
        pub fn reach(&self, frame: Frame) -> Option<c_int> {
            let mut text = [0; COMMAND_MAX];
            let (command, written) = self.command(self.path.as_ptr(), &mut text)?;
            if command.worker.is_some_and(|worker| worker != is_worker())
                || command.pid.is_some_and(|pid| pid != std::process::id())
                || !self.counts(command.after, written)
            {
                return None;
            }
            let taken = Path::new(self.path, format_args!("{}", if command.once { ".once" } else { "" }));
            // SAFETY: two strings. Of several processes one succeeds.
            if command.once && unsafe { libc::rename(self.path.as_ptr(), taken.as_ptr()) } != 0 {
                return None;
            }
            self.obey(command.action, &taken, frame)
        }

        /// What the file says, and when it was written. None if it is not there, or empty: then it is being written.
        fn command(&self, path: *const libc::c_char, text: &mut [u8; COMMAND_MAX]) -> Option<(Command, i64)> {
            // SAFETY: a string; what is opened is closed below.
            let fd = unsafe { libc::open(path, libc::O_RDONLY | libc::O_CLOEXEC) };
            if fd < 0 {
                return None;
            }
            // SAFETY: all zeroes is a stat; an open descriptor, and a buffer with its length.
            let (length, written) = unsafe {
                let mut stat: libc::stat = std::mem::zeroed();
                libc::fstat(fd, &raw mut stat);
                let length = libc::read(fd, text.as_mut_ptr().cast(), text.len());
                libc::close(fd);
                (length, stat.st_mtime.wrapping_mul(1_000_000_000).wrapping_add(stat.st_mtime_nsec))
            };
            let text = text.get(..usize::try_from(length).unwrap_or(0)).unwrap_or_default();
            if text.is_empty() {
                return None;
            }
            match std::str::from_utf8(text).ok().and_then(Command::parse) {
                Some(command) => Some((command, written)),
                None => self.refuse("is told what no point understands"),
            }
        }

        fn counts(&self, after: u32, written: i64) -> bool {
            if self.counted.swap(written, Ordering::Relaxed) != written {
                self.passed.store(0, Ordering::Relaxed);
            }
            after == 0 || self.passed.fetch_add(1, Ordering::Relaxed) >= after
        }

        fn obey(&self, action: Action, path: &Path, frame: Frame) -> Option<c_int> {
            match action {
                Action::Wait => return self.wait(path, frame),
                Action::Sleep(ms) => {
                    for _ in 0..u64::from(ms) * 1000 / u64::from(LOOK_EVERY) {
                        pause();
                        self.interrupts(frame, None);
                    }
                }
                Action::Signal(number) => {
                    // SAFETY: a signal to this process.
                    unsafe { libc::kill(libc::getpid(), number) };
                    self.interrupts(frame, None);
                }
                Action::Error => match frame {
                    Frame::Guarded => self.raise(),
                    // SAFETY: the frame is plain; nothing here has to be dropped.
                    Frame::Plain => unsafe { raise(self) },
                    Frame::Quiet | Frame::Errno => self.refuse("cannot raise an error"),
                },
                Action::Errno(number) if frame == Frame::Errno => return Some(number),
                Action::Errno(_) => self.refuse("is not before a system call"),
            }
            None
        }

        fn wait(&self, path: &Path, frame: Frame) -> Option<c_int> {
            let mark = Path::new(self.path, format_args!(".waiting.{}", std::process::id()));
            let mut text = [0; COMMAND_MAX];
            set(&mark);
            let next = loop {
                pause();
                self.interrupts(frame, Some(&mark));
                match self.command(path.as_ptr(), &mut text) {
                    Some((Command { action: Action::Wait, .. }, _)) => (),
                    other => break other,
                }
            };
            unset(&mark);
            next.and_then(|(command, _)| self.obey(command.action, path, frame))
        }

        /// Serve interrupts where the frame allows it; `mark` is not there meanwhile.
        fn interrupts(&self, frame: Frame, mark: Option<&Path>) {
            if !matches!(frame, Frame::Guarded | Frame::Plain) {
                return;
            }
            // SAFETY: variables of this process; the first is set by signal handlers.
            let to_serve = unsafe {
                std::ptr::read_volatile(&raw const pg_sys::InterruptPending) != 0
                    && pg_sys::InterruptHoldoffCount == 0
                    && pg_sys::CritSectionCount == 0
            };
            if to_serve {
                mark.inspect(|mark| unset(mark));
                if frame == Frame::Plain {
                    // SAFETY: the frame is plain.
                    unsafe { unguarded::check_for_interrupts() };
                } else {
                    check_for_interrupts!();
                }
                mark.inspect(|mark| set(mark));
            }
            // A server process that waits would notice that the postmaster is gone.
            // SAFETY: variables of this process.
            if unsafe { pg_sys::PostmasterPid != 0 && libc::getppid() != pg_sys::PostmasterPid } {
                mark.inspect(|mark| unset(mark));
                // SAFETY: ends the process.
                unsafe { libc::_exit(1) };
            }
        }

        fn raise(&self) -> ! {
            Error::new(Code::ERRCODE_INTERNAL_ERROR, format!("error at {}", self.path.to_string_lossy())).raise()
        }

        fn refuse(&self, why: &str) -> ! {
            let _ = writeln!(std::io::stderr(), "{} {why}", self.path.to_string_lossy());
            std::process::abort()
        }
    }

    /// The error, from a plain frame.
    #[pg_guard]
    unsafe extern "C-unwind" fn raise(point: &Point) {
        point.raise()
    }

    fn is_worker() -> bool {
        // SAFETY: a variable that is set when the process starts.
        unsafe { pg_sys::ParallelWorkerNumber >= 0 }
    }

    fn pause() {
        // SAFETY: sleeps; signals cut it short.
        unsafe { libc::usleep(LOOK_EVERY) };
    }

    fn set(mark: &Path) {
        // SAFETY: a string; what is opened is closed.
        unsafe { libc::close(libc::open(mark.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC, 0o600)) };
    }

    fn unset(mark: &Path) {
        // SAFETY: a string.
        unsafe { libc::unlink(mark.as_ptr()) };
    }
}
