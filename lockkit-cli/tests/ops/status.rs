//! Tests the status file.

use std::{
    fs,
    os::unix::{
        fs::{FileTypeExt as _, PermissionsExt as _, symlink},
        net::UnixListener,
    },
    path::Path,
};

use libtest_mimic::Failed;
use rustix::fs::{CWD, FileType, Mode, mknodat};

use crate::{
    Test, good,
    support::{Place, run, said},
};

pub(crate) fn trials() -> Vec<Test> {
    vec![
        ("status::what_is_no_file_is_refused_and_stays", special),
        ("status::a_link_leads_to_the_file", link),
        ("status::nobody_prepares_its_new_file", prepared),
        ("status::once_tells_of_a_wrong_schedule", schedule),
    ]
}

fn status(path: &Path) -> String {
    format!("--status-file={}", path.display())
}

fn special() -> Result<(), Failed> {
    let place = Place::new();
    let _socket = UnixListener::bind(place.path("socket"))?;
    fs::create_dir(place.path("folder"))?;
    mknodat(CWD, place.path("fifo"), FileType::Fifo, Mode::RUSR | Mode::WUSR, 0)?;
    symlink(place.path("fifo"), place.path("link"))?;
    symlink(place.path("nowhere"), place.path("dangling"))?;
    let mut names = vec!["socket", "folder", "fifo", "link", "dangling"];
    // The numbers of a device such as /dev/full; only root may make one.
    let full = rustix::fs::makedev(1, 7);
    if mknodat(CWD, place.path("device"), FileType::CharacterDevice, Mode::RUSR | Mode::WUSR, full)
        .is_ok()
    {
        names.push("device");
    }
    let types = || {
        let entries = fs::read_dir(place.folder.path()).unwrap().map(|entry| entry.unwrap());
        let mut types: Vec<_> =
            entries.map(|entry| (entry.file_name(), entry.file_type().unwrap())).collect();
        types.sort_by(|(one, _), (other, _)| one.cmp(other));
        types
    };
    let before = types();
    let ran = format!("touch {}", place.path("ran").display());
    for name in names {
        let refused = run(place.lockkit(["run", &status(&place.path(name)), "job", "-c", &ran]));
        assert_eq!(refused.status.code(), Some(125), "{name}: {}", said(&refused));
        assert_eq!(said(&refused).lines().count(), 1, "{}", said(&refused));
        assert!(said(&refused).contains("the status file"), "{}", said(&refused));
        assert_eq!(types(), before, "{name}");
    }
    assert!(fs::symlink_metadata(place.path("fifo"))?.file_type().is_fifo());
    Ok(())
}

fn link() -> Result<(), Failed> {
    let place = Place::new();
    fs::create_dir(place.path("far"))?;
    let target = place.path("far/status");
    fs::write(&target, "old")?;
    fs::set_permissions(&target, fs::Permissions::from_mode(0o640))?;
    symlink("far/status", place.path("link"))?;
    good(place.lockkit(["run", &status(&place.path("link")), "job", "true"]));
    assert!(place.path("link").is_symlink());
    assert!(fs::read_to_string(&target)?.contains("\"outcome\":\"exited\""));
    assert_eq!(fs::metadata(&target)?.permissions().mode() & 0o777, 0o640);
    assert_eq!(fs::read_dir(place.path("far"))?.count(), 1);
    Ok(())
}

/// Another user who may write to the folder could point a predictable name at a file of a third
/// user. The command is a child of lockkit and knows lockkit's number.
fn prepared() -> Result<(), Failed> {
    let place = Place::new();
    fs::write(place.path("other"), "theirs\n")?;
    let line = format!("ln -s other {}/.status.$PPID.new", place.folder.path().display());
    good(place.lockkit(["run", &status(&place.path("status")), "job", "-c", &line]));
    assert_eq!(fs::read_to_string(place.path("other"))?, "theirs\n");
    let text = fs::read_to_string(place.path("status"))?;
    assert!(
        !place.path("status").is_symlink() && text.contains("\"outcome\":\"exited\""),
        "{text}"
    );
    Ok(())
}

fn schedule() -> Result<(), Failed> {
    let place = Place::new();
    let refused =
        run(place.lockkit(["once", &status(&place.path("status")), "job", "--cron", "x", "true"]));
    assert_eq!(refused.status.code(), Some(125));
    let status: serde_json::Value = serde_json::from_str(&place.text("status"))?;
    assert_eq!((&status["outcome"], &status["code"]), (&"failed".into(), &125.into()), "{status}");
    assert!(status["reason"].as_str().unwrap().contains("--cron"), "{status}");
    Ok(())
}
