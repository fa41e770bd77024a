//! Places on the globe as numbers whose order keeps near places near, and shapes that are searched for.
//!
//! Longitude and latitude are each divided into 2^26 steps; their bits take turns, so that a number of
//! 52 bits names a cell of less than a metre, and its leading bits name the larger cells around it:
//!
//! ```text
//! longitude   x25   x24   …   x0
//! latitude       y25   y24  …   y0
//! number      x25 y25 x24 y24 … x0 y0
//! ```
//!
//! All places of a larger cell are a range of numbers. A shape is covered by the cell around its centre,
//! so large that the shape ends within the eight cells around that. Latitudes end at 85.05 degrees,
//! where the map of Mercator is square. It knows nothing of who is at the places.

/// The greatest longitude, and less its sign the least.
pub const LONGITUDE_MAX: f64 = 180.0;
/// The greatest latitude, and less its sign the least.
pub const LATITUDE_MAX: f64 = 85.051_128_78;

/// The finest division.
const STEPS_MAX: u32 = 26;

const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Half the circumference on Mercator's map.
const MERCATOR_MAX_M: f64 = 20_037_726.37;

/// A place.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// In degrees.
    pub longitude: f64,
    /// In degrees.
    pub latitude: f64,
}

/// What is searched, around a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// All within this distance.
    Circle {
        /// In metres.
        radius_m: f64,
    },
    /// All within a rectangle of these sides.
    Box {
        /// From west to east, in metres.
        width_m: f64,
        /// From south to north, in metres.
        height_m: f64,
    },
}

/// A part of the globe that is searched.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The middle of the shape.
    pub center: Point,
    /// How far it goes.
    pub extent: Extent,
}

/// The extremes of an area, in degrees.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    west: f64,
    east: f64,
    south: f64,
    north: f64,
}

/// A cell of a division into 2^`steps` columns and rows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Cell {
    column: u32,
    row: u32,
    steps: u32,
}

