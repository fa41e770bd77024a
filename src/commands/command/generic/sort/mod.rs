//! SORT: the elements of a list, a set or a sorted set in another order, or values of other keys that belong to them.
//!
//! ```text
//! SORT friends BY age_* GET name_* GET #
//!   elements   ann bob cid               of the key, copied
//!   weights    age_ann age_bob age_cid   of other keys, on any shards
//!   order      by weight, then by element
//!   reply      name_… and the element itself, for each
//! ```
//!
//! Keys that BY and GET derive from elements can be on any shard, so a request with such a pattern runs with all
//! shards locked, and sees all keys at one moment; other requests need only the shards of the keys that they name.

mod pattern;
#[cfg(test)]
mod tests;
mod texts;

use std::cmp::Ordering;
use std::ops::Range;

use crate::command::context::ShardCx;
use crate::command::declaration::{
    BeginSearch, Categories, Command, CommandResult, FindKeys, Flags, Group, KeyFlags, KeySpec,
};
use crate::command::error::CommandError;
use crate::command::{Args, Out};
use crate::config::Config;
use crate::config::values::ClusterMode;
use basalt_core::base::lossless;
use basalt_core::base::number;
use basalt_core::structures::ordered::Direction;
use basalt_core::structures::quicklist::End;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::DataType;
use basalt_engine::value::list::{self, ListRef};
use basalt_engine::value::object::detached;
use basalt_engine::value::set::SetRef;
use basalt_engine::value::sorted_set::SortedSet;
use pattern::SortPattern;
use texts::TextArena;

const SORT_STORE: Event = Event::new(b'l', "sortstore");

const SOURCE: KeySpec = KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS));
const DERIVED: KeySpec = unknown(
    KeyFlags::RO.or(KeyFlags::ACCESS),
    "For the optional BY/GET keyword. It is marked 'unknown' because the key names derive from the content of the \
     key we sort",
);
const TARGET: KeySpec = unknown(
    KeyFlags::OW.or(KeyFlags::UPDATE),
    "For the optional STORE keyword. It is marked 'unknown' because the keyword can appear anywhere in the argument \
     array",
);

const fn unknown(flags: KeyFlags, note: &'static str) -> KeySpec {
    let mut spec = KeySpec::one(1, flags).find(FindKeys::Unknown).note(note);
    spec.begin = BeginSearch::Unknown;
    spec
}

/// Maximum number of elements in a reply if GET multiplies them: more would be gigabytes of reply for a few bytes of
/// request.
const ANSWERS_MAX: usize = if cfg!(test) { 1 << 12 } else { 1 << 28 };

const COST: &str =
    "O(N+M*log(M)) for N elements of which M are answered; O(N) where nothing is sorted.";

const SUBJECTS: Categories = Categories::SET
    .or(Categories::SORTEDSET)
    .or(Categories::LIST)
    .or(Categories::DANGEROUS);

