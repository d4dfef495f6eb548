//! A lock over five Redis servers, while some of them die, become silent, or come back empty.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::{Duration, Instant},
};

use lockkit::{
    ErrorKind, LockGuard, LockOptions, Locker, Memory,
    quorum::Quorum,
    redis::{Config, Redis},
    spi::Backend,
    url::StoreUrl,
};
use lockkit_conformance::{Faults, Link, Stay, Witness, proxy::Proxy};
use lockkit_fixture::{
    RedisServer,
    claims::{Register, persistently},
};
use tokio::{
    task::JoinSet,
    time::{sleep, timeout},
};

/// For tests that retry failed calls until the lock is granted.
const TTL: Duration = Duration::from_secs(4);
const OP_TIMEOUT: Duration = Duration::from_secs(2);
/// For tests in which each call must succeed, although a server may pause for seconds.
const LONG_TTL: Duration = Duration::from_secs(60);
const LONG_TIMEOUT: Duration = Duration::from_secs(20);
/// The bound for events that must happen.
const SOON: Duration = Duration::from_secs(60);

const fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Five servers, each behind a proxy.
struct Five {
    servers: Vec<RedisServer>,
    proxies: Vec<Proxy>,
}

impl Five {
    async fn start() -> Self {
        let servers: Vec<_> = (0..5).map(|_| RedisServer::start().unwrap()).collect();
        let mut proxies = Vec::new();
        for server in &servers {
            proxies.push(Proxy::start(([127, 0, 0, 1], server.port()).into()).await.unwrap());
        }
        Self { servers, proxies }
    }

    fn url(&self) -> String {
        // A member may stall for seconds.
        let patient = "%3Fconnect_timeout%3D5s";
        let member = |proxy: &Proxy| format!("member=redis://{}/{patient}", proxy.addr());
        let members = self.proxies.iter().map(member);
        format!("quorum://?{}", members.collect::<Vec<_>>().join("&"))
    }

    async fn locker(&self) -> Locker {
        self.locker_with(TTL, OP_TIMEOUT).await
    }

    async fn locker_with(&self, ttl: Duration, op_timeout: Duration) -> Locker {
        let locker = lockkit::connect(&self.url()).await.unwrap();
        locker.with_defaults(LockOptions::new().with_ttl(ttl).with_op_timeout(op_timeout)).unwrap()
    }

    fn silence(&self, places: &[usize]) {
        places.iter().for_each(|place| Link::set(&self.proxies[*place], Faults::SILENCE));
    }

    fn heal(&self) {
        self.proxies.iter().for_each(Proxy::heal);
    }

    /// Waits until only the last tokens of idle names are left on these servers.
    async fn is_clean(&self, places: &[usize]) {
        let start = Instant::now();
        while !self.left(places).is_empty() {
            assert!(start.elapsed() < SOON, "left: {}", self.left(places));
            sleep(ms(10)).await;
        }
    }

    /// The keys on these servers, without the last token of each.
    fn left(&self, places: &[usize]) -> String {
        let keys = places.iter().map(|place| {
            let script = "local left = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
                          if string.sub(key, -6) ~= ':token' and string.sub(key, -5) ~= ':keys' \
                          then left[#left + 1] = key end end return table.concat(left, ' ')";
            self.servers[*place].ask(["EVAL", script, "0"]).unwrap().text()
        });
        keys.filter(|keys| !keys.is_empty()).collect::<Vec<_>>().join(", ")
    }
}

/// The resource that the lock protects, and a record of the lock's holders.
#[derive(Default)]
struct Protected {
    register: Register,
    witness: Witness,
}

impl Protected {
    /// Works under the lock. Panics if the resource refuses a holder that still has the lock.
    async fn visit(&self, asked: Instant, guard: &LockGuard, strict: bool) {
        let mut stay = Stay { asked: Some(asked), ..Stay::begin(guard) };
        let written = self.register.write(stay.token);
        sleep(ms(rand::random_range(0..4))).await;
        if stay.look(guard) {
            let token = stay.token;
            assert!(
                written || !strict,
                "C1: token {token} was refused, and its holder still has it"
            );
        }
        self.witness.record(stay);
    }

    /// As [`Witness::verify`]; after a member forgot its grants, it checks only the tokens. Returns
    /// how many stays there were.
    fn verify(&self, exclusive: bool) -> usize {
        if exclusive { self.witness.verify() } else { self.witness.verify_tokens().len() }
    }
}

/// Several lockers that compete until the test ends them.
struct Crowd {
    protected: Arc<Protected>,
    ended: Arc<AtomicBool>,
    tasks: JoinSet<usize>,
    lockers: Vec<Locker>,
}

impl Crowd {
    async fn start(five: &Five, strict: bool) -> Self {
        let protected = Arc::new(Protected::default());
        let ended = Arc::new(AtomicBool::new(false));
        let mut tasks = JoinSet::new();
        let mut lockers = Vec::new();
        for _ in 0..4 {
            let locker = five.locker().await;
            for _ in 0..2 {
                let locker = locker.clone();
                let protected = Arc::clone(&protected);
                let ended = Arc::clone(&ended);
                tasks.spawn(async move {
                    let mutex = locker.mutex("contended").unwrap();
                    let mut errors = 0;
                    while !ended.load(SeqCst) {
                        let asked = Instant::now();
                        match mutex.lock_timeout(OP_TIMEOUT * 2).await {
                            Ok(guard) => {
                                protected.visit(asked, &guard, strict).await;
                                errors += usize::from(guard.release().await.is_err());
                            }
                            Err(error) if error.kind() == ErrorKind::Timeout => {}
                            Err(error) => {
                                assert!(error.is_temporary(), "{error:?}");
                                errors += 1;
                            }
                        }
                    }
                    errors
                });
            }
            lockers.push(locker);
        }
        Self { protected, ended, tasks, lockers }
    }

