//! Members within a circle, a rectangle or a polygon.
//!
//! The four forms of GEORADIUS give the shape by position, GEOSEARCH and GEOSEARCHSTORE by words. All parse their
//! arguments in the same order as Redis, as the first mistake is the one that is reported: first the arguments at
//! fixed positions, then the options one by one, then conflicts among them.

use super::{point, point_of_member, point_of_score, reply_distance, reply_point, unit_m};
use crate::command::Args;
use crate::command::Out;
use crate::command::context::{Scales, ShardCx};
use crate::command::declaration::{
    Command, CommandResult, FindKeys, Flags, Group, KeyFlags, KeySpec,
};
use crate::command::element::reply_element;
use crate::command::error::{CommandError, shown};
use crate::command::sorted_set::{event, log_members, read, store};
use basalt_core::base::number;
use basalt_core::structures::geohash::{Extent, Point, Polygon, Shape};
use basalt_core::structures::listpack::Element;
use basalt_core::structures::ordered::Direction;
use basalt_engine::value::sorted_set::SortedSet;

/// The form of the command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GeoSearchCommand {
    /// GEORADIUS: around given coordinates.
    Coordinates,
    /// GEORADIUSBYMEMBER: around the position of a member.
    Member,
    /// GEOSEARCH.
    Search,
    /// GEOSEARCHSTORE.
    SearchStore,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GeoSortOrder {
    AsFound,
    NearestFirst,
    FarthestFirst,
}

/// A request being parsed.
struct GeoSearch {
    center: Option<Point>,
    extent: Option<Extent>,
    /// The polygon to search in, in place of centre and extent.
    polygon: Option<Polygon>,
    unit_m: f64,
    order: GeoSortOrder,
    /// Maximum number of members to return; 0 for all.
    count: usize,
    /// Whether any matching members will do (ANY), not only the nearest.
    any: bool,
    with_distance: bool,
    with_hash: bool,
    with_coordinates: bool,
    /// Index of the key to store the result at, and whether distances are stored instead of positions.
    destination: Option<usize>,
    stores_distances: bool,
}

/// A member that was found.
struct GeoMatch<'a> {
    member: Element<'a>,
    score: f64,
    point: Point,
    distance_m: f64,
}

fn radius(args: &Args<'_>, at: usize) -> Result<(Extent, f64), CommandError> {
    let radius = number::parse_f64(args.get(at)).ok_or("ERR need numeric radius")?;
    if radius < 0.0 {
        return Err("ERR radius cannot be negative".into());
    }
    let unit_m = unit_m(args.get(at + 1))?;
    let radius_m = radius * unit_m;
    Ok((Extent::Circle { radius_m }, unit_m))
}

fn rectangle(args: &Args<'_>, at: usize) -> Result<(Extent, f64), CommandError> {
    let width = number::parse_f64(args.get(at)).ok_or("ERR need numeric width")?;
    let height = number::parse_f64(args.get(at + 1)).ok_or("ERR need numeric height")?;
    if width < 0.0 || height < 0.0 {
        return Err("ERR height or width cannot be negative".into());
    }
    let unit_m = unit_m(args.get(at + 2))?;
    let (width_m, height_m) = (width * unit_m, height * unit_m);
    Ok((Extent::Box { width_m, height_m }, unit_m))
}

/// The parts of the search area that were given so far.
#[derive(Default)]
struct AreaOptions {
    from_member: bool,
    from_point: bool,
    by_radius: bool,
    by_box: bool,
    by_polygon: bool,
}

/// Parses a polygon after its keyword: the number of its corners, and each corner. Returns the polygon and the number
/// of arguments.
fn polygon(args: &Args<'_>, at: usize) -> Result<(Polygon, usize), CommandError> {
    let count = number::parse_i64(args.get(at))
        .and_then(|count| i32::try_from(count).ok())
        .and_then(|count| usize::try_from(count).ok())
        .ok_or("ERR invalid number of vertices")?;
    let too_few = || {
        let name = shown(args.get(0)).to_uppercase();
        CommandError::from(format!(
            "ERR {name} BYPOLYGON must have at least 3 vertices"
        ))
    };
    let more = args.len() - at - 1;
    if count < 3 || count > more / 2 {
        return Err(too_few());
    }
    let corners = (0..count).map(|corner| point(args, at + 1 + 2 * corner));
    let corners: Result<Vec<Point>, CommandError> = corners.collect();
    let polygon = Polygon::new(corners?).ok_or_else(too_few)?;
    Ok((polygon, 1 + 2 * count))
}

