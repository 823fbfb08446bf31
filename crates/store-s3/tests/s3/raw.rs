//! Damage to the objects on the server, as by a failing disk or a careless operator.

use aws_sdk_s3::Client;
use aws_sdk_s3::primitives::ByteStream;
use ferrata_store::{RunKey, Seq};
use ferrata_store_conformance::Damage;
use serde_json::{Value, json};

/// A prefix of a bucket.
#[derive(Clone, Debug)]
pub(crate) struct Raw {
    pub(crate) client: Client,
    pub(crate) bucket: &'static str,
    pub(crate) prefix: String,
}

/// An object of a log, parsed without the library.
struct Parsed {
    key: String,
    head: Value,
    bodies: Vec<Vec<u8>>,
}

impl Parsed {
    fn read(key: String, bytes: &[u8]) -> Self {
        let end = bytes.iter().position(|byte| *byte == b'\n').expect("a first line") + 1;
        let line = std::str::from_utf8(&bytes[..end]).unwrap();
        let len: usize = line.split(' ').nth(2).expect("a length").parse().unwrap();
        let head: Value = serde_json::from_slice(&bytes[end..end + len]).unwrap();
        let mut at = end + len;
        let mut bodies = Vec::new();
        for record in head["records"].as_array().unwrap() {
            let len = usize::try_from(record["len"].as_u64().unwrap()).unwrap();
            bodies.push(bytes[at..at + len].to_vec());
            at += len;
        }
        assert_eq!(at, bytes.len(), "no bytes may follow the last body");
        Self { key, head, bodies }
    }

    fn write(&self) -> Vec<u8> {
        let mut json = serde_json::to_vec(&self.head).unwrap();
        json.push(b'\n');
        let place = self.key.split_once("log/").unwrap().1;
        let sum = crc32c::crc32c(&[place.as_bytes(), &json].concat());
        let line = format!("ferrata-s3 1 {} {sum:08x}\n", json.len());
        [line.as_bytes(), &json, &self.bodies.concat()].concat()
    }

    fn first(&self) -> u64 {
        self.head.get("from").unwrap_or(&self.head["seq"]).as_u64().unwrap()
    }

    /// The index of a record in this object.
    fn place(&self, seq: Seq) -> Option<usize> {
        let place = usize::try_from(seq.get().checked_sub(self.first())?).unwrap();
        (place < self.bodies.len()).then_some(place)
    }

    /// The same records in one object each.
    fn split(&self) -> Vec<Self> {
        assert_eq!(self.head["seq"], 0, "only a log of one object can be split");
        let folder = &self.key[..=self.key.rfind('/').unwrap()];
        let records = self.head["records"].as_array().unwrap();
        let (mut bytes, mut base) = (0, 0);
        let mut parts = Vec::new();
        let mut said = serde_json::Map::new();
        for (seq, (record, body)) in records.iter().zip(&self.bodies).enumerate() {
            let mut record = record.clone();
            // An omitted field equals that of the previous record.
            for field in ["kind", "status", "node", "visit", "epoch", "owner"] {
                match (record.get(field), said.get(field)) {
                    (Some(now), _) => drop(said.insert(field.to_owned(), now.clone())),
                    (None, Some(before)) => record[field] = before.clone(),
                    (None, None) => {}
                }
            }
            if seq > 0 {
                record["prev"] = records[seq - 1]["id"].clone();
            }
            bytes += body.len();
            let mut head = json!({"log": self.head["log"], "seq": seq, "base": base, "bytes": bytes, "records": [record]});
            if seq == 0 {
                head["facts"] = self.head["facts"].clone();
            }
            if record["base"] == true {
                base = seq;
            }
            let key = format!("{folder}{:016x}", !(seq as u64));
            parts.push(Self { key, head, bodies: vec![body.clone()] });
        }
        parts
    }
}

impl Raw {
    pub(crate) async fn keys(&self, begin: &str) -> Vec<String> {
        let (mut keys, mut after) = (Vec::new(), None);
        loop {
            let request = self.client.list_objects_v2().bucket(self.bucket);
            let request = request.prefix(format!("{}/{begin}", self.prefix)).set_start_after(after);
            let listed = request.send().await.unwrap();
            keys.extend(listed.contents().iter().map(|object| object.key().unwrap().to_owned()));
            if !listed.is_truncated().unwrap_or(false) {
                return keys;
            }
            after = keys.last().cloned();
        }
    }

    pub(crate) async fn get(&self, key: &str) -> Vec<u8> {
        let got = self.client.get_object().bucket(self.bucket).key(key).send().await.unwrap();
        got.body.collect().await.unwrap().to_vec()
    }

    pub(crate) async fn put(&self, key: &str, bytes: Vec<u8>) {
        let request = self.client.put_object().bucket(self.bucket).key(key);
        request.body(ByteStream::from(bytes)).send().await.unwrap();
    }

    pub(crate) async fn delete(&self, key: &str) {
        self.client.delete_object().bucket(self.bucket).key(key).send().await.unwrap();
    }

    /// Removes everything below the prefix.
    pub(crate) async fn clear(&self) {
        for key in self.keys("").await {
            self.delete(&key).await;
        }
    }

    pub(crate) async fn damage(&self, run: &RunKey, damage: Damage) -> bool {
        let keys = self.keys(&format!("log/{}/{}/", run.tenant, run.run)).await;
        if damage == Damage::Torn {
            let newest = self.get(&keys[0]).await;
            self.put(&keys[0], newest[..newest.len() / 2].to_vec()).await;
            return true;
        }
        if let Damage::Swapped(other) = &damage {
            let others = self.keys(&format!("log/{}/{}/", other.tenant, other.run)).await;
            for (one, another) in keys.iter().zip(&others) {
                let (bytes, more) = (self.get(one).await, self.get(another).await);
                self.put(one, more).await;
                self.put(another, bytes).await;
            }
            return !keys.is_empty() && keys.len() == others.len();
        }
        let (Damage::Body(seq) | Damage::Gone(seq) | Damage::NewerFormat(seq)) = damage else { return false };
        for key in keys {
            let mut found = Parsed::read(key.clone(), &self.get(&key).await);
            let Some(place) = found.place(seq) else { continue };
            match damage {
                Damage::Body(_) => *found.bodies[place].last_mut().expect("a byte") ^= 1,
                Damage::NewerFormat(_) => found.head["records"][place]["v"] = 2.into(),
                _ => {
                    for (part, of) in found.split().iter().zip(0..) {
                        if Seq::new(of) == seq {
                            self.delete(&part.key).await;
                        } else {
                            self.put(&part.key, part.write()).await;
                        }
                    }
                    return true;
                }
            }
            self.put(&key, found.write()).await;
            return true;
        }
        panic!("{run} has no record {seq}");
    }
}
