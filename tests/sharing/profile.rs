//! Callgrind's counts: executions of each instruction, and calls of each function by each instruction. Knows
//! the file's format, as written with `--dump-instr=yes --compress-strings=no --compress-pos=no`.

use std::collections::HashMap;

/// An instruction: its object file, and its address there.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct At {
    pub(crate) object: String,
    pub(crate) address: u64,
}

/// A function by its object and its mangled name.
pub(crate) type Function = (String, String);

/// One dump.
#[derive(Default, Debug)]
pub(crate) struct Profile {
    /// Executions of each instruction, and its function.
    pub(crate) runs: HashMap<At, (u64, Function)>,
    /// Calls of each function from each instruction, and the caller.
    pub(crate) calls: HashMap<Function, HashMap<At, (u64, Function)>>,
}

impl Profile {
    pub(crate) fn parse(text: &str) -> Profile {
        let mut profile = Profile::default();
        let (mut object, mut function) = (String::new(), String::new());
        let mut called_object: Option<String> = None;
        let mut called = String::new();
        let mut calls: Option<u64> = None;
        for line in text.lines() {
            if let Some(count) = line.strip_prefix("calls=") {
                calls = count.split(' ').next().and_then(|count| count.parse().ok());
            } else if let Some(rest) = line.strip_prefix("0x") {
                let mut words = rest.split(' ');
                let address = words
                    .next()
                    .and_then(|word| u64::from_str_radix(word, 16).ok());
                let count: Option<u64> = words.nth(1).and_then(|word| word.parse().ok());
                let (Some(address), Some(count)) = (address, count) else {
                    continue;
                };
                let at = At {
                    object: object.clone(),
                    address,
                };
                let inside = (object.clone(), function.clone());
                match calls.take() {
                    Some(calls) => {
                        let callee = called_object.take().unwrap_or_else(|| object.clone());
                        let of = profile.calls.entry((callee, called.clone())).or_default();
                        of.entry(at).or_insert((0, inside)).0 += calls;
                    }
                    None => profile.runs.entry(at).or_insert((0, inside)).0 += count,
                }
            } else if let Some(name) = line.strip_prefix("cob=") {
                called_object = Some(name.to_owned());
            } else if let Some(name) = line.strip_prefix("cfn=") {
                called = name.to_owned();
            } else if let Some(name) = line.strip_prefix("ob=") {
                object = name.to_owned();
            } else if let Some(name) = line.strip_prefix("fn=") {
                function = name.to_owned();
            }
        }
        profile
    }
}

#[test]
fn a_dump_is_read() {
    let text = "events: Ir\n\nob=/a\nfl=x.rs\nfn=outer\n0x10 1 5\ncob=/b\ncfi=y.rs\ncfn=inner\ncalls=3 0x99 7\n0x14 2 900\n\
                calls=2 0x88 7\n0x18 2 8\n0x14 2 3\n\nob=/b\nfl=y.rs\nfn=inner\nfi=z.rs\n0x99 7 3\n";
    let profile = Profile::parse(text);
    let at = |object: &str, address| At {
        object: object.to_owned(),
        address,
    };
    assert_eq!(profile.runs[&at("/a", 0x10)].0, 5);
    assert_eq!(profile.runs[&at("/a", 0x14)].0, 3);
    assert_eq!(profile.runs[&at("/b", 0x99)].0, 3);
    let inner = ("/b".to_owned(), "inner".to_owned());
    assert_eq!(profile.calls[&inner][&at("/a", 0x14)].0, 3);
}
