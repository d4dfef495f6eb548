//! The part of ZooKeeper's protocol that writes one node.

use std::{
    io::{Read as _, Write as _},
    net::{SocketAddr, TcpStream},
    time::Duration,
};

const CREATE: i32 = 1;
const ALL_PERMISSIONS: i32 = 31;

/// Opens a session and makes a persistent node.
pub(super) fn create(addr: SocketAddr, path: &str) {
    try_create(addr, path).unwrap();
}

/// As [`create`], but may fail.
pub(super) fn try_create(addr: SocketAddr, path: &str) -> std::io::Result<()> {
    let mut stream = TcpStream::connect(addr)?;
    stream.set_read_timeout(Some(Duration::from_secs(60)))?;
    // Version, last zxid, timeout, session, password.
    let mut hello = vec![0; 4 + 8];
    hello.extend(4_000_i32.to_be_bytes());
    hello.extend([0; 8]);
    hello.extend(bytes(&[0; 16]));
    exchange(&mut stream, &hello)?;

    let mut request = [1_i32.to_be_bytes(), CREATE.to_be_bytes()].concat();
    request.extend(bytes(path.as_bytes()));
    request.extend(bytes(b""));
    request.extend([1_i32.to_be_bytes(), ALL_PERMISSIONS.to_be_bytes()].concat());
    request.extend(bytes(b"world"));
    request.extend(bytes(b"anyone"));
    request.extend(0_i32.to_be_bytes());
    let reply = exchange(&mut stream, &request)?;
    // Request number, zxid, error.
    assert_eq!(reply[12..16], [0; 4], "{path} was not created");
    Ok(())
}

fn bytes(data: &[u8]) -> Vec<u8> {
    let length = i32::try_from(data.len()).unwrap();
    [&length.to_be_bytes(), data].concat()
}

fn exchange(stream: &mut TcpStream, request: &[u8]) -> std::io::Result<Vec<u8>> {
    stream.write_all(&bytes(request))?;
    let mut length = [0; 4];
    stream.read_exact(&mut length)?;
    let mut reply = vec![0; usize::try_from(i32::from_be_bytes(length)).unwrap()];
    stream.read_exact(&mut reply)?;
    Ok(reply)
}
