//! TLS, for the scheme `zks`.

use std::{fs, path::PathBuf};

use lockkit_core::{ErrorKind, Result, url::StoreUrl};
use zookeeper_client::TlsOptions;

use crate::error;

/// The PEM files of a connection.
#[derive(Clone, Debug, Default)]
pub(crate) struct Tls {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// `None` for the scheme `zk`.
    pub(crate) fn from_url(url: &mut StoreUrl) -> Result<Option<Self>> {
        if url.scheme() != "zks" {
            return Ok(None);
        }
        let mut file = |name| Ok::<_, lockkit_core::Error>(url.params.text(name)?.map(PathBuf::from));
        let ca = file("ca")?;
        let identity = match (file("cert")?, file("key")?) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                let reason = "the store URL can't be used: the parameters cert and key belong together";
                return Err(error::ours(ErrorKind::InvalidUrl, reason));
            }
        };
        Ok(Some(Self { ca, identity }))
    }

    /// Reads the files; they are read anew for each session, so that they can be renewed.
    ///
    /// # Errors
    /// A file can't be read or holds no certificate or key.
    pub(crate) fn options(&self) -> Result<TlsOptions> {
        let mut options = TlsOptions::new();
        if let Some(ca) = &self.ca {
            options = options.with_pem_ca(&read(ca)?).map_err(|error| unusable(ca, &error))?;
        }
        if let Some((cert, key)) = &self.identity {
            let (cert_text, key_text) = (read(cert)?, read(key)?);
            options =
                options.with_pem_identity(&cert_text, &key_text).map_err(|error| unusable(cert, &error))?;
        }
        Ok(options)
    }
}

fn read(path: &PathBuf) -> Result<String> {
    fs::read_to_string(path).map_err(|error| unusable(path, &error))
}

fn unusable(path: &std::path::Path, error: &dyn std::fmt::Display) -> lockkit_core::Error {
    let reason = format!("the PEM file {} can't be used: {error}", path.display());
    error::ours(ErrorKind::InvalidOption, reason)
}
