//! A certificate for a server's TLS port.

use std::{
    net::SocketAddr,
    path::{Path, PathBuf},
    process::Command,
};

use anyhow::{Context as _, Result, bail};

use super::java;

/// A key store needs a password. It protects nothing, because the key is made for one test.
const PASSWORD: &str = "of-a-test";

/// The TLS side of a server.
#[derive(Debug)]
pub(super) struct Tls {
    pub(super) addr: SocketAddr,
    pub(super) certificate: PathBuf,
    store: PathBuf,
}

impl Tls {
    /// Makes a key and a certificate for the server's address and for localhost in `folder`.
    pub(super) fn make(folder: &Path, addr: SocketAddr) -> Result<Self> {
        let store = folder.join("server.p12");
        let certificate = folder.join("server.pem");
        let mut key = Command::new(java::keytool()?);
        key.args(["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650"]);
        key.args([
            "-dname",
            "CN=localhost",
            "-ext",
            &format!("SAN=ip:{},dns:localhost", addr.ip()),
        ]);
        run(with_store(&mut key, &store))?;
        let mut export = Command::new(java::keytool()?);
        export.args(["-exportcert", "-rfc", "-file"]).arg(&certificate);
        run(with_store(&mut export, &store))?;
        Ok(Self { addr, certificate, store })
    }

    pub(super) fn config(&self) -> [String; 2] {
        [
            format!("secureClientPort={}", self.addr.port()),
            format!("secureClientPortAddress={}", self.addr.ip()),
        ]
    }

    pub(super) fn java(&self) -> Vec<String> {
        vec![
            "-Dzookeeper.serverCnxnFactory=org.apache.zookeeper.server.NettyServerCnxnFactory"
                .to_owned(),
            format!("-Dzookeeper.ssl.keyStore.location={}", self.store.display()),
            format!("-Dzookeeper.ssl.keyStore.password={PASSWORD}"),
            // The default demands a certificate of every client.
            "-Dzookeeper.ssl.clientAuth=none".to_owned(),
        ]
    }
}

fn with_store<'a>(command: &'a mut Command, store: &Path) -> &'a mut Command {
    command
        .args(["-alias", "server", "-storetype", "PKCS12", "-storepass", PASSWORD, "-keystore"])
        .arg(store)
}

fn run(command: &mut Command) -> Result<()> {
    let output = command.output().context("keytool can't be started")?;
    if !output.status.success() {
        bail!(
            "keytool: {}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(())
}
