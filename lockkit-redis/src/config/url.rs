//! Reads `redis://` URLs and those of the related schemes.

use std::time::Duration;

use lockkit_core::{Error, ErrorKind, Result, url::StoreUrl};

use super::{Address, BACKEND, Config, Login, Site};

const PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;

impl Config {
    /// Reads a store URL; the crate's documentation lists its parts.
    ///
    /// # Errors
    /// * [`ErrorKind::InvalidUrl`] for a value that makes no sense
    /// * [`ErrorKind::UnknownParameter`] for an unknown parameter
    /// * [`ErrorKind::MissingFeature`] for TLS where the crate was built without it
    pub fn from_url(mut url: StoreUrl) -> Result<Self> {
        let scheme = url.scheme().to_owned();
        let (transport, site) = scheme.split_once('+').unwrap_or((&scheme, ""));
        let mut config = match site {
            "unix" => {
                let database: Option<u16> = url.params.parsed("db", "a database number")?;
                Self { database: database.unwrap_or(0).into(), ..Self::unix(unix_path(&url)?) }
            }
            "sentinel" => sentinel(&mut url)?,
            "cluster" => cluster(&url)?,
            _ => Self { database: database(url.path())?, ..Self::at(Site::Tcp(one_host(&url)?)) },
        };
        if transport == "rediss" {
            config.use_tls(&mut url)?;
        }
        config.login = Login {
            username: url.username().map(str::to_owned),
            password: url.password().map(str::to_owned),
        };
        config.login.check()?;
        config.read_settings(&mut url)?;
        url.params.finish()?;
        Ok(config)
    }

    fn read_settings(&mut self, url: &mut StoreUrl) -> Result<()> {
        let mut config = self.clone();
        if let Some(prefix) = url.params.text("prefix")? {
            config = config.with_prefix(prefix)?;
        }
        config.raw_keys = match url.params.text("keys")?.as_deref() {
            None | Some("escaped") => false,
            Some("raw") => true,
            Some(_) => return Err(invalid("the parameter keys must be raw or escaped")),
        };
        if let Some(timeout) = url.params.duration("connect_timeout")? {
            config = config.with_connect_timeout(timeout)?;
        }
        config.strict = url.params.parsed("strict", "true or false")?.unwrap_or(false);
        let replicas: Option<u32> = url.params.parsed("wait_replicas", "a number of replicas")?;
        let timeout = url.params.duration("wait_timeout")?;
        config = match (replicas, timeout) {
            (None, None) => config,
            (None, Some(_)) => {
                return Err(invalid(
                    "wait_timeout has no effect without wait_replicas; give both, or neither",
                ));
            }
            (Some(replicas), timeout) => {
                config.with_replicas(replicas, timeout.unwrap_or(WAIT_TIMEOUT))?
            }
        };
        *self = config;
        Ok(())
    }

    #[cfg(feature = "tls")]
    fn use_tls(&mut self, url: &mut StoreUrl) -> Result<()> {
        self.tls = Some(crate::servers::Tls::from_url(url)?);
        Ok(())
    }

    #[cfg(not(feature = "tls"))]
    fn use_tls(&mut self, _: &mut StoreUrl) -> Result<()> {
        let reason = "the store URL can't be used: rediss:// needs TLS; build lockkit with the \
                      cargo feature redis-tls";
        Err(Error::new(ErrorKind::MissingFeature, reason).with_backend(BACKEND))
    }
}

const WAIT_TIMEOUT: Duration = Duration::from_secs(1);

impl Login {
    fn check(&self) -> Result<()> {
        if self.username.is_some() && self.password.is_none() {
            return Err(invalid(
                "it has a user name and no password; write a password alone as :password@",
            ));
        }
        Ok(())
    }
}

fn sentinel(url: &mut StoreUrl) -> Result<Config> {
    let path = url.path().trim_start_matches('/').to_owned();
    let (service, number) = path.split_once('/').unwrap_or((&path, ""));
    if service.is_empty() || url.hosts().is_empty() {
        return Err(invalid(
            "write sentinels as redis+sentinel://host1:26379,host2:26379/service/0",
        ));
    }
    let mut config = Config::sentinel(hosts(url, SENTINEL_PORT), service);
    config.database = database(number)?;
    config.sentinel_login = Login {
        username: url.params.text("sentinel_username")?,
        password: url.params.text("sentinel_password")?,
    };
    config.sentinel_login.check()?;
    Ok(config)
}

