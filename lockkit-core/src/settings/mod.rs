//! A locker's settings as text: a store and the defaults of its locks, from a file or from the
//! environment.

mod read;
#[cfg(test)]
mod tests;

use std::{env, ffi::OsString};

use serde_core::de::{Deserialize, Deserializer, Error as _};

use self::read::{params, take_more};
use crate::{
    common::Common,
    error::{Error, ErrorKind, Result},
    locker::{Locker, LockerBuilder},
    registry::Registry,
    url::{Params, StoreUrl},
};

/// The settings of a locker, from a file of any format that serde reads, or from
/// [variables](Self::from_env). They need the cargo feature `serde`.
///
/// | key | value |
/// |---|---|
/// | `url` | the URL of the store; the only key that must be there |
/// | `ttl`, `wait`, `renewal`, `op_timeout`, `label`, `max_hold`, `group` | as in [`LockOptions`](crate::LockOptions) |
/// | `token_base`, `process_gate` | as in a [URL](Registry::connect) |
///
/// * Each value may be a text. Numbers and booleans may also be themselves.
/// * A duration is a text such as `250ms`, `10s` or `1m 30s`. `wait` and `max_hold` may be
///   `forever`, and `renewal` is `auto` or `manual`.
/// * A key replaces the parameter of the URL. An option that is not set keeps its value.
/// * An unknown key is an error, and so is a value that is missing, invalid or contradicts another.
///   The error names the key.
///
/// ```
/// use lockkit_core::{Registry, Settings};
///
/// # #[tokio::main(flavor = "current_thread")]
/// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
/// // The same keys in TOML: url = "memory://", and a line for each other key.
/// let text = r#"{"url": "memory://", "ttl": "10s", "wait": "5s", "label": "billing"}"#;
/// let settings: Settings = serde_json::from_str(text)?;
/// let locker = settings.connect(&Registry::new()).await?;
/// assert_eq!(locker.defaults().label(), Some("billing"));
/// assert!(serde_json::from_str::<Settings>(r#"{"url": "memory://", "tll": "10s"}"#).is_err());
/// # Ok(locker.shutdown().await?)
/// # }
/// ```
///
/// # Passwords
/// Neither `Debug` nor an error of lockkit shows the password of the URL. The parser of a file may
/// quote a line of the file in its own errors.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Settings {
    url: StoreUrl,
    common: Common,
}

impl Settings {
    /// Reads the variables of the environment whose names begin with `prefix`. The rest of a name
    /// is a key in capital letters: with the prefix `APP_LOCK_`, `APP_LOCK_URL` is the key `url`.
    ///
    /// Choose a prefix that no other variable has, because an unknown key is an error.
    ///
    /// ```no_run
    /// use lockkit_core::{Registry, Settings};
    ///
    /// # async fn connected() -> lockkit_core::Result<()> {
    /// let settings = Settings::from_env("APP_LOCK_")?; // APP_LOCK_URL, APP_LOCK_TTL and others
    /// let locker = settings.connect(&Registry::new()).await?;
    /// # locker.shutdown().await
    /// # }
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::UnknownParameter`], [`ErrorKind::InvalidOption`], or the fault in the URL.
    pub fn from_env(prefix: &str) -> Result<Self> {
        Self::from_variables(prefix, env::vars_os())
    }

    fn from_variables(
        prefix: &str,
        variables: impl IntoIterator<Item = (OsString, OsString)>,
    ) -> Result<Self> {
        let mut given = Vec::new();
        for (name, value) in variables {
            let Some(key) = name.to_str().and_then(|name| name.strip_prefix(prefix)) else {
                continue;
            };
            let Ok(value) = value.into_string() else {
                let text = format!("the variable {prefix}{key} must be UTF-8");
                return Err(Error::new(ErrorKind::InvalidOption, text));
            };
            given.push((key.to_ascii_lowercase(), value));
        }
        Self::new(Params::of_settings(given)).map_err(|error| {
            let text = format!("{}; the variables {prefix}… hold the settings", error.context());
            Error::new(error.kind(), text)
        })
    }

    /// Connects to the store. `lockkit::registry()` has the stores that are compiled in.
    ///
    /// # Errors
    /// As [`Registry::connect`].
    ///
    /// # Cancel safety
    /// Cancel safe: a connection that is not complete is closed.
    pub async fn connect(&self, registry: &Registry) -> Result<Locker> {
        Ok(self.builder(registry).await?.build())
    }

    /// Connects to the store. Use the builder for a locker with observers or metrics, or with
    /// another clock.
    ///
    /// # Errors
    /// As [`connect`](Self::connect).
    ///
    /// # Cancel safety
    /// As [`connect`](Self::connect).
    pub async fn builder(&self, registry: &Registry) -> Result<LockerBuilder> {
        let connected = registry.connected(self.url.clone(), self.common.clone()).await;
        connected.map_err(|error| error.with_operation("connect"))
    }

    /// Takes all settings, and checks them together with the parameters of the URL.
    fn new(mut params: Params) -> Result<Self> {
        let url = params.text("url")?;
        let mut common = Common::take(&mut params)?;
        common.options = take_more(common.options, &mut params)?;
        params.finish()?;
        let Some(url) = url else {
            let text = "the setting url is missing; a store URL looks like redis://127.0.0.1:6379/";
            return Err(Error::new(ErrorKind::InvalidOption, text));
        };
        let url = StoreUrl::parse(&url)?;
        let all = common.clone().over(Common::take(&mut url.params.clone())?);
        all.options.check()?;
        Ok(Self { url, common })
    }
}

impl<'de> Deserialize<'de> for Settings {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Self::new(params(deserializer)?).map_err(D::Error::custom)
    }
}
