//! Reads the histories of all processes as one.

use std::{
    fs,
    path::{Path, PathBuf},
};

use super::Record;
use crate::error::{Error, Result};

/// Reads all files of a folder whose names end in `.jsonl`, in order of time.
///
/// Ignores a last line without a line end, because its writer was killed during the write.
///
/// # Errors
/// A file can't be read, or another line is not a record.
pub fn read(folder: &Path) -> Result<Vec<Record>> {
    let unreadable =
        |error| Error::of(format!("could not read the folder {}", folder.display()), error);
    let entries = fs::read_dir(folder).map_err(unreadable)?;
    let paths = entries.map(|entry| entry.map(|entry| entry.path())).collect::<Result<Vec<_>, _>>();
    let mut paths = paths.map_err(unreadable)?;
    paths.retain(|path| path.extension().is_some_and(|extension| extension == "jsonl"));
    // Sorted, so that records of the same instant always come in the same order.
    paths.sort();
    let mut records = Vec::new();
    for path in paths {
        read_file(&path, &mut records)?;
    }
    records.sort_by_key(|record| record.at);
    Ok(records)
}

fn read_file(path: &PathBuf, records: &mut Vec<Record>) -> Result<()> {
    let bytes = fs::read(path)
        .map_err(|error| Error::of(format!("could not read {}", path.display()), error))?;
    // The rest after the last line end is empty or incomplete.
    let Some(end) = bytes.iter().rposition(|byte| *byte == b'\n') else { return Ok(()) };
    for (index, line) in bytes[..end].split(|byte| *byte == b'\n').enumerate() {
        let record = serde_json::from_slice(line);
        let no_record = |error| {
            Error::of(format!("{}, line {}: not a record", path.display(), index + 1), error)
        };
        records.push(record.map_err(no_record)?);
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::{fs::OpenOptions, io::Write as _};

    use super::*;
    use crate::history::{Event, Op, Outcome, Writer};

    fn releases(number: u64) -> Event {
        Event::Releases { op: Op { process: 1, number } }
    }

    #[test]
    fn lines_of_all_processes_come_in_order_of_time() {
        let folder = tempfile::tempdir().unwrap();
        let one = Writer::create(&folder.path().join("1.jsonl"), 1).unwrap();
        let two = Writer::create(&folder.path().join("2.jsonl"), 2).unwrap();
        fs::write(folder.path().join("notes.txt"), "not a history").unwrap();
        one.write_at(30, releases(1));
        two.write_at(20, releases(2));
        one.write_at(20, releases(3));
        one.clone().write_at(
            10,
            Event::Released { op: Op { process: 1, number: 4 }, outcome: Outcome::Freed },
        );
        let read = read(folder.path()).unwrap();
        let order: Vec<_> = read.iter().map(|record| (record.at, record.process)).collect();
        assert_eq!(order, [(10, 1), (20, 1), (20, 2), (30, 1)]);
        assert_eq!(read[3].event, releases(1));
    }

    #[test]
    fn a_cut_last_line_is_left_out_and_a_bad_one_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.jsonl");
        Writer::create(&path, 1).unwrap().write(releases(1));
        let append = |text: &str| {
            OpenOptions::new()
                .append(true)
                .open(&path)
                .unwrap()
                .write_all(text.as_bytes())
                .unwrap();
        };
        append(r#"{"at":7,"proc"#);
        assert_eq!(read(folder.path()).unwrap().len(), 1);
        append("\n");
        let error = read(folder.path()).unwrap_err().to_string();
        assert!(error.contains("1.jsonl, line 2: not a record"), "{error}");
    }

    #[test]
    fn a_history_is_never_written_over() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("1.jsonl");
        Writer::create(&path, 1).unwrap();
        assert!(Writer::create(&path, 2).is_err());
    }
}
