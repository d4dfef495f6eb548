//! Keys and certificates for a server's TLS port and for its clients.

use std::{
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use crate::certificates::Authority;

/// How a server treats the certificates of its clients.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ClientCertificates {
    /// The server asks for a certificate, and rejects clients without one.
    Demanded,
    /// The server doesn't ask.
    Ignored,
}

/// The files of a server's TLS side.
#[derive(Debug)]
pub struct RedisTls {
    folder: PathBuf,
    clients: ClientCertificates,
}

impl RedisTls {
    /// Makes keys and certificates in `folder`.
    pub(super) fn make(folder: &Path, clients: ClientCertificates) -> Result<Self> {
        let this = Self { folder: folder.to_owned(), clients };
        let authority = Authority::new()?;
        let server = authority.issue("localhost", &["localhost", "127.0.0.1"])?;
        let client = authority.issue("lockkit test client", &[])?;
        fs::write(this.ca(), authority.certificate())?;
        fs::write(this.server_certificate(), server.certificate)?;
        fs::write(this.server_key(), server.key)?;
        fs::write(this.client_certificate(), client.certificate)?;
        fs::write(this.client_key(), client.key)?;
        Ok(this)
    }

    /// The certificate, in PEM, of the authority that issued the server's and the client's.
    #[must_use]
    pub fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    /// A client's certificate, in PEM.
    #[must_use]
    pub fn client_certificate(&self) -> PathBuf {
        self.folder.join("client.pem")
    }

    /// The key of the client's certificate, in PEM.
    #[must_use]
    pub fn client_key(&self) -> PathBuf {
        self.folder.join("client-key.pem")
    }

    pub(super) fn arguments(&self) -> Vec<String> {
        let auth_clients = match self.clients {
            ClientCertificates::Demanded => "yes",
            ClientCertificates::Ignored => "no",
        };
        let path = |path: PathBuf| path.display().to_string();
        let arguments = [
            ("--tls-ca-cert-file", path(self.ca())),
            ("--tls-cert-file", path(self.server_certificate())),
            ("--tls-key-file", path(self.server_key())),
            ("--tls-auth-clients", auth_clients.to_owned()),
        ];
        arguments.into_iter().flat_map(|(name, value)| [name.to_owned(), value]).collect()
    }

    fn server_certificate(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    fn server_key(&self) -> PathBuf {
        self.folder.join("server-key.pem")
    }
}
