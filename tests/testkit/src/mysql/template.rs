//! Data folders: one is made on a machine, and each server gets a copy.

use std::{
    fs::{self, DirBuilder, File},
    hash::{DefaultHasher, Hash as _, Hasher as _},
    io,
    os::unix::fs::DirBuilderExt as _,
    path::{Path, PathBuf},
};

use anyhow::{Context as _, Result, bail};

use super::{
    program::SqlProgram,
    server::{self, option},
};
use crate::cache;

/// The name and the password of the user in [`SqlServer::url`](super::SqlServer::url), and the name
/// of the user's database.
pub(super) const USER: (&str, &str) = ("lockkit", "l@ck/kit");
pub(super) const DATABASE: &str = "lockkit";
/// As [`USER`], in [`SqlServer::admin_url`](super::SqlServer::admin_url).
pub(super) const ADMIN: (&str, &str) = ("root", "r@@t/all");

/// Makes a data folder with an empty database and the users.
pub(super) fn copy_to(program: &SqlProgram, folder: &Path) -> Result<()> {
    let template = get(program)?;
    copy(&template, folder).with_context(|| {
        format!("the data folder {} can't be copied to {}", template.display(), folder.display())
    })
}

/// One statement on each line, because the servers read them from a file in this form.
fn users() -> String {
    let (user, password) = USER;
    let (admin, admin_password) = ADMIN;
    [
        // An empty folder comes with these users. They would take precedence over a user from any
        // host.
        "DROP USER IF EXISTS root@localhost, mysql@localhost;".to_owned(),
        // Half of MariaDB's files. No server needs these views, and each copy would contain them.
        "DROP DATABASE IF EXISTS sys;".to_owned(),
        format!("CREATE DATABASE {DATABASE} CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci;"),
        format!("CREATE USER {user}@'%' IDENTIFIED BY '{password}';"),
        format!("GRANT ALL PRIVILEGES ON {DATABASE}.* TO {user}@'%';"),
        format!("CREATE USER {admin}@'%' IDENTIFIED BY '{admin_password}';"),
        format!("GRANT ALL PRIVILEGES ON *.* TO {admin}@'%' WITH GRANT OPTION;"),
    ]
    .join("\n")
}

fn get(program: &SqlProgram) -> Result<PathBuf> {
    let folder = cache::folder()?.join("sql-data");
    fs::create_dir_all(&folder).with_context(|| format!("can't make {}", folder.display()))?;
    let mut hasher = DefaultHasher::new();
    (users(), server::fixed_arguments(program.flavor), &program.path).hash(&mut hasher);
    let key = format!("{}-{}-{:016x}", program.flavor, program.version, hasher.finish());
    let template = folder.join(&key);
    let unfinished = folder.join(format!("{key}.unfinished"));
    if template.is_dir() {
        return Ok(template);
    }
    // Test programs run side by side: one makes the template, and the others wait. The lock ends
    // when its file is closed, in whatever way.
    let lock = File::create(folder.join(format!("{key}.lock")))?;
    lock.lock()?;
    if template.is_dir() {
        return Ok(template);
    }
    if unfinished.exists() {
        fs::remove_dir_all(&unfinished)?;
    }
    fs::create_dir(&unfinished)?;
    make(program, &unfinished)?;
    // The identity of a MySQL server: each copy makes its own.
    let identity = unfinished.join("data/auto.cnf");
    if identity.exists() {
        fs::remove_file(identity)?;
    }
    fs::rename(unfinished.join("data"), &template)?;
    fs::remove_dir_all(&unfinished)?;
    Ok(template)
}

/// Makes the data folder, and lets a server without a port create the users.
fn make(program: &SqlProgram, folder: &Path) -> Result<()> {
    let mut install = program.installer()?;
    install
        .args(server::fixed_arguments(program.flavor))
        .arg(option("datadir", &folder.join("data")));
    let output = install.output().with_context(|| format!("{install:?} can't be started"))?;
    if !output.status.success() {
        bail!(
            "{install:?} failed ({}):\n{}{}",
            output.status,
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
    }
    let script = folder.join("users.sql");
    fs::write(&script, users() + "\n")?;
    let arguments = ["--skip-networking".into(), option("init-file", &script)];
    let mut process = server::launch(program, folder, &arguments)?;
    server::stop(&mut process)
}

fn copy(from: &Path, to: &Path) -> io::Result<()> {
    DirBuilder::new().mode(0o700).create(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let target = to.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            copy(&entry.path(), &target)?;
        } else {
            fs::copy(entry.path(), target)?;
        }
    }
    Ok(())
}
