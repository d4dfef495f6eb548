//! The data of a lockkit node, `lockkit/1 <owner> [label]`. It names the owner for inspection, and
//! lets a claim find its own node.

use lockkit_core::OwnerId;

const VERSION: &str = "lockkit/1 ";
const OWNER_DIGITS: usize = 32;
/// Added to the node of a waiter that was granted. The change wakes the waiter behind it.
const GRANTED: &str = "\ngranted";

/// The data of a node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Record {
    pub(crate) owner: OwnerId,
    pub(crate) label: Option<String>,
    pub(crate) granted: bool,
}

impl Record {
    pub(crate) fn new(owner: OwnerId, label: Option<&str>) -> Self {
        Self { owner, label: label.map(str::to_owned), granted: false }
    }

    /// Returns `None` for the data of any other client.
    pub(crate) fn parse(data: &[u8]) -> Option<Self> {
        let text = std::str::from_utf8(data).ok()?.strip_prefix(VERSION)?;
        let (text, granted) = text.strip_suffix(GRANTED).map_or((text, false), |text| (text, true));
        let (owner, label) = text.split_at_checked(OWNER_DIGITS)?;
        let label = if label.is_empty() { None } else { Some(label.strip_prefix(' ')?.to_owned()) };
        Some(Self { owner: owner.parse().ok()?, label, granted })
    }

    pub(crate) fn to_bytes(&self) -> Vec<u8> {
        let mut text = format!("{VERSION}{}", self.owner);
        if let Some(label) = &self.label {
            text.push(' ');
            text.push_str(label);
        }
        if self.granted {
            text.push_str(GRANTED);
        }
        text.into_bytes()
    }
}

#[cfg(test)]
mod tests {
    use proptest::{collection::vec, option, prelude::*};

    use super::*;

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn c14_any_record_is_read_as_it_was_written(id: u128, label in option::of("\\PC{0,20}"), granted: bool) {
            let record = Record { owner: OwnerId::new(id), label, granted };
            prop_assert_eq!(Record::parse(&record.to_bytes()), Some(record));
        }

        #[test]
        fn c14_whatever_is_read_was_written_so(
            data in prop_oneof![
                vec(any::<u8>(), 0..60),
                "(lockkit/1 )?[0-9a-fA-F+ ]{30,33} ?.{0,6}(\ngranted)?".prop_map(String::into_bytes),
                "lockkit/1 [0-9a-f]{31}[0-9a-fA-F]( .{0,6})?(\ngranted)?".prop_map(String::into_bytes),
            ],
        ) {
            if let Some(record) = Record::parse(&data) {
                prop_assert_eq!(record.to_bytes(), data);
            }
        }
    }

    #[test]
    fn c14_a_record_is_read_as_it_was_written() {
        for label in [None, Some("host-1 pid 7"), Some("")] {
            let mut record = Record::new(OwnerId::random(), label);
            assert_eq!(Record::parse(&record.to_bytes()), Some(record.clone()));
            record.granted = true;
            assert_eq!(Record::parse(&record.to_bytes()), Some(record));
        }
    }

    #[test]
    fn c14_other_clients_data_is_nobodys_record() {
        for foreign in [
            &b""[..],
            b"192.168.1.7",
            b"lockkit/1 ",
            b"lockkit/2 00112233445566778899aabbccddeeff",
            &[0xff],
        ] {
            assert_eq!(Record::parse(foreign), None);
        }
    }
}
