//! The processes that take locks, each with its own link to the servers.

use std::{net::SocketAddr, path::PathBuf, time::Duration};

use super::Notes;
use crate::{
    child::{Child, Job, Program, Role},
    clock,
    error::Result,
    history::Event,
    link::Link,
    workload::Workload,
};

/// The settings that all processes get.
#[derive(Clone, Debug)]
pub(crate) struct Crew {
    pub(crate) program: Program,
    pub(crate) url: String,
    /// Other URLs of the same store.
    pub(crate) more_urls: Vec<String>,
    pub(crate) seed: u64,
    pub(crate) workload: Workload,
    pub(crate) register: SocketAddr,
    pub(crate) folder: PathBuf,
}

/// All processes, at their places.
#[derive(Debug)]
pub(crate) struct Fleet {
    crew: Crew,
    notes: Notes,
    places: Vec<Place>,
    /// The number of the next process.
    next: u32,
    /// The lives of processes that have ended.
    lives: Vec<Life>,
}

/// The start and the end of a process.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Life {
    pub(crate) process: u32,
    pub(crate) from: u64,
    pub(crate) to: u64,
}

/// A place for successive processes, and the link that they use.
#[derive(Debug)]
pub(crate) struct Place {
    pub(crate) child: Child,
    pub(crate) link: Option<Link>,
    /// The URL of the store, without the link.
    url: String,
    /// The start of its process.
    since: u64,
}

impl Place {
    fn life(&self) -> Life {
        Life { process: self.child.number(), from: self.since, to: clock::now() }
    }
}

impl Crew {
    fn job(&self, url: &str, process: u32) -> Job {
        Job {
            url: url.to_owned(),
            process,
            seed: self.seed,
            workload: self.workload.clone(),
            register: self.register,
            history: self.folder.join(format!("process-{process:04}.jsonl")),
        }
    }

    /// Starts a process that only looks, without a link.
    pub(crate) async fn observer(&self, number: u32) -> Result<Child> {
        Child::start(&self.program, Role::Observer(self.job(&self.url, number))).await
    }
}

impl Fleet {
    pub(crate) async fn start(crew: Crew, notes: Notes) -> Result<Self> {
        let mut fleet = Self { crew, notes, places: Vec::new(), next: 1, lives: Vec::new() };
        let urls: Vec<String> =
            [&fleet.crew.url].into_iter().chain(&fleet.crew.more_urls).cloned().collect();
        let places = 0..fleet.crew.workload.processes;
        for (_, url) in places.zip(urls.into_iter().cycle()) {
            let link = Link::to(&url).await?;
            let since = clock::now();
            let child = fleet.spawn(link.as_ref().map_or(&*url, Link::url)).await?;
            fleet.places.push(Place { child, link, url, since });
        }
        Ok(fleet)
    }

    async fn spawn(&mut self, url: &str) -> Result<Child> {
        let job = self.crew.job(url, self.next);
        self.next += 1;
        Child::start(&self.crew.program, Role::Holder(job)).await
    }

    pub(crate) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Kills the process at a place, and starts another one there.
    pub(crate) async fn replace(&mut self, place: usize) -> Result<()> {
        self.kill(place).await?;
        self.refill(place).await
    }

    async fn kill(&mut self, place: usize) -> Result<()> {
        let victim = self.places[place].child.number();
        self.places[place].child.kill().await?;
        self.notes.writer.write(Event::Died { victim });
        Ok(())
    }

    /// Starts another process at a place whose process has ended.
    async fn refill(&mut self, place: usize) -> Result<()> {
        self.lives.push(self.places[place].life());
        let Place { link, url, .. } = &self.places[place];
        let url = link.as_ref().map_or(&**url, Link::url).to_owned();
        let since = clock::now();
        self.places[place].child = self.spawn(&url).await?;
        self.places[place].since = since;
        Ok(())
    }

    /// Records each process that ended without an order to end, and replaces it.
    pub(crate) async fn look_after(&mut self) -> Result<()> {
        for place in 0..self.places.len() {
            if self.places[place].child.has_ended() {
                let victim = self.places[place].child.number();
                self.notes.writer.write(Event::Died { victim });
                self.notes.leaks(format!("process {victim} ended by itself"));
                self.refill(place).await?;
            }
        }
        Ok(())
    }

    /// Ends all processes, which first release their locks. Records each process that does not end
    /// in time, and returns the life of each process.
    pub(crate) async fn end(self, within: Duration) -> Vec<Life> {
        let Self { places, notes, mut lives, .. } = self;
        lives.extend(places.iter().map(Place::life));
        let ending = places.into_iter().map(|place| async {
            // The link of the process stays until the process has ended.
            let Place { child, link, .. } = place;
            let number = child.number();
            let in_order = child.end(within).await;
            drop(link);
            (number, in_order)
        });
        for (victim, in_order) in futures_util::future::join_all(ending).await {
            let why = match in_order {
                Ok(true) => continue,
                Ok(false) => {
                    format!("process {victim} did not release its locks and end within {within:?}")
                }
                Err(error) => error.to_string(),
            };
            notes.writer.write(Event::Died { victim });
            notes.leaks(why);
        }
        lives
    }

    /// Kills all processes, because the round cannot continue.
    pub(crate) async fn give_up(mut self) {
        for place in 0..self.places.len() {
            // If the kill fails, the drop of the process kills it.
            let _ = self.kill(place).await;
        }
    }
}