/// Returns the position of a member that a command names. If the set does not exist, the name is not checked.
fn center_of(
    set: Option<SortedSet<'_>>,
    args: &Args<'_>,
    at: usize,
) -> Result<Option<Point>, CommandError> {
    let Some(set) = set else {
        return Ok(None);
    };
    match point_of_member(set, args.get(at)) {
        Some(point) => Ok(Some(point)),
        None => Err("ERR could not decode requested zset member".into()),
    }
}

impl GeoSearch {
    fn parse(
        args: &Args<'_>,
        form: GeoSearchCommand,
        may_store: bool,
        set: Option<SortedSet<'_>>,
    ) -> Result<GeoSearch, CommandError> {
        let mut request = GeoSearch {
            center: None,
            extent: None,
            polygon: None,
            unit_m: 1.0,
            order: GeoSortOrder::AsFound,
            count: 0,
            any: false,
            with_distance: false,
            with_hash: false,
            with_coordinates: false,
            destination: (form == GeoSearchCommand::SearchStore).then_some(1),
            stores_distances: false,
        };
        let options_at = match form {
            GeoSearchCommand::Coordinates => {
                request.center = Some(point(args, 2)?);
                request.set_extent(radius(args, 4)?);
                6
            }
            GeoSearchCommand::Member => {
                request.center = center_of(set, args, 2)?;
                if set.is_some() {
                    request.set_extent(radius(args, 3)?);
                }
                5
            }
            GeoSearchCommand::Search => 2,
            GeoSearchCommand::SearchStore => 3,
        };
        let is_search = matches!(
            form,
            GeoSearchCommand::Search | GeoSearchCommand::SearchStore
        );
        let mut area = AreaOptions::default();
        let mut at = options_at;
        while at < args.len() {
            let taken = match request.read_option(args, at)? {
                None if is_search => request.read_area(args, at, &mut area, set)?,
                taken => taken,
            };
            let taken = taken.or_else(|| request.parse_store_option(args, at, form, may_store));
            at += 1 + taken.ok_or(CommandError::Syntax)?;
        }
        request.check(form)?;
        if area.by_polygon && (area.from_member || area.from_point) {
            return Err(CommandError::Syntax);
        }
        if is_search && !(area.from_member || area.from_point || area.by_polygon) {
            return Err(exactly_one("FROMMEMBER or FROMLONLAT", args));
        }
        if is_search && !(area.by_radius || area.by_box || area.by_polygon) {
            return Err(exactly_one("BYRADIUS and BYBOX", args));
        }
        if request.any && request.count == 0 {
            return Err("ERR the ANY argument requires COUNT argument".into());
        }
        if request.count > 0 && request.order == GeoSortOrder::AsFound && !request.any {
            request.order = GeoSortOrder::NearestFirst;
        }
        Ok(request)
    }

    /// Parses an option that all forms have. Returns the number of arguments after its keyword.
    fn read_option(&mut self, args: &Args<'_>, at: usize) -> Result<Option<usize>, CommandError> {
        if args.is(at, "withdist") {
            self.with_distance = true;
        } else if args.is(at, "withhash") {
            self.with_hash = true;
        } else if args.is(at, "withcoord") {
            self.with_coordinates = true;
        } else if args.is(at, "any") {
            self.any = true;
        } else if args.is(at, "asc") {
            self.order = GeoSortOrder::NearestFirst;
        } else if args.is(at, "desc") {
            self.order = GeoSortOrder::FarthestFirst;
        } else if args.is(at, "count") && at + 1 < args.len() {
            let count = args.integer(at + 1)?;
            self.count = usize::try_from(count)
                .ok()
                .filter(|count| *count > 0)
                .ok_or("ERR COUNT must be > 0")?;
            return Ok(Some(1));
        } else {
            return Ok(None);
        }
        Ok(Some(0))
    }

    /// Parses a keyword of the search area, for the forms that give it by keywords. Returns the number of arguments
    /// after the keyword.
    fn read_area(
        &mut self,
        args: &Args<'_>,
        at: usize,
        area: &mut AreaOptions,
        set: Option<SortedSet<'_>>,
    ) -> Result<Option<usize>, CommandError> {
        let more = args.len() - at - 1;
        if more >= 1 && !area.by_radius && !area.by_box && args.is(at, "bypolygon") {
            let (polygon, taken) = polygon(args, at + 1)?;
            self.polygon = Some(polygon);
            area.by_polygon = true;
            return Ok(Some(taken));
        }
        if area.by_polygon && (args.is(at, "byradius") || args.is(at, "bybox")) {
            return Err(CommandError::Syntax);
        }
        let taken = if more >= 1 && !area.from_point && args.is(at, "frommember") {
            self.center = center_of(set, args, at + 1)?;
            area.from_member = true;
            1
        } else if more >= 2 && !area.from_member && args.is(at, "fromlonlat") {
            self.center = Some(point(args, at + 1)?);
            area.from_point = true;
            2
        } else if more >= 2 && !area.by_box && args.is(at, "byradius") {
            self.set_extent(radius(args, at + 1)?);
            area.by_radius = true;
            2
        } else if more >= 3 && !area.by_radius && args.is(at, "bybox") {
            self.set_extent(rectangle(args, at + 1)?);
            area.by_box = true;
            3
        } else {
            return Ok(None);
        };
        Ok(Some(taken))
    }

