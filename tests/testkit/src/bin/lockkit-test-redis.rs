//! Holds a throw-away Redis server until it is killed or its standard input ends, for trying things
//! out by hand.

use std::io::Read as _;

fn main() -> anyhow::Result<()> {
    let server = lockkit_fixture::RedisServer::start()?;
    println!("{} {}", server.url(), server.pid());
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}
