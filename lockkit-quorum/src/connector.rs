//! The connector for `quorum://?member=…&member=…` URLs.

use std::sync::Arc;

use async_trait::async_trait;
use futures_util::future;
use lockkit_core::{Connector, Error, ErrorKind, Registry, Result, spi::Backend, url::StoreUrl};

use crate::{
    backend::Quorum,
    late::LateMember,
    member::{Member, NAME},
    need::Need,
};

/// The URL schemes of this backend.
pub const SCHEMES: &[&str] = &["quorum"];

/// The parameters that belong to the whole quorum, not to a member.
const COMMON: [&str; 6] = ["ttl", "op_timeout", "max_hold", "label", "group", "process_gate"];

/// Makes a quorum of the stores that the parameter `member` names.
pub(crate) struct QuorumConnector;

#[async_trait]
impl Connector for QuorumConnector {
    fn schemes(&self) -> &'static [&'static str] {
        SCHEMES
    }

    /// Connects to all members at once.
    ///
    /// A member that cannot be reached must not keep the others from starting. If enough others are
    /// reached, the quorum assumes that this member is like the other members of its scheme. It
    /// connects to the member when it uses it.
    ///
    /// # Errors
    /// A fault of the URL or of a member. A member that cannot be reached is an error if too few
    /// others can be reached, or if no other member of its scheme can.
    async fn connect(&self, mut url: StoreUrl, registry: &Registry) -> Result<Arc<dyn Backend>> {
        let no_user = url.username().is_none() && url.password().is_none();
        if !(url.hosts().is_empty() && url.path().is_empty() && no_user) {
            return Err(invalid(
                "it has a user, a host or a path, but a quorum has none; write \
                 quorum://?member=…&member=…",
            ));
        }
        let need = match url.params.text("need")?.as_deref() {
            None | Some("majority") => Need::Majority,
            Some("all") => Need::All,
            Some(_) => return Err(invalid("the parameter need must be majority or all")),
        };
        let texts = url.params.texts("member");
        url.params.finish()?;
        if texts.is_empty() {
            return Err(invalid("it names no members; write quorum://?member=…&member=…"));
        }
        let (urls, bases) = parse_all(registry, &texts)?;
        let connecting = urls.iter().map(|url| async {
            let connector = registry.connector(url.scheme())?;
            connector.connect(url.clone(), registry).await
        });
        let connected = future::join_all(connecting).await;
        let known: Vec<_> = connected
            .iter()
            .zip(&urls)
            .filter_map(|(it, url)| Some((it.as_ref().ok()?.clone(), url)))
            .collect();
        let enough = need.of(urls.len());
        let count = known.len();
        let mut members = Vec::new();
        for (place, (connected, url)) in connected.into_iter().zip(&urls).enumerate() {
            let alike = known.iter().find(|(_, known)| known.scheme() == url.scheme());
            let backend = match (connected, alike) {
                (Ok(backend), _) => backend,
                (Err(error), Some((alike, _))) if error.is_temporary() && count >= enough => {
                    tracing::warn!(member = %url, "could not reach a member of a quorum yet: \
                                                   {error}");
                    let descriptor = alike.descriptor().clone();
                    Arc::new(LateMember::new(registry.clone(), url.clone(), descriptor))
                }
                (Err(error), _) => {
                    // A text that its backend rejects as a URL may contain a part of a password.
                    let is_url = !matches!(
                        error.kind(),
                        ErrorKind::InvalidUrl | ErrorKind::UnknownParameter
                    );
                    return Err(of_member(place, Some(url).filter(|_| is_url), &error));
                }
            };
            let label = format!("member {} ({url})", place + 1).into();
            members.push(Member { backend, label, token_base: bases[place] });
        }
        Ok(Arc::new(Quorum::of(members, need)?))
    }
}

/// The members' URLs, and the `token_base` of each.
fn parse_all(registry: &Registry, texts: &[String]) -> Result<(Vec<StoreUrl>, Vec<Option<u64>>)> {
    let mut urls = Vec::<StoreUrl>::new();
    let mut bases = Vec::new();
    for (place, text) in texts.iter().enumerate() {
        let (member, token_base) =
            parse(registry, text).map_err(|error| of_member(place, None, &error))?;
        // Both name one store, whatever their `token_base`.
        if !member.hosts().is_empty() && urls.contains(&member) {
            return Err(invalid(&format!(
                "member {} ({member}) occurs twice; name each member once",
                place + 1
            )));
        }
        urls.push(member);
        bases.push(token_base);
    }
    Ok((urls, bases))
}

fn parse(registry: &Registry, text: &str) -> Result<(StoreUrl, Option<u64>)> {
    let mut url = StoreUrl::parse(text)?;
    if SCHEMES.contains(&url.scheme()) {
        return Err(invalid("a member can't be a quorum itself; name its members instead"));
    }
    registry.connector(url.scheme())?;
    // The check of the members decides later which member may have one of its own.
    let token_base = url.params.parsed("token_base", "a whole number")?;
    for common in COMMON {
        if url.params.text(common)?.is_some() {
            return Err(invalid(&format!(
                "the parameter {common} applies to the whole quorum; write it beside the members, \
                 not inside one"
            )));
        }
    }
    Ok((url, token_base))
}

fn of_member(place: usize, url: Option<&StoreUrl>, error: &Error) -> Error {
    let url = url.map(|url| format!(" ({url})")).unwrap_or_default();
    let text = format!("member {}{url}: {}", place + 1, error.context());
    Error::new(error.kind(), text).with_status(error.status()).with_backend(NAME)
}

fn invalid(reason: &str) -> Error {
    Error::new(ErrorKind::InvalidUrl, format!("the store URL can't be used: {reason}"))
        .with_backend(NAME)
}
