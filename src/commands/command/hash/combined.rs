//! Commands that read or set fields and in the same step change their deadlines or delete them.

use super::expire::{COMPLEXITY, HexpireCounts, log_given, take_deadline};
use super::{
    BAD_COUNT, FIELDS, HDEL_EVENT, HEXPIRE_EVENT, HPERSIST_EVENT, HSET_EVENT, UPDATED, at,
    delete_if_empty, edit, field_at, rules,
};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::element::reply_item;
use crate::command::element_deadline::{self, Giver, log_names};
use crate::command::error::{CommandError, shown};
use crate::command::options::TimeForm;
use basalt_core::base::number::parse_i64;
use basalt_core::structures::block::Content;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::{FieldDeadline, new_hash};

/// `HGETDEL key FIELDS numfields field [field ...]`
pub(super) static HGETDEL: Command = Command::new("hgetdel", Group::Hash, -5)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::DELETE),
    )])
    .flags(Flags::FAST)
    .doc(
        "8.0.0",
        "key FIELDS <numfields:integer field [field ...]>",
        "Returns the values of fields and deletes them.",
    )
    .complexity(COMPLEXITY)
    .on_keys(hgetdel);

fn hgetdel(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (rules, is_logged) = (rules(cx), cx.is_logged());
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Hash)?;
    let names = FIELDS.read(args, 2, BAD_COUNT)?;
    out.array(names.len());
    let mut deleted = false;
    let mut gone = Vec::new();
    for name in names {
        let Some((place, field)) = field_at(&keyspace, found, name) else {
            out.null();
            continue;
        };
        reply_item(field.value, out);
        deleted |= edit(&mut keyspace, place, &rules, |hash| hash.remove(name));
        if is_logged || keyspace.wants_fields() {
            gone.push(name);
        }
    }
    if let Some(place) = found.filter(|_| deleted) {
        keyspace.wrote_fields(key.bytes, HDEL_EVENT, gone.iter().copied());
        delete_if_empty(&mut keyspace, &key, place);
        if is_logged {
            log_names(cx, &[b"HDEL", key.bytes], &gone);
        }
    }
    Ok(())
}

/// `HGETEX key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST]
/// FIELDS numfields field [field ...]`
pub(super) static HGETEX: Command = Command::new("hgetex", Group::Hash, -5)
    .writes(&[KeySpec::one(
        1,
        KeyFlags::RW.or(KeyFlags::ACCESS).or(KeyFlags::UPDATE),
    )
    .note("RW and UPDATE because it changes the TTL")])
    .flags(Flags::FAST)
    .doc(
        "8.0.0",
        "key [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | PERSIST] \
         FIELDS <numfields:integer field [field ...]>",
        "Returns the values of hash fields and sets or removes their expiration.",
    )
    .complexity(COMPLEXITY)
    .on_keys(hgetex);

/// The change that HGETEX makes to the fields' deadlines.
#[derive(Clone, Copy)]
enum HgetexExpiry {
    Nothing,
    Persist,
    Give(u64),
}