/// `SORT key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC | DESC] [ALPHA] [STORE destination]`
pub(super) static SORT: Command = Command::new("sort", Group::Generic, -2)
    .writes(&[SOURCE, DERIVED, TARGET])
    .finds_key(stored_key)
    .flags(
        Flags::DENYOOM
            .or(Flags::MOVABLEKEYS)
            .or(Flags::TOUCHES_ARBITRARY_KEYS),
    )
    .categories(SUBJECTS)
    .doc(
        "1.0.0",
        "key [BY pattern@1] [LIMIT offset count] [GET pattern@1 [GET pattern@1 ...]] [ASC | DESC] [ALPHA] \
         [STORE destination@2]",
        "Sorts the elements of a list, a set or a sorted set, and returns or stores them, or what they stand for.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(|cx, args, out| sort(cx, args, out, SortOptions::parse(args, SortStorePermission::Allowed, cx.config)?))
    .on_all_shards_if(names_derived_keys)
    .reads_any_key_if(any_key_refusal);

/// `SORT_RO key [BY pattern] [LIMIT offset count] [GET pattern …] [ASC | DESC] [ALPHA]`
pub(super) static SORT_RO: Command = Command::new("sort_ro", Group::Generic, -2)
    .reads(&[SOURCE, DERIVED])
    .flags(Flags::MOVABLEKEYS.or(Flags::TOUCHES_ARBITRARY_KEYS))
    .categories(SUBJECTS)
    .doc(
        "7.0.0",
        "key [BY pattern@1] [LIMIT offset count] [GET pattern@1 [GET pattern@1 ...]] [ASC | DESC] [ALPHA]",
        "Sorts the elements of a list, a set or a sorted set, and returns them, or what they stand for.",
    )
    .complexity(COST)
    .takes_long()
    .on_keys(|cx, args, out| sort(cx, args, out, SortOptions::parse(args, SortStorePermission::Refused, cx.config)?))
    .on_all_shards_if(names_derived_keys)
    .reads_any_key_if(any_key_refusal);

/// Returns the error for users who may not read all keys, if the request derives keys from patterns and data. The
/// error names BY or GET, whichever comes first.
fn any_key_refusal(args: &Args<'_>) -> Option<&'static str> {
    const BY: &str = "ERR BY option of SORT denied due to insufficient ACL permissions.";
    const GET: &str = "ERR GET option of SORT denied due to insufficient ACL permissions.";
    let mut at = 2;
    let mut refusal = None;
    while at < args.len() {
        let is_pattern = args
            .from(at + 1)
            .next()
            .is_some_and(|next| next.contains(&b'*'));
        if args.is(at, "by") && is_pattern {
            refusal = refusal.or(Some(BY));
        } else if args.is(at, "get") {
            refusal = refusal.or(Some(GET));
        }
        at += match () {
            () if args.is(at, "limit") => 3,
            () if ["by", "get", "store"].iter().any(|word| args.is(at, word)) => 2,
            () => 1,
        };
    }
    refusal
}

/// Returns the position of the key after STORE; if STORE is repeated, the last one counts.
fn stored_key<'a>(count: usize, argument: &dyn Fn(usize) -> &'a [u8]) -> Option<(usize, KeyFlags)> {
    let is = |at: usize, word: &str| argument(at).eq_ignore_ascii_case(word.as_bytes());
    let (mut at, mut found) = (2, None);
    while at + 1 < count {
        if is(at, "store") {
            found = Some((at + 1, KeyFlags::OW.or(KeyFlags::UPDATE)));
        }
        at += match () {
            () if is(at, "limit") => 3,
            () if is(at, "store") || is(at, "by") || is(at, "get") => 2,
            () => 1,
        };
    }
    found
}

/// Whether BY or GET derives keys from elements. False positives do no harm.
fn names_derived_keys(args: &Args<'_>) -> bool {
    (2..args.len().saturating_sub(1))
        .any(|at| (args.is(at, "by") || args.is(at, "get")) && args.get(at + 1).contains(&b'*'))
}

/// Whether STORE is permitted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum SortStorePermission {
    Allowed,
    Refused,
}

struct SortOptions<'a> {
    by: Option<SortPattern<'a>>,
    /// BY has a constant pattern: the elements keep their order.
    unsorted: bool,
    gets: Vec<SortPattern<'a>>,
    start: i64,
    count: i64,
    descending: bool,
    alpha: bool,
    /// Index of the target key.
    target: Option<usize>,
}

impl<'a> SortOptions<'a> {
    fn parse(
        args: &Args<'a>,
        store: SortStorePermission,
        config: &Config,
    ) -> Result<SortOptions<'a>, CommandError> {
        let is_node = config.cluster_enabled == ClusterMode::Yes;
        let mut options = SortOptions {
            by: None,
            unsorted: false,
            gets: Vec::new(),
            start: 0,
            count: -1,
            descending: false,
            alpha: false,
            target: None,
        };
        let mut at = 2;
        while at < args.len() {
            let behind = args.len() - at - 1;
            if args.is(at, "asc") {
                options.descending = false;
            } else if args.is(at, "desc") {
                options.descending = true;
            } else if args.is(at, "alpha") {
                options.alpha = true;
            } else if args.is(at, "limit") && behind >= 2 {
                (options.start, options.count) = (args.integer(at + 1)?, args.integer(at + 2)?);
                at += 2;
            } else if args.is(at, "store") && behind >= 1 && store == SortStorePermission::Allowed {
                options.target = Some(at + 1);
                at += 1;
            } else if args.is(at, "by") && behind >= 1 {
                let text = args.get(at + 1);
                // The derived keys may be on other nodes of the cluster.
                if is_node && text.contains(&b'*') {
                    return Err("ERR BY option of SORT denied in Cluster mode.".into());
                }
                options.unsorted |= !text.contains(&b'*');
                options.by = Some(SortPattern::parse(text));
                at += 1;
            } else if args.is(at, "get") && behind >= 1 {
                if is_node {
                    return Err("ERR GET option of SORT denied in Cluster mode.".into());
                }
                options.gets.push(SortPattern::parse(args.get(at + 1)));
                at += 1;
            } else {
                return Err(CommandError::Syntax);
            }
            at += 1;
        }
        Ok(options)
    }

    /// Returns the requested range of the sorted elements.
    fn range(&self, len: usize) -> Range<usize> {
        let clamp = |number: i64| usize::try_from(number).unwrap_or(usize::MAX).min(len);
        let start = clamp(self.start.max(0));
        let end = match self.count {
            ..0 => len,
            count => start.saturating_add(clamp(count)).min(len),
        };
        start..end
    }
}

