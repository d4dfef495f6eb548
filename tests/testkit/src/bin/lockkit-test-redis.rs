//! Runs a temporary Redis server for experiments by hand, until this program is killed or its
//! standard input ends.

use std::io::Read as _;

fn main() -> anyhow::Result<()> {
    let server = lockkit_fixture::RedisServer::start()?;
    println!("{} {}", server.url(), server.pid());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
