//! DEBUG DIGEST and DIGEST-VALUE: signatures of data, equal to those of redis-server for equal data.
//!
//! ```text
//! xor(d, x)  d := d ⊕ SHA1(x)          members whose order does not matter
//! mix(d, x)  d := SHA1(d ⊕ SHA1(x))    members in order
//! value      mix(type as 4 bytes), the members of the value, xor("!!expire!!") if it has a deadline
//! dataset    for each database that has keys: mix(its index as 4 bytes), then for each key:
//!            xor(the signature that begins with zeros, mixes the key, and continues like that of its value)
//! ```
//!
//! Numbers are big-endian. In DIGEST-VALUE the signature of a key begins with zeros, without the key's name.

use sha1::{Digest as _, Sha1};

use super::super::context::ShardCx;
use super::super::declaration::{Command, CommandResult, KeyFlags, KeySpec};
use super::super::{Args, Out};
use super::{GROUP, PART, unknown};
use basalt_core::base::hex;
use basalt_core::structures::entry::EntryRef;
use basalt_core::structures::quicklist::End;
use basalt_engine::serial::sketch;
use basalt_engine::value::hash::HashRef;
use basalt_engine::value::json::JsonRef;
use basalt_engine::value::list::ListRef;
use basalt_engine::value::set::SetRef;
use basalt_engine::value::sorted_set::SortedSet;
use basalt_engine::value::stream::{StreamValue, stream_of};
use basalt_engine::value::{DataType, Object, ObjectKind, Text};

/// A signature under construction.
#[derive(Clone, Copy, Default)]
struct Signature([u8; 20]);

impl Signature {
    fn xor(&mut self, bytes: &[u8]) {
        let hash = Sha1::digest(bytes);
        for (byte, with) in self.0.iter_mut().zip(hash) {
            *byte ^= with;
        }
    }

    fn mix(&mut self, bytes: &[u8]) {
        self.xor(bytes);
        self.0 = Sha1::digest(self.0).into();
    }

    fn value(&mut self, entry: EntryRef<'_, Object>) {
        let data_type = ObjectKind(entry.kind()).data_type();
        self.mix(&type_number(data_type).to_be_bytes());
        match data_type {
            DataType::String => {
                if let Some(text) = Text::of(entry) {
                    text.with_bytes(|bytes| self.mix(bytes));
                }
            }
            DataType::List => {
                if let Some(list) = ListRef::of(entry) {
                    list.visit(End::Front, 0, usize::MAX, |element| {
                        element.with_bytes(|bytes| self.mix(bytes));
                    });
                }
            }
            DataType::Set => {
                SetRef::of(entry, 0).for_each(|member| member.with_bytes(|member| self.xor(member)))
            }
            DataType::SortedSet => {
                for (member, score) in SortedSet::of(entry).iter() {
                    let mut pair = Signature::default();
                    member.with_bytes(|member| pair.mix(member));
                    pair.mix(seventeen_digits(score).as_bytes());
                    self.xor(&pair.0);
                }
            }
            DataType::Hash => {
                if let Some(hash) = HashRef::of(entry, 0) {
                    hash.for_each(|field| {
                        let mut pair = Signature::default();
                        field.name.with_bytes(|name| pair.mix(name));
                        field.value.with_bytes(|value| pair.mix(value));
                        self.xor(&pair.0);
                    });
                }
            }
            DataType::Stream => {
                if let Some(stream) = stream_of(entry) {
                    self.stream(stream);
                }
            }
            DataType::Bloom
            | DataType::Cuckoo
            | DataType::CountMin
            | DataType::TopK
            | DataType::TDigest => {
                let (head, data) = sketch::parts(entry);
                self.mix(&head);
                self.mix(&data);
            }
            DataType::Json => self.mix(&JsonRef::of(entry).text()),
        }
        if entry.deadline().is_some() {
            self.xor(b"!!expire!!");
        }
    }

    /// Adds the entries in order: the ID of each, with a dot, then its names and values. Consumer groups do not
    /// count.
    fn stream(&mut self, stream: &StreamValue) {
        for item in stream.all() {
            self.mix(format!("{}.{}", item.id.ms, item.id.seq).as_bytes());
            for (name, value) in item.fields() {
                name.with_bytes(|bytes| self.mix(bytes));
                value.with_bytes(|bytes| self.mix(bytes));
            }
        }
    }

