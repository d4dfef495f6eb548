//! Finds Java, ZooKeeper and Curator.

use std::{
    env,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, anyhow};

use super::ZOOKEEPER_URL_VARIABLE;

/// The variable that names ZooKeeper's jars if they are not where Debian puts them.
pub const CLASS_PATH_VARIABLE: &str = "LOCKKIT_TEST_ZK_CLASSPATH";
/// As [`CLASS_PATH_VARIABLE`], for Curator's jars and all jars that they need.
pub const CURATOR_CLASS_PATH_VARIABLE: &str = "LOCKKIT_TEST_CURATOR_CLASSPATH";

/// Where Debian puts jars. The manifest of each jar names the other jars there that it needs.
const JARS: &str = "/usr/share/java";
/// ZooKeeper leaves the choice of a logger to its user. This logger writes to standard error and
/// needs no configuration. TLS needs the codec, which the manifest does not name.
const ZOOKEEPER: [&str; 3] = ["zookeeper.jar", "slf4j-simple.jar", "netty-codec.jar"];
const SERVER_PACKAGES: &str = "libzookeeper-java default-jre-headless";
const CURATOR: [&str; 3] = ["curator-recipes.jar", "curator-framework.jar", "curator-client.jar"];

/// The Java runtime.
///
/// # Errors
/// There is none. The text holds the command that installs Java and ZooKeeper.
pub fn java_runtime() -> Result<PathBuf, String> {
    program("java").ok_or_else(|| install("no Java is installed", SERVER_PACKAGES))
}

/// The tool that makes key stores. Every Java runtime has it.
pub(super) fn keytool() -> Result<PathBuf> {
    program("keytool").with_context(|| install("no keytool is installed", "default-jre-headless"))
}

/// The class path of a server.
pub(super) fn zookeeper_classpath() -> Result<String> {
    if let Some(path) = set(CLASS_PATH_VARIABLE) {
        return Ok(path);
    }
    class_path(Path::new(JARS), &ZOOKEEPER).map_err(|jar| {
        anyhow!(
            "{}\nOr set {CLASS_PATH_VARIABLE} to the jars of a ZooKeeper release (`LIB/*`), or {ZOOKEEPER_URL_VARIABLE} \
             to the URL of a server of your own",
            install(&format!("ZooKeeper is not installed: no {jar}"), SERVER_PACKAGES),
        )
    })
}

/// The class path of a program that uses Apache Curator's recipes.
///
/// # Errors
/// Curator is not installed. The text holds the command that installs it.
pub fn curator_classpath() -> Result<String, String> {
    if let Some(path) = set(CURATOR_CLASS_PATH_VARIABLE) {
        return Ok(path);
    }
    let jars: Vec<_> = CURATOR.into_iter().chain(ZOOKEEPER).collect();
    class_path(Path::new(JARS), &jars).map_err(|jar| {
        install(&format!("Apache Curator is not installed: no {jar}"), "libcurator-recipes-java")
    })
}

/// The Java compiler.
///
/// # Errors
/// There is none. The text holds the command that installs one.
pub fn java_compiler() -> Result<PathBuf, String> {
    program("javac").ok_or_else(|| install("no Java compiler is installed", "default-jdk-headless"))
}

fn set(variable: &str) -> Option<String> {
    env::var(variable).ok().filter(|value| !value.is_empty())
}

fn install(what: &str, packages: &str) -> String {
    format!(
        "{what}. This command installs it, without a service: apt-get install --no-install-recommends {packages}"
    )
}

fn program(name: &str) -> Option<PathBuf> {
    let home = env::var_os("JAVA_HOME").map(|home| Path::new(&home).join("bin"));
    let path = env::var_os("PATH").unwrap_or_default();
    home.into_iter()
        .chain(env::split_paths(&path))
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
}

/// The class path with all the jars, or the first jar that is missing.
fn class_path(folder: &Path, jars: &[&str]) -> Result<String, String> {
    let paths = jars.iter().map(|jar| {
        let path = folder.join(jar);
        if path.is_file() {
            Ok(path.display().to_string())
        } else {
            Err(path.display().to_string())
        }
    });
    Ok(paths.collect::<Result<Vec<_>, _>>()?.join(":"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_jar_that_is_missing_is_named() {
        let folder = tempfile::tempdir().unwrap();
        std::fs::write(folder.path().join("a.jar"), "").unwrap();
        let missing = class_path(folder.path(), &["a.jar", "b.jar"]).unwrap_err();
        assert_eq!(missing, folder.path().join("b.jar").display().to_string());
        std::fs::write(folder.path().join("b.jar"), "").unwrap();
        let both = class_path(folder.path(), &["a.jar", "b.jar"]).unwrap();
        assert_eq!(both, format!("{0}/a.jar:{0}/b.jar", folder.path().display()));
    }
}
