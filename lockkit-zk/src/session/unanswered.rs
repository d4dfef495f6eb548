//! Requests without an answer whose node was not found, although the servers may still make it.
//!
//! A server that is cut off from the leader keeps its clients' requests, and forwards them when it
//! is connected again. The leader refuses requests from a server that the session has left, unless
//! the session has come back to that server meanwhile. So a node can be made seconds after a `sync`
//! through another server has shown that it is not there. By then its claim may have another node.
//! Without this cleanup, no client would delete the late node, and claims behind it would wait
//! until the session ends. This happened with an ensemble whose leader was cut off for half a
//! second, and a follower right after that.

use std::{collections::HashMap, time::Duration};

use lockkit_core::{Clock, Tick};

use super::CleanupTask;

/// A server gives up its leader after `syncLimit` ticks, 10 s by default. It then drops the
/// requests that it has not forwarded. Clients cannot read the setting.
const LONGEST: Duration = Duration::from_secs(30);
/// The pause before the first look.
const FIRST_PAUSE: Duration = Duration::from_millis(200);
/// The longest pause before another look. With a short session timeout it is shorter, so that a
/// late node is gone within the lease (C5).
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// The requests that got no answer and whose node was not found, by the folder of the node.
#[derive(Debug)]
pub(super) struct UnansweredRequests {
    by_folder: HashMap<String, FolderRequests>,
    longest_pause: Duration,
}

#[derive(Debug)]
struct FolderRequests {
    cleanups: Vec<(CleanupTask, Tick)>,
    due: Tick,
    pause: Duration,
}

impl UnansweredRequests {
    /// For a session with this timeout.
    pub(super) fn new(timeout: Duration) -> Self {
        Self { by_folder: HashMap::new(), longest_pause: LONGEST_PAUSE.min(timeout / 2) }
    }

    pub(super) fn add(&mut self, cleanup: CleanupTask) {
        let now = Clock::Boot.now();
        let due = now.after(FIRST_PAUSE);
        let pause = FIRST_PAUSE;
        let folder = cleanup.folder().to_owned();
        let requests = self.by_folder.entry(folder).or_insert_with(|| FolderRequests {
            cleanups: Vec::new(),
            due,
            pause,
        });
        requests.cleanups.push((cleanup, now.after(LONGEST)));
        (requests.due, requests.pause) = (requests.due.min(due), pause);
    }

    /// Returns a folder to look into now. The folder is due again after twice the pause.
    pub(super) fn next(&mut self) -> Option<String> {
        let now = Clock::Boot.now();
        let (folder, requests) =
            self.by_folder.iter_mut().find(|(_, requests)| requests.due <= now)?;
        requests.pause = (requests.pause * 2).min(self.longest_pause);
        requests.due = now.after(requests.pause);
        Some(folder.clone())
    }

    pub(super) fn is_empty(&self) -> bool {
        self.by_folder.is_empty()
    }

    /// When the next look is due.
    pub(super) fn due(&self) -> Option<Tick> {
        self.by_folder.values().map(|requests| requests.due).min()
    }

