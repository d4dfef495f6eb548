//! A shop as a service with several replicas. All replicas take orders, and the leader ships them.

mod replica;
mod shop;

use std::{env, fs, path::PathBuf, sync::Arc};

use axum::{
    Json, Router,
    extract::State,
    http::StatusCode,
    routing::{get, post},
};
use serde_json::{Value, json};
use tokio::{
    net::TcpListener,
    signal::unix::{SignalKind, signal},
};

use crate::{
    replica::{Failure, Replica},
    shop::Shop,
};

/// The reason why a request failed, as text.
type Refusal = (StatusCode, String);

#[tokio::main]
async fn main() -> Result<(), Failure> {
    let mut words = env::args().skip(1);
    let folder = PathBuf::from("/var/tmp/lockkit-example-service");
    fs::create_dir_all(&folder)?;
    let address = words.next().unwrap_or_else(|| "127.0.0.1:8081".to_owned());
    let url = words.next().unwrap_or_else(|| format!("file://{}/locks", folder.display()));
    let shop = Shop::open(words.next().map_or_else(|| folder.join("shop.db"), Into::into))?;

    let mut told_to_end = signal(SignalKind::terminate())?;
    let listener = TcpListener::bind(address).await?;
    let address = listener.local_addr()?;
    let replica = Arc::new(Replica::new(address.to_string(), lockkit::connect(&url).await?, shop)?);
    let routes = Router::new().route("/", get(status)).route("/orders", post(order));
    let serving = axum::serve(listener, routes.with_state(Arc::clone(&replica)));
    println!("listens on http://{address}/");
    tokio::select! {
        served = serving.with_graceful_shutdown(async move {
            tokio::select! {
                _ = told_to_end.recv() => {}
                _ = tokio::signal::ctrl_c() => {}
            }
        }) => served?,
        // This returns only after an error from which the replica can't recover.
        led = replica.lead() => led?,
    }
    // This waits until lockkit has released the leadership and all locks, so that the next leader
    // need not wait for the end of a lease.
    replica.locker.shutdown().await?;
    println!("ended in order");
    Ok(())
}

async fn status(State(replica): State<Arc<Replica>>) -> Result<Json<Value>, Refusal> {
    let leader = replica.election.leader().await.map_err(unavailable)?;
    let (placed, shipped) = replica.shop.count().map_err(unavailable)?;
    Ok(Json(json!({
        "replica": replica.name,
        "leads": replica.is_leader(),
        "leader": leader.as_ref().map(|leader| &leader.value),
        "term": leader.as_ref().map(|leader| leader.term.get()),
        "orders": { "placed": placed, "shipped": shipped },
    })))
}

async fn order(State(replica): State<Arc<Replica>>) -> Result<(StatusCode, Json<Value>), Refusal> {
    let (number, token) = replica.take_order().await.map_err(unavailable)?;
    Ok((StatusCode::CREATED, Json(json!({ "order": number, "token": token.get() }))))
}

fn unavailable(error: impl ToString) -> Refusal {
    (StatusCode::SERVICE_UNAVAILABLE, error.to_string())
}
