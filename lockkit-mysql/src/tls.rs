//! TLS, for the scheme `mysqls`.

use std::{fs::File, path::PathBuf};

use lockkit_core::{ErrorKind, Result, url::StoreUrl};
use mysql_async::{ClientIdentity, SslOpts};
use rustls::crypto::{CryptoProvider, aws_lc_rs};

use crate::error;

/// The PEM files of a connection.
#[derive(Clone, Debug)]
pub(crate) struct Tls {
    ca: Option<PathBuf>,
    identity: Option<(PathBuf, PathBuf)>,
}

impl Tls {
    /// `None` for the schemes without TLS.
    pub(crate) fn from_url(url: &mut StoreUrl) -> Result<Option<Self>> {
        if url.scheme() != "mysqls" {
            return Ok(None);
        }
        let mut file =
            |name| Ok::<_, lockkit_core::Error>(url.params.text(name)?.map(PathBuf::from));
        let ca = file("ca")?;
        let identity = match (file("cert")?, file("key")?) {
            (Some(cert), Some(key)) => Some((cert, key)),
            (None, None) => None,
            _ => {
                let reason =
                    "the store URL can't be used: the parameters cert and key belong together";
                return Err(error::ours(ErrorKind::InvalidUrl, reason));
            }
        };
        let files = ca.iter().chain(identity.iter().flat_map(|(cert, key)| [cert, key]));
        for path in files {
            File::open(path).map_err(|error| {
                let reason = format!("the file {} can't be read: {error}", path.display());
                error::ours(ErrorKind::InvalidOption, reason).with_source(error)
            })?;
        }
        Ok(Some(Self { ca, identity }))
    }

    pub(crate) fn options(&self) -> SslOpts {
        // The driver would panic in a program that links two providers and has chosen none.
        if CryptoProvider::get_default().is_none() {
            // It fails if another thread has installed one in between.
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let roots = self.ca.iter().map(|path| path.clone().into()).collect::<Vec<_>>();
        let identity = self
            .identity
            .as_ref()
            .map(|(cert, key)| ClientIdentity::new(cert.clone().into(), key.clone().into()));
        SslOpts::default()
            // A user who names a certificate authority trusts no other.
            .with_disable_built_in_roots(!roots.is_empty())
            .with_root_certs(roots)
            .with_client_identity(identity)
    }
}
