//! A certificate for a server, and the authority that issues it.

use std::{
    ffi::OsString,
    fs,
    path::{Path, PathBuf},
};

use anyhow::Result;
use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};

use super::server::option;

/// The files of a server's TLS side.
#[derive(Debug)]
pub(super) struct Tls {
    folder: PathBuf,
}

impl Tls {
    /// Makes keys and certificates in `folder`.
    pub(super) fn make(folder: &Path) -> Result<Self> {
        let mut authority = CertificateParams::new(Vec::new())?;
        authority.distinguished_name.push(DnType::CommonName, "lockkit test authority");
        authority.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let authority = CertifiedIssuer::self_signed(authority, KeyPair::generate()?)?;

        let mut server = CertificateParams::new(vec!["localhost".to_owned(), "127.0.0.1".to_owned()])?;
        // The servers compare the two names: equal ones look self-signed.
        server.distinguished_name.push(DnType::CommonName, "localhost");
        let key = KeyPair::generate()?;
        let certificate = server.signed_by(&key, &authority)?;

        let this = Self { folder: folder.to_owned() };
        fs::write(this.ca(), authority.pem())?;
        fs::write(this.certificate(), certificate.pem())?;
        fs::write(this.key(), key.serialize_pem())?;
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
