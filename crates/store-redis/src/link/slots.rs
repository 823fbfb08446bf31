//! The mapping of keys to the servers of a cluster.

use redis::Value;

/// The number of slots of every cluster.
pub(crate) const SLOTS: u16 = 16_384;

/// Returns the slot of a key: the CRC-16 (XMODEM) of the text between its first `{` and the next `}`, or of the whole key.
pub(crate) fn slot(key: &[u8]) -> u16 {
    let tag = key.iter().position(|b| *b == b'{').and_then(|open| {
        let rest = &key[open + 1..];
        rest.iter().position(|b| *b == b'}').filter(|length| *length > 0).map(|length| &rest[..length])
    });
    crc16(tag.unwrap_or(key)) % SLOTS
}

fn crc16(bytes: &[u8]) -> u16 {
    bytes.iter().fold(0_u16, |crc, byte| {
        (0..8).fold(crc ^ (u16::from(*byte) << 8), |crc, _| {
            if crc & 0x8000 == 0 { crc << 1 } else { (crc << 1) ^ 0x1021 }
        })
    })
}

/// The address of a server: host and port.
pub(crate) type Address = (String, u16);

/// The owner of each slot.
#[derive(Clone, Debug, Default)]
pub(crate) struct SlotMap {
    /// Ranges in order, without overlap: first slot, last slot, server.
    ranges: Vec<(u16, u16, Address)>,
}

impl SlotMap {
    /// Parses the reply to `CLUSTER SLOTS`. `asked` is the server that sent it, for servers that do not know their own host.
    pub(crate) fn read(reply: &Value, asked: &Address) -> Option<Self> {
        let number = |value: &Value| match value {
            Value::Int(number) => u16::try_from(*number).ok(),
            _ => None,
        };
        let Value::Array(rows) = reply else { return None };
        let mut ranges = Vec::with_capacity(rows.len());
        for row in rows {
            let Value::Array(row) = row else { return None };
            let [first, last, Value::Array(primary), ..] = row.as_slice() else { return None };
            let host = match primary.first()? {
                Value::BulkString(host) => std::str::from_utf8(host).ok()?,
                Value::SimpleString(host) => host,
                _ => "",
            };
            let host = if matches!(host, "" | "?") { &asked.0 } else { host };
            ranges.push((number(first)?, number(last)?, (host.to_owned(), number(primary.get(1)?)?)));
        }
        ranges.sort();
        Some(Self { ranges })
    }

    pub(crate) fn server(&self, slot: u16) -> Option<&Address> {
        let after = self.ranges.partition_point(|(first, ..)| *first <= slot);
        let (_, last, server) = self.ranges.get(after.checked_sub(1)?)?;
        (slot <= *last).then_some(server)
    }

    /// Returns every server once.
    pub(crate) fn servers(&self) -> Vec<Address> {
        let mut servers: Vec<_> = self.ranges.iter().map(|(_, _, server)| server.clone()).collect();
        servers.sort();
        servers.dedup();
        servers
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_are_those_of_the_cluster_specification() {
        assert_eq!(crc16(b"123456789"), 0x31c3);
        assert_eq!(slot(b"foo"), 12_182);
        assert_eq!(slot(b"{foo}"), 12_182);
        assert_eq!(slot(b"a{foo}b{bar}"), 12_182);
        assert_eq!(slot(b"foo{}{bar}"), 8_363);
        assert_eq!(slot(b"foo{{bar}}zap"), slot(b"{bar"));
        assert_ne!(slot(b"{foo"), slot(b"foo"));
    }

    #[test]
    fn slot_map_names_server_of_each_slot() {
        let row = |first, last, host: Option<&str>, port| {
            let host = host.map_or(Value::Nil, |host| Value::BulkString(host.into()));
            let primary = Value::Array(vec![host, Value::Int(port), Value::BulkString(b"id".to_vec())]);
            Value::Array(vec![Value::Int(first), Value::Int(last), primary])
        };
        let reply = Value::Array(vec![row(6_000, 16_383, None, 2), row(0, 4_999, Some("a"), 1)]);
        let map = SlotMap::read(&reply, &("me".into(), 9)).unwrap();
        let (a, me) = (("a".to_owned(), 1), ("me".to_owned(), 2));
        assert_eq!(map.server(0), Some(&a));
        assert_eq!(map.server(4_999), Some(&a));
        assert_eq!(map.server(5_000), None, "no node serves the slot");
        assert_eq!(map.server(16_383), Some(&me));
        assert_eq!(map.servers(), [a, me]);
        assert!(SlotMap::read(&Value::Array(vec![Value::Nil]), &("me".into(), 9)).is_none());
    }
}
