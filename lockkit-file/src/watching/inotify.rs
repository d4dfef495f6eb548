//! Hears from the system of changes in a folder, by `inotify`.

use std::{collections::HashSet, io};

use crate::{folder::Folder, session::SessionId};

/// The changes since the last look.
#[derive(Debug, Default)]
pub(super) struct News {
    /// Keys of records that were replaced or removed.
    pub(super) names: HashSet<String>,
    /// Sessions whose files were closed or removed.
    pub(super) sessions: Vec<SessionId>,
    /// Whether there was any news, even if only of files that are not lockkit's.
    pub(super) any: bool,
    /// Some news was missed.
    pub(super) everything: bool,
    /// A folder was moved or removed, and the system reports nothing more about it.
    pub(super) unwatched: bool,
}

#[cfg(any(target_os = "linux", target_os = "android"))]
pub(super) use self::linux::Inotify;
#[cfg(not(any(target_os = "linux", target_os = "android")))]
pub(super) use self::none::Inotify;

#[cfg(any(target_os = "linux", target_os = "android"))]
mod linux {
    use std::{
        mem::MaybeUninit,
        os::fd::{AsFd, BorrowedFd, OwnedFd},
        path::Path,
    };

    use lockkit_core::Kind;
    use rustix::{
        fs::inotify::{self, CreateFlags, ReadFlags, Reader, WatchFlags},
        io::Errno,
    };

    use super::{Folder, News, SessionId, io};
    use crate::folder::{KINDS, RECORD};

    /// Events about the end of the folder itself.
    const END: WatchFlags =
        WatchFlags::DELETE_SELF.union(WatchFlags::MOVE_SELF).union(WatchFlags::ONLYDIR);
    const GONE: WatchFlags = WatchFlags::DELETE.union(WatchFlags::MOVED_FROM);
    const OVER: ReadFlags = ReadFlags::DELETE_SELF
        .union(ReadFlags::MOVE_SELF)
        .union(ReadFlags::IGNORED)
        .union(ReadFlags::UNMOUNT);
    const BUFFER: usize = 16 * 1024;

    #[derive(Debug)]
    pub(in super::super) struct Inotify {
        file: OwnedFd,
        folders: Vec<(i32, Part)>,
    }

    #[derive(Clone, Copy, Debug)]
    enum Part {
        Names(Kind),
        /// The root, which has no files of lockkit itself.
        Other,
        Sessions,
    }

    impl Inotify {
        pub(in super::super) fn open(folder: &Folder) -> io::Result<Self> {
            let file = inotify::init(CreateFlags::CLOEXEC | CreateFlags::NONBLOCK)?;
            let mut inotify = Self { file, folders: Vec::new() };
            for kind in KINDS {
                inotify.watch(
                    &folder.names(kind),
                    WatchFlags::MOVED_TO | GONE,
                    Part::Names(kind),
                )?;
            }
            inotify.watch(&folder.sessions(), WatchFlags::CLOSE_WRITE | GONE, Part::Sessions)?;
            inotify.watch(folder.root(), GONE, Part::Other)?;
            Ok(inotify)
        }

        fn watch(&mut self, path: &Path, what: WatchFlags, part: Part) -> io::Result<()> {
            let number = inotify::add_watch(&self.file, path, what | END)?;
            self.folders.push((number, part));
            Ok(())
        }

        pub(in super::super) fn read(&mut self, news: &mut News) -> io::Result<()> {
            let mut buffer = [MaybeUninit::uninit(); BUFFER];
            let mut reader = Reader::new(&self.file, &mut buffer);
            loop {
                let event = match reader.next() {
                    Ok(event) => event,
                    Err(Errno::WOULDBLOCK) => return Ok(()),
                    Err(Errno::INTR) => continue,
                    Err(error) => return Err(error.into()),
                };
                news.any = true;
                if event.events().contains(ReadFlags::QUEUE_OVERFLOW) {
                    news.everything = true;
                }
                if event.events().intersects(OVER) {
                    news.unwatched = true;
                }
                let part = self
                    .folders
                    .iter()
                    .find(|(number, _)| *number == event.wd())
                    .map(|(_, part)| *part);
                let name = event.file_name().and_then(|name| name.to_str().ok());
                match (part, name) {
                    (Some(Part::Names(kind)), Some(name)) => {
                        news.names
                            .extend(name.strip_suffix(RECORD).map(|stem| format!("{kind}/{stem}")));
                    }
                    (Some(Part::Sessions), Some(name)) => {
                        news.sessions.extend(name.parse::<SessionId>().ok());
                    }
                    // One of our folders was moved away, or the file is not lockkit's.
                    (Some(Part::Other), Some("names" | "sessions")) => news.unwatched = true,
                    _ => {}
                }
            }
        }
    }

    impl AsFd for Inotify {
        fn as_fd(&self) -> BorrowedFd<'_> {
            self.file.as_fd()
        }
    }
}

#[cfg(not(any(target_os = "linux", target_os = "android")))]
mod none {
    use std::os::fd::{AsFd, BorrowedFd};

    use super::{Folder, News, io};

    /// Other systems report nothing.
    #[derive(Debug)]
    pub(in super::super) enum Inotify {}

    impl Inotify {
        pub(in super::super) fn open(_: &Folder) -> io::Result<Self> {
            Err(io::ErrorKind::Unsupported.into())
        }

        pub(in super::super) fn read(&mut self, _: &mut News) -> io::Result<()> {
            match *self {}
        }
    }

    impl AsFd for Inotify {
        fn as_fd(&self) -> BorrowedFd<'_> {
            match *self {}
        }
    }
}
