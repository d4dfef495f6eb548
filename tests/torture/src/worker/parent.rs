//! The parent as its child sees it: two pipes.

use std::{io::Write as _, thread, time::Duration};

use tokio::sync::{mpsc, watch};

use crate::{
    child::{Answer, HUNG, Role},
    error::{Error, Result},
};

/// If a child has not ended this long after its order to end, it exits, because its parent may be
/// dead.
const LAST: Duration = Duration::from_secs(120);

/// The process that started this one.
#[derive(Clone, Debug)]
pub(crate) struct Parent {
    here: watch::Receiver<()>,
}

impl Parent {
    /// Reads the role of this process.
    pub(crate) async fn hear() -> Result<(Self, Role)> {
        wake_when_it_dies();
        let (tell, here) = watch::channel(());
        let (first, mut role) = mpsc::channel(1);
        // This is a separate thread, because a blocked read would delay the end of the runtime.
        thread::spawn(move || {
            let mut lines = std::io::stdin().lines();
            if let Some(Ok(line)) = lines.next() {
                let _ = first.blocking_send(line);
            }
            drop(first);
            while let Some(Ok(_)) = lines.next() {}
            drop(tell);
            thread::sleep(LAST);
            std::process::exit(HUNG);
        });
        let not_for_you = "only lockkit-torture itself runs this command";
        let line = role.recv().await.ok_or_else(|| Error::new(not_for_you))?;
        let role = serde_json::from_str(&line).map_err(|_| Error::new(not_for_you))?;
        Ok((Self { here }, role))
    }

    /// Completes when this process must end.
    pub(crate) async fn leaves(&self) {
        let mut here = self.here.clone();
        while here.changed().await.is_ok() {}
    }

    /// Whether this process must end.
    pub(crate) fn has_left(&self) -> bool {
        self.here.has_changed().is_err()
    }

    /// Sends an answer to the parent. The parent may no longer read it.
    pub(crate) fn say(&self, answer: &Answer) {
        if let Ok(line) = serde_json::to_string(answer) {
            let mut out = std::io::stdout().lock();
            let _ = writeln!(out, "{line}").and_then(|()| out.flush());
        }
    }
}

/// If the parent died while the child is stopped, the child would remain for ever. This signal
/// continues the child, which then sees that its parent has left.
#[cfg(target_os = "linux")]
fn wake_when_it_dies() {
    let _ = nix::sys::prctl::set_pdeathsig(nix::sys::signal::Signal::SIGCONT);
}

/// The system ends a stopped child if its process group is orphaned. It does not end the child if
/// the process that adopts it belongs to the same session.
#[cfg(not(target_os = "linux"))]
fn wake_when_it_dies() {}
