//! A short digest of a node's text. The digest is the same in every process and version, and is a part of the node's fingerprint.

/// Returns 16 hexadecimal digits that differ for different texts (FNV-1a, 64 bits). The digest detects mistakes, but does not protect against
/// forgery.
pub(super) fn digest(parts: &[String]) -> String {
    let mut hash = 0xcbf2_9ce4_8422_2325_u64;
    // The byte 0xFF between parts makes "ab","c" differ from "a","bc".
    for byte in parts.iter().flat_map(|part| part.bytes().chain([0xFF])) {
        hash = (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3);
    }
    format!("{hash:016x}")
}
