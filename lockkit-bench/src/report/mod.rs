//! What was measured, and how it is shown: as JSON, Markdown and one HTML page.

mod model;

pub use self::model::{
    Case, Curve, Guarantee, GuaranteeClass, Host, Metric, Outcome, Report, SCHEMA, Scenario, Series, Setting,
    Side, Store, Verdict,
};
