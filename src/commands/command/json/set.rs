//! Documents and parts of them that clients write: JSON.SET, JSON.MSET and JSON.MERGE.

use super::path::{Path, outermost};
use super::{CHANGED_KEY, CLASS, DEEP, NEW_AT_ROOT, change, check_room, find_any, parse, root};
use crate::command::context::ShardCx;
use crate::command::declaration::{Command, CommandResult, Flags, Group, KeyFlags, KeySpec};
use crate::command::error::CommandError;
use crate::command::prepared::{Built, Prepared};
use crate::command::{Args, Out};
use crate::config::Config;
use basalt_core::base::hash::HashSeed;
use basalt_core::json_path::DefiniteStep;
use basalt_core::structures::splice::Splice;
use basalt_core::structures::table::EntrySlot;
use basalt_engine::Now;
use basalt_engine::effect::Event;
use basalt_engine::keyspace::Keyspace;
use basalt_engine::value::json::edit::{self, Fate, Spot};
use basalt_engine::value::json::{DEPTH_MAX, JsonRef, JsonView, detached_entry};

/// `JSON.SET key path json [NX | XX] [FPHA BF16 | FP16 | FP32 | FP64]`
pub(super) static SET: Command = Command::new("json.set", Group::Json, -4)
    .writes(&[KeySpec::one(1, KeyFlags::RW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM)
    .builds(build)
    .doc(
        "1.0.0",
        "key path value [NX | XX] [FPHA <BF16 | FP16 | FP32 | FP64>]",
        "Stores a document, or a value at each match of a path in one.",
    )
    .complexity("O(N) where N is the size of the old and the new value.")
    .takes_long()
    .on_keys(set);

/// When JSON.SET stores its value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Condition {
    Always,
    /// Only where there is nothing.
    New,
    /// Only in place of another value.
    Existing,
}

/// Reads the options of JSON.SET. Returns the condition, and the largest number that FPHA admits in arrays.
fn options(args: &Args<'_>) -> Result<(Condition, Option<f64>), CommandError> {
    let (mut condition, mut largest, mut at) = (Condition::Always, None, 4);
    while at < args.len() {
        let value = || match args.len() > at + 1 {
            true => Ok(args.get(at + 1)),
            false => Err(CommandError::Arity("json.set")),
        };
        if args.is(at, "nx") && condition == Condition::Always {
            condition = Condition::New;
        } else if args.is(at, "xx") && condition == Condition::Always {
            condition = Condition::Existing;
        } else if args.is(at, "format") {
            let name = value()?;
            if !(name.eq_ignore_ascii_case(b"JSON") || name.eq_ignore_ascii_case(b"STRING")) {
                return Err("ERR wrong format".into());
            }
            at += 1;
        } else if args.is(at, "fpha") {
            let largest_of = |name: &[u8]| match name.to_ascii_uppercase().as_slice() {
                b"BF16" => Some(3.389_531_389_251_535_5e38),
                b"FP16" => Some(65_504.0),
                b"FP32" => Some(f64::from(f32::MAX)),
                b"FP64" => Some(f64::MAX),
                _ => None,
            };
            largest = Some(largest_of(value()?).ok_or("ERR invalid FPHA type")?);
            at += 1;
        } else {
            return Err(CommandError::Syntax);
        }
        at += 1;
    }
    Ok((condition, largest))
}

/// Parses the document of a long request before its shard is locked.
fn build(args: &Args<'_>, _: &Config, _: HashSeed, _: Now) -> Built {
    if args.len() < 4 {
        return Err(CommandError::Arity("json.set"));
    }
    detached_entry(args.get(1), args.get(3)).map_err(|error| error.to_string().into())
}

/// Checks that the numbers of arrays fit the type that FPHA names.
fn check_range(value: JsonRef<'_>, largest: f64) -> CommandResult {
    let is_beyond = |element: JsonRef<'_>| match element.view() {
        JsonView::Number(number) => number.as_f64().abs() > largest,
        _ => false,
    };
    if value.elements().any(is_beyond) {
        return Err("ERR value out of range".into());
    }
    for element in value.elements() {
        check_range(element, largest)?;
    }
    for (_, member) in value.members() {
        check_range(member, largest)?;
    }
    Ok(())
}

