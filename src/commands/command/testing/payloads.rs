//! Payloads recorded from redis-server 7.0.15, one for each of its types and encodings, compressed and not.

/// One recorded payload, with what the server replied about its key.
pub struct Recorded {
    /// The key's name on the recorded server.
    pub name: &'static str,
    /// The reply of OBJECT ENCODING on the recorded server.
    pub encoding: &'static str,
    /// The reply of DEBUG DIGEST-VALUE on the recorded server.
    pub digest: &'static str,
    /// The reply of DUMP on the recorded server.
    pub payload: Vec<u8>,
}

/// Returns all recorded payloads.
pub fn all() -> impl Iterator<Item = Recorded> {
    let lines = include_str!("payloads.txt").lines();
    lines.filter(|line| !line.starts_with(';')).map(|line| {
        let mut words = line.split(' ');
        let mut word = || words.next().expect("four words");
        Recorded {
            name: word(),
            encoding: word(),
            digest: word(),
            payload: unescape(word()),
        }
    })
}

fn unescape(text: &str) -> Vec<u8> {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        if *first == b'\\' {
            let digits = std::str::from_utf8(&tail[1..3]).expect("two digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("two digits"));
            rest = &tail[3..];
        } else {
            bytes.push(*first);
        }
    }
    bytes
}