fn cluster(url: &StoreUrl) -> Result<Config> {
    if url.hosts().is_empty() {
        return Err(invalid("write a cluster as redis+cluster://host1:6379,host2:6379/"));
    }
    if database(url.path())? != 0 {
        return Err(invalid("a cluster has only database 0"));
    }
    Ok(Config::cluster(hosts(url, PORT)))
}

fn hosts(url: &StoreUrl, port: u16) -> Vec<Address> {
    url.hosts().iter().map(|host| (host.name.clone(), host.port.unwrap_or(port))).collect()
}

fn one_host(url: &StoreUrl) -> Result<Address> {
    match &*hosts(url, PORT) {
        [] => {
            Err(invalid("it names no host; for a server on this machine, write redis://127.0.0.1/"))
        }
        [host] => Ok(host.clone()),
        _ => Err(invalid(
            "it names more than one server; write redis+sentinel:// for several sentinels, and \
             redis+cluster:// for several nodes of a cluster",
        )),
    }
}

fn unix_path(url: &StoreUrl) -> Result<&str> {
    if !url.hosts().is_empty() || url.path().len() < 2 {
        return Err(invalid("write a socket as redis+unix:///path/to/socket"));
    }
    Ok(url.path())
}

fn database(path: &str) -> Result<i64> {
    let number = path.strip_prefix('/').unwrap_or(path);
    if number.is_empty() {
        return Ok(0);
    }
    let number = number
        .parse::<u16>()
        .map_err(|_| invalid("its path must be a database number, such as /0"))?;
    Ok(number.into())
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidUrl, format!("the store URL can't be used: {reason}"))
        .with_backend(BACKEND)
}

#[cfg(test)]
mod tests {
    use redis::ProtocolVersion;

    use super::*;

    fn parse(text: &str) -> Result<Config> {
        Config::from_url(StoreUrl::parse(text).unwrap())
    }

    #[test]
    fn all_parts_of_a_url_are_used() {
        let config =
            parse("redis://us:p%40ss@h:7/3?prefix=a:b&keys=raw&connect_timeout=250ms&strict=true")
                .unwrap();
        assert!(matches!(&config.site, Site::Tcp((host, 7)) if host == "h"), "{config:?}");
        assert_eq!((config.database, config.prefix.as_str(), config.raw_keys), (3, "a:b", true));
        assert_eq!((config.connect_timeout, config.strict), (Duration::from_millis(250), true));
        let info =
            config.connection_info(config.address_of("h", 7), ProtocolVersion::RESP3).unwrap();
        let login = info.redis_settings();
        assert_eq!((login.username(), login.password()), (Some("us"), Some("p@ss")));
        assert!(info.tcp_settings().nodelay());
    }

    #[test]
    fn a_bare_url_means_the_usual_server() {
        for url in ["redis://127.0.0.1", "redis://127.0.0.1:6379/"] {
            let config = parse(url).unwrap();
            assert!(
                matches!(&config.site, Site::Tcp((host, 6379)) if host == "127.0.0.1"),
                "{config:?}"
            );
            assert_eq!((config.database, config.prefix.as_str()), (0, "lockkit"));
        }
        let config = parse("redis+unix:///run/redis.sock?db=2").unwrap();
        assert!(
            matches!(&config.site, Site::Unix(path) if path.ends_with("redis.sock")),
            "{config:?}"
        );
        assert_eq!(config.database, 2);
    }