fn hgetex(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let rules = rules(cx);
    let (key, giver) = (args.key(1), Giver::of(cx));
    let is_logged = cx.is_logged();
    let mut keyspace = cx.at(&key);
    let is_told = is_logged || keyspace.wants_fields();
    let found = keyspace.find_typed(&key, DataType::Hash)?;
    let (change, word_at) = match TimeForm::of(args.get(2)) {
        Some(form) => {
            let at_ms = element_deadline::given(args, 3, form, rules.now_ms, giver)?;
            (HgetexExpiry::Give(at_ms), 4)
        }
        None if args.is(2, "persist") => (HgetexExpiry::Persist, 3),
        None => (HgetexExpiry::Nothing, 2),
    };
    let names = FIELDS.read(args, word_at, BAD_COUNT)?;
    out.array(names.len());
    let (mut tally, mut persisted) = (HexpireCounts::default(), false);
    let mut touched = Vec::new();
    for name in names {
        let Some((place, field)) = field_at(&keyspace, found, name) else {
            out.null();
            continue;
        };
        reply_item(field.value, out);
        if is_told && (matches!(change, HgetexExpiry::Give(_)) || field.deadline.is_some()) {
            touched.push(name);
        }
        match change {
            HgetexExpiry::Nothing => {}
            HgetexExpiry::Persist if field.deadline.is_none() => {}
            HgetexExpiry::Persist => {
                persisted |= take_deadline(&mut keyspace, place, &rules, name);
            }
            HgetexExpiry::Give(at_ms) => {
                tally.give(&mut keyspace, place, &rules, name, at_ms);
            }
        }
    }
    if persisted {
        keyspace.wrote_fields(key.bytes, HPERSIST_EVENT, touched.iter().copied());
    }
    if tally.updated > 0 {
        keyspace.wrote_fields(key.bytes, HEXPIRE_EVENT, touched.iter().copied());
    }
    if let Some(place) = found.filter(|_| tally.deleted > 0) {
        keyspace.wrote_fields(key.bytes, HDEL_EVENT, touched.iter().copied());
        delete_if_empty(&mut keyspace, &key, place);
    }
    match change {
        _ if !is_logged => {}
        HgetexExpiry::Persist if persisted => {
            let mut count = itoa::Buffer::new();
            let count = count.format(touched.len()).as_bytes();
            let head: [&[u8]; 4] = [b"HPERSIST", key.bytes, b"FIELDS", count];
            log_names(cx, &head, &touched);
        }
        HgetexExpiry::Give(at_ms) => log_given(cx, key.bytes, at_ms, None, &touched),
        _ => {}
    }
    Ok(())
}

/// `HSETEX key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds |
/// KEEPTTL] FIELDS numfields field value [field value ...]`
pub(super) static HSETEX: Command = Command::new("hsetex", Group::Hash, -6)
    .writes(UPDATED)
    .flags(Flags::DENYOOM.or(Flags::FAST))
    .keeps_blocks(5, 1)
    .doc(
        "8.0.0",
        "key [NX | XX] [FNX | FXX] \
         [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds | KEEPTTL] \
         FIELDS <numfields:integer field value [field value ...]>",
        "Sets fields of a hash together with their expiration.",
    )
    .complexity("O(N), N being the count of fields.")
    .history(&[("8.12.0", "New options: `NX` and `XX`.")])
    .on_keys(hsetex);

/// The condition of HSETEX: none of the fields exists (FNX), all of them exist (FXX), or a condition on the key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum HsetexCondition {
    None,
    All,
}

/// A parsed request of HSETEX.
struct SetEx {
    presence: Option<HsetexCondition>,
    key_presence: Option<HsetexCondition>,
    keeps: bool,
    at_ms: Option<u64>,
    first: usize,
    count: usize,
}

impl SetEx {
    /// Reads the words in their order, as Redis does, so that the first mistake is the one that is reported.
    fn read(args: &Args<'_>, now_ms: u64, giver: Giver) -> Result<SetEx, CommandError> {
        let arity = || CommandError::Arity("hsetex");
        let mut request = SetEx {
            presence: None,
            key_presence: None,
            keeps: false,
            at_ms: None,
            first: 0,
            count: 0,
        };
        let mut at = 2;
        while at < args.len() {
            if args.is(at, "fields") {
                if at + 3 >= args.len() {
                    return Err(arity());
                }
                let count = parse_i64(args.get(at + 1))
                    .and_then(|count| i32::try_from(count).ok())
                    .filter(|count| *count >= 1)
                    .ok_or("ERR invalid number of fields")?;
                request.first = at + 2;
                request.count = count as usize;
                if request.count * 2 != args.len() - request.first {
                    return Err(arity());
                }
                return Ok(request);
            }
            let form = TimeForm::of(args.get(at));
            let keeps = args.is(at, "keepttl");
            let presence = match () {
                () if args.is(at, "fnx") => Some(HsetexCondition::None),
                () if args.is(at, "fxx") => Some(HsetexCondition::All),
                () => None,
            };
            let key_presence = match () {
                () if args.is(at, "nx") => Some(HsetexCondition::None),
                () if args.is(at, "xx") => Some(HsetexCondition::All),
                () => None,
            };
            if form.is_some() || keeps {
                if request.keeps || request.at_ms.is_some() {
                    return Err(
                        "ERR Only one of EX, PX, EXAT, PXAT or KEEPTTL arguments can be specified"
                            .into(),
                    );
                }
                request.keeps = keeps;
            }
            if let Some(form) = form {
                if at + 1 >= args.len() {
                    return Err("ERR missing expire time".into());
                }
                request.at_ms = Some(element_deadline::given(args, at + 1, form, now_ms, giver)?);
                at += 1;
            } else if presence.is_some() {
                if request.presence.is_some() {
                    return Err("ERR Only one of FXX or FNX arguments can be specified".into());
                }
                request.presence = presence;
            } else if key_presence.is_some() {
                if request.key_presence.is_some() {
                    return Err("ERR Only one of NX or XX arguments can be specified".into());
                }
                request.key_presence = key_presence;
            } else if !keeps {
                let word = shown(args.get(at)).into_owned();
                return Err(format!("ERR unknown argument: {word}").into());
            }
            at += 1;
        }
        Err(arity())
    }

