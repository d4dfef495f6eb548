//! Finds the messages that the code makes for each kind of error.

use std::collections::BTreeMap;

use super::literals::Token;

#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    /// A variant of `ErrorKind`.
    pub(super) kind: String,
    pub(super) text: String,
}

/// The names by which the code calls `ErrorKind`.
const KINDS: [&str; 2] = ["ErrorKind", "K"];
/// The most tokens between the argument of a function that makes an error and the kind.
const LONGEST_MAKER: usize = 60;
/// Words that may precede a text in an expression.
const WRAPPERS: [&str; 4] = ["format", "Cow", "String", "Some"];

/// The messages of a file. This finds texts beside a kind, as in `ours(ErrorKind::Lost, "…")`, and
/// texts with a name. It also finds the texts for a function of the same file that makes an error
/// from its argument, such as `invalid("…")`.
pub(super) fn of(tokens: &[Token]) -> Vec<Message> {
    let makers = makers(tokens);
    let mut found = Vec::new();
    for at in 0..tokens.len() {
        let (kind, texts) = if let Some(kind) = kind_before(tokens, at) {
            (kind, texts_at(tokens, at))
        } else if let Some(kind) = maker_before(tokens, at, &makers) {
            (kind, direct(tokens, at))
        } else {
            continue;
        };
        let texts = texts.iter().map(|text| plain(text)).filter(|text| is_message(text));
        found.extend(texts.map(|text| Message { kind: kind.to_owned(), text }));
    }
    found
}

/// Whether it has words in addition to its values.
fn is_message(text: &str) -> bool {
    text.split_whitespace().filter(|word| word.starts_with(char::is_alphabetic)).count() > 1
}

/// The kind of `ErrorKind::Kind,`, if the position follows it.
fn kind_before(tokens: &[Token], at: usize) -> Option<&str> {
    let [
        Token::Word(enumeration),
        Token::Sign(':'),
        Token::Sign(':'),
        Token::Word(kind),
        Token::Sign(','),
    ] = tokens.get(at.checked_sub(5)?..at)?
    else {
        return None;
    };
    KINDS.contains(&enumeration.as_str()).then_some(kind)
}

/// The kind of errors that a function of this file makes, if the position follows its `name(`.
fn maker_before<'a>(
    tokens: &[Token],
    at: usize,
    makers: &BTreeMap<&str, &'a str>,
) -> Option<&'a str> {
    let [Token::Word(name), Token::Sign('(')] = tokens.get(at.checked_sub(2)?..at)? else {
        return None;
    };
    makers.get(name.as_str()).copied()
}

/// Functions and closures whose only argument is a reason, with the first kind in their bodies.
fn makers(tokens: &[Token]) -> BTreeMap<&str, &str> {
    let mut makers = BTreeMap::new();
    for (at, window) in tokens.windows(4).enumerate() {
        let name = match window {
            [Token::Word(keyword), Token::Word(name), Token::Sign('('), Token::Word(argument)]
                if keyword == "fn" && is_reason(argument) =>
            {
                name
            }
            [Token::Word(name), Token::Sign('='), Token::Sign('|'), Token::Word(argument)]
                if is_reason(argument) =>
            {
                name
            }
            _ => continue,
        };
        let mut body = at + 4..tokens.len().min(at + 4 + LONGEST_MAKER);
        let is_end = |token: &Token| *token == Token::Sign(';') || token.is_word("fn");
        if let Some(length) = tokens.get(body.clone()).and_then(|body| body.iter().position(is_end))
        {
            body.end = body.start + length;
        }
        if let Some(kind) = body.into_iter().find_map(|at| kind_before(tokens, at)) {
            makers.insert(name.as_str(), kind);
        }
    }
    makers
}

fn is_reason(argument: &str) -> bool {
    ["reason", "text"].contains(&argument)
}

/// The texts of the expression at this position.
fn texts_at(tokens: &[Token], at: usize) -> Vec<String> {
    let texts = direct(tokens, at);
    match tokens.get(at..at + 2) {
        Some([Token::Word(name), Token::Sign(')' | ',' | '.')]) if texts.is_empty() => {
            bound(tokens, at, name)
        }
        _ => texts,
    }
}

