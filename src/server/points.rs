//! Test points: named places in the code where a test can stop a process, make it fail, or kill it.
//!
//! They exist only with the cargo feature `points`. In a release build the macros expand to nothing, not even a string.
//!
//! ```text
//!   $PGDATA/pg_bulk_points/NAME                command for test point NAME; no file, no action
//!   $PGDATA/pg_bulk_points/NAME.waiting.PID    exists while that process waits there
//!   $PGDATA/pg_bulk_points/NAME.once           a command with `once`, after a process has taken it
//! ```
//!
//! Commands are files because every process of the cluster sees a file at once: parallel workers, other sessions,
//! processes that start later. Tests can write one while the server is down, and no library has to be preloaded. A
//! server process's working directory is its data directory, so a test point costs one `open` that fails.
//!
//! A command is one line of words: one action and any restrictions.
//!
//! | action | what the process does |
//! |---|---|
//! | `wait` | waits until the file is gone or has another command, which it then runs |
//! | `sleep=MS` | waits that long |
//! | `signal=N` | sends itself the signal: 9 kills it at once, 6 acts like a PANIC, 15 and 2 act at an interrupt |
//! | `error` | raises an ERROR; `point!` and `point_plain!` only |
//! | `errno=N` | makes the next system call fail with this error; `point_errno!` only |
//!
//! | restriction | the command is for |
//! |---|---|
//! | `leader`, `worker` | processes that are not parallel workers, or that are |
//! | `pid=N` | that process |
//! | `after=N` | a process that has passed the test point N times since the command was given |
//! | `once` | the first process that meets all other restrictions |
//!
//! The tricky point is where a test point may stand. [`point!`] raises and is interrupted as guarded frames are, and
//! [`point_plain!`] as plain frames are (see [`super`]). [`point_quiet!`] and [`point_errno!`] raise nothing, allocate
//! no memory of the server, and serve no interrupt: they may stand where locks are held and interrupts are not served.
//! A command that is invalid, or not possible at its test point, aborts the process, so that a test with a mistake does
//! not pass.

#[cfg(feature = "points")]
pub use enabled::{Frame, Point};

/// A test point in a guarded frame; interruptible.
#[cfg(feature = "points")]
macro_rules! point {
    ($name:literal) => {
        $crate::server::points::reach!($name, Guarded)
    };
}

/// A test point in a plain frame; interruptible.
#[cfg(feature = "points")]
macro_rules! point_plain {
    ($name:literal) => {
        $crate::server::points::reach!($name, Plain)
    };
}

/// A test point where nothing may be raised or interrupted.
#[cfg(feature = "points")]
macro_rules! point_quiet {
    ($name:literal) => {
        $crate::server::points::reach!($name, Quiet)
    };
}

/// A fault point before a system call, where nothing may be raised or interrupted: `Some(errno)` if the call is to be
/// skipped and counted as failed.
#[cfg(feature = "points")]
macro_rules! point_errno {
    ($name:literal) => {
        $crate::server::points::reach!($name, Errno)
    };
}

#[cfg(feature = "points")]
macro_rules! reach {
    ($name:literal, Errno) => {{
        static POINT: $crate::server::points::Point =
            $crate::server::points::Point::new(concat!("pg_bulk_points/", $name, "\0"));
        POINT.reach($crate::server::points::Frame::Errno)
    }};
    ($name:literal, $frame:ident) => {{
        static POINT: $crate::server::points::Point =
            $crate::server::points::Point::new(concat!("pg_bulk_points/", $name, "\0"));
        let _: Option<i32> = POINT.reach($crate::server::points::Frame::$frame);
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

// A build may use only some of them.
#[allow(unused_imports)]
pub(crate) use {point, point_errno, point_plain, point_quiet};

#[cfg(feature = "points")]
pub(crate) use reach;

#[cfg(feature = "points")]
mod enabled {
    use std::ffi::{CStr, c_int};
    use std::io::Write;
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};

    use pgrx::{PgSqlErrorCode as Code, check_for_interrupts, pg_sys};

    use crate::error::Error;
    use crate::server::unguarded;

    /// Interval at which a waiting process looks at its command again.
    const LOOK_EVERY: u32 = 5_000; // microseconds
    /// Bytes of the longest command.
    const COMMAND_MAX: usize = 200;
    /// Bytes of the longest path of a test point's file.
    const PATH_MAX: usize = 150;

    /// What a test point may do: raise and be interrupted in this kind of frame, do neither, or set an errno.
    #[derive(Clone, Copy, PartialEq, Eq)]
    pub enum Frame {
        Guarded,
        Plain,
        Quiet,
        Errno,
    }

    /// A test point.
    pub struct Point {
        path: &'static CStr,
        /// The command for which `passed` counts, identified by the time its file was written.
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

    /// A path in a buffer of its own: an error that jumps past it leaves nothing to drop.
    struct Path {
        bytes: [u8; PATH_MAX],
    }

    impl Path {
        fn new(point: &CStr, suffix: std::fmt::Arguments) -> Path {
            let mut path = Path { bytes: [0; PATH_MAX] };
            // One byte is kept for the end of the string. A longer path is cut, and the file is not found.
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

        /// Run the command of the test point's file, if there is one.
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

        /// The command, and the time its file was written. None if there is no file, or if it is still empty while a
        /// test writes it.
        fn command(&self, path: *const libc::c_char, text: &mut [u8; COMMAND_MAX]) -> Option<(Command, i64)> {
            // SAFETY: a string; the descriptor is closed below.
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
                    Frame::Plain => unsafe { unguarded::guarded::<()>(|| self.raise()) },
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

        /// Serve interrupts where the frame allows it. The file `mark` does not exist meanwhile.
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
            // Exit if the postmaster is gone, as a waiting server process does.
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

    fn is_worker() -> bool {
        // SAFETY: a variable that is set when the process starts.
        unsafe { pg_sys::ParallelWorkerNumber >= 0 }
    }

    fn pause() {
        // SAFETY: sleeps; signals cut it short.
        unsafe { libc::usleep(LOOK_EVERY) };
    }

    fn set(mark: &Path) {
        // SAFETY: a string; the descriptor is closed at once.
        unsafe { libc::close(libc::open(mark.as_ptr(), libc::O_WRONLY | libc::O_CREAT | libc::O_CLOEXEC, 0o600)) };
    }

    fn unset(mark: &Path) {
        // SAFETY: a string.
        unsafe { libc::unlink(mark.as_ptr()) };
    }
}
