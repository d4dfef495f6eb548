//! Checks without an SQL client whether a server answers.

use std::{
    io::{self, Read as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// The version of the protocol, at the start of a server's greeting.
const GREETING: u8 = 10;
/// The start of a refusal, such as "too many connections", which also counts as an answer.
const REFUSAL: u8 = 0xff;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Asks through the socket in the server's own folder, because another program might answer on the
/// port. The server opens its port before its socket, and sends no greeting before its start is
/// complete.
pub(super) fn answers(socket: &Path) -> bool {
    first_byte(socket).is_ok_and(|byte| byte == GREETING || byte == REFUSAL)
}

fn first_byte(socket: &Path) -> io::Result<u8> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(TIMEOUT))?;
    // Three bytes of length and a number precede the packet.
    let mut packet = [0; 5];
    stream.read_exact(&mut packet)?;
    Ok(packet[4])
}
