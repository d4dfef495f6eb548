//! The rules for names (C11).

use crate::{
    error::{Error, ErrorKind, Result},
    name::{Kind, LockName},
};

/// The longest name, in bytes of UTF-8.
pub const MAX_NAME_BYTES: usize = 255;

impl LockName {
    /// Checks `text` and makes a name from it.
    ///
    /// # Errors
    /// [`ErrorKind::InvalidName`] if `text` is empty, is longer than 255 bytes, or has a control
    /// character.
    pub fn new(kind: Kind, text: &str) -> Result<Self> {
        check_text("a lock name", text)
            .map_err(|reason| Error::new(ErrorKind::InvalidName, reason))?;
        Ok(Self::unchecked(kind, text))
    }
}

/// Checks a text that stores, logs and terminals must carry unchanged.
pub(crate) fn check_text(what: &str, text: &str) -> Result<(), String> {
    check_text_within(what, text, MAX_NAME_BYTES)
}

/// As [`check_text`], for a text of at most `longest` bytes.
pub(crate) fn check_text_within(what: &str, text: &str, longest: usize) -> Result<(), String> {
    if text.is_empty() {
        return Err(format!("{what} must not be empty"));
    }
    if text.len() > longest {
        return Err(format!("{what} has {} bytes, but at most {longest} are allowed", text.len()));
    }
    if let Some((at, c)) = text.char_indices().find(|(_, c)| c.is_control()) {
        return Err(format!(
            "{what} must not contain control characters, but {text:?} has U+{:04X} at byte {at}",
            u32::from(c)
        ));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn c11_names_of_1_to_255_bytes_without_control_characters_are_taken() {
        for good in ["a", " a", "a ", "a/{b}%", "}", "*", "🔒", &"x".repeat(255)] {
            assert_eq!(LockName::new(Kind::Mutex, good).unwrap().as_str(), good);
        }
    }

    #[test]
    fn c11_bad_names_are_refused_with_the_reason() {
        let long = "é".repeat(128);
        for (bad, reason) in [
            ("", "must not be empty"),
            (&*long, "has 256 bytes"),
            ("a\nb", "U+000A at byte 1"),
            ("\u{7f}", "U+007F"),
            ("\u{85}", "U+0085"),
            ("\0", "U+0000"),
        ] {
            let error = LockName::new(Kind::Mutex, bad).unwrap_err();
            assert_eq!(error.kind(), ErrorKind::InvalidName);
            assert!(error.to_string().contains(reason), "{error}");
        }
    }

    #[test]
    fn c11_names_differ_by_kind_case_and_blanks() {
        let name = |kind, text| LockName::new(kind, text).unwrap();
        assert_ne!(name(Kind::Mutex, "a"), name(Kind::RwLock, "a"));
        assert_ne!(name(Kind::Mutex, "a"), name(Kind::Mutex, "A"));
        assert_ne!(name(Kind::Mutex, "a"), name(Kind::Mutex, "a "));
    }
}