/// Puts a zero bit before each bit of a number.
fn spread(bits: u32) -> u64 {
    let mut wide = u64::from(bits);
    wide = (wide | wide << 16) & 0x0000_ffff_0000_ffff;
    wide = (wide | wide << 8) & 0x00ff_00ff_00ff_00ff;
    wide = (wide | wide << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    wide = (wide | wide << 2) & 0x3333_3333_3333_3333;
    (wide | wide << 1) & 0x5555_5555_5555_5555
}

/// Every other bit of a number, the lowest among them.
fn gather(wide: u64) -> u32 {
    let mut bits = wide & 0x5555_5555_5555_5555;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
    (bits | bits >> 16) as u32
}

impl Cell {
    /// The cell around a point, of a map that ends at some latitude.
    fn around(point: Point, steps: u32, latitude_max: f64) -> Cell {
        let cells = f64::from(1_u32 << steps);
        let share = |value: f64, max: f64| (value + max) / (max + max);
        Cell {
            column: (share(point.longitude, LONGITUDE_MAX) * cells) as u32,
            row: (share(point.latitude, latitude_max) * cells) as u32,
            steps,
        }
    }

    fn of_number(number: u64, steps: u32) -> Cell {
        Cell {
            column: gather(number >> 1),
            row: gather(number),
            steps,
        }
    }

    fn number(self) -> u64 {
        spread(self.column) << 1 | spread(self.row)
    }

    fn bounds(self) -> Bounds {
        let cells = f64::from(1_u32 << self.steps);
        let at = |index: f64, max: f64| -max + (index / cells) * (max + max);
        let (column, row) = (f64::from(self.column), f64::from(self.row));
        Bounds {
            west: at(column, LONGITUDE_MAX),
            east: at(column + 1.0, LONGITUDE_MAX),
            south: at(row, LATITUDE_MAX),
            north: at(row + 1.0, LATITUDE_MAX),
        }
    }

    /// The cell some columns to the east and rows to the north; the map has no edges.
    fn neighbour(self, columns: i32, rows: i32) -> Cell {
        let mask = (1 << self.steps) - 1;
        let moved = |index: u32, by: i32| match by {
            0 => index,
            by => index.wrapping_add_signed(by) & mask,
        };
        Cell {
            column: moved(self.column, columns),
            row: moved(self.row, rows),
            steps: self.steps,
        }
    }

    /// The finest numbers of the places within: from the first up to but not including the second.
    fn numbers(self) -> (u64, u64) {
        let shift = 2 * (STEPS_MAX - self.steps);
        let number = self.number();
        (number << shift, (number + 1) << shift)
    }
}

impl Point {
    /// A point that is on the map.
    #[must_use]
    pub fn new(longitude: f64, latitude: f64) -> Option<Point> {
        let is_on_map = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        is_on_map.then_some(Point {
            longitude,
            latitude,
        })
    }

    /// The number of the finest cell around the point.
    #[must_use]
    pub fn number(self) -> u64 {
        Cell::around(self, STEPS_MAX, LATITUDE_MAX).number()
    }

    /// The middle of the finest cell with a number.
    #[must_use]
    pub fn of_number(number: u64) -> Point {
        let bounds = Cell::of_number(number, STEPS_MAX).bounds();
        let middle = |one: f64, two: f64, max: f64| ((one + two) / 2.0).clamp(-max, max);
        Point {
            longitude: middle(bounds.west, bounds.east, LONGITUDE_MAX),
            latitude: middle(bounds.south, bounds.north, LATITUDE_MAX),
        }
    }

    /// The text by which the point is known elsewhere, in eleven letters, of which the last says nothing.
    #[must_use]
    pub fn text(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        /// Elsewhere the map goes to the poles.
        const POLE: f64 = 90.0;
        let number = Cell::around(self, STEPS_MAX, POLE).number();
        std::array::from_fn(|at| match at {
            10 => LETTERS[0],
            at => LETTERS[(number >> (47 - 5 * at)) as usize & 31],
        })
    }

    /// The distance along the surface, in metres.
    #[must_use]
    pub fn distance_m(self, other: Point) -> f64 {
        let half_sine = |one: f64, two: f64| ((radians(two) - radians(one)) / 2.0).sin();
        let across = half_sine(self.longitude, other.longitude);
        if across == 0.0 {
            return distance_of_latitudes_m(self.latitude, other.latitude);
        }
        let (one, two) = (radians(self.latitude), radians(other.latitude));
        let up = ((two - one) / 2.0).sin();
        let haversine = up * up + one.cos() * two.cos() * across * across;
        2.0 * EARTH_RADIUS_M * haversine.sqrt().asin()
    }
}

const RADIAN: f64 = std::f64::consts::PI / 180.0;

fn radians(degrees: f64) -> f64 {
    degrees * RADIAN
}

fn degrees(radians: f64) -> f64 {
    radians / RADIAN
}

fn distance_of_latitudes_m(one: f64, two: f64) -> f64 {
    EARTH_RADIUS_M * (radians(two) - radians(one)).abs()
}

impl Shape {
    /// The distance of a point from the centre in metres, if the point is within.
    #[must_use]
    pub fn distance_m(&self, point: Point) -> Option<f64> {
        match self.extent {
            Extent::Circle { radius_m } => {
                let distance_m = self.center.distance_m(point);
                (distance_m <= radius_m).then_some(distance_m)
            }
            Extent::Box { width_m, height_m } => {
                let up_m = distance_of_latitudes_m(point.latitude, self.center.latitude);
                if up_m > height_m / 2.0 {
                    return None;
                }
                let beside = Point {
                    longitude: self.center.longitude,
                    latitude: point.latitude,
                };
                if point.distance_m(beside) > width_m / 2.0 {
                    return None;
                }
                Some(self.center.distance_m(point))
            }
        }
    }

    /// The extremes of the shape. Parallels are shorter towards the poles, so the side that is nearer to one says how
    /// many degrees the shape is wide.
    fn bounds(&self) -> Bounds {
        let (half_width_m, half_height_m) = match self.extent {
            Extent::Circle { radius_m } => (radius_m, radius_m),
            Extent::Box { width_m, height_m } => (width_m / 2.0, height_m / 2.0),
        };
        let Point {
            longitude,
            latitude,
        } = self.center;
        let up = degrees(half_height_m / EARTH_RADIUS_M);
        let nearer_pole = if latitude < 0.0 {
            latitude - up
        } else {
            latitude + up
        };
        let across = degrees(half_width_m / EARTH_RADIUS_M / radians(nearer_pole).cos());
        Bounds {
            west: longitude - across,
            east: longitude + across,
            south: latitude - up,
            north: latitude + up,
        }
    }

    /// How fine cells may be for nine of them to cover the shape, at a first guess.
    fn steps(&self) -> u32 {
        let mut reach_m = match self.extent {
            Extent::Circle { radius_m } => radius_m,
            Extent::Box { width_m, height_m } => (width_m / 2.0).hypot(height_m / 2.0),
        };
        if reach_m == 0.0 {
            return STEPS_MAX;
        }
        let mut steps = 1_i32;
        while reach_m < MERCATOR_MAX_M {
            reach_m *= 2.0;
            steps += 1;
        }
        // The shape is seldom in the middle of its cell.
        steps -= 2;
        let latitude = self.center.latitude.abs();
        steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        steps.clamp(1, STEPS_MAX as i32) as u32
    }

    /// Ranges of numbers that hold all places of the shape, and others: each from its first up to but not including
    /// its second, none twice.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let bounds = self.bounds();
        let mut cell = Cell::around(self.center, self.steps(), LATITUDE_MAX);
        let is_too_small = |cell: Cell| {
            cell.neighbour(0, 1).bounds().north < bounds.north
                || cell.neighbour(0, -1).bounds().south > bounds.south
                || cell.neighbour(1, 0).bounds().east < bounds.east
                || cell.neighbour(-1, 0).bounds().west > bounds.west
        };
        if cell.steps > 1 && is_too_small(cell) {
            cell = Cell::around(self.center, cell.steps - 1, LATITUDE_MAX);
        }
        // Neighbours on a side where the shape ends within the cell hold nothing of it.
        let own = cell.bounds();
        let may_skip = cell.steps >= 2;
        let skips = |columns: i32, rows: i32| {
            may_skip
                && ((rows < 0 && own.south < bounds.south)
                    || (rows > 0 && own.north > bounds.north)
                    || (columns < 0 && own.west < bounds.west)
                    || (columns > 0 && own.east > bounds.east))
        };
        let mut cells: Vec<Cell> = Vec::with_capacity(AROUND.len());
        for (columns, rows) in AROUND {
            let neighbour = cell.neighbour(columns, rows);
            // On a coarse map the same cell lies on both sides.
            if !skips(columns, rows) && !cells.contains(&neighbour) {
                cells.push(neighbour);
            }
        }
        cells.into_iter().map(Cell::numbers).collect()
    }
}