    /// Parses STORE or STOREDIST, if it is given here. Returns the number of arguments after the keyword.
    fn parse_store_option(
        &mut self,
        args: &Args<'_>,
        at: usize,
        form: GeoSearchCommand,
        may_store: bool,
    ) -> Option<usize> {
        let by_distance = args.is(at, "storedist");
        if form == GeoSearchCommand::SearchStore && by_distance {
            self.stores_distances = true;
            return Some(0);
        }
        let names_destination = matches!(
            form,
            GeoSearchCommand::Coordinates | GeoSearchCommand::Member
        ) && may_store
            && at + 1 < args.len()
            && (by_distance || args.is(at, "store"));
        names_destination.then(|| {
            (self.destination, self.stores_distances) = (Some(at + 1), by_distance);
            1
        })
    }

    /// Checks that a stored result is not requested with fields that cannot be stored.
    fn check(&self, form: GeoSearchCommand) -> Result<(), CommandError> {
        let shows_more = self.with_distance || self.with_hash || self.with_coordinates;
        if self.destination.is_none() || !shows_more {
            return Ok(());
        }
        let what = match form {
            GeoSearchCommand::SearchStore => "GEOSEARCHSTORE",
            _ => "STORE option in GEORADIUS",
        };
        Err(
            format!("ERR {what} is not compatible with WITHDIST, WITHHASH and WITHCOORD options")
                .into(),
        )
    }

    fn set_extent(&mut self, (extent, unit_m): (Extent, f64)) {
        self.extent = Some(extent);
        self.unit_m = unit_m;
    }

    /// Returns the members in the shape, in the requested order and number.
    fn run<'a>(
        &self,
        set: SortedSet<'a>,
        scales: Option<Scales>,
    ) -> Result<Vec<GeoMatch<'a>>, CommandError> {
        let mut found = match (&self.polygon, self.center, self.extent) {
            (Some(polygon), _, _) => {
                let (center, ranges) = (polygon.center(), polygon.ranges());
                let looked_at = ranges.iter().map(|(first, end)| {
                    let rank = |number: u64| set.rank_by_score(|score| score < number as f64);
                    rank(*end) - rank(*first)
                });
                // Testing one side of a polygon costs as much as an eighth of an element.
                let looked_at: usize = looked_at.sum();
                let sides = looked_at.saturating_mul(polygon.corners());
                scales.map_or(Ok(()), |scales| scales.weigh(sides / 8))?;
                self.within(set, ranges, |point| {
                    polygon.holds(point).then(|| center.distance_m(point))
                })
            }
            (None, Some(center), Some(extent)) => {
                let shape = Shape { center, extent };
                self.within(set, shape.ranges(), |point| shape.distance_m(point))
            }
            _ => Vec::new(),
        };
        let nearer =
            |one: &GeoMatch<'_>, two: &GeoMatch<'_>| one.distance_m.total_cmp(&two.distance_m);
        match self.order {
            GeoSortOrder::AsFound => {}
            GeoSortOrder::NearestFirst => found.sort_by(nearer),
            GeoSortOrder::FarthestFirst => found.sort_by(|one, two| nearer(two, one)),
        }
        if self.count > 0 {
            found.truncate(self.count);
        }
        Ok(found)
    }

    /// Returns the members of ranges for which `distance_m` returns a distance, in the order in which they are found.
    fn within<'a>(
        &self,
        set: SortedSet<'a>,
        ranges: Vec<(u64, u64)>,
        distance_m: impl Fn(Point) -> Option<f64>,
    ) -> Vec<GeoMatch<'a>> {
        let enough = if self.any { self.count } else { usize::MAX };
        let mut found = Vec::new();
        for (first, end) in ranges {
            let from = set.rank_by_score(|score| score < first as f64);
            for (member, score) in set.range(from, usize::MAX, Direction::Ascending) {
                if score >= end as f64 {
                    break;
                }
                let point = point_of_score(score);
                if let Some(distance_m) = distance_m(point) {
                    found.push(GeoMatch {
                        member,
                        score,
                        point,
                        distance_m,
                    });
                    if found.len() >= enough {
                        return found;
                    }
                }
            }
        }
        found
    }

    fn reply(&self, found: &[GeoMatch<'_>], out: &mut Out) {
        let flags = [self.with_distance, self.with_hash, self.with_coordinates];
        let more = flags.iter().filter(|is_shown| **is_shown).count();
        out.array(found.len());
        for found in found {
            if more > 0 {
                out.array(1 + more);
            }
            reply_element(found.member, out);
            if self.with_distance {
                reply_distance(found.distance_m / self.unit_m, out);
            }
            if self.with_hash {
                out.integer(found.score as i64);
            }
            if self.with_coordinates {
                reply_point(found.point, out);
            }
        }
    }
}

