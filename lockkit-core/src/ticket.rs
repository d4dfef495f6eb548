//! Defines the ticket: the text by which another process continues a held lock.

use std::{num::NonZeroU32, time::Duration};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use crate::{
    error::{Error, ErrorKind, Result},
    name::{Kind, LockName},
    spi::{GrantId, Mode},
};

/// The mark of tickets, without the number of their format.
const MARK: &str = "lockkit";
/// The format that this version writes and reads.
const FORMAT: &str = "1";

/// The bytes of a name that are escaped. The escape is `~2F`, because a `%` would have to be
/// escaped itself in a URL.
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_');

/// A grant with all that a claim needs to continue it.
///
/// As a text it is `lockkit1.mutex.x.<owner>.<token>.<ttl in µs>.<name>`. The mode is `x`, `r` for
/// shared, or `p2-3` for 2 of 3 permits.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    pub(crate) name: LockName,
    pub(crate) mode: Mode,
    /// With the token that the store knows.
    pub(crate) grant: GrantId,
    pub(crate) ttl: Duration,
}

impl Ticket {
    pub(crate) fn text(&self) -> String {
        let Self { name, mode, grant: GrantId { owner, token }, ttl } = self;
        let kind = name.kind();
        let mode = match mode {
            Mode::Exclusive => "x".to_owned(),
            Mode::Shared => "r".to_owned(),
            Mode::Permits { count, limit } => format!("p{count}-{limit}"),
        };
        let ttl = ttl.as_micros();
        let name = utf8_percent_encode(name.as_str(), ESCAPED).to_string().replace('%', "~");
        format!("{MARK}{FORMAT}.{kind}.{mode}.{owner}.{token}.{ttl}.{name}")
    }

    /// # Errors
    /// [`ErrorKind::InvalidOption`] for another text, and [`ErrorKind::NewerFormat`] for a ticket
    /// of another format.
    pub(crate) fn parse(text: &str) -> Result<Self> {
        // Several texts may have the same parts, and only one of them is the ticket.
        let ticket = Self::of_parts(text).filter(|ticket| ticket.text() == text);
        ticket.ok_or_else(|| refused(text))
    }

    fn of_parts(text: &str) -> Option<Self> {
        let parts: Vec<_> = text.split('.').collect();
        let [_, kind, mode, owner, token, ttl, name] = *parts.as_slice() else { return None };
        let kind = Kind::ALL.into_iter().find(|known| known.as_str() == kind)?;
        let mode = mode_of(kind, mode)?;
        let name = name.replace('~', "%");
        let name = LockName::new(kind, &percent_decode_str(&name).decode_utf8().ok()?).ok()?;
        let grant = GrantId { owner: owner.parse().ok()?, token: token.parse().ok()? };
        Some(Self { name, mode, grant, ttl: Duration::from_micros(ttl.parse().ok()?) })
    }
}

/// The mode of a text, if locks of this kind have it.
fn mode_of(kind: Kind, text: &str) -> Option<Mode> {
    match (kind, text) {
        (Kind::Election | Kind::Mutex | Kind::RwLock, "x") => Some(Mode::Exclusive),
        (Kind::RwLock, "r") => Some(Mode::Shared),
        (Kind::Semaphore, permits) => {
            let (count, limit) = permits.strip_prefix('p')?.split_once('-')?;
            let count: NonZeroU32 = count.parse().ok()?;
            let limit: NonZeroU32 = limit.parse().ok()?;
            (count <= limit).then_some(Mode::Permits { count, limit })
        }
        _ => None,
    }
}