    fn grants(&self) -> usize {
        self.protected.witness.count()
    }

    /// Panics unless the lock continues to be granted: for `span`, or longer if grants are slow.
    async fn goes_on(&self, what: &str, span: Duration) {
        let before = self.grants();
        let start = Instant::now();
        let grants = loop {
            sleep(ms(10)).await;
            let grants = self.grants() - before;
            let took = start.elapsed();
            if took >= span && grants >= 20 {
                break grants;
            }
            assert!(took < span + SOON, "{what}: {grants} grants in {took:?}");
        };
        println!("{what}: {grants} grants in {:?}", start.elapsed());
    }

    async fn end(self, exclusive: bool) -> usize {
        self.ended.store(true, SeqCst);
        let errors: usize = self.tasks.join_all().await.into_iter().sum();
        for locker in self.lockers {
            // A second call tries again what a slow member left over.
            let shutdown = async {
                while let Err(error) = locker.shutdown().await {
                    assert!(error.is_temporary(), "{error}");
                    sleep(ms(10)).await;
                }
            };
            timeout(SOON, shutdown).await.expect("a shutdown waits for ever");
        }
        let grants = self.protected.verify(exclusive);
        println!("{grants} grants, {errors} errors");
        grants
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_c8_a_minority_may_fail_or_stop_answering() {
    let mut five = Five::start().await;
    let crowd = Crowd::start(&five, true).await;
    crowd.goes_on("all five", ms(1_500)).await;
    five.silence(&[0, 3]);
    crowd.goes_on("two partitioned", ms(2_500)).await;
    five.heal();
    crowd.goes_on("healed", ms(1_500)).await;
    five.servers[1].kill().unwrap();
    five.servers[4].kill().unwrap();
    crowd.goes_on("two killed", ms(2_500)).await;
    five.silence(&[1, 4]);
    crowd.goes_on("two killed and silent", ms(2_500)).await;
    crowd.end(true).await;
    five.is_clean(&[0, 2, 3]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c4_tokens_rise_although_a_member_restarts_empty() {
    let mut five = Five::start().await;
    let crowd = Crowd::start(&five, false).await;
    for place in [2, 0, 2, 4] {
        five.servers[place].restart().unwrap();
        crowd.goes_on("one came back empty", ms(1_000)).await;
    }
    crowd.end(false).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_a_storm_of_kills_and_partitions() {
    const STORM: Duration = Duration::from_secs(15);
    const GRANTS: usize = 100;
    let mut five = Five::start().await;
    let crowd = Crowd::start(&five, true).await;
    let start = Instant::now();
    let mut faults = 0;
    // The storm is long enough to meet several faults, however slow the grants are.
    while start.elapsed() < STORM
        || start.elapsed() < SOON * 4 && (faults <= 8 || crowd.grants() <= GRANTS)
    {
        let place = rand::random_range(0..5);
        let other = (place + rand::random_range(1..5)) % 5;
        match rand::random_range(0..4) {
            0 => five.silence(&[place]),
            1 => five.silence(&[place, other]),
            2 => five.proxies[place].reset_all(),
            _ => {
                five.servers[place].kill().unwrap();
                five.silence(&[other]);
                // A member that has lost its data stays out for one ttl.
                sleep(TTL + ms(100)).await;
                five.servers[place].restart().unwrap();
            }
        }
        sleep(ms(rand::random_range(50..700))).await;
        five.heal();
        faults += 1;
        sleep(ms(rand::random_range(0..300))).await;
    }
    crowd.goes_on("after the storm", ms(0)).await;
    let grants = crowd.end(true).await;
    assert!(grants > GRANTS, "{faults} faults, {grants} grants");
    five.is_clean(&[0, 1, 2, 3, 4]).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c13_c6_without_a_majority_a_claim_fails_in_time_without_leftovers() {
    const OP_TIMEOUT: Duration = ms(10_000);
    let mut five = Five::start().await;
    let locker = five.locker_with(LONG_TTL, OP_TIMEOUT).await;
    let mutex = locker.mutex("x").unwrap();
    mutex.lock().await.unwrap().release().await.unwrap();
    for place in [0, 2, 3] {
        five.servers[place].kill().unwrap();
    }
    for silent in [false, true] {
        if silent {
            [0, 2, 3].iter().for_each(|place| five.servers[*place].restart().unwrap());
            five.silence(&[0, 2, 3]);
        }
        for bound in [None, Some(ms(300)), Some(ms(3_300))] {
            let in_doubt = silent && bound == Some(ms(300));
            // A call that does not keep its bound is later than a busy machine alone would make it.
            let most = if bound.is_some() { OP_TIMEOUT } else { OP_TIMEOUT * 2 };
            let asking = Instant::now();
            loop {
                let start = Instant::now();
                let answer = match bound {
                    None => mutex.try_lock().await,
                    Some(bound) => mutex.lock_timeout(bound).await.map(Some),
                };
                let took = start.elapsed();
                let error = answer.unwrap_err();
                assert!(took < most, "{bound:?}: {took:?} of {most:?}");
                assert_eq!(error.kind(), ErrorKind::Unavailable, "{error:?}");
                println!("{bound:?}, after {took:?}: {error}");
                if in_doubt {
                    break;
                }
                // A slow answer may leave some outcomes unknown, but not all.
                if error.is_outcome_unknown() && asking.elapsed() < SOON {
                    continue;
                }
                let text = error.to_string();
                assert!(
                    text.contains(" of 5 members granted, 3 are needed: member 1 (redis://"),
                    "{text}"
                );
                assert!(!text.contains('\n') && !error.is_outcome_unknown(), "{text}");
                break;
            }
        }
        // This is long before a lease would end.
        timeout(LONG_TTL / 2, five.is_clean(&[1, 4])).await.expect("something is left");
    }
    let start = Instant::now();
    let shutdown = locker.shutdown().await;
    println!("shutdown after {:?}: {shutdown:?}", start.elapsed());
    assert_eq!(five.left(&[1, 4]), "");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_members_that_are_down_at_the_start_join_later() {
    let mut five = Five::start().await;
    five.servers[0].kill().unwrap();
    five.silence(&[3]);
    let locker = five.locker_with(LONG_TTL, LONG_TIMEOUT).await;
    let mutex = locker.mutex("x").unwrap();
    let first = mutex.lock().await.unwrap();
    five.servers[0].restart().unwrap();
    five.heal();
    sleep(ms(600)).await;
    let token = first.fencing_token();
    first.release().await.unwrap();
    // Without two members of the first majority, the members that came later form the majority.
    drop(mutex.lock().await.unwrap());
    five.silence(&[1, 4]);
    sleep(ms(600)).await;
    let second = mutex.lock_timeout(SOON).await.expect("no other claim wants the lock");
    assert!(second.fencing_token() > token);
    second.release().await.unwrap();
    locker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c8_two_silent_members_cost_no_time() {
    let five = Five::start().await;
    let locker = five.locker_with(LONG_TTL, LONG_TIMEOUT).await;
    let mutex = locker.mutex("x").unwrap();
    drop(mutex.lock().await.unwrap());
    five.silence(&[1, 2]);
    // A call that waits for a silent member waits for its whole op_timeout. It does so each time,
    // or each time that it is that member's turn.
    let turns = async {
        for _ in 0..20 {
            let guard = mutex.lock().await.unwrap();
            guard.release().await.unwrap();
        }
    };
    timeout(SOON, turns).await.expect("silent members are waited for");
    five.heal();
    locker.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn c1_c4_stores_of_several_kinds_make_a_quorum() {
    let servers = [RedisServer::start().unwrap(), RedisServer::start().unwrap()];
    let memory = Memory::new();
    let quorum = async || {
        let mut members: Vec<Arc<dyn Backend>> = vec![Arc::new(memory.clone())];
        for server in &servers {
            let config = Config::from_url(StoreUrl::parse(&server.url()).unwrap()).unwrap();
            let config = config.with_connect_timeout(LONG_TIMEOUT).unwrap();
            members.push(Arc::new(Redis::connect(config).await.unwrap()));
        }
        let options = LockOptions::new().with_ttl(LONG_TTL).with_op_timeout(LONG_TIMEOUT);
        Locker::new(Quorum::new(members).unwrap()).with_defaults(options).unwrap()
    };
    let a = quorum().await;
    let b = quorum().await;
    let mut last = None;
    for round in 0..20 {
        let (first, second) = if round % 2 == 0 { (&a, &b) } else { (&b, &a) };
        let guard = first.mutex("x").unwrap().lock().await.unwrap();
        assert!(last.replace(guard.fencing_token()) < Some(guard.fencing_token()));
        assert!(second.mutex("x").unwrap().try_lock().await.unwrap().is_none());
        // A member that stalls leaves open which of two tokens is the grant's.
        let seen = persistently(async || b.inspect(guard.name()).await).await;
        assert_eq!(seen.holders[0].token, Some(guard.fencing_token()));
        assert_eq!(seen.holders[0].owner, Some(guard.owner()));
        guard.release().await.unwrap();
    }
    for locker in [a, b] {
        locker.shutdown().await.unwrap();
    }
    assert!(memory.is_empty());
}
