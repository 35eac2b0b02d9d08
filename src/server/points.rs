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
macro_rules! point {
    ($name:literal) => {
        $crate::server::points::reach!($name, Guarded)
    };
}

/// A test point in a plain frame; interruptible.
macro_rules! point_plain {
    ($name:literal) => {
        $crate::server::points::reach!($name, Plain)
    };
}

/// A test point where nothing may be raised or interrupted.
macro_rules! point_quiet {
    ($name:literal) => {
        $crate::server::points::reach!($name, Quiet)
    };
}

/// A fault point before a system call, where nothing may be raised or interrupted: `Some(errno)` if the call is to be
/// skipped and counted as failed.
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
macro_rules! reach {
    ($name:literal, Errno) => {
        None::<i32>
    };
    ($name:literal, $frame:ident) => {{}};
}

// A build may use only some of them.
#[allow(unused_imports)]
pub(crate) use {point, point_errno, point_plain, point_quiet, reach};

#[cfg(feature = "points")]
mod enabled {
    use std::ffi::{OsStr, c_int};
    use std::fs::{self, File};
    use std::io::{Read, Write};
    use std::os::unix::ffi::OsStrExt;
    use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
    use std::sync::atomic::{AtomicI64, AtomicU32, Ordering};
    use std::time::Duration;

    use pgrx::{PgSqlErrorCode as Code, check_for_interrupts};

    use crate::error::Error;
    use crate::server::call::variables;
    use crate::server::database::worker_number;
    use crate::server::unguarded;

    /// Interval at which a waiting process looks at its command again.
    const LOOK_EVERY: Duration = Duration::from_millis(5);
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
        path: &'static str,
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

    /// The path of a file, in a buffer of its own: an error that jumps past it leaves nothing to drop.
    struct Path {
        bytes: [u8; PATH_MAX],
        len: usize,
    }

    impl Path {
        fn new(point: &str, suffix: std::fmt::Arguments) -> Path {
            let mut bytes = [0; PATH_MAX];
            // A longer path is cut, and the file is not found.
            let mut space = bytes.as_mut_slice();
            let _ = write!(space, "{}{suffix}", point.trim_end_matches('\0'));
            let len = PATH_MAX - space.len();
            Path { bytes, len }
        }
    }

    impl AsRef<std::path::Path> for Path {
        fn as_ref(&self) -> &std::path::Path {
            OsStr::from_bytes(self.bytes.get(..self.len).unwrap_or_default()).as_ref()
        }
    }

    variables! {
        fn postmaster() -> i32 = PostmasterPid;
        fn interrupts_held_off() -> u32 = InterruptHoldoffCount;
        fn critical_sections() -> u32 = CritSectionCount;
    }

    impl Point {
        /// `path` ends with a NUL, by which tests find it in the library.
        pub const fn new(path: &'static str) -> Point {
            Point { path, counted: AtomicI64::new(0), passed: AtomicU32::new(0) }
        }

        /// Run the command of the test point's file, if there is one.
        pub fn reach(&self, frame: Frame) -> Option<c_int> {
            let file = Path::new(self.path, format_args!(""));
            let (command, written) = self.command(&file)?;
            if command.worker.is_some_and(|worker| worker != (worker_number() >= 0))
                || command.pid.is_some_and(|pid| pid != std::process::id())
                || !self.counts(command.after, written)
            {
                return None;
            }
            let taken = Path::new(self.path, format_args!("{}", if command.once { ".once" } else { "" }));
            // Of several processes one succeeds.
            if command.once && fs::rename(&file, &taken).is_err() {
                return None;
            }
            self.obey(command.action, &taken, frame)
        }

        /// The command, and the time its file was written. None if there is no file, or if it is still empty while a
        /// test writes it.
        fn command(&self, path: &Path) -> Option<(Command, i64)> {
            let mut text = [0; COMMAND_MAX];
            let mut file = File::open(path).ok()?;
            let stat = file.metadata().ok()?;
            let written = stat.mtime().wrapping_mul(1_000_000_000).wrapping_add(stat.mtime_nsec());
            let length = file.read(&mut text).unwrap_or(0);
            let text = text.get(..length).filter(|text| !text.is_empty())?;
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
                    for _ in 0..u128::from(ms) / LOOK_EVERY.as_millis() {
                        std::thread::sleep(LOOK_EVERY);
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
            set(&mark);
            let next = loop {
                std::thread::sleep(LOOK_EVERY);
                self.interrupts(frame, Some(&mark));
                match self.command(path) {
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
            if unguarded::are_interrupts_pending() && interrupts_held_off() == 0 && critical_sections() == 0 {
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
            if postmaster() != 0 && std::os::unix::process::parent_id().cast_signed() != postmaster() {
                mark.inspect(|mark| unset(mark));
                // SAFETY: ends the process.
                unsafe { libc::_exit(1) };
            }
        }

        fn raise(&self) -> ! {
            Error::new(Code::ERRCODE_INTERNAL_ERROR, format!("error at {}", self.path.trim_end_matches('\0'))).raise()
        }

        fn refuse(&self, why: &str) -> ! {
            let _ = writeln!(std::io::stderr(), "{} {why}", self.path.trim_end_matches('\0'));
            std::process::abort()
        }
    }

    fn set(mark: &Path) {
        let _ = File::options().write(true).create(true).truncate(false).mode(0o600).open(mark);
    }

    fn unset(mark: &Path) {
        let _ = fs::remove_file(mark);
    }
}
