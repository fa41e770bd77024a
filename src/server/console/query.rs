//! The query string of an address.

/// Decoded names and values of a query string, in their original order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Query(Vec<(String, String)>);

/// Maximum number of `name=value` parts that are evaluated.
const PARTS_MAX: usize = 32;

impl Query {
    pub(super) fn parse(text: &str) -> Query {
        let parts = text.split('&').filter(|part| !part.is_empty());
        let pair = |part: &str| {
            let (name, value) = part.split_once('=').unwrap_or((part, ""));
            (decoded(name), decoded(value))
        };
        Query(parts.take(PARTS_MAX).map(pair).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        let found = self.0.iter().find(|(each, _)| each == name);
        found.map(|(_, value)| value.as_str())
    }

    /// Adds a default value if the name is missing.
    pub(super) fn or(mut self, name: &str, value: &str) -> Query {
        if self.get(name).is_none() {
            self.0.push((name.to_owned(), value.to_owned()));
        }
        self
    }

    /// Returns a whole number, or the default; at most `max`.
    pub(super) fn count(&self, name: &str, default: usize, max: usize) -> usize {
        let given = self.get(name).and_then(|value| value.parse().ok());
        given.unwrap_or(default).min(max)
    }
}

/// Decodes percent-encoding and `+`; invalid UTF-8 is replaced.
fn decoded(text: &str) -> String {
    let bytes = text.as_bytes();
    let mut out = Vec::with_capacity(bytes.len());
    let mut at = 0;
    while let Some(&byte) = bytes.get(at) {
        let digits = bytes.get(at + 1..at + 3);
        let coded = digits.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            let is_hex = digits.bytes().all(|digit| digit.is_ascii_hexdigit());
            u8::from_str_radix(digits, 16).ok().filter(|_| is_hex)
        });
        let (written, length) = match (byte, coded) {
            (b'%', Some(coded)) => (coded, 3),
            (b'+', _) => (b' ', 1),
            _ => (byte, 1),
        };
        out.push(written);
        at += length;
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// Percent-encodes a text for an address.
pub(super) fn encoded(text: &str) -> String {
    let mut out = String::new();
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => {
                out.push(char::from(byte));
            }
            _ => out.push_str(&format!("%{byte:02X}")),
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_are_decoded_and_nonsense_stays_as_it_is() {
        let query = Query::parse("a=1&search=%3Cb%3E+x%C3%A4&c&=&a=2&bad=%zz%4&half=%ff");
        assert_eq!(query.get("a"), Some("1"));
        assert_eq!(query.get("search"), Some("<b> xä"));
        assert_eq!(query.get("c"), Some(""));
        assert_eq!(query.get("bad"), Some("%zz%4"));
        assert_eq!(query.get("half"), Some("\u{fffd}"));
        assert_eq!(query.get("d"), None);
        assert_eq!(query.clone().or("a", "9").get("a"), Some("1"));
        assert_eq!(query.clone().or("d", "9").get("d"), Some("9"));
        assert_eq!(query.count("a", 7, 10), 1);
        assert_eq!(query.count("search", 7, 10), 7);
        assert_eq!(query.count("d", 70, 10), 10);
        assert_eq!(Query::parse(&"x&".repeat(10_000)).0.len(), PARTS_MAX);
    }

    #[test]
    fn what_is_encoded_is_decoded_again() {
        let text = "<a href='?x=1&y'>% +ä\u{0}";
        assert_eq!(decoded(&encoded(text)), text);
    }
}