#[cold]
fn exactly_one(what: &str, args: &Args<'_>) -> CommandError {
    let name = shown(args.get(0));
    format!("ERR exactly one of {what} can be specified for {name}").into()
}

fn search(
    cx: &mut ShardCx<'_>,
    args: &Args<'_>,
    out: &mut Out,
    form: GeoSearchCommand,
    may_store: bool,
) -> CommandResult {
    let source = args.key(if form == GeoSearchCommand::SearchStore {
        2
    } else {
        1
    });
    let is_search = matches!(
        form,
        GeoSearchCommand::Search | GeoSearchCommand::SearchStore
    );
    let scales = is_search.then(|| cx.scales());
    let mut keyspace = cx.at(&source);
    let set = read(&mut keyspace, &source)?;
    let request = GeoSearch::parse(args, form, may_store, set)?;
    let found = match set {
        Some(set) => request.run(set, scales)?,
        None => Vec::new(),
    };
    let Some(destination) = request.destination else {
        request.reply(&found, out);
        return Ok(());
    };
    // If several targets are given, the first of each kind is a declared key.
    if !args
        .keys()
        .iter()
        .any(|key| key.argument as usize == destination)
    {
        return Err(CommandError::Syntax);
    }
    let members = found.iter().map(|found| {
        let score = match request.stores_distances {
            true => found.distance_m / request.unit_m,
            false => found.score,
        };
        (found.member.to_vec(), score)
    });
    let members = members.collect();
    if request.polygon.is_some() {
        log_members(cx, &args.key(destination), &members);
    }
    let event = match form {
        GeoSearchCommand::SearchStore => event("geosearchstore"),
        _ => event("georadiusstore"),
    };
    store(cx, &args.key(destination), members, event, out);
    Ok(())
}

const ONE: FindKeys = FindKeys::Range {
    last: 0,
    step: 1,
    limit: 0,
};
const STORED: KeyFlags = KeyFlags::OW.or(KeyFlags::UPDATE);
const COST: &str =
    "O(N+log(M)) for N members in the cells around the shape, M in it or in the set.";
const HISTORY: &[(&str, &str)] = &[
    ("6.2.0", "New option of `COUNT`: `ANY`."),
    ("7.0.0", "Units may be written in capitals."),
];

const SEARCH_HISTORY: &[(&str, &str)] = &[
    ("7.0.0", "Units may be written in capitals."),
    ("9.0.0", "New option, as in Valkey: `BYPOLYGON`."),
];

/// `GEOSEARCH key <FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS … | BYBOX …> …`
pub(super) static GEOSEARCH: Command = Command::new("geosearch", Group::Geo, -7)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "6.2.0",
        "key [FROMMEMBER member | FROMLONLAT longitude latitude] \
         <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI> | \
         BYPOLYGON <num-vertices:integer longitude latitude [longitude latitude ...]>> \
         [ASC | DESC] [COUNT count [ANY]] [WITHCOORD] [WITHDIST] [WITHHASH]",
        "Returns the members within a circle, a rectangle or a polygon.",
    )
    .complexity(COST)
    .history(SEARCH_HISTORY)
    .takes_long()
    .on_keys(|cx, args, out| search(cx, args, out, GeoSearchCommand::Search, false));

