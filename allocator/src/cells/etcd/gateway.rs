//! Requests and answers of etcd's JSON gateway, with its field names, bytes as base64, and numbers as text. Fields that
//! are not needed here are left out.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use serde::de::{Deserializer, Error as _};
use serde::{Deserialize, Serialize, Serializer};
use std::borrow::Cow;

/// Paths of the gateway.
pub(super) const TXN: &str = "/v3/kv/txn";
pub(super) const STATUS: &str = "/v3/maintenance/status";
pub(super) const AUTHENTICATE: &str = "/v3/auth/authenticate";

/// Bytes, as base64 in JSON.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Bytes(pub(super) Vec<u8>);

impl Serialize for Bytes {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&STANDARD.encode(&self.0))
    }
}

impl<'de> Deserialize<'de> for Bytes {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = Cow::<str>::deserialize(deserializer)?;
        STANDARD.decode(text.as_bytes()).map(Bytes).map_err(D::Error::custom)
    }
}

/// Deserializes a number of 64 bits, which is text in JSON.
fn number<'de, D: Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    Cow::<str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
}

/// A transaction: if all of `compare` holds, `success` is done, else `failure`.
#[derive(Debug, Default, Serialize)]
pub(super) struct Txn {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) compare: Vec<Compare>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) success: Vec<Op>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub(super) failure: Vec<Op>,
}

/// A comparison of the value at a key with a given one.
#[derive(Debug, Serialize)]
pub(super) struct Compare {
    pub(super) key: Bytes,
    pub(super) result: Relation,
    #[serde(flatten)]
    pub(super) target: Target,
}

/// The relation that must hold.
#[derive(Clone, Copy, Debug, Serialize)]
#[serde(rename_all = "UPPERCASE")]
pub(super) enum Relation {
    Equal,
    Greater,
    Less,
}

/// The thing that is compared. A comparison of the value of an absent key does not hold.
#[derive(Debug, Serialize)]
#[serde(tag = "target")]
pub(super) enum Target {
    /// The revision at which the key was made: 0 if it is absent.
    #[serde(rename = "CREATE")]
    Create { create_revision: &'static str },
    #[serde(rename = "VALUE")]
    Value { value: Bytes },
}

/// One operation.
#[derive(Debug, Serialize)]
pub(super) enum Op {
    /// Reads a key.
    #[serde(rename = "request_range")]
    Range { key: Bytes },
    #[serde(rename = "request_put")]
    Put { key: Bytes, value: Bytes },
    /// Deletes a key.
    #[serde(rename = "request_delete_range")]
    DeleteRange { key: Bytes },
    #[serde(rename = "request_txn")]
    Txn(Txn),
}

/// The cluster that answered, and its revision.
#[derive(Debug, Deserialize)]
pub(super) struct Header {
    #[serde(deserialize_with = "number")]
    pub(super) cluster_id: u64,
    /// Counts the changes of all keys.
    #[serde(default, deserialize_with = "number")]
    pub(super) revision: u64,
}

/// Outcome of a transaction.
#[derive(Debug, Deserialize)]
pub(super) struct TxnAnswer {
    pub(super) header: Header,
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    pub(super) responses: Vec<OpAnswer>,
}

/// Outcome of a transaction within another one.
#[derive(Debug, Deserialize)]
pub(super) struct NestedAnswer {
    #[serde(default)]
    pub(super) succeeded: bool,
    #[serde(default)]
    pub(super) responses: Vec<OpAnswer>,
}

/// Outcome of one operation.
#[derive(Debug, Deserialize)]
pub(super) enum OpAnswer {
    #[serde(rename = "response_range")]
    Range(RangeAnswer),
    #[serde(rename = "response_put")]
    Put {},
    #[serde(rename = "response_delete_range")]
    DeleteRange {},
    #[serde(rename = "response_txn")]
    Txn(NestedAnswer),
}

#[derive(Debug, Deserialize)]
pub(super) struct RangeAnswer {
    #[serde(default)]
    pub(super) kvs: Vec<KeyValue>,
}

#[derive(Debug, Deserialize)]
pub(super) struct KeyValue {
    #[serde(default)]
    pub(super) value: Bytes,
}

/// The status of a member.
#[derive(Debug, Deserialize)]
pub(super) struct Status {
    pub(super) header: Header,
    #[serde(default)]
    pub(super) version: String,
    /// The id of the leader; 0 if the member knows of none.
    #[serde(default, deserialize_with = "number")]
    pub(super) leader: u64,
    /// Alarms that were raised, and other errors.
    #[serde(default)]
    pub(super) errors: Vec<String>,
    /// Whether the member is a learner, which answers nothing else.
    #[serde(default, rename = "isLearner")]
    pub(super) is_learner: bool,
}

/// A user and its password.
#[derive(Serialize)]
pub(super) struct Authenticate<'a> {
    pub(super) name: &'a str,
    pub(super) password: &'a str,
}

#[derive(Deserialize)]
pub(super) struct Authenticated {
    pub(super) token: String,
}

/// A refusal: its text, and its status code of gRPC.
#[derive(Debug, Deserialize)]
pub(super) struct Refused {
    #[serde(rename = "error")]
    pub(super) text: String,
    pub(super) code: u32,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_transaction_is_told_as_the_gateway_knows_it() {
        let key = || Bytes(b"k".to_vec());
        let txn = Txn {
            compare: vec![
                Compare {
                    key: key(),
                    result: Relation::Equal,
                    target: Target::Create { create_revision: "0" },
                },
                Compare { key: key(), result: Relation::Less, target: Target::Value { value: key() } },
            ],
            success: vec![Op::Txn(Txn { success: vec![Op::Range { key: key() }], ..Txn::default() })],
            failure: vec![Op::Put { key: key(), value: key() }, Op::DeleteRange { key: key() }],
        };
        let told = r#"{"compare":[{"key":"aw==","result":"EQUAL","target":"CREATE","create_revision":"0"},{"key":"aw==","result":"LESS","target":"VALUE","value":"aw=="}],"success":[{"request_txn":{"success":[{"request_range":{"key":"aw=="}}]}}],"failure":[{"request_put":{"key":"aw==","value":"aw=="}},{"request_delete_range":{"key":"aw=="}}]}"#;
        assert_eq!(serde_json::to_string(&txn).expect("it is JSON"), told);
    }

    #[test]
    fn what_is_left_out_of_an_answer_is_nothing() {
        let answer = r#"{"header":{"cluster_id":"668190978917431569","member_id":"1","raft_term":"2"},"responses":[{"response_put":{"header":{"revision":"2"}}},{"response_range":{"header":{},"count":"1","kvs":[{"key":"aw==","mod_revision":"7"}]}},{"response_txn":{"header":{},"succeeded":true}}]}"#;
        let answer: TxnAnswer = serde_json::from_str(answer).expect("it is one");
        assert_eq!((answer.header.cluster_id, answer.header.revision), (668_190_978_917_431_569, 0));
        assert!(!answer.succeeded);
        let [OpAnswer::Put {}, OpAnswer::Range(range), OpAnswer::Txn(nested)] = &answer.responses[..] else {
            panic!("{answer:?}")
        };
        assert_eq!(range.kvs[0].value, Bytes(vec![]));
        assert!(nested.succeeded && nested.responses.is_empty());
        for wrong in [r#"{"responses":[]}"#, r#"{"header":{"cluster_id":"x"}}"#, "[]", ""] {
            assert!(serde_json::from_str::<TxnAnswer>(wrong).is_err(), "{wrong}");
        }
    }
}