    #[test]
    fn sentinels_and_clusters_have_several_hosts() {
        let config =
            parse("redis+sentinel://u:p@a,b:7/main/3?sentinel_password=q&wait_replicas=2").unwrap();
        let Site::Sentinel { sentinels, service } = &config.site else { panic!("{config:?}") };
        assert_eq!(*sentinels, [("a".to_owned(), 26379), ("b".to_owned(), 7)]);
        assert_eq!((service.as_str(), config.database), ("main", 3));
        assert_eq!(config.sentinel_login.password.as_deref(), Some("q"));
        assert_eq!(config.replicas, Some((2, Duration::from_secs(1))));
        let config = parse("redis+cluster://a,b:7/?wait_replicas=1&wait_timeout=50ms").unwrap();
        let Site::Cluster(nodes) = &config.site else { panic!("{config:?}") };
        assert_eq!(*nodes, [("a".to_owned(), 6379), ("b".to_owned(), 7)]);
        assert_eq!(config.replicas, Some((1, Duration::from_millis(50))));
    }

    #[test]
    fn c13_impossible_settings_are_refused_with_a_reason() {
        for (url, kind, reason) in [
            ("redis://", ErrorKind::InvalidUrl, "no host"),
            ("redis://h/x", ErrorKind::InvalidUrl, "path must be a database number"),
            ("redis://h/-1", ErrorKind::InvalidUrl, "path must be a database number"),
            ("redis://user@h/", ErrorKind::InvalidUrl, "no password"),
            ("redis://a,b/", ErrorKind::InvalidUrl, "more than one server"),
            ("redis+sentinel://a,b/", ErrorKind::InvalidUrl, "/service/0"),
            ("redis+sentinel:///main", ErrorKind::InvalidUrl, "/service/0"),
            ("redis+sentinel://a/main/x", ErrorKind::InvalidUrl, "database number"),
            ("redis+sentinel://a/main?sentinel_username=u", ErrorKind::InvalidUrl, "no password"),
            ("redis+cluster:///", ErrorKind::InvalidUrl, "redis+cluster://host1"),
            ("redis+cluster://h/1", ErrorKind::InvalidUrl, "only database 0"),
            ("redis://h/?wait_replicas=0", ErrorKind::InvalidOption, "at least 1"),
            ("redis://h/?wait_replicas=many", ErrorKind::InvalidUrl, "a number of replicas"),
            ("redis://h/?wait_replicas=1&wait_timeout=2m", ErrorKind::InvalidOption, "60 s"),
            ("redis://h/?wait_timeout=1s", ErrorKind::InvalidUrl, "without wait_replicas"),
            ("redis+unix://h/x", ErrorKind::InvalidUrl, "redis+unix:///path"),
            ("redis://h/?prefix=", ErrorKind::InvalidOption, "key prefix"),
            ("redis://h/?prefix=a%7Bb", ErrorKind::InvalidOption, "key prefix"),
            ("redis://h/?prefix=a%20b", ErrorKind::InvalidOption, "key prefix"),
            ("redis://h/?keys=cooked", ErrorKind::InvalidUrl, "raw or escaped"),
            ("redis://h/?connect_timeout=0s", ErrorKind::InvalidOption, "between 1 ms and 60 s"),
            ("redis://h/?connect_timeout=61s", ErrorKind::InvalidOption, "between 1 ms and 60 s"),
            ("redis+unix:///s?db=-1", ErrorKind::InvalidUrl, "a database number"),
            ("redis://h/?connect_timeout=fast", ErrorKind::InvalidUrl, "connect_timeout"),
            ("redis://h/?strict=1", ErrorKind::InvalidUrl, "true or false"),
            ("redis://h/?tll=3s", ErrorKind::UnknownParameter, "tll"),
        ] {
            let error = parse(url).unwrap_err();
            assert_eq!(error.kind(), kind, "{url}: {error}");
            assert!(error.to_string().contains(reason), "{url}: {error}");
        }
    }

    #[test]
    fn c13_debug_shows_no_secret() {
        for url in ["redis://user:hunter2@h/", "redis+sentinel://h/main?sentinel_password=hunter2"]
        {
            let config = parse(url).unwrap();
            assert!(!format!("{config:?}").contains("hunter2"));
        }
    }

    #[cfg(not(feature = "tls"))]
    #[test]
    fn c13_tls_must_be_built_in() {
        let error = parse("rediss://h/").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::MissingFeature);
        assert!(error.to_string().contains("redis-tls"), "{error}");
    }
}
