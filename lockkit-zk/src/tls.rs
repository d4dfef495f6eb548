//! TLS, for the scheme `zks`.

use std::{fs, path::PathBuf};

use lockkit_core::{ErrorKind, Result, url::StoreUrl};
use rustls_pki_types::ServerName;
use zookeeper_client::TlsOptions;

use crate::error;

/// The PEM files of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    ca: PathBuf,
    identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// Returns `None` for the scheme `zk`.
    pub(crate) fn from_url(url: &mut StoreUrl) -> Result<Option<Self>> {
        if url.scheme() != "zks" {
            return Ok(None);
        }
        // The client would panic once such a host accepts the connection.
        for host in url.hosts() {
            if ServerName::try_from(host.name.as_str()).is_err() {
                let reason = format!(
                    "the store URL can't be used: no certificate can name the host {:?}; write the \
                     host's full name or address",
                    host.name
                );
                return Err(error::ours(ErrorKind::InvalidUrl, reason));
            }
        }
        let mut file =
            |name| Ok::<_, lockkit_core::Error>(url.params.text(name)?.map(PathBuf::from));
        let Some(ca) = file("ca")? else {
            let reason = "zks:// needs the parameter ca, a PEM file of trusted certificates, \
                          because the client knows no others";
            return Err(error::ours(ErrorKind::InvalidOption, reason));
        };
        let identity = match (file("cert")?, file("key")?) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                let reason =
                    "the store URL can't be used: the parameters cert and key belong together";
                return Err(error::ours(ErrorKind::InvalidUrl, reason));
            }
        };
        Ok(Some(Self { ca, identity }))
    }

    /// Reads the files. Each new session reads them again, so that the files can be renewed.
    ///
    /// # Errors
    /// A file cannot be read, or contains no certificate or key.
    pub(crate) fn options(&self) -> Result<TlsOptions> {
        let ca = &self.ca;
        let mut options =
            TlsOptions::new().with_pem_ca(&read(ca)?).map_err(|error| unusable(ca, &error))?;
        if let Some((cert, key)) = &self.identity {
            let cert_text = read(cert)?;
            let key_text = read(key)?;
            options = options
                .with_pem_identity(&cert_text, &key_text)
                .map_err(|error| unusable(cert, &error))?;
        }
        Ok(options)
    }
}

fn read(path: &PathBuf) -> Result<String> {
    fs::read_to_string(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &std::path::Path, error: &dyn std::fmt::Display) -> lockkit_core::Error {
    let reason = format!("could not use the PEM file {}: {error}", path.display());
    error::ours(ErrorKind::InvalidOption, reason)
}
