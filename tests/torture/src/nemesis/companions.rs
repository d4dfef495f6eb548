//! The register and the observer, which are processes that take no locks.

use std::time::Duration;

use tokio::time::sleep;

use super::{Crew, Life, Notes};
use crate::{
    child::Child,
    clock,
    error::{Error, Result},
    history::{DIRECTOR, Event},
};

const BETWEEN_LOOKS: Duration = Duration::from_millis(100);
/// The number of the first observer. Later observers get smaller numbers, so the numbers of the
/// holders depend only on the seed.
const OBSERVER: u32 = 0;

/// The register and the observer. This watches both.
#[derive(Debug)]
pub(crate) struct Companions {
    crew: Crew,
    notes: Notes,
    register: Child,
    observer: Child,
    since: u64,
    /// The number of the next observer.
    next: u32,
}

impl Companions {
    pub(crate) async fn start(crew: Crew, register: Child, notes: Notes) -> Result<Self> {
        let since = clock::now();
        let observer = crew.observer(OBSERVER).await?;
        Ok(Self { crew, notes, register, observer, since, next: DIRECTOR - 1 })
    }

    /// Watches both. Returns an error that ends the round.
    pub(crate) async fn watch(&mut self) -> Error {
        loop {
            if let Err(error) = self.look_after().await {
                return error;
            }
            sleep(BETWEEN_LOOKS).await;
        }
    }

    /// Replaces an observer that ended by itself. The end of the register is an error, because then
    /// the run does not compare the holders' writes.
    async fn look_after(&mut self) -> Result<()> {
        if self.register.has_ended() {
            return Err(Error::new("the register ended by itself"));
        }
        if self.observer.has_ended() { self.replace_observer().await } else { Ok(()) }
    }

    async fn replace_observer(&mut self) -> Result<()> {
        let victim = self.observer.number();
        self.notes.writer.write(Event::Died { victim });
        self.notes.leaks(format!("the observer, process {victim}, ended by itself"));
        let since = clock::now();
        self.observer = self.crew.observer(self.next).await?;
        (self.since, self.next) = (since, self.next - 1);
        Ok(())
    }

    /// Ends both, and records each process that does not end by itself. Returns the life of the
    /// observer.
    pub(crate) async fn end(self, within: Duration) -> Life {
        let life = Life { process: self.observer.number(), from: self.since, to: clock::now() };
        // All processes that write to the register have ended.
        for child in [self.observer, self.register] {
            let number = child.number();
            match child.end(within).await {
                Ok(true) => {}
                Ok(false) => {
                    self.notes.leaks(format!("process {number} did not end after its order to end"))
                }
                Err(error) => self.notes.leaks(error.to_string()),
            }
        }
        life
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{
        child::{Program, Role},
        history::{Writer, read},
        workload::Workload,
    };

    /// Answers as a child does, and lives until the end of its input.
    fn program() -> Program {
        let ready = r#"read -r _; echo '{"ready":{"address":"127.0.0.1:9"}}'; read -r _"#;
        Program { program: "sh".into(), arguments: vec!["-c".into(), ready.into()] }
    }

    #[tokio::test]
    async fn a_dead_observer_is_replaced_and_a_dead_register_ends_the_round() {
        let folder = tempfile::tempdir().unwrap();
        let notes =
            Notes::new(Writer::create(&folder.path().join("director.jsonl"), DIRECTOR).unwrap());
        let history = folder.path().join("register.jsonl");
        let register = Child::start(&program(), Role::Register { history }).await.unwrap();
        let crew = Crew {
            program: program(),
            url: "redis://h".to_owned(),
            more_urls: Vec::new(),
            seed: 1,
            workload: Workload::new(1, 1),
            register: register.address().unwrap(),
            folder: folder.path().to_owned(),
        };
        let mut companions = Companions::start(crew, register, notes).await.unwrap();
        companions.observer.kill().await.unwrap();
        companions.look_after().await.unwrap();
        assert!(!companions.observer.has_ended(), "there is another one");
        assert_eq!(companions.observer.number(), DIRECTOR - 1);
        companions.register.kill().await.unwrap();
        assert_eq!(companions.watch().await.to_string(), "the register ended by itself");
        let events: Vec<_> =
            read(folder.path()).unwrap().into_iter().map(|record| record.event).collect();
        assert!(events.contains(&Event::Died { victim: OBSERVER }), "{events:?}");
        assert!(events.iter().any(|event| matches!(event, Event::Leaks { .. })), "{events:?}");
    }
}