fn set(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    let (condition, largest) = options(args)?;
    let path = Path::of_places(args.get(2))?;
    let (key, scales) = (args.key(1), cx.scales());
    scales.weigh_bytes(args.get(3).len())?;
    let found = {
        let mut keyspace = cx.at(&key);
        let found = find_any(&mut keyspace, &key)?;
        if let Some(place) = found {
            super::weigh_search(scales, root(&keyspace, place))?;
        }
        found
    };
    let built = args.prepared().and_then(Prepared::take);
    let entry = built.unwrap_or_else(|| {
        detached_entry(key.bytes, args.get(3)).map_err(|error| error.to_string().into())
    })?;
    let value = JsonRef::of(entry.view());
    if let Some(largest) = largest {
        check_range(value, largest)?;
    }
    check_room(cx.config, 0, value.bytes().len())?;
    let stored = match (found, condition) {
        (None, Condition::Existing) => false,
        (Some(_), Condition::New) if path.is_root() => false,
        (None, _) if !path.is_root() => return Err(NEW_AT_ROOT.into()),
        _ if path.is_root() => {
            let mut keyspace = cx.at(&key);
            keyspace.put_document(&key, found, entry);
            keyspace.wrote(key.bytes, Event::new(CLASS, "json.set"));
            true
        }
        (None, _) => false,
        (Some(place), _) => {
            let value = value.bytes();
            let planned = plan(cx, &key, place, &path, condition, value)?;
            let mut keyspace = cx.at(&key);
            let done = planned.apply(&mut keyspace, place, value);
            if done > 0 {
                keyspace.wrote(key.bytes, Event::new(CLASS, "json.set"));
            }
            planned.places > 0 && done == planned.places
        }
    };
    match stored {
        true => out.ok(),
        false => out.null(),
    }
    Ok(())
}

/// The places at which a value is to be stored.
struct Plan {
    /// Offsets of the values to replace, or of the object to which a member is added.
    targets: Vec<usize>,
    /// The name of that member.
    name: Option<Box<[u8]>>,
    /// Number of places that the path has, with those where the value cannot be stored.
    places: usize,
}

const NOT_STATIC: &str = "ERR wrong static path";
const NO_INDEX: &str = "OUTOFBOUNDARIES array index out of range";

/// Finds the places of a value in a document.
fn plan(
    cx: &mut ShardCx<'_>,
    key: &basalt_engine::Key<'_>,
    place: EntrySlot,
    path: &Path,
    condition: Condition,
    value: &[u8],
) -> CommandResult<Plan> {
    let (len, planned) = {
        let keyspace = cx.at(key);
        let root = root(&keyspace, place);
        (root.bytes().len(), plan_in(root, path, condition)?)
    };
    let more = value.len().saturating_mul(planned.targets.len());
    check_room(cx.config, len, more)?;
    Ok(planned)
}

fn plan_in(root: JsonRef<'_>, path: &Path, condition: Condition) -> CommandResult<Plan> {
    if condition != Condition::New {
        let places = path.places(root, |_| true)?;
        if places.matches > 0 {
            let targets = outermost(root, &places.targets);
            return Ok(Plan {
                places: targets.len(),
                targets,
                name: None,
            });
        }
    }
    let nothing = |places| Plan {
        targets: Vec::new(),
        name: None,
        places,
    };
    if condition == Condition::Existing {
        return Ok(nothing(0));
    }
    let (last, before) = path
        .steps()
        .and_then(|steps| steps.split_last())
        .ok_or(NOT_STATIC)?;
    let DefiniteStep::Key(name) = last else {
        return match path.first(root)? {
            Some(_) => Ok(nothing(0)),
            None => Err(NO_INDEX.into()),
        };
    };
    let Some(parent) = follow(root, before) else {
        return Ok(nothing(0));
    };
    if parent.view() != JsonView::Object || parent.child(name).is_some() {
        return Ok(nothing(1));
    }
    Ok(Plan {
        targets: vec![parent.offset_in(root)],
        name: Some(name.clone()),
        places: 1,
    })
}

