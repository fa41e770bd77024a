//! Commands that read or set fields and in the same step change their deadlines or delete them.

use super::{HSET_EVENT, at, edit, field_at, rules};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::element::reply_item;
use crate::command::element_deadline::{
    self, CountedNames, ElementRules, Giver, NewDeadline, log_given, log_names,
};
use crate::command::error::{CommandError, shown};
use crate::command::options::TimeForm;
use basalt_core::base::number::parse_i64;
use basalt_core::structures::block::Content;
use basalt_engine::value::DataType;
use basalt_engine::value::hash::{FieldDeadline, HashRules, new_hash};

const NAMES: CountedNames = HashRules::NAMES;
const COMPLEXITY: &str = HashRules::COMPLEXITY;

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
    let names = NAMES.read(args, 2, NAMES.bad_count)?;
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
        HashRules::removed(&mut keyspace, &key, place, &gone);
        if is_logged {
            log_names(cx, &[HashRules::REMOVE, key.bytes], &gone);
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
enum HgetexExpiry<'a> {
    Nothing,
    Persist,
    Give(NewDeadline<'a, HashRules>),
}

fn hgetex(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let rules = rules(cx);
    let (key, giver) = (args.key(1), Giver::of(cx));
    let is_logged = cx.is_logged();
    let mut keyspace = cx.at(&key);
    let wants_names = is_logged || keyspace.wants_fields();
    let found = keyspace.find_typed(&key, DataType::Hash)?;
    let (mut change, word_at) = match TimeForm::of(args.get(2)) {
        Some(form) => {
            let at_ms = element_deadline::given(args, 3, form, rules.now_ms, giver)?;
            let new = NewDeadline::new(rules, at_ms, wants_names);
            (HgetexExpiry::Give(new), 4)
        }
        None if args.is(2, "persist") => (HgetexExpiry::Persist, 3),
        None => (HgetexExpiry::Nothing, 2),
    };
    let names = NAMES.read(args, word_at, NAMES.bad_count)?;
    out.array(names.len());
    let (mut changed, mut persisted) = (false, Vec::new());
    for name in names {
        let Some((place, field)) = field_at(&keyspace, found, name) else {
            out.null();
            continue;
        };
        reply_item(field.value, out);
        match &mut change {
            HgetexExpiry::Persist if field.deadline.is_some() => {
                changed |= edit(&mut keyspace, place, &rules, |hash| {
                    hash.set_deadline(name, None)
                });
                if wants_names {
                    persisted.push(name);
                }
            }
            HgetexExpiry::Nothing | HgetexExpiry::Persist => {}
            HgetexExpiry::Give(new) => new.give(&mut keyspace, place, name),
        }
    }
    match change {
        HgetexExpiry::Persist if changed => {
            let event = HashRules::PERSIST_EVENT;
            HashRules::wrote(&mut keyspace, key.bytes, event, &persisted);
            if is_logged {
                let mut count = itoa::Buffer::new();
                let count = count.format(persisted.len()).as_bytes();
                let head: [&[u8]; 4] = [b"HPERSIST", key.bytes, b"FIELDS", count];
                log_names(cx, &head, &persisted);
            }
        }
        HgetexExpiry::Nothing | HgetexExpiry::Persist => {}
        HgetexExpiry::Give(new) => {
            if let Some(place) = found {
                new.record(&mut keyspace, &key, place);
            }
            new.log(cx, key.bytes, None);
        }
    }
    Ok(())
}

/// `HSETEX key [FNX | FXX] [EX seconds | PX milliseconds | EXAT unix-time-seconds | PXAT unix-time-milliseconds |
/// KEEPTTL] FIELDS numfields field value [field value ...]`
pub(super) static HSETEX: Command = Command::new("hsetex", Group::Hash, -6)
    .writes(KeySpec::FIRST_UPDATED)
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
struct HsetexRequest {
    presence: Option<HsetexCondition>,
    key_presence: Option<HsetexCondition>,
    keeps: bool,
    at_ms: Option<u64>,
    first: usize,
    count: usize,
}

impl HsetexRequest {
    /// Reads the words in their order, as Redis does, so that the first mistake is the one that is reported.
    fn read(args: &Args<'_>, now_ms: u64, giver: Giver) -> Result<HsetexRequest, CommandError> {
        let arity = || CommandError::Arity("hsetex");
        let mut request = HsetexRequest {
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
    let request = HsetexRequest::read(args, rules.now_ms, Giver::of(cx))?;
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
    let wants_names = is_logged || keyspace.wants_fields();
    let new = request.at_ms.map(|at_ms| {
        let mut new = NewDeadline::new(rules, at_ms, wants_names);
        names.for_each(|name| new.give(&mut keyspace, place, name));
        new.record(&mut keyspace, &key, place);
        new
    });
    if is_logged {
        // Logs commands that older servers know: the values, and then the deadlines, whether given or kept.
        let mut set: Vec<Content<'_>> = vec![b"HSET".into(), key.bytes.into()];
        set.extend(args.contents(request.first));
        cx.log_instead(set);
        if let Some(new) = new {
            new.log(cx, key.bytes, None);
        }
        for (name, at_ms) in kept {
            log_given::<HashRules>(cx, key.bytes, at_ms, None, &[name]);
        }
    }
    out.integer(1);
    Ok(())
}
