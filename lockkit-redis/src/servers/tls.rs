//! Reads the TLS settings of the schemes `rediss`, `rediss+sentinel` and `rediss+cluster`.

use std::fs;

use lockkit_core::{ErrorKind, Result, url::StoreUrl};
use redis::{Client, ClientTlsConfig, ConnectionAddr, TlsCertificates};
use rustls::crypto::{CryptoProvider, aws_lc_rs};

use crate::error;

/// The certificates to trust a server with, and our own: an address with everything but the host.
#[derive(Clone)]
pub(crate) struct Tls(ConnectionAddr);

impl Tls {
    /// Reads the PEM files that the URL names as `ca`, `cert` and `key`. Without `ca`, the system's
    /// certificates are trusted.
    pub(crate) fn from_url(url: &mut StoreUrl) -> Result<Self> {
        // The client library would panic in a program that links two providers and has chosen none.
        if CryptoProvider::get_default().is_none() {
            // Another thread may have installed one meanwhile.
            let _ = aws_lc_rs::default_provider().install_default();
        }
        let mut file = |name| url.params.text(name)?.map(|path| read(&path)).transpose();
        let root_cert = file("ca")?;
        let client_tls = match (file("cert")?, file("key")?) {
            (Some(client_cert), Some(client_key)) => {
                Some(ClientTlsConfig { client_cert, client_key })
            }
            (None, None) => None,
            _ => {
                let reason =
                    "the store URL can't be used: the parameters cert and key belong together";
                return Err(error::ours(ErrorKind::InvalidUrl, reason));
            }
        };
        let nowhere = ConnectionAddr::TcpTls {
            host: String::new(),
            port: 0,
            insecure: false,
            tls_params: None,
        };
        let client = Client::build_with_tls(nowhere, TlsCertificates { client_tls, root_cert })
            .map_err(|error| {
                let reason = format!("the certificates of the store URL can't be used: {error}");
                error::ours(ErrorKind::InvalidOption, reason).with_source(error)
            })?;
        Ok(Self(client.get_connection_info().addr().clone()))
    }

    pub(crate) fn address(&self, host: &str, port: u16) -> ConnectionAddr {
        let mut address = self.0.clone();
        if let ConnectionAddr::TcpTls { host: of, port: at, .. } = &mut address {
            (*of, *at) = (host.to_owned(), port);
        }
        address
    }
}

fn read(path: &str) -> Result<Vec<u8>> {
    fs::read(path).map_err(|error| {
        let reason = format!("the file {path} can't be read: {error}");
        error::ours(ErrorKind::InvalidOption, reason).with_source(error)
    })
}
