//! Writes reports to files, and reads them.

use std::{fs, path::Path};

use serde::Deserialize;

use super::{Report, SCHEMA};
use crate::{Error, Result};

/// Only the field that decides whether this version can read the other fields.
#[derive(Deserialize)]
struct Header {
    schema: u32,
}

impl Report {
    /// The report as JSON, for [`Report::read`] and for other programs.
    ///
    /// # Errors
    ///
    /// A value has no form in JSON.
    pub fn to_json(&self) -> Result<String> {
        let mut json = serde_json::to_string_pretty(self)
            .map_err(|error| Error::of("could not write the report as JSON", error))?;
        json.push('\n');
        Ok(json)
    }

    /// Reads the JSON of a report.
    ///
    /// # Errors
    ///
    /// The file does not exist, is not a report, or is a report of a later version of this program.
    pub fn read(path: impl AsRef<Path>) -> Result<Self> {
        let path = path.as_ref();
        let name = path.display();
        let json = fs::read_to_string(path).map_err(|error| {
            Error::of(
                format!(
                    "could not read {name}; give the JSON file that a run of lockkit-bench wrote"
                ),
                error,
            )
        })?;
        let no_report = |error| {
            Error::of(
                format!(
                    "{name} is not a report; give the JSON file that a run of lockkit-bench wrote"
                ),
                error,
            )
        };
        let Header { schema } = serde_json::from_str(&json).map_err(no_report)?;
        if schema > SCHEMA {
            return Err(Error::new(format!(
                "{name} has schema {schema}, and this version of lockkit-bench knows schemas up to \
                 {SCHEMA}; use the version that wrote it, or a later one"
            )));
        }
        serde_json::from_str(&json).map_err(no_report)
    }
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;
    use crate::report::{Metric, Series, Verdict, sample};

    fn read(json: &str) -> Result<Report> {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("some.json");
        fs::write(&path, json).unwrap();
        Report::read(path)
    }

    #[test]
    fn a_written_history_is_read_back() {
        let report = sample::report();
        assert_eq!(read(&report.to_json().unwrap()).unwrap(), report);
    }

    /// JSON has no infinity. A task that got no grant must not make the report of an hour
    /// unreadable.
    #[test]
    fn an_infinite_ratio_survives() {
        let mut report = sample::report();
        let Verdict::Measured { figures, .. } = &mut report.outcomes[0].verdict else {
            panic!("measured")
        };
        figures.insert(Metric::MostOverLeast, Series(vec![1.0, f64::INFINITY]));
        assert_eq!(read(&report.to_json().unwrap()).unwrap(), report);
    }

    #[test]
    fn fields_of_a_later_version_do_no_harm() {
        let report = sample::report();
        let json = report.to_json().unwrap().replacen('{', "{\"tomorrow\": [1],", 1);
        assert_eq!(read(&json).unwrap(), report);
    }

    #[test]
    fn a_larger_schema_is_refused_before_its_fields_are_looked_at() {
        let error = read(r#"{"schema": 2, "all": "different"}"#).unwrap_err().to_string();
        assert!(error.contains("some.json has schema 2"), "{error}");
        assert!(error.contains("up to 1"), "{error}");
    }

    #[test]
    fn errors_name_the_file_and_the_remedy() {
        for json in ["", "[]", "{}", r#"{"schema": 1}"#, "# Markdown"] {
            let error = read(json).unwrap_err().to_string();
            assert!(error.contains("some.json is not a report; give the JSON file"), "{error}");
        }
        let error = Report::read("/nowhere/at-all.json").unwrap_err().to_string();
        assert!(
            error.contains("could not read /nowhere/at-all.json; give the JSON file"),
            "{error}"
        );
    }
}
