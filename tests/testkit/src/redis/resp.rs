//! The part of the Redis protocol that prepares a server and reads its state.

use std::io::{self, BufRead as _, BufReader, Read, Write};

use anyhow::{Result, bail};

/// The reply of a server.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum RedisReply {
    /// Several replies.
    Array(Vec<Self>),
    /// A string of any bytes.
    Bulk(Vec<u8>),
    /// A refusal.
    Error(String),
    /// A number.
    Integer(i64),
    /// No value: there is no such key, or no such element.
    Nil,
    /// A short word, such as `OK`.
    Status(String),
}

impl RedisReply {
    /// The reply, unless it is a refusal.
    ///
    /// # Errors
    /// The reply is a refusal: the error has the server's text.
    pub fn into_result(self) -> Result<Self> {
        match self {
            Self::Error(text) => bail!(text),
            reply => Ok(reply),
        }
    }

    /// The reply's text. Empty for an array and for nil.
    #[must_use]
    pub fn text(&self) -> String {
        match self {
            Self::Bulk(bytes) => String::from_utf8_lossy(bytes).into_owned(),
            Self::Error(text) | Self::Status(text) => text.clone(),
            Self::Integer(number) => number.to_string(),
            Self::Array(_) | Self::Nil => String::new(),
        }
    }

    /// The bytes of a string. Empty for anything else.
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        match self {
            Self::Bulk(bytes) => bytes,
            _ => &[],
        }
    }

    /// The elements of an array. Empty for anything else.
    #[must_use]
    pub fn elements(&self) -> &[Self] {
        match self {
            Self::Array(elements) => elements,
            _ => &[],
        }
    }
}

/// A connection that sends one command at a time.
pub(super) struct Connection<S> {
    stream: BufReader<S>,
}

impl<S: Read + Write> Connection<S> {
    pub(super) fn new(stream: S) -> Self {
        Self { stream: BufReader::new(stream) }
    }

    /// Sends a command and returns its reply.
    pub(super) fn command(&mut self, words: &[impl AsRef<[u8]>]) -> io::Result<RedisReply> {
        let mut request = format!("*{}\r\n", words.len()).into_bytes();
        for word in words {
            let word = word.as_ref();
            request.extend_from_slice(format!("${}\r\n", word.len()).as_bytes());
            request.extend_from_slice(word);
            request.extend_from_slice(b"\r\n");
        }
        self.stream.get_mut().write_all(&request)?;
        self.reply()
    }

    fn reply(&mut self) -> io::Result<RedisReply> {
        let mut line = String::new();
        self.stream.read_line(&mut line)?;
        let Some(line) = line.strip_suffix("\r\n") else {
            return Err(io::ErrorKind::UnexpectedEof.into());
        };
        let (kind, rest) = line.split_at_checked(1).ok_or_else(|| invalid(line))?;
        Ok(match kind {
            "+" => RedisReply::Status(rest.to_owned()),
            "-" => RedisReply::Error(rest.to_owned()),
            ":" => RedisReply::Integer(rest.parse().map_err(|_| invalid(line))?),
            "$" | "*" if rest == "-1" => RedisReply::Nil,
            "$" => RedisReply::Bulk(self.bytes(rest.parse().map_err(|_| invalid(line))?)?),
            "*" => {
                let length: usize = rest.parse().map_err(|_| invalid(line))?;
                RedisReply::Array((0..length).map(|_| self.reply()).collect::<io::Result<_>>()?)
            }
            _ => return Err(invalid(line)),
        })
    }

    fn bytes(&mut self, length: usize) -> io::Result<Vec<u8>> {
        let mut bytes = vec![0; length + "\r\n".len()];
        self.stream.read_exact(&mut bytes)?;
        bytes.truncate(length);
        Ok(bytes)
    }
}

fn invalid(line: &str) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, format!("{line:?} starts no reply"))
}

#[cfg(test)]
mod tests {
    use std::io::Cursor;

    use super::*;

    /// Reads `text` as a reply.
    fn parse(text: &str) -> io::Result<RedisReply> {
        Connection::new(Cursor::new(text.as_bytes().to_vec())).reply()
    }

    #[test]
    fn every_kind_of_reply_is_read() {
        let reply = parse("*6\r\n+OK\r\n-ERR no\r\n:-7\r\n$4\r\na\r\nb\r\n$-1\r\n*0\r\n").unwrap();
        let expected = [
            RedisReply::Status("OK".to_owned()),
            RedisReply::Error("ERR no".to_owned()),
            RedisReply::Integer(-7),
            RedisReply::Bulk(b"a\r\nb".to_vec()),
            RedisReply::Nil,
            RedisReply::Array(vec![]),
        ];
        assert_eq!(reply.elements(), expected);
    }

    #[test]
    fn an_end_in_the_middle_is_no_reply() {
        for text in ["", "+OK", "$4\r\nab", "*2\r\n+OK\r\n"] {
            assert_eq!(parse(text).unwrap_err().kind(), io::ErrorKind::UnexpectedEof, "{text:?}");
        }
        assert_eq!(parse("what\r\n").unwrap_err().kind(), io::ErrorKind::InvalidData);
    }
}