fn sort(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    mut options: SortOptions<'_>,
) -> CommandResult {
    let (key, is_in_script, scales) = (args.key(1), cx.client.is_in_script, cx.scales());
    let mut keyspace = cx.at(&key);
    let found = keyspace.find_read(&key);
    let source = match found.map(|place| (place, keyspace.kind(place).data_type())) {
        Some((place, data_type @ (DataType::List | DataType::Set | DataType::SortedSet))) => {
            Some((place, data_type))
        }
        Some(_) => return Err(CommandError::WrongType),
        None => None,
    };
    scales.weigh_bytes(source.map_or(0, |(place, _)| keyspace.memory_bytes(place)))?;
    // The order of a set is arbitrary, so its elements are sorted by text at least if they are stored or a script
    // sees them.
    if options.unsorted
        && (options.target.is_some() || is_in_script)
        && source.is_some_and(|(_, data_type)| data_type == DataType::Set)
    {
        (options.unsorted, options.alpha, options.by) = (false, true, None);
    }
    let (elements, range) = match source {
        Some((place, data_type)) => elements(&keyspace, place, data_type, &options),
        None => (TextArena::default(), 0..0),
    };
    let order = if options.unsorted {
        (0..elements.len()).collect()
    } else {
        sorted(cx, &elements, &options, &range)?
    };
    let chosen = &order[range];
    if chosen.len().saturating_mul(options.gets.len()) > ANSWERS_MAX {
        return Err("ERR SORT would answer too many elements".into());
    }
    let Some(target) = options.target else {
        out.array(chosen.len() * options.gets.len().max(1));
        for index in chosen {
            reply_element(cx, elements.get(*index), &options.gets, out);
        }
        return Ok(());
    };
    let mut texts = TextArena::default();
    for index in chosen {
        let element = elements.get(*index);
        if options.gets.is_empty() {
            texts.push(element);
        }
        for get in &options.gets {
            if get.value(cx, element, |text| texts.push(text)).is_none() {
                texts.push(b"");
            }
        }
    }
    store(cx, args, target, &texts);
    out.integer(texts.len() as i64);
    Ok(())
}

/// Returns the elements of a key, and the requested range. If they keep their order, only those in the range are
/// copied.
fn elements(
    keyspace: &Keyspace<'_>,
    place: EntrySlot,
    data_type: DataType,
    options: &SortOptions<'_>,
) -> (TextArena, Range<usize>) {
    let entry = keyspace.entry(place);
    let mut texts = TextArena::default();
    let whole = |len: usize| {
        if options.unsorted {
            options.range(len)
        } else {
            0..len
        }
    };
    let backwards = options.unsorted && options.descending;
    match data_type {
        DataType::Set => {
            SetRef::of(entry, keyspace.elements_due_ms())
                .for_each(|member| member.with_bytes(|member| texts.push(member)));
            let range = options.range(texts.len());
            return (texts, range);
        }
        DataType::SortedSet => {
            let set = SortedSet::of(entry);
            let (wanted, len) = (whole(set.len()), set.len());
            let members = if backwards {
                set.range(len - wanted.end, len - wanted.start, Direction::Descending)
            } else {
                set.range(wanted.start, wanted.end, Direction::Ascending)
            };
            members.for_each(|(member, _)| member.with_bytes(|member| texts.push(member)));
        }
        _ => {
            if let Some(list) = ListRef::of(entry) {
                let wanted = whole(list.len());
                let from = if backwards { End::Back } else { End::Front };
                list.visit(from, wanted.start, wanted.len(), |element| {
                    element.with_bytes(|element| texts.push(element));
                });
            }
        }
    }
    if options.unsorted {
        let len = texts.len();
        return (texts, 0..len);
    }
    let range = options.range(texts.len());
    (texts, range)
}

