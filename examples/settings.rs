//! Settings from the environment: the store, the defaults of its locks, and clear errors.
//!
//! * `cargo run --features serde --example settings` starts itself with different variables, as a
//!   supervisor would. It runs on the embedded memory store.
//! * `APP_LOCK_URL=redis://127.0.0.1/ APP_LOCK_TTL=10s cargo run --features redis,serde --example
//!   settings` runs on Redis.
//!
//! A file of a program has the same keys: `Settings` is a field of the program's own configuration.

use std::{env, error::Error, process::Command};

use lockkit::{LockOptions, Locker, Result, Settings};

const PREFIX: &str = "APP_LOCK_";

/// The rest of the program knows neither the store nor the settings.
async fn work(locker: &Locker) -> Result<()> {
    let mutex = locker.mutex("settings/report")?;
    let patient = LockOptions::new().without_wait_bound(); // this lock's own option
    let guard = mutex.with_options(patient)?.lock().await?;
    let seen = locker.inspect(guard.name()).await?;
    let label = seen.holders.first().and_then(|holder| holder.label.as_deref());
    println!("held by {label:?} for {:?} more", guard.remaining());
    guard.release().await
}

async fn run() -> Result<()> {
    let settings = Settings::from_env(PREFIX)?;
    println!("{settings:?}"); // this never shows the password
    let locker = settings.connect(&lockkit::registry()).await?;
    work(&locker).await?;
    locker.shutdown().await
}

/// Starts this program with these variables, and says whether it succeeded.
fn start(variables: &[(&str, &str)]) -> Result<bool, Box<dyn Error>> {
    let variables = variables.iter().map(|(key, value)| (format!("{PREFIX}{key}"), value));
    Ok(Command::new(env::current_exe()?).envs(variables).status()?.success())
}

#[tokio::main]
async fn main() -> Result<(), Box<dyn Error>> {
    if env::var_os(format!("{PREFIX}URL")).is_some() {
        return Ok(run().await?);
    }
    let url = ("URL", "memory://?label=of%20the%20URL");
    assert!(start(&[url, ("TTL", "10s"), ("WAIT", "1m"), ("MAX_HOLD", "forever")])?);
    assert!(start(&[url, ("LABEL", "of the variable"), ("PROCESS_GATE", "false")])?);
    println!("three mistakes, and their errors:");
    assert!(!start(&[url, ("TLL", "10s")])?);
    assert!(!start(&[url, ("TTL", "10")])?);
    assert!(!start(&[url, ("TTL", "10s"), ("MAX_HOLD", "5s")])?);
    Ok(())
}
