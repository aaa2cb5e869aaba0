//! Bytes in JSON: text where they are text, else Base64 (RFC 4648, section 4) under a name that says so.

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

/// Bytes as Base64.
pub(crate) fn to_base64(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3) * 4);
    for group in bytes.chunks(3) {
        let bits = group.iter().enumerate().fold(0_u32, |bits, (n, byte)| bits | u32::from(*byte) << (16 - 8 * n));
        for n in 0..4 {
            let digit = ALPHABET[(bits >> (18 - 6 * n)) as usize & 63];
            text.push(if n <= group.len() { digit.into() } else { '=' });
        }
    }
    text
}

/// Base64 as bytes; `None` where it is not whole groups of the alphabet with the padding at the end.
pub(crate) fn from_base64(text: &str) -> Option<Vec<u8>> {
    let text = text.as_bytes();
    if !text.len().is_multiple_of(4) {
        return None;
    }
    let padding = text.iter().rev().take_while(|byte| **byte == b'=').count();
    if padding > 2 {
        return None;
    }
    let digits = &text[..text.len() - padding];
    let mut bytes = Vec::with_capacity(text.len() / 4 * 3);
    for group in digits.chunks(4) {
        let mut bits = 0_u32;
        for (n, digit) in group.iter().enumerate() {
            let value = ALPHABET.iter().position(|letter| letter == digit)?;
            bits |= (value as u32) << (18 - 6 * n);
        }
        let whole = group.len() * 6 / 8;
        bytes.extend_from_slice(&bits.to_be_bytes()[1..1 + whole]);
    }
    Some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_vectors_of_the_rfc_hold_in_both_directions() {
        let vectors = [
            ("", ""),
            ("f", "Zg=="),
            ("fo", "Zm8="),
            ("foo", "Zm9v"),
            ("foob", "Zm9vYg=="),
            ("fooba", "Zm9vYmE="),
            ("foobar", "Zm9vYmFy"),
        ];
        for (bytes, text) in vectors {
            assert_eq!(to_base64(bytes.as_bytes()), text);
            assert_eq!(from_base64(text).as_deref(), Some(bytes.as_bytes()));
        }
    }

    #[test]
    fn any_bytes_come_back_and_what_is_no_base64_does_not() {
        let bytes: Vec<u8> = (0..=255).collect();
        for end in 0..=bytes.len() {
            assert_eq!(from_base64(&to_base64(&bytes[..end])).as_deref(), Some(&bytes[..end]));
        }
        for text in ["Zg", "Zg=", "Z===", "====", "Zm9v!m9v", "Zg==Zm9v", "Zm 9"] {
            assert_eq!(from_base64(text), None, "{text}");
        }
    }
}