/// Returns the elements' indexes in order, correct at least up to the end of the range.
fn sorted(
    cx: &mut ShardCx<'_>,
    elements: &TextArena,
    options: &SortOptions<'_>,
    range: &Range<usize>,
) -> Result<Vec<usize>, CommandError> {
    let directed = |order: Ordering| {
        if options.descending {
            order.reverse()
        } else {
            order
        }
    };
    let by_text = |one: usize, two: usize| elements.get(one).cmp(elements.get(two));
    if !options.alpha {
        let mut scores = Vec::with_capacity(elements.len());
        for element in elements.iter() {
            let score = match options.by {
                None => Some(score(element)),
                Some(by) => by.value(cx, element, score),
            };
            // An element whose weight key is missing has weight 0.
            let score = score.unwrap_or(Some(0.0));
            scores.push(score.ok_or("ERR One or more scores can't be converted into double")?);
        }
        return Ok(arrange(elements.len(), range, |one, two| {
            let order = scores[one].partial_cmp(&scores[two]);
            directed(
                order
                    .unwrap_or(Ordering::Equal)
                    .then_with(|| by_text(one, two)),
            )
        }));
    }
    let Some(by) = options.by else {
        return Ok(arrange(elements.len(), range, |one, two| {
            directed(by_text(one, two))
        }));
    };
    let mut weights: Vec<Option<Box<[u8]>>> = Vec::with_capacity(elements.len());
    for element in elements.iter() {
        weights.push(by.value(cx, element, |text| Box::from(text)));
    }
    Ok(arrange(elements.len(), range, |one, two| {
        directed(weights[one].cmp(&weights[two]))
    }))
}

/// Returns the numbers from 0 up to `len` in an order that need not be correct after the range.
fn arrange(
    len: usize,
    range: &Range<usize>,
    compare: impl Fn(usize, usize) -> Ordering,
) -> Vec<usize> {
    let mut order: Vec<usize> = (0..len).collect();
    // Selecting a few of many elements is faster than sorting all.
    if range.end < len / 4 {
        order.select_nth_unstable_by(range.end, |one, two| compare(*one, *two));
        order.truncate(range.end);
    }
    order.sort_by(|one, two| compare(*one, *two));
    order
}

/// Parses a text like C's `strtod` for SORT: leading blanks are allowed, trailing characters are not, an empty text
/// is 0, and anything after a NUL is ignored.
fn score(text: &[u8]) -> Option<f64> {
    let text = lossless::before_nul(text);
    if text.is_empty() {
        return Some(0.0);
    }
    // Like C, treats a number too small for full precision as a range error, as one that is too large.
    number::parse_f64(text.trim_ascii_start()).filter(|score| !score.is_subnormal())
}

fn reply_element(cx: &mut ShardCx<'_>, element: &[u8], gets: &[SortPattern<'_>], out: &mut Out) {
    if gets.is_empty() {
        out.bulk(element);
    }
    for get in gets {
        if get.value(cx, element, |text| out.bulk(text)).is_none() {
            out.null();
        }
    }
}

/// Stores these texts as a list at the target; an empty list deletes it.
fn store(cx: &mut ShardCx<'_>, args: &Args<'_>, target: usize, texts: &TextArena) {
    let config = cx.config;
    let target = args.key(target);
    let mut keyspace = cx.at(&target);
    let found = keyspace.find_write(&target);
    if texts.len() > 0 {
        let limits = list::limits(config.list_max_listpack_size, config.list_compress_depth);
        let entry = detached(|| {
            let mut entry = list::empty_entry(target.bytes);
            list::push(&mut entry, End::Back, || texts.iter(), &limits);
            entry
        });
        keyspace.overwrites(&target, found, DataType::List);
        keyspace.adopt(&target, found, entry);
        keyspace.wrote(target.bytes, SORT_STORE);
    } else if let Some(place) = found {
        keyspace.delete(place);
        keyspace.wrote(target.bytes, Event::DEL);
    }
}