/// `GEOSEARCHSTORE destination source <FROMMEMBER … | FROMLONLAT …> <BYRADIUS … | BYBOX …> …`
pub(super) static GEOSEARCHSTORE: Command = Command::new("geosearchstore", Group::Geo, -8)
    .writes(&[
        KeySpec::one(1, STORED),
        KeySpec::one(2, KeyFlags::RO.or(KeyFlags::ACCESS)),
    ])
    .flags(Flags::DENYOOM)
    .doc(
        "6.2.0",
        "destination source [FROMMEMBER member | FROMLONLAT longitude latitude] \
         <BYRADIUS radius <M | KM | FT | MI> | BYBOX width height <M | KM | FT | MI> | \
         BYPOLYGON <num-vertices:integer longitude latitude [longitude latitude ...]>> \
         [ASC | DESC] [COUNT count [ANY]] [STOREDIST]",
        "Stores the members within a circle, a rectangle or a polygon.",
    )
    .complexity(COST)
    .history(SEARCH_HISTORY)
    .takes_long()
    .on_keys(|cx, args, out| search(cx, args, out, GeoSearchCommand::SearchStore, true));

/// `GEORADIUS key longitude latitude radius <M | KM | FT | MI> … [STORE storekey | STOREDIST storedistkey]`
pub(super) static GEORADIUS: Command = Command::new("georadius", Group::Geo, -6)
    .writes(&[
        KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
        KeySpec::one(0, STORED).after_keyword("STORE", 6).find(ONE),
        KeySpec::one(0, STORED)
            .after_keyword("STOREDIST", 6)
            .find(ONE),
    ])
    .flags(Flags::DENYOOM.or(Flags::MOVABLEKEYS))
    .doc(
        "3.2.0",
        "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
         [COUNT count [ANY]] [ASC | DESC] [STORE storekey:key | STOREDIST storedistkey:key]",
        "Returns or stores the members within a radius of a position.",
    )
    .complexity(COST)
    .history(HISTORY)
    .deprecated(
        "6.2.0",
        "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` argument",
    )
    .on_keys(|cx, args, out| search(cx, args, out, GeoSearchCommand::Coordinates, true));

/// `GEORADIUS_RO key longitude latitude radius <M | KM | FT | MI> …`
pub(super) static GEORADIUS_RO: Command = Command::new("georadius_ro", Group::Geo, -6)
    .reads(KeySpec::FIRST_READ)
    .doc(
        "3.2.10",
        "key longitude latitude radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
         [COUNT count [ANY]] [ASC | DESC]",
        "Returns the members within a radius of a position.",
    )
    .complexity(COST)
    .history(&[("6.2.0", "New option of `COUNT`: `ANY`.")])
    .deprecated("6.2.0", "`GEOSEARCH` with the `BYRADIUS` argument")
    .on_keys(|cx, args, out| search(cx, args, out, GeoSearchCommand::Coordinates, false));

/// `GEORADIUSBYMEMBER key member radius <M | KM | FT | MI> … [STORE storekey | STOREDIST storedistkey]`
pub(super) static GEORADIUSBYMEMBER: Command = Command::new("georadiusbymember", Group::Geo, -5)
    .writes(&[
        KeySpec::one(1, KeyFlags::RO.or(KeyFlags::ACCESS)),
        KeySpec::one(0, STORED).after_keyword("STORE", 5).find(ONE),
        KeySpec::one(0, STORED)
            .after_keyword("STOREDIST", 5)
            .find(ONE),
    ])
    .flags(Flags::DENYOOM.or(Flags::MOVABLEKEYS))
    .doc(
        "3.2.0",
        "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
         [COUNT count [ANY]] [ASC | DESC] [STORE storekey:key | STOREDIST storedistkey:key]",
        "Returns or stores the members within a radius of a member.",
    )
    .complexity(COST)
    .history(HISTORY)
    .deprecated(
        "6.2.0",
        "`GEOSEARCH` and `GEOSEARCHSTORE` with the `BYRADIUS` and `FROMMEMBER` arguments",
    )
    .on_keys(|cx, args, out| search(cx, args, out, GeoSearchCommand::Member, true));

/// `GEORADIUSBYMEMBER_RO key member radius <M | KM | FT | MI> …`
pub(super) static GEORADIUSBYMEMBER_RO: Command =
    Command::new("georadiusbymember_ro", Group::Geo, -5)
        .reads(KeySpec::FIRST_READ)
        .doc(
            "3.2.10",
            "key member radius <M | KM | FT | MI> [WITHCOORD] [WITHDIST] [WITHHASH] \
             [COUNT count [ANY]] [ASC | DESC]",
            "Returns the members within a radius of a member.",
        )
        .complexity(COST)
        .deprecated(
            "6.2.0",
            "`GEOSEARCH` with the `BYRADIUS` and `FROMMEMBER` arguments",
        )
        .on_keys(|cx, args, out| search(cx, args, out, GeoSearchCommand::Member, false));
