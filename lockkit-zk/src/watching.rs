//! Waits for an obstacle to change, by watches that fire once.

use std::{fmt, panic::AssertUnwindSafe, sync::Arc};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{BoxFuture, pending},
    stream::FuturesUnordered,
};
use lockkit_core::Result;
use zookeeper_client::{Client, Error as ZkError, EventType, OneshotWatcher};

use crate::{
    error::Phase,
    queue::Obstacle,
    record::Record,
    session::{PathBytes, Reservation, Session},
};

/// The change of an obstacle.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum News {
    Nothing,
    Changed,
    Gone,
}

/// The result of setting a watch.
#[derive(Debug)]
pub(crate) enum Armed {
    Set(Watching),
    /// The watch is on the folder. These were its children when the watch was set.
    Behind(Watching, Vec<String>),
    /// The obstacle is gone, or changed after it was listed.
    Gone,
}

/// Watches on one obstacle. When they are dropped, they are removed from the server.
pub(crate) struct Watching {
    obstacle: Obstacle,
    events: FuturesUnordered<BoxFuture<'static, News>>,
    news: News,
    /// For all paths but the first, which the claim has reserved.
    _reservation: Option<Reservation>,
}

impl Watching {
    /// Sets the watches. They are on data, never on existence, because a watch on existence stays
    /// on a missing node.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) async fn arm(
        session: &Arc<Session>,
        client: &Client,
        folder: &str,
        obstacle: Obstacle,
    ) -> Result<Armed> {
        let names = match &obstacle {
            Obstacle::Folder => return Self::arm_folder(session, client, folder, obstacle).await,
            Obstacle::Last(name) | Obstacle::Next(name) => std::slice::from_ref(name),
            Obstacle::Any(names) => names,
        };
        let paths: Vec<_> = names.iter().map(|name| format!("{folder}/{name}")).collect();
        // A waiter has already reserved one path.
        let more = paths.iter().skip(1).map(|path| path.len() + session.chroot_bytes()).sum();
        let bytes = PathBytes { watched: more, in_nodes: 0 };
        let Some(reservation) = Reservation::on(session, bytes) else {
            return Self::arm_folder(session, client, folder, obstacle).await;
        };
        // All requests are sent before the first is awaited.
        let asked: Vec<_> = paths.iter().map(|path| client.get_and_watch_data(path)).collect();
        let events = FuturesUnordered::new();
        let mut gone = false;
        for (asked, path) in asked.into_iter().zip(&paths) {
            match asked.await {
                Ok((data, _, watcher)) => {
                    let granted = Record::parse(&data).is_some_and(|record| record.granted);
                    // The node that we took for a waiter is granted by now, so our turn may be
                    // next.
                    gone |= granted && matches!(obstacle, Obstacle::Next(_));
                    events.push(event(watcher));
                }
                Err(ZkError::NoNode) => gone = true,
                Err(error) => return Err(session.failed(error, Phase::Write, "watching", path)),
            }
        }
        if gone {
            return Ok(Armed::Gone);
        }
        Ok(Armed::Set(Self {
            obstacle,
            events,
            news: News::Nothing,
            _reservation: Some(reservation),
        }))
    }

    async fn arm_folder(
        session: &Arc<Session>,
        client: &Client,
        folder: &str,
        obstacle: Obstacle,
    ) -> Result<Armed> {
        match client.get_and_watch_children(folder).await {
            Ok((children, _, watcher)) => {
                let events = FuturesUnordered::new();
                events.push(event(watcher));
                Ok(Armed::Behind(
                    Self { obstacle, events, news: News::Nothing, _reservation: None },
                    children,
                ))
            }
            Err(ZkError::NoNode) => Ok(Armed::Gone),
            Err(error) => Err(session.failed(error, Phase::Write, "watching", folder)),
        }
    }

    /// Whether this obstacle is watched, and its watch has not fired.
    pub(crate) fn is_for(&self, obstacle: &Obstacle) -> bool {
        self.news == News::Nothing && self.obstacle == *obstacle
    }

    /// Whether this is the last obstacle.
    pub(crate) fn is_for_last(&self) -> bool {
        matches!(self.obstacle, Obstacle::Last(_))
    }

    /// The change that the watches have reported so far.
    pub(crate) fn news(&mut self) -> News {
        while self.news == News::Nothing {
            match self.events.next().now_or_never() {
                Some(Some(news)) => self.news = news,
                Some(None) | None => break,
            }
        }
        self.news
    }

    /// Asks the server for a change that the watches may have missed. This costs one small read,
    /// unless the presence of more than one node matters.
    ///
    /// # Errors
    /// The server does not answer.
    pub(crate) async fn probe(
        &mut self,
        session: &Session,
        client: &Client,
        folder: &str,
    ) -> Result<News> {
        let (Obstacle::Last(name) | Obstacle::Next(name)) = &self.obstacle else {
            return Ok(News::Changed);
        };
        let path = format!("{folder}/{name}");
        match client.check_stat(&path).await {
            Ok(Some(_)) => Ok(News::Nothing),
            Ok(None) => Ok(News::Gone),
            Err(error) => Err(session.failed(error, Phase::Write, "looking for", &path)),
        }
    }

    /// Completes when a watch has fired.
    ///
    /// # Cancel safety
    /// Cancel safe.
    pub(crate) async fn changed(&mut self) {
        if self.news != News::Nothing {
            return;
        }
        match self.events.next().await {
            Some(news) => self.news = news,
            None => pending().await,
        }
    }
}

impl fmt::Debug for Watching {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watching")
            .field("obstacle", &self.obstacle)
            .field("news", &self.news)
            .finish_non_exhaustive()
    }
}

fn event(watcher: OneshotWatcher) -> BoxFuture<'static, News> {
    // The client's future panics if the client's task ended with its runtime.
    let event = AssertUnwindSafe(watcher.changed()).catch_unwind();
    async move {
        match event.await {
            Ok(event) if event.event_type == EventType::NodeDeleted => News::Gone,
            Ok(_) | Err(_) => News::Changed,
        }
    }
    .boxed()
}
