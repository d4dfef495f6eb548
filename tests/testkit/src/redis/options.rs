//! The options of a Redis server for a test.

use std::{ffi::OsString, net::Ipv4Addr, path::PathBuf};

use super::tls::ClientCertificates;

/// How to run a Redis server.
///
/// # Default
/// * redis-server, plain TCP, no password.
/// * a primary; the machine's own clock.
/// * no more arguments; no persistence.
#[derive(Clone, Debug, Default)]
pub struct RedisOptions {
    pub(super) program: Option<PathBuf>,
    pub(super) args: Vec<String>,
    pub(super) tls: Option<ClientCertificates>,
    pub(super) clock: bool,
    /// If set, the server is a sentinel with this configuration.
    pub(super) sentinel: Option<String>,
    pub(super) place: Place,
}

/// The address of a server, and the command that runs it there.
#[derive(Clone, Debug)]
pub(super) struct Place {
    pub(super) ip: Ipv4Addr,
    /// The command that runs the server, such as a program that enters a network namespace.
    pub(super) wrapper: Vec<OsString>,
}

impl Default for Place {
    fn default() -> Self {
        Self { ip: Ipv4Addr::LOCALHOST, wrapper: Vec::new() }
    }
}

impl RedisOptions {
    /// More arguments, such as `["--requirepass", "secret"]`. They take precedence over earlier
    /// ones of the same name.
    ///
    /// The fixture's own connections authenticate with that password, as the user `default`.
    #[must_use]
    pub fn with_args<A: Into<String>>(mut self, args: impl IntoIterator<Item = A>) -> Self {
        self.args.extend(args.into_iter().map(Into::into));
        self
    }

    /// A password for the user `default`. As a replica, the server also uses it with its primary.
    #[must_use]
    pub fn with_password(self, password: &str) -> Self {
        self.with_args(["--requirepass", password, "--masterauth", password])
    }

    /// Makes the server a replica of the server or the proxy on this port of 127.0.0.1.
    #[must_use]
    pub fn with_primary(self, port: u16) -> Self {
        self.with_primary_at(Ipv4Addr::LOCALHOST, port)
    }

    pub(super) fn with_primary_at(self, ip: Ipv4Addr, port: u16) -> Self {
        self.with_args(["--replicaof".to_owned(), ip.to_string(), port.to_string()])
    }

    pub(super) fn with_place(mut self, place: Place) -> Self {
        self.place = place;
        self
    }

    /// The port speaks TLS instead of plain TCP.
    #[must_use]
    pub fn with_tls(mut self, clients: ClientCertificates) -> Self {
        self.tls = Some(clients);
        self
    }

    /// The server gets its own wall clock: [`RedisServer::clock`](super::RedisServer::clock).
    #[must_use]
    pub fn with_clock(mut self) -> Self {
        self.clock = true;
        self
    }

    /// Runs another program that takes redis-server's arguments, such as
    /// [`valkey_server`](super::valkey_server).
    #[must_use]
    pub fn with_program(mut self, program: impl Into<PathBuf>) -> Self {
        self.program = Some(program.into());
        self
    }

    pub(super) fn password(&self) -> Option<&str> {
        let position = self.args.iter().rposition(|argument| argument == "--requirepass")?;
        self.args.get(position + 1).map(String::as_str)
    }
}
