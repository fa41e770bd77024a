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

mod aside;
mod pattern;
#[cfg(test)]
mod tests;

use std::cmp::Ordering;
use std::ops::Range;

use crate::command::context::ShardCx;
use crate::command::declaration::{
    BeginSearch, Categories, Command, CommandResult, FindKeys, Flags, Group, KeyFlags, KeySpec,
};
use crate::command::error::CommandError;
use crate::command::prepared::Prepared;
use crate::command::{Args, Out};
use crate::config::Config;
use crate::config::values::ClusterMode;
use basalt_core::base::lossless;
use basalt_core::base::number;
use basalt_core::structures::entry::Entry;
use basalt_core::structures::ordered::Direction;
use basalt_core::structures::quicklist::{End, QuicklistLimits};
use basalt_core::structures::table::EntrySlot;
use basalt_core::structures::text_arena::TextArena;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::list::{self, ListRef};
use basalt_engine::value::object::detached;
use basalt_engine::value::set::SetRef;
use basalt_engine::value::{DataType, Object, slices};
use pattern::SortPattern;

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
    .builds_aside(aside::begin)
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

    /// Sorts the members of a set by text at least if they are stored or a script sees them, as the order of a set is
    /// arbitrary.
    fn decide_order_of(&mut self, data_type: DataType, is_in_script: bool) {
        if self.unsorted && (self.target.is_some() || is_in_script) && data_type == DataType::Set {
            (self.unsorted, self.alpha, self.by) = (false, true, None);
        }
    }

    /// Returns the direction and the range in which elements with an order are read: all of them to be sorted, or what
    /// is requested if they keep their order.
    fn read_range(&self, len: usize) -> (Direction, Range<usize>) {
        match (self.unsorted, self.descending) {
            (false, _) => (Direction::Ascending, 0..len),
            (true, false) => (Direction::Ascending, self.range(len)),
            (true, true) => (Direction::Descending, self.range(len)),
        }
    }

    /// Orders scores or texts in the requested direction.
    fn directed(&self, order: Ordering) -> Ordering {
        match self.descending {
            true => order.reverse(),
            false => order,
        }
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
    if let (Some(built), Some(target)) = (args.prepared().and_then(Prepared::take), options.target)
    {
        out.integer(store(cx, args, target, built?) as i64);
        return Ok(());
    }
    scales.weigh_bytes(source.map_or(0, |(place, _)| keyspace.memory_bytes(place)))?;
    if let Some((_, data_type)) = source {
        options.decide_order_of(data_type, is_in_script);
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
    let entry = stored_list(args.get(target), &limits_of(cx.config), || texts.iter());
    out.integer(store(cx, args, target, entry) as i64);
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
    if data_type == DataType::Set {
        SetRef::of(entry, keyspace.elements_due_ms())
            .for_each(|member| member.with_bytes(|member| texts.push(member)));
    } else {
        let (direction, wanted) = options.read_range(slices::ordered_len(entry));
        slices::visit_ordered(entry, direction, wanted, |element, _| {
            texts.push(element);
            true
        });
        if options.unsorted {
            let len = texts.len();
            return (texts, 0..len);
        }
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
    let Some(by) = options.by else {
        return sorted_by_itself(elements, options, range);
    };
    if !options.alpha {
        let scores = elements
            .iter()
            .map(|element| by.value(cx, element, score).unwrap_or(Some(0.0)));
        return sorted_by_score(elements, scores, options, range);
    }
    let mut weights: Vec<Option<Box<[u8]>>> = Vec::with_capacity(elements.len());
    for element in elements.iter() {
        weights.push(by.value(cx, element, |text| Box::from(text)));
    }
    Ok(arrange(elements.len(), range, |one, two| {
        options.directed(weights[one].cmp(&weights[two]))
    }))
}

/// Like [`sorted`], for elements that are sorted by their own texts or numbers.
fn sorted_by_itself(
    elements: &TextArena,
    options: &SortOptions<'_>,
    range: &Range<usize>,
) -> Result<Vec<usize>, CommandError> {
    if !options.alpha {
        return sorted_by_score(elements, elements.iter().map(score), options, range);
    }
    Ok(arrange(elements.len(), range, |one, two| {
        options.directed(elements.get(one).cmp(elements.get(two)))
    }))
}

/// Sorts by scores, then by text. A score that is None is an error.
fn sorted_by_score(
    elements: &TextArena,
    of_elements: impl Iterator<Item = Option<f64>>,
    options: &SortOptions<'_>,
    range: &Range<usize>,
) -> Result<Vec<usize>, CommandError> {
    let mut scores = Vec::with_capacity(elements.len());
    for score in of_elements {
        scores.push(score.ok_or("ERR One or more scores can't be converted into double")?);
    }
    Ok(arrange(elements.len(), range, |one: usize, two: usize| {
        let order = scores[one].partial_cmp(&scores[two]);
        let by_text = || elements.get(one).cmp(elements.get(two));
        options.directed(order.unwrap_or(Ordering::Equal).then_with(by_text))
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

fn limits_of(config: &Config) -> QuicklistLimits {
    list::limits(config.list_max_listpack_size, config.list_compress_depth)
}

/// Makes a list of texts for [`store`].
fn stored_list<'t, I: Iterator<Item = &'t [u8]>>(
    key: &[u8],
    limits: &QuicklistLimits,
    texts: impl Fn() -> I,
) -> Entry<Object> {
    detached(|| {
        let mut entry = list::empty_entry(key);
        list::push(&mut entry, End::Back, texts, limits);
        entry
    })
}

/// Stores a list that belongs to no shard yet at the target; an empty list deletes it. Returns the number of elements.
fn store(cx: &mut ShardCx<'_>, args: &Args<'_>, target: usize, entry: Entry<Object>) -> usize {
    let target = args.key(target);
    let len = ListRef::of(entry.view()).map_or(0, ListRef::len);
    let mut keyspace = cx.at(&target);
    let found = keyspace.find_write(&target);
    if len > 0 {
        keyspace.overwrites(&target, found, DataType::List);
        keyspace.adopt(&target, found, entry);
        keyspace.wrote(target.bytes, SORT_STORE);
    } else if let Some(place) = found {
        keyspace.delete(place);
        keyspace.wrote(target.bytes, Event::DEL);
    }
    len
}