/// The text at this position, perhaps inside of `format!(`.
fn direct(tokens: &[Token], at: usize) -> Vec<String> {
    for token in tokens.iter().skip(at) {
        match token {
            Token::Text(text) => return vec![text.clone()],
            Token::Word(word) if WRAPPERS.contains(&word.as_str()) => {}
            Token::Sign('!' | '(' | '&' | ':') => {}
            _ => break,
        }
    }
    Vec::new()
}

/// The texts of the last `let name = …;` before this position, or of `const NAME: … = …;`.
fn bound(tokens: &[Token], at: usize, name: &str) -> Vec<String> {
    let binds = |window: &[Token]| {
        (window[0].is_word("let") || window[0].is_word("const")) && window[1].is_word(name)
    };
    let last = tokens.get(..at).and_then(|before| before.windows(2).rposition(binds));
    let Some(start) = last.or_else(|| tokens.windows(2).position(binds)) else {
        return Vec::new();
    };
    let mut depth = 0_i32;
    let mut texts = Vec::new();
    for (at, token) in tokens.iter().enumerate().skip(start) {
        match token {
            // This text is part of a condition, and not of the message.
            Token::Text(_) if at > 1 && tokens[at - 2].is_word("contains") => {}
            Token::Sign('(' | '{' | '[') => depth += 1,
            Token::Sign(')' | '}' | ']') => depth -= 1,
            Token::Sign(';') if depth == 0 => break,
            Token::Text(text) => texts.push(text.clone()),
            _ => {}
        }
    }
    texts
}

/// The text with `{name}` for `{name:?}` and `…` for `{}`, in one line.
fn plain(text: &str) -> String {
    let mut plain = String::new();
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('{') {
        plain += before;
        if let Some(after) = after.strip_prefix('{') {
            plain.push('{');
            rest = after;
            continue;
        }
        let (hole, after) = after.split_once('}').unwrap_or((after, ""));
        let name = hole.split(':').next().unwrap_or_default();
        let is_named = !name.is_empty() && !name.chars().all(|c| c.is_ascii_digit());
        plain += &if is_named { format!("{{{name}}}") } else { "…".to_owned() };
        rest = after;
    }
    (plain + rest).split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(source: &str) -> Vec<(String, String)> {
        of(&Token::read(source)).into_iter().map(|found| (found.kind, found.text)).collect()
    }

    #[test]
    fn a_message_is_found_wherever_the_code_makes_it() {
        for source in [
            "Error::new(ErrorKind::Lost, \"the lock {name} is … {ttl}\")",
            "ours(K::Lost, format!(\"the lock {name:?} is {} {ttl:.1?}\", 1))",
            "let text = format!(\"the lock {name} is {:?} {ttl}\", x); Error::new(ErrorKind::Lost, \
             text)",
            "const TEXT: &str = \"the lock {name} is {} {ttl}\"; x => (K::Lost, TEXT),",
            "let text = if x.contains(\"a b\") { \"the lock {name} is {} {ttl}\" }; (K::Lost, \
             text)",
            "fn lost(reason: &str) -> Error { ours(ErrorKind::Lost, reason) } lost(\"the lock \
             {name} is … {ttl}\")",
        ] {
            let text = "the lock {name} is … {ttl}".to_owned();
            assert_eq!(found(source), [("Lost".to_owned(), text)], "{source}");
        }
    }

    #[test]
    fn kinds_without_a_text_are_no_messages() {
        assert_eq!(found("match kind { ErrorKind::Lost => \"it is lost\" }"), []);
        assert_eq!(found("Error::new(ErrorKind::Lost, reason)"), []);
        assert_eq!(found("ours(ErrorKind::Lost, format!(\"{}: {}\", a, b))"), []);
        assert_eq!(found("has = |text| x(text); (ErrorKind::Lost, y); has(\"a b\")"), []);
    }
}
