//! The files of a server's TLS side.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;

use super::server::option;
use crate::certificates::Authority;

/// The files of a server's TLS side.
#[derive(Debug)]
pub(super) struct Tls {
    folder: PathBuf,
}

impl Tls {
    /// Makes keys and certificates in `folder`.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let authority = Authority::new()?;
        let server = authority.issue("localhost", &["localhost", "127.0.0.1"])?;
        let this = Self { folder: folder.to_owned() };
        fs::write(this.ca(), authority.certificate())?;
        fs::write(this.certificate(), server.certificate)?;
        fs::write(this.key(), server.key)?;
        Ok(this)
    }

    pub(super) fn arguments(&self) -> Vec<OsString> {
        vec![
            option("ssl-ca", &self.ca()),
            option("ssl-cert", &self.certificate()),
            option("ssl-key", &self.key()),
        ]
    }

    pub(super) fn ca(&self) -> PathBuf {
        self.folder.join("ca.pem")
    }

    fn certificate(&self) -> PathBuf {
        self.folder.join("server.pem")
    }

    fn key(&self) -> PathBuf {
        self.folder.join("server-key.pem")
    }
}
