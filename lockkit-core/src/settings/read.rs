//! Reads keys and values from any format that serde reads, and options from keys and values.

use std::fmt;

use serde_core::de::{Deserialize, DeserializeSeed, Deserializer, Error as _, MapAccess, Visitor};

use crate::{
    common::take_options,
    error::{Error, ErrorKind, Result},
    options::{LockOptions, Renewal},
    url::Params,
};

impl<'de> Deserialize<'de> for LockOptions {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        all_options(params(deserializer)?).map_err(D::Error::custom)
    }
}

fn all_options(mut params: Params) -> Result<LockOptions> {
    let options = take_options(&mut params)?;
    let options = take_more(options, &mut params)?;
    params.finish()?;
    Ok(options)
}

/// Takes the options that a URL can't set.
pub(super) fn take_more(mut options: LockOptions, params: &mut Params) -> Result<LockOptions> {
    if let Some(wait) = params.bound("wait")? {
        options = options.with_wait(wait);
    }
    match params.text("renewal")?.as_deref() {
        None => Ok(options),
        Some("auto") => Ok(options.with_renewal(Renewal::Auto)),
        Some("manual") => Ok(options.with_renewal(Renewal::Manual)),
        Some(_) => {
            let text = "the setting renewal must be auto or manual";
            Err(Error::new(ErrorKind::InvalidOption, text))
        }
    }
}

/// Reads a map. Its keys are taken by name, as the parameters of a URL are.
pub(super) fn params<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Params, D::Error> {
    deserializer.deserialize_map(Keys).map(Params::of_settings)
}

struct Keys;

impl<'de> Visitor<'de> for Keys {
    type Value = Vec<(String, String)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a map of settings of lockkit")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut given = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            let value = map.next_value_seed(Scalar(&key))?;
            given.push((key, value));
        }
        Ok(given)
    }
}

/// Reads the value of this key as text. A variable of the environment is nothing but text, so each
/// value must be readable from a text.
struct Scalar<'a>(&'a str);

impl<'de> DeserializeSeed<'de> for Scalar<'_> {
    type Value = String;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<String, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl Visitor<'_> for Scalar<'_> {
    type Value = String;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "a text, a whole number or a boolean as the setting {}", self.0)
    }

    fn visit_str<E>(self, value: &str) -> Result<String, E> {
        Ok(value.to_owned())
    }

    fn visit_string<E>(self, value: String) -> Result<String, E> {
        Ok(value)
    }

    fn visit_bool<E>(self, value: bool) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_i64<E>(self, value: i64) -> Result<String, E> {
        Ok(value.to_string())
    }

    fn visit_u64<E>(self, value: u64) -> Result<String, E> {
        Ok(value.to_string())
    }
}