    /// Removes the requests whose nodes were made after all, and forgets the requests that can no
    /// longer be applied.
    pub(super) fn found(&mut self, folder: &str, children: &[String]) -> Vec<CleanupTask> {
        let Some(requests) = self.by_folder.get_mut(folder) else { return Vec::new() };
        let now = Clock::Boot.now();
        let made = |(cleanup, _): &mut (CleanupTask, Tick)| cleanup.is_among(children);
        let found: Vec<_> =
            requests.cleanups.extract_if(.., made).map(|(cleanup, _)| cleanup).collect();
        requests.cleanups.retain(|(_, until)| *until > now);
        if requests.cleanups.is_empty() {
            self.by_folder.remove(folder);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use lockkit_fixture::{ZooKeeperOptions, ZooKeeperServer, claims::until};
    use zookeeper_client::{Acls, CreateMode};

    use super::{
        super::{Session, UnfairNode, lock, open::open},
        *,
    };
    use crate::Config;

    const FOLDER: &str = "/lockkit/mutex/x";

    /// A server for a session without heartbeats for six minutes: only the unanswered requests
    /// cause a look.
    fn start() -> ZooKeeperServer {
        ZooKeeperServer::start_with(
            ZooKeeperOptions::default().with_config("maxSessionTimeout=3600000"),
        )
        .unwrap()
    }

    async fn session(server: &ZooKeeperServer) -> Session {
        let url = server.url() + "?session_timeout=1h&connect_timeout=60s";
        let config = Config::from_url(lockkit_core::url::StoreUrl::parse(&url).unwrap()).unwrap();
        // A paused server grants no session.
        let session = loop {
            match open(&config).await {
                Ok(session) => break session,
                Err(error) => assert!(error.is_temporary(), "{error}"),
            }
        };
        let options = CreateMode::Persistent.with_acls(Acls::anyone_all());
        session.client().unwrap().mkdir(FOLDER, &options).await.unwrap();
        session
    }

    /// Adds cleanups as the actor does for abandoned claims, and waits until it has looked and
    /// found nothing.
    async fn add_cleanup<const N: usize>(session: &Session, cleanups: [CleanupTask; N]) {
        lock(&session.shared.cleanups).extend(cleanups);
        session.shared.work.notify_one();
        let in_doubt = || {
            lock(&session.shared.unanswered)
                .by_folder
                .get(FOLDER)
                .map_or(0, |folder| folder.cleanups.len())
        };
        until("all are in doubt", async || in_doubt() == N).await;
    }

    async fn becomes_empty(session: &Session) {
        let client = session.client().unwrap();
        until("nothing stays", async || client.list_children(FOLDER).await.unwrap().is_empty())
            .await;
    }

    fn queue_node(stem: &str) -> CleanupTask {
        CleanupTask::Requested { folder: FOLDER.into(), stem: stem.into() }
    }

    #[tokio::test]
    async fn c5_c6_a_node_that_is_made_after_it_was_not_found_is_deleted() {
        let server = start();
        let session = session(&server).await;
        add_cleanup(&session, [queue_node("late-lock-"), queue_node("never-lock-")]).await;
        let client = session.client().unwrap();
        let options = CreateMode::EphemeralSequential.with_acls(Acls::anyone_all());
        client.create(&format!("{FOLDER}/late-lock-"), b"", &options).await.unwrap();
        becomes_empty(&session).await;
    }

    #[tokio::test]
    async fn c5_c6_an_unfair_node_that_is_made_after_it_was_not_found_is_deleted() {
        let server = start();
        let session = session(&server).await;
        let client = session.client().unwrap();
        let late = UnfairNode::new(FOLDER);
        let other = UnfairNode::new(FOLDER);
        add_cleanup(&session, [CleanupTask::UnfairNode(Box::new(late.clone()))]).await;
        late.make(&client, b"", Acls::anyone_all()).await.unwrap();
        becomes_empty(&session).await;
        // A node of another claim stays.
        other.make(&client, b"", Acls::anyone_all()).await.unwrap();
        tokio::time::sleep(FIRST_PAUSE * 5).await;
        assert_eq!(client.list_children(FOLDER).await.unwrap().len(), 2);
    }

    #[test]
    fn unanswered_requests_of_a_folder_share_their_polls_and_end() {
        let mut unanswered = UnansweredRequests::new(Duration::from_secs(4));
        unanswered.add(queue_node("a-lock-"));
        unanswered.add(queue_node("b-lock-"));
        assert_eq!(unanswered.next(), None, "not at once");
        for requests in unanswered.by_folder.values_mut() {
            requests.due = Clock::Boot.now();
        }
        assert_eq!(unanswered.next().as_deref(), Some(FOLDER));
        assert_eq!(unanswered.next(), None, "one look for both");
        let found = unanswered
            .found(FOLDER, &["c-lock-0000000001".to_owned(), "b-lock-0000000002".to_owned()]);
        assert_eq!(found, [queue_node("b-lock-")]);
        for requests in unanswered.by_folder.values_mut() {
            requests.cleanups.iter_mut().for_each(|(_, until)| *until = Clock::Boot.now());
        }
        assert_eq!(unanswered.found(FOLDER, &[]), []);
        assert!(unanswered.by_folder.is_empty(), "what can't come any more is forgotten");
    }

    /// Catches looks that are so far apart that a late node outlives a short lease.
    #[test]
    fn c5_the_pauses_between_two_looks_stay_below_the_session_timeout() {
        for (timeout, longest) in [(4, 2), (600, 5)] {
            let mut unanswered = UnansweredRequests::new(Duration::from_secs(timeout));
            unanswered.add(queue_node("a-lock-"));
            for _ in 0..9 {
                let requests = unanswered.by_folder.get_mut(FOLDER).unwrap();
                requests.due = Clock::Boot.now();
                unanswered.next().unwrap();
            }
            assert_eq!(unanswered.by_folder[FOLDER].pause, Duration::from_secs(longest));
        }
    }
}
