//! A quorum of three servers, any one of which may be missing.

use libtest_mimic::Failed;
use lockkit_fixture::{RedisOptions, SqlFlavor};
use lockkit_torture::site::{BoxError, ServerFault, Site};

use super::{
    Rounds, choose, lasting,
    redis::Redis,
    server::Server,
    sql::{Sql, Strategy},
};

const KILL_ONE: &str = "kill-one";
const KILL_TWO: &str = "kill-two";
const STOP_ONE: &str = "stop-one";
const STOP_TWO: &str = "stop-two";

const MEMBERS: usize = 3;

#[derive(Debug)]
struct Quorum {
    name: &'static str,
    members: [Box<dyn Server>; MEMBERS],
    rounds: Rounds,
    struck: Option<Struck>,
}

#[derive(Debug)]
enum Struck {
    Killed(Vec<usize>),
    Stopped(Vec<usize>),
}

pub(super) fn of_redis() -> Result<Box<dyn Site>, Failed> {
    let redis = || Redis::durable(RedisOptions::default());
    start("quorum", [Box::new(redis()?), Box::new(redis()?), Box::new(redis()?)])
}

/// Members that raise tokens, each in its own way. ZooKeeper can't raise tokens, so it can't be in
/// the majority.
pub(super) fn mixed() -> Result<Box<dyn Site>, Failed> {
    let redis = || Redis::durable(RedisOptions::default());
    let mariadb = Sql::start(SqlFlavor::MariaDb, Strategy::Optimistic)?;
    start("quorum-mixed", [Box::new(redis()?), Box::new(mariadb), Box::new(redis()?)])
}

fn start(name: &'static str, members: [Box<dyn Server>; MEMBERS]) -> Result<Box<dyn Site>, Failed> {
    Ok(Box::new(Quorum { name, members, rounds: Rounds::default(), struck: None }))
}

/// Escapes a URL for use as the value of a parameter.
fn escaped(url: &str) -> String {
    let special = |c: char| matches!(c, '%' | '?' | '&' | '=' | '#' | '+');
    url.chars()
        .map(|c| if special(c) { format!("%{:02X}", u32::from(c)) } else { c.to_string() })
        .collect()
}

impl Site for Quorum {
    fn name(&self) -> &str {
        self.name
    }

    fn open(&mut self) -> Result<String, BoxError> {
        let namespace = self.rounds.next();
        let members = self
            .members
            .iter()
            .map(|member| format!("member={}", escaped(&member.url(&namespace))));
        Ok(format!("quorum://?{}", members.collect::<Vec<_>>().join("&")))
    }

    /// Members write every grant to their disks, so no member comes back without its grants.
    fn faults(&self) -> Vec<ServerFault> {
        vec![
            lasting(STOP_ONE, 200..=3_000),
            lasting(KILL_ONE, 0..=1_500),
            lasting(STOP_TWO, 200..=3_000),
            lasting(KILL_TWO, 0..=1_500),
        ]
    }

    fn strike(&mut self, fault: &ServerFault, chance: u64) -> Result<String, BoxError> {
        let first = choose(chance, MEMBERS);
        let members = match fault.kind {
            KILL_ONE | STOP_ONE => vec![first],
            _ => vec![first, (first + 1) % MEMBERS],
        };
        for &member in &members {
            match fault.kind {
                KILL_ONE | KILL_TWO => self.members[member].process().kill()?,
                STOP_ONE | STOP_TWO => self.members[member].process().pause()?,
                kind => return Err(format!("no fault of a quorum: {kind}").into()),
            }
        }
        let target = format!("members {members:?}");
        let killed = matches!(fault.kind, KILL_ONE | KILL_TWO);
        self.struck = Some(if killed { Struck::Killed(members) } else { Struck::Stopped(members) });
        Ok(target)
    }

    fn heal(&mut self) -> Result<(), BoxError> {
        match self.struck.take() {
            None => {}
            Some(Struck::Killed(members)) => {
                for member in members {
                    self.members[member].restart()?;
                }
            }
            Some(Struck::Stopped(members)) => {
                for member in members {
                    self.members[member].process().resume()?;
                }
            }
        }
        Ok(())
    }

    fn leaks(&mut self) -> Result<Vec<String>, BoxError> {
        let namespace = self.rounds.now();
        let mut leaks = Vec::new();
        for (index, member) in self.members.iter().enumerate() {
            leaks.extend(
                member.leaks(&namespace)?.into_iter().map(|leak| format!("member {index}: {leak}")),
            );
        }
        Ok(leaks)
    }
}
