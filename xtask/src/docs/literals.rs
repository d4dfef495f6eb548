//! Splits Rust source into the tokens that the search for messages needs.

/// A part of Rust source. Comments, lifetimes and literals other than strings are left out.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Token {
    Word(String),
    /// The value of a string.
    Text(String),
    Sign(char),
}

impl Token {
    /// Reads the source up to its tests.
    pub(super) fn read(source: &str) -> Vec<Self> {
        let end = source.find("#[cfg(test)]\nmod tests {").unwrap_or(source.len());
        let mut rest = source.get(..end).unwrap_or(source);
        let mut tokens = Vec::new();
        while let Some(first) = rest.chars().next() {
            rest = if rest.starts_with("//") {
                rest.split_once('\n').map_or("", |(_, after)| after)
            } else if let Some(after) = rest.strip_prefix('"') {
                let (text, after) = string(after);
                tokens.push(Self::Text(text));
                after
            } else if first == '\'' {
                after_quote(rest)
            } else if first.is_alphanumeric() || first == '_' {
                let length =
                    rest.find(|c: char| !c.is_alphanumeric() && c != '_').unwrap_or(rest.len());
                let (word, after) = rest.split_at(length);
                tokens.push(Self::Word(word.to_owned()));
                after
            } else {
                if !first.is_whitespace() {
                    tokens.push(Self::Sign(first));
                }
                rest.get(first.len_utf8()..).unwrap_or_default()
            };
        }
        tokens
    }

    pub(super) fn is_word(&self, word: &str) -> bool {
        matches!(self, Self::Word(found) if found == word)
    }
}

/// The value of a string whose opening quote was read, and the source after it.
fn string(source: &str) -> (String, &str) {
    let mut text = String::new();
    let mut chars = source.char_indices().peekable();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return (text, source.get(at + 1..).unwrap_or_default()),
            '\\' => match chars.next() {
                Some((_, '\n')) => while chars.next_if(|(_, c)| c.is_whitespace()).is_some() {},
                Some((_, 'n')) => text.push('\n'),
                Some((_, c)) => text.push(c),
                None => {}
            },
            c => text.push(c),
        }
    }
    (text, "")
}

/// The source after a character literal or the quote of a lifetime.
fn after_quote(source: &str) -> &str {
    let after = source.get(1..).unwrap_or_default();
    let length = if after.starts_with('\\') {
        after.get(2..).and_then(|rest| rest.find('\'')).map(|at| at + 3)
    } else {
        let first = after.chars().next().map_or(0, char::len_utf8);
        after.get(first..).filter(|rest| rest.starts_with('\'')).map(|_| first + 1)
    };
    after.get(length.unwrap_or(0)..).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn strings_are_read_as_they_are_printed() {
        let source = "fn a<'a>() { f('\"', '\\'', \"x \\\"y\\\" \\\n   z\"); } // \"no\"\n\
                      #[cfg(test)]\nmod tests { \"no\" }";
        let texts: Vec<_> = Token::read(source)
            .into_iter()
            .filter(|token| matches!(token, Token::Text(_)))
            .collect();
        assert_eq!(texts, [Token::Text("x \"y\" z".to_owned())]);
    }
}