    fn reply(&self, out: &mut Out) {
        out.simple(hex::text(&self.0));
    }
}

/// Formats a score as redis-server 7.0 does for signatures, like C's `%.17g`. Later versions format it differently;
/// no such server was available here for comparison.
fn seventeen_digits(number: f64) -> String {
    const DIGITS: i32 = 17;
    if !number.is_finite() {
        return if number > 0.0 { "inf" } else { "-inf" }.into();
    }
    let text = format!("{number:.16e}");
    let (digits, exponent) = text.split_once('e').unwrap_or((&text, "0"));
    let exponent: i32 = exponent.parse().unwrap_or(0);
    let shorten = |text: &str| match text.contains('.') {
        true => text.trim_end_matches('0').trim_end_matches('.').to_owned(),
        false => text.to_owned(),
    };
    if (-4..DIGITS).contains(&exponent) {
        let behind_point = (DIGITS - 1 - exponent) as usize;
        return shorten(&format!("{number:.behind_point$}"));
    }
    let sign = if exponent < 0 { '-' } else { '+' };
    format!("{}e{sign}{:02}", shorten(digits), exponent.abs())
}

/// Returns Redis's number of a type.
fn type_number(data_type: DataType) -> u32 {
    match data_type {
        DataType::String => 0,
        DataType::List => 1,
        DataType::Set => 2,
        DataType::SortedSet => 3,
        DataType::Hash => 4,
        DataType::Stream => 6,
        // All types of Redis's modules have one number.
        DataType::Bloom
        | DataType::Cuckoo
        | DataType::CountMin
        | DataType::TopK
        | DataType::TDigest
        | DataType::Json => 5,
    }
}

/// `DEBUG DIGEST`
pub(super) static DIGEST: Command = Command::sub("debug|digest", "digest", GROUP, -2)
    .flags(PART)
    .doc("1.0.0", "", "Returns a digest of all databases.")
    .complexity("O(N) where N is the size of the data")
    .on_all_shards(digest);

fn digest(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    const ENTRIES_A_STEP: usize = 1_000;
    if args.len() != 2 {
        return Err(unknown(args));
    }
    let mut all = Signature::default();
    for db in 0..cx.engine(0).database_count() {
        let engines = 0..cx.engine_count();
        let count: usize = engines
            .clone()
            .map(|index| cx.keyspace(index, db).len())
            .sum();
        if count == 0 {
            continue;
        }
        all.mix(&(db as u32).to_be_bytes());
        for index in engines {
            let Some(db) = cx.engine(index).db(db) else {
                continue;
            };
            let mut cursor = 0;
            loop {
                // Expired keys that are not deleted yet count too, as in Redis.
                cursor = db.table().scan(cursor, ENTRIES_A_STEP, |entry| {
                    let mut one = Signature::default();
                    one.mix(entry.key());
                    one.value(entry);
                    all.xor(&one.0);
                });
                if cursor == 0 {
                    break;
                }
            }
        }
    }
    all.reply(out);
    Ok(())
}

/// `DEBUG DIGEST-VALUE [key [key ...]]`
pub(super) static DIGEST_VALUE: Command =
    Command::sub("debug|digest-value", "digest-value", GROUP, -2)
        .flags(PART)
        .names_keys(&[KeySpec::range(2, -1, 1, KeyFlags::RO.or(KeyFlags::ACCESS))])
        .doc(
            "5.0.0",
            "[key [key ...]]",
            "Returns a digest of each key's value.",
        )
        .complexity("O(N) where N is the size of the values")
        .on_keys(digest_value);

fn digest_value(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    out.array(args.keys().len());
    for routed in args.keys() {
        let key = args.key_of(routed);
        let mut keyspace = cx.at_routed(routed).untouched();
        let mut signature = Signature::default();
        if let Some(place) = keyspace.find_write(&key) {
            signature.value(keyspace.entry(place));
        }
        signature.reply(out);
    }
    Ok(())
}