/// Returns the value at the end of some steps.
fn follow<'d>(root: JsonRef<'d>, steps: &[DefiniteStep]) -> Option<JsonRef<'d>> {
    steps.iter().try_fold(root, |value, step| match step {
        DefiniteStep::Key(name) => value.child(name),
        DefiniteStep::Index(index) => {
            let index = match usize::try_from(*index) {
                Ok(index) => index,
                Err(_) => value.len().checked_sub(index.unsigned_abs() as usize)?,
            };
            value.element(index)
        }
    })
}

impl Plan {
    /// Stores the value. Returns at how many places: it is left out where it would be too deep.
    fn apply(&self, keyspace: &mut Keyspace<'_>, place: EntrySlot, value: &[u8]) -> usize {
        let (depth, mut done) = (JsonRef::root(value).depth(), 0);
        change(keyspace, place, &self.targets, &mut |_, doc, spot| {
            let around = spot.depth() + usize::from(self.name.is_some());
            if around + depth <= DEPTH_MAX {
                match &self.name {
                    Some(name) => edit::push_member(doc, spot, name, value),
                    None => edit::replace(doc, spot, value),
                }
                done += 1;
            }
            Fate::Stays
        });
        done
    }
}

/// `JSON.MSET key path value [key path value ...]`
pub(super) static MSET: Command = Command::new("json.mset", Group::Json, -4)
    .writes(&[KeySpec::range(1, -1, 3, KeyFlags::RW.or(KeyFlags::UPDATE))])
    .flags(Flags::DENYOOM)
    .doc(
        "2.6.0",
        "<key path value> [key path value ...]",
        "Stores several documents, or values at the matches of paths in them, in one step.",
    )
    .complexity("O(N) where N is the size of all old and new values.")
    .takes_long()
    .on_keys(mset);

fn mset(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    if !(args.len() - 1).is_multiple_of(3) {
        return Err(CommandError::Arity("json.mset"));
    }
    let scales = cx.scales();
    let mut bytes = 0;
    let mut triplets = Vec::with_capacity((args.len() - 1) / 3);
    for at in (1..args.len()).step_by(3) {
        bytes += args.get(at + 2).len();
        scales.weigh_bytes(bytes)?;
        let path = Path::of_places(args.get(at + 1))?;
        let key = args.key(at);
        let found = {
            let mut keyspace = cx.at(&key);
            find_any(&mut keyspace, &key)?
        };
        let value = parse(args.get(at + 2))?;
        check_room(cx.config, 0, value.len())?;
        match found {
            _ if path.is_root() => {}
            None => return Err(NEW_AT_ROOT.into()),
            Some(place) => {
                plan(cx, &key, place, &path, Condition::Always, &value)?;
            }
        }
        triplets.push((at, path, value));
    }
    let mut all_stored = true;
    for (at, path, value) in triplets {
        let key = args.key(at);
        if path.is_root() {
            let entry = detached_entry(key.bytes, args.get(at + 2))
                .map_err(|error| CommandError::from(error.to_string()))?;
            let mut keyspace = cx.at(&key);
            let found = find_any(&mut keyspace, &key)?;
            keyspace.put_document(&key, found, entry);
            keyspace.wrote(key.bytes, Event::new(CLASS, "json.mset"));
            continue;
        }
        let mut keyspace = cx.at(&key);
        let planned = match find_any(&mut keyspace, &key)? {
            // An earlier triplet may have changed where the path leads.
            Some(place) => {
                let planned = plan_in(root(&keyspace, place), &path, Condition::Always);
                planned.ok().map(|planned| (place, planned))
            }
            None => None,
        };
        let Some((place, planned)) = planned else {
            all_stored = false;
            continue;
        };
        let done = planned.apply(&mut keyspace, place, &value);
        if done > 0 {
            keyspace.wrote(key.bytes, Event::new(CLASS, "json.mset"));
        }
        all_stored &= planned.places > 0 && done == planned.places;
    }
    match all_stored {
        true => out.ok(),
        false => out.null(),
    }
    Ok(())
}