    fn pairs<'a>(
        &self,
        args: &Args<'a>,
    ) -> impl ExactSizeIterator<Item = (&'a [u8], Content<'a>)> + Clone + use<'a> {
        let (args, first) = (*args, self.first);
        (0..self.count).map(move |pair| {
            (
                args.get(first + 2 * pair),
                args.content(first + 2 * pair + 1),
            )
        })
    }
}

fn hsetex(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (rules, is_logged) = (rules(cx), cx.is_logged());
    let request = SetEx::read(args, rules.now_ms, Giver::of(cx))?;
    let pairs = request.pairs(args);
    let key = args.key(1);
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_typed(&key, DataType::Hash)?;
    let hash = found.and_then(|place| at(&keyspace, place));
    let is_there = |name: &[u8]| hash.is_some_and(|hash| hash.get(name).is_some());
    let key_allows = match request.key_presence {
        None => true,
        Some(HsetexCondition::None) => found.is_none(),
        Some(HsetexCondition::All) => found.is_some(),
    };
    let allowed = match request.presence {
        _ if !key_allows => false,
        None => true,
        Some(HsetexCondition::None) => !pairs.clone().any(|(name, _)| is_there(name)),
        Some(HsetexCondition::All) => pairs.clone().all(|(name, _)| is_there(name)),
    };
    if !allowed {
        out.integer(0);
        return Ok(());
    }
    let deadline_of = |name: &[u8]| hash.and_then(|hash| hash.get(name)?.deadline);
    let kept: Vec<(&[u8], u64)> = match is_logged && request.keeps {
        true => pairs
            .clone()
            .filter_map(|(name, _)| Some((name, deadline_of(name)?)))
            .collect(),
        false => Vec::new(),
    };
    let place = match found {
        Some(place) => {
            let deadline = if request.keeps {
                FieldDeadline::Keep
            } else {
                FieldDeadline::Clear
            };
            edit(&mut keyspace, place, &rules, |hash| {
                hash.expect(pairs.clone());
                for (name, value) in pairs.clone() {
                    hash.set(name, value, deadline);
                }
            });
            place
        }
        None => keyspace.create(&key, || new_hash(key.bytes, pairs.clone(), &rules)),
    };
    let names = pairs.clone().map(|(name, _)| name);
    keyspace.wrote_fields(key.bytes, HSET_EVENT, names.clone());
    if let Some(at_ms) = request.at_ms {
        let mut tally = HexpireCounts::default();
        for (name, _) in pairs {
            tally.give(&mut keyspace, place, &rules, name, at_ms);
        }
        tally.record(&mut keyspace, &key, place, names);
    }
    if is_logged {
        log_set(cx, args, &request, &kept);
    }
    out.integer(1);
    Ok(())
}

/// Logs the effect of HSETEX as commands that older servers know: the values, and then the deadlines, whether given
/// or kept.
fn log_set(cx: &mut ShardCx<'_>, args: &Args<'_>, request: &SetEx, kept: &[(&[u8], u64)]) {
    let key = args.get(1);
    let mut set: Vec<Content<'_>> = vec![b"HSET".into(), key.into()];
    set.extend(args.contents(request.first));
    cx.log_instead(set);
    if let Some(at_ms) = request.at_ms {
        let names: Vec<&[u8]> = request.pairs(args).map(|(name, _)| name).collect();
        log_given(cx, key, at_ms, None, &names);
    }
    for &(name, at_ms) in kept {
        log_given(cx, key, at_ms, None, &[name]);
    }
}
