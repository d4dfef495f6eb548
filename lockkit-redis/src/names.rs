//! Lists the names that are in use, and probes the server.

use std::{collections::BTreeMap, sync::Arc};

use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use lockkit_core::{
    ErrorKind, Kind, LockName, Result,
    spi::{Inspection, Role},
};
use redis::{Pipeline, RedisResult, Value};

use crate::{
    error::Phase,
    inspect,
    keys::{Keys, Keyspace, Sign},
    role, script,
    servers::{Destination, Link},
    store::Store,
};

/// How many keys the server looks at before it answers. So it is busy for only a fraction of a
/// millisecond.
const PAGE: usize = 500;
/// How many names are inspected at once.
const LOOKS: usize = 64;

/// The names of a kind that begin with `prefix` and that a claim holds or waits for.
///
/// Each page is asked for on the connection of the page before, because only this server knows what
/// its cursor means.
pub(crate) async fn names(
    store: &Store,
    keyspace: &Keyspace,
    kind: Kind,
    prefix: &str,
) -> Result<Vec<LockName>> {
    let pattern = keyspace.pattern(kind, prefix);
    let mut found: BTreeMap<LockName, Sign> = BTreeMap::new();
    for slot in store.patiently(store.slots()).await?? {
        let mut route = store.route(slot);
        let destination = store.patiently(route.next()).await??;
        let mut cursor = b"0".to_vec();
        loop {
            let page = store.patiently(scan(&destination, &cursor, &pattern)).await?;
            // No server redirects this request, because it names no key.
            let Some((next, keys)) = route.arrive(&destination, page, Phase::Read).await? else {
                continue;
            };
            for key in keys {
                let named =
                    std::str::from_utf8(&key).ok().and_then(|key| keyspace.name_of(key, kind));
                if let Some((name, sign)) =
                    named.filter(|(name, _)| name.as_str().starts_with(prefix))
                {
                    let known = found.entry(name).or_insert(sign);
                    *known = sign.max(*known);
                }
            }
            if next == b"0" {
                break;
            }
            cursor = next;
        }
    }
    let names = stream::iter(found).map(|(name, sign)| async move {
        let in_use = sign == Sign::Held || is_used(store, &keyspace.keys(&name)?, kind).await?;
        Ok(in_use.then_some(name))
    });
    names.buffer_unordered(LOOKS).try_filter_map(async |name| Ok(name)).try_collect().await
}

/// Reads `[cursor, keys]` from a server that is still the primary.
async fn scan(
    destination: &Destination,
    cursor: &[u8],
    pattern: &str,
) -> RedisResult<(Vec<u8>, Vec<Vec<u8>>)> {
    let mut questions = Pipeline::with_capacity(2);
    questions.cmd("SCAN").arg(cursor).arg("MATCH").arg(pattern).arg("COUNT").arg(PAGE).cmd("ROLE");
    let [page, role] = both(destination.link.send_all(&questions).await?)?;
    role::check(role.extract_error())?;
    redis::from_redis_value(page.extract_error()?).map_err(Into::into)
}

fn both(answers: Vec<Value>) -> RedisResult<[Value; 2]> {
    <[Value; 2]>::try_from(answers).map_err(|all| script::strange(&Value::Array(all)))
}

/// True if a claim holds the name or waits for it. The keys of dead claims stay for a while.
async fn is_used(store: &Store, keys: &Keys, kind: Kind) -> Result<bool> {
    match store.patiently(inspect::inspect(store, keys, kind)).await? {
        Ok(Inspection { holders, waiters, .. }) => Ok(!holders.is_empty() || waiters != Some(0)),
        // Such a key is in the way of every claim for the name.
        Err(error) if matches!(error.kind(), ErrorKind::NewerFormat | ErrorKind::WrongType) => {
            Ok(true)
        }
        Err(error) => Err(error),
    }
}

/// Asks the server that has these keys for its role. A server that is still loading would answer
/// that, too, and so would one that can't serve its part of a cluster. So the server is asked for a
/// key as well.
pub(crate) async fn probe(store: &Store, keys: &Keys) -> Result<Role> {
    let ask = |destination: Arc<Destination>| async move {
        role_of(&destination.link, &keys.counter).await
    };
    let role = store.route(keys.slot).lead(Phase::Read, ask).await?;
    if role == Role::Replica {
        // Another server is the primary now.
        store.mark_suspect(keys.slot);
    }
    Ok(role)
}

async fn role_of(link: &Link, key: &str) -> RedisResult<Role> {
    let mut questions = Pipeline::with_capacity(2);
    questions.cmd("EXISTS").arg(key).cmd("ROLE");
    let [exists, role] = both(link.send_all(&questions).await?)?;
    exists.extract_error()?;
    Ok(role::of(role.extract_error()))
}
