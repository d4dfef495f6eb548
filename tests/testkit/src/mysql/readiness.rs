//! Whether a server answers, without an SQL client.

use std::{
    io::{self, Read as _},
    os::unix::net::UnixStream,
    path::Path,
    time::Duration,
};

/// Version of the protocol, at the start of a server's greeting.
const GREETING: u8 = 10;
/// Start of a refusal, such as "too many connections": an answer, too.
const REFUSAL: u8 = 0xff;
const TIMEOUT: Duration = Duration::from_secs(60);

/// Asks through the socket in our own folder: on the port, somebody else might answer. The server
/// opens its port before its socket, and greets nobody before its start is complete.
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
