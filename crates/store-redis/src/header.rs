//! The stored headers, in the form of [`binary`]. Decoding returns a value or a typed error.

use bytes::Bytes;
use ferrata_store::codec::binary::{self, InvalidHeader};
use ferrata_store::{FORMAT, RecordHeader, Seq};

use crate::error::RedisStoreError;

/// Encodes a header. `base` is the number of the newest base at or before the record.
pub(crate) fn write_header(header: &RecordHeader, base: Seq) -> Result<Bytes, RedisStoreError> {
    binary::write(header, base).ok_or_else(|| RedisStoreError::strange("a record without a base before it"))
}

/// Decodes a header. If `seq` has a number, the record must have that number.
pub(crate) fn header_of(text: &[u8], seq: Option<Seq>) -> Result<RecordHeader, RedisStoreError> {
    let header = read(text, seq)?.0;
    if let Some(seq) = seq.filter(|seq| *seq != header.seq) {
        return Err(RedisStoreError::corrupt(Some(seq), format!("record {} is at its position", header.seq)));
    }
    Ok(header)
}

/// Decodes a header. Also returns the number of the newest base at or before the record.
pub(crate) fn read(text: &[u8], seq: Option<Seq>) -> Result<(RecordHeader, Seq), RedisStoreError> {
    binary::read(text).map_err(|unreadable| match unreadable {
        InvalidHeader::Newer { seq, format } => RedisStoreError::Newer {
            what: format!("record {seq} has format {format}, this version reads up to {FORMAT}: it is"),
        },
        InvalidHeader::Damaged => RedisStoreError::corrupt(seq, "the header of the record is unreadable"),
    })
}

#[cfg(test)]
mod tests {
    use ferrata_testing::{any_headers, headers_by_field};

    use super::*;

    /// Guarantees: REDIS-10.
    #[test]
    fn every_field_comes_back() {
        let by_field = headers_by_field().into_iter().map(|(_, header)| header);
        for header in by_field.chain(any_headers(11, 200)) {
            let base = if header.base { header.seq } else { Seq::new(0) };
            let text = write_header(&header, base).unwrap();
            assert_eq!(header_of(&text, Some(header.seq)).unwrap(), header);
            let other = Some(header.seq.next());
            assert!(matches!(header_of(&text, other), Err(RedisStoreError::Corrupt { .. })));
        }
    }

    #[test]
    fn a_newer_header_is_no_damage() {
        let header = &headers_by_field()[0].1;
        let mut text = write_header(header, Seq::new(0)).unwrap().to_vec();
        // After the id and a number of two bytes.
        text[18] = 2;
        assert!(matches!(header_of(&text, None), Err(RedisStoreError::Newer { .. })));
        assert!(matches!(header_of(&text[..10], None), Err(RedisStoreError::Corrupt { .. })));
    }
}