/// `JSON.MERGE key path value`
pub(super) static MERGE: Command = Command::new("json.merge", Group::Json, -4)
    .writes(CHANGED_KEY)
    .flags(Flags::DENYOOM)
    .doc(
        "2.6.0",
        "key path value",
        "Merges a value into those at the matches of a path: members that are null remove others.",
    )
    .complexity("O(N) where N is the size of the document and of the value.")
    .takes_long()
    .on_keys(merge);

fn merge(cx: &mut ShardCx<'_>, args: &Args<'_>, out: &mut Out) -> CommandResult {
    match args.len() {
        4 => {}
        6 if args.is(4, "format") => {}
        _ => return Err(CommandError::Syntax),
    }
    let path = Path::of_places(args.get(2))?;
    let (key, scales) = (args.key(1), cx.scales());
    scales.weigh_bytes(args.get(3).len())?;
    let found = {
        let mut keyspace = cx.at(&key);
        let found = find_any(&mut keyspace, &key)?;
        if let Some(place) = found {
            scales.weigh_bytes(root(&keyspace, place).bytes().len())?;
        }
        found
    };
    let patch = parse(args.get(3))?;
    check_room(cx.config, 0, patch.len())?;
    let event = Event::new(CLASS, "json.merge");
    let Some(place) = found else {
        if !path.is_root() {
            return Err(NEW_AT_ROOT.into());
        }
        let entry = detached_entry(key.bytes, args.get(3))
            .map_err(|error| CommandError::from(error.to_string()))?;
        let mut keyspace = cx.at(&key);
        keyspace.put_document(&key, None, entry);
        keyspace.wrote(key.bytes, event);
        out.ok();
        return Ok(());
    };
    let (len, planned) = {
        let keyspace = cx.at(&key);
        let root = root(&keyspace, place);
        let matches = path.places(root, |_| true)?;
        let planned = match matches.matches {
            0 => plan_in(root, &path, Condition::New)?,
            places => Plan {
                targets: matches.targets.into_vec(),
                name: None,
                places,
            },
        };
        (root.bytes().len(), planned)
    };
    check_room(
        cx.config,
        len,
        patch.len().saturating_mul(planned.targets.len()),
    )?;
    let mut keyspace = cx.at(&key);
    let done = match planned.name {
        Some(_) => planned.apply(&mut keyspace, place, &patch),
        None => merge_into(&mut keyspace, place, &planned.targets, &patch),
    };
    match done {
        0 if path.is_root() => return Err(DEEP.into()),
        0 => out.null(),
        _ => {
            keyspace.wrote(key.bytes, event);
            out.ok();
        }
    }
    Ok(())
}

/// Merges a patch into the values at some offsets. Returns into how many: those that would become too deep stay.
fn merge_into(
    keyspace: &mut Keyspace<'_>,
    place: EntrySlot,
    targets: &[usize],
    patch: &[u8],
) -> usize {
    let mut done = 0;
    let mut apply = |_: usize, doc: &mut dyn Splice, spot: &Spot| {
        let mut value = JsonRef::root(&doc.bytes()[spot.at..]).bytes().to_vec();
        edit::merge(&mut value, patch);
        if spot.depth() + JsonRef::root(&value).depth() <= DEPTH_MAX {
            edit::replace(doc, spot, &value);
            done += 1;
        }
        Fate::Stays
    };
    change(keyspace, place, targets, &mut apply);
    done
}