/// Columns and rows of the nine cells, in the order in which they are searched.
const AROUND: [(i32, i32); 9] = [
    (0, 0),
    (0, 1),
    (0, -1),
    (1, 0),
    (-1, 0),
    (1, 1),
    (-1, 1),
    (1, -1),
    (-1, -1),
];

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn known_places_have_known_numbers() {
        let palermo = Point::new(13.361389, 38.115556).expect("on the map");
        let catania = Point::new(15.087269, 37.502669).expect("on the map");
        assert_eq!(palermo.number(), 3_479_099_956_230_698);
        assert_eq!(catania.number(), 3_479_447_370_796_909);
        assert_eq!(&Point::of_number(palermo.number()).text(), b"sqc8b49rny0");
        assert_eq!(&Point::of_number(catania.number()).text(), b"sqdtr74hyu0");
        let distance_m =
            Point::of_number(palermo.number()).distance_m(Point::of_number(catania.number()));
        assert!((distance_m - 166_274.151_6).abs() < 0.001);
        assert!(Point::new(180.1, 0.0).is_none());
        assert!(Point::new(0.0, 85.1).is_none());
        assert!(Point::new(f64::NAN, 0.0).is_none());
    }

    fn points() -> impl Strategy<Value = Point> {
        (-180.0..180.0, -85.0..85.0).prop_map(|(longitude, latitude)| Point {
            longitude,
            latitude,
        })
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(if cfg!(miri) { 4 } else { 256 }))]

        #[test]
        fn bits_take_turns_and_part_again(column: u32, row: u32) {
            let number = spread(column) << 1 | spread(row);
            prop_assert_eq!(gather(number >> 1), column);
            prop_assert_eq!(gather(number), row);
        }

        #[test]
        fn a_number_names_a_place_less_than_a_metre_away(point in points()) {
            let found = Point::of_number(point.number());
            prop_assert!(point.distance_m(found) < 1.0);
            prop_assert_eq!(found.number(), point.number());
        }

        #[test]
        fn ranges_hold_all_that_is_within_a_circle(
            center in points(),
            bearing in 0.0..std::f64::consts::TAU,
            share in 0.0..1.0f64,
            radius_m in prop_oneof![0.0..1000.0f64, 1000.0..1_000_000.0f64],
        ) {
            // Where the map ends, cells are no longer enough, as in Redis.
            prop_assume!(center.latitude.abs() < 60.0 && center.longitude.abs() < 160.0);
            let shape = Shape { center, extent: Extent::Circle { radius_m } };
            let up = degrees(radius_m * share / EARTH_RADIUS_M);
            let across = up / radians(center.latitude).cos();
            let point = Point {
                longitude: center.longitude + across * bearing.cos(),
                latitude: center.latitude + up * bearing.sin(),
            };
            if shape.distance_m(point).is_some() {
                let number = point.number();
                let is_in = |range: &(u64, u64)| (range.0..range.1).contains(&number);
                prop_assert_eq!(shape.ranges().iter().filter(|range| is_in(range)).count(), 1);
            }
        }

        #[test]
        fn any_shape_has_ranges(
            center in points(),
            width_m in prop_oneof![0.0..1e9, Just(f64::INFINITY), Just(0.0)],
            height_m in prop_oneof![0.0..1e9, Just(f64::INFINITY), Just(0.0)],
        ) {
            let shape = Shape { center, extent: Extent::Box { width_m, height_m } };
            let ranges = shape.ranges();
            prop_assert!((1..=9).contains(&ranges.len()));
        }
    }
}