/// The error of a text that is no ticket of this format. It does not show the text, which may be a
/// secret of another program.
fn refused(text: &str) -> Error {
    let mark = text.split('.').next().unwrap_or_default();
    let format = mark.strip_prefix(MARK).unwrap_or_default();
    if format != FORMAT && format.parse::<u32>().is_ok() {
        let text = format!(
            "the ticket has the format {format}, and this lockkit knows the format {FORMAT}; use \
             the same version of lockkit in both processes"
        );
        return Error::new(ErrorKind::NewerFormat, text);
    }
    let text = "the text is no ticket; pass on the whole text that `into_ticket` returned";
    Error::new(ErrorKind::InvalidOption, text)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::token::{FencingToken, OwnerId};

    fn ticket(kind: Kind, name: &str, mode: Mode) -> Ticket {
        let name = LockName::new(kind, name).unwrap();
        let grant = GrantId { owner: OwnerId::new(255), token: FencingToken::new(7) };
        Ticket { name, mode, grant, ttl: Duration::from_millis(1_500) }
    }

    fn permits(count: u32, limit: u32) -> Mode {
        Mode::Permits { count: count.try_into().unwrap(), limit: limit.try_into().unwrap() }
    }

    #[test]
    fn a_ticket_survives_a_trip_through_text() {
        let text = "lockkit1.mutex.x.000000000000000000000000000000ff.7.1500000.orders~2F42";
        assert_eq!(ticket(Kind::Mutex, "orders/42", Mode::Exclusive).text(), text);
        let longest = "é".repeat(127);
        for name in ["a", " ", ".", "~", "~2F", "%", "a.b_c-d", "{x}", "🔒", &longest] {
            for (kind, mode) in [
                (Kind::Mutex, Mode::Exclusive),
                (Kind::Election, Mode::Exclusive),
                (Kind::RwLock, Mode::Exclusive),
                (Kind::RwLock, Mode::Shared),
                (Kind::Semaphore, permits(2, 3)),
            ] {
                let ticket = ticket(kind, name, mode);
                let text = ticket.text();
                assert_eq!(Ticket::parse(&text).unwrap(), ticket, "{text}");
                let is_safe = |c: char| c.is_ascii_alphanumeric() || "-._~".contains(c);
                assert!(text.chars().all(is_safe), "{text} must be escaped in a URL");
            }
        }
    }

    /// Fails if two texts are the same ticket, or if a part is not checked.
    #[test]
    fn c13_any_other_text_is_refused() {
        let owner = OwnerId::new(255);
        for (bad, kind) in [
            (String::new(), ErrorKind::InvalidOption),
            ("orders/42".to_owned(), ErrorKind::InvalidOption),
            ("redis://user:secret@host/".to_owned(), ErrorKind::InvalidOption),
            (format!("lockkit1.mutex.x.{owner}.7.1500000"), ErrorKind::InvalidOption),
            (format!("lockkit1.mutex.x.{owner}.7.1500000."), ErrorKind::InvalidOption),
            (format!("lockkit1.mutex.x.{owner}.7.1500000.a.b"), ErrorKind::InvalidOption),
            (format!("lockkit1.mutex.x.{owner}.7.1500000.~61"), ErrorKind::InvalidOption),
            (format!("lockkit1.mutex.x.{owner}.7.1500000.~zz"), ErrorKind::InvalidOption),
            (format!("lockkit1.mutex.x.{owner}.7.1500000.a/b"), ErrorKind::InvalidOption),
            (format!("lockkit1.mutex.x.{owner}.+7.1500000.a"), ErrorKind::InvalidOption),
            (format!("lockkit1.mutex.x.{owner}.7.01.a"), ErrorKind::InvalidOption),
            ("lockkit1.mutex.x.ff.7.1500000.a".to_owned(), ErrorKind::InvalidOption),
            (format!("lockkit1.mutex.r.{owner}.7.1500000.a"), ErrorKind::InvalidOption),
            (format!("lockkit1.semaphore.x.{owner}.7.1500000.a"), ErrorKind::InvalidOption),
            (format!("lockkit1.semaphore.p3-2.{owner}.7.1500000.a"), ErrorKind::InvalidOption),
            (format!("lockkit1.semaphore.p0-2.{owner}.7.1500000.a"), ErrorKind::InvalidOption),
            (format!("lockkit1.latch.x.{owner}.7.1500000.a"), ErrorKind::InvalidOption),
            (format!("lockkit.mutex.x.{owner}.7.1500000.a"), ErrorKind::InvalidOption),
            (format!("lockkit2.mutex.x.{owner}.7.1500000.a"), ErrorKind::NewerFormat),
            ("lockkit12.else".to_owned(), ErrorKind::NewerFormat),
        ] {
            let error = Ticket::parse(&bad).unwrap_err();
            assert_eq!(error.kind(), kind, "{bad}");
            assert!(!error.to_string().contains("secret"), "{error}");
        }
    }
}
