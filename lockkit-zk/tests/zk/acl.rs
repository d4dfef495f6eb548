//! Nodes whose ACL restricts them to their creator.

use lockkit_core::{
    ErrorKind, Kind, LockName, Released,
    spi::{Admin as _, Backend as _, Note, Noted, Wait},
};
use lockkit_zk::zookeeper_client::Error::NoAuth;

use crate::support::*;

impl Bed {
    fn url_as(&self, user: &str, query: &str) -> String {
        self.url(query).replacen("zk://", &format!("zk://{user}@"), 1)
    }
}

#[tokio::test]
async fn c13_locks_of_their_creator_are_closed_to_others_and_open_to_him() {
    let bed = Bed::shared();
    for query in ["acl=creator", "acl=creator&fair=false"] {
        let bed = Bed { prefix: format!("{}-{}", bed.prefix, query.len()), ..bed.clone() };
        let mine = connect_in_the_end(&bed.url_as("ann:hunter2", query)).await;
        let mut holder = claim(&mine, "a");
        granted(holder.attempt(Wait::Queue).await);

        for other in [bed.url_as("bob:hunter2", query), bed.url_as("ann:hunter3", query)] {
            let error = refused(&other).await;
            assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
            assert!(
                error.to_string().contains("credentials")
                    && error.to_string().contains(&bed.prefix),
                "{error}"
            );
            assert!(!texts(&error).contains("hunter"), "{}", texts(&error));
        }
        let open = query.replace("acl=creator", "acl=open");
        let error = refused(&bed.url(&open)).await;
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");

        let same = connect_in_the_end(&bed.url_as("ann:hunter2", query)).await;
        let mut waiter = claim(&same, "a");
        busy(waiter.attempt(Wait::Queue).await);
        let note = Note::default().next("a");
        assert_eq!(holder.write_note(&note).await.unwrap(), Noted::Written);
        assert_eq!(same.note(&LockName::new(Kind::Mutex, "a").unwrap()).await.unwrap(), note);
        same.time().await.unwrap();
        let admin = bed.admin().await;
        for path in ["note", "note/mutex", "note/mutex/a", "clock"] {
            let error = admin.0.get_data(&format!("/{}/{path}", bed.prefix)).await.unwrap_err();
            assert_eq!(error, NoAuth, "{path}");
        }
        assert_eq!(holder.release().await.unwrap(), Released::Freed);
        lock(&mut waiter).await;
        assert_eq!(waiter.release().await.unwrap(), Released::Freed);
        bed.assert_clean().await;
    }
}

/// The folder of a lock may belong to another user even where the prefix is open.
#[tokio::test]
async fn c13_each_request_for_a_lock_of_another_user_is_permission_denied() {
    let bed = Bed::shared();
    let open = bed.connect("").await;
    let mine = connect_in_the_end(&bed.url_as("ann:hunter2", "acl=creator")).await;
    let mut holder = claim(&mine, "a");
    let token = granted(holder.attempt(Wait::Queue).await).token;
    let name = LockName::new(Kind::Mutex, "a").unwrap();
    assert_eq!(holder.write_note(&Note::default().next("a")).await.unwrap(), Noted::Written);
    mine.time().await.unwrap();
    let errors = [
        open.note(&name).await.unwrap_err(),
        open.time().await.unwrap_err(),
        claim(&open, "a").attempt(Wait::Queue).await.unwrap_err(),
        open.inspect(&name).await.unwrap_err(),
        open.force_release(&name, token).await.unwrap_err(),
    ];
    for error in errors {
        assert_eq!(error.kind(), ErrorKind::PermissionDenied, "{error}");
        assert!(!error.is_outcome_unknown() && !error.is_temporary(), "{error}");
        assert!(!texts(&error).contains("hunter2"));
    }
    assert_eq!(holder.release().await.unwrap(), Released::Freed);
    bed.assert_clean().await;
}

#[tokio::test]
async fn c13_acl_creator_without_credentials_is_refused_and_no_password_is_shown() {
    let bed = Bed::shared();
    let error = refused(&bed.url("acl=creator")).await;
    assert_eq!(error.kind(), ErrorKind::InvalidOption);
    assert!(error.to_string().contains("user:password@"), "{error}");
    let zk = connect_in_the_end(&bed.url_as("ann:hunter2", "")).await;
    let mut holder = claim(&zk, "a");
    granted(holder.attempt(Wait::Queue).await);
    let locker = locker(zk);
    let texts = format!("{locker:?} {holder:?}");
    assert!(!texts.contains("hunter2"), "{texts}");
    let url = lockkit_core::url::StoreUrl::parse(&bed.url_as("ann:hunter2", "")).unwrap();
    let config = lockkit_zk::Config::from_url(url).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}
