//! The last line of a record. It shows a reader that the record is torn, because it is being
//! overwritten or because of a loss of power.

/// FNV-1a: it detects accidents, not forgeries.
fn of(text: &[u8]) -> u64 {
    text.iter().fold(0xcbf2_9ce4_8422_2325, |sum, byte| {
        (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn line(text: &[u8]) -> String {
    format!("\nsum {:016x}\n", of(text))
}

pub(super) fn seal(mut text: Vec<u8>) -> Vec<u8> {
    let line = line(&text);
    text.extend_from_slice(line.as_bytes());
    text
}

/// The text, if the sum fits it.
pub(super) fn check(bytes: &[u8]) -> Option<&[u8]> {
    let (text, last) = bytes.split_at_checked(bytes.len().checked_sub(line(b"").len())?)?;
    (last == line(text).as_bytes()).then_some(text)
}
