//! Geohashes: points on the globe as numbers whose order keeps near points near, and search areas.
//!
//! Longitude and latitude are each divided into 2^26 steps; their bits are interleaved, so that a number of 52 bits
//! identifies a cell of less than a meter, and its leading bits identify the larger cells around it:
//!
//! ```text
//! longitude   x25   x24   …   x0
//! latitude       y25   y24  …   y0
//! number      x25 y25 x24 y24 … x0 y0
//! ```
//!
//! All points of a larger cell are a range of numbers. A shape is covered by the cell around its center, so large
//! that the shape ends within the eight cells around that. Latitudes end at 85.05 degrees, where the Mercator map is
//! square. The module knows nothing of what is stored at the points.

/// The greatest longitude; its negative is the least.
pub const LONGITUDE_MAX: f64 = 180.0;
/// The greatest latitude; its negative is the least.
pub const LATITUDE_MAX: f64 = 85.051_128_78;

/// Number of bits per coordinate in the finest division.
const STEPS_MAX: u32 = 26;

const EARTH_RADIUS_M: f64 = 6_372_797.560_856;
/// Half the circumference on Mercator's map.
const MERCATOR_MAX_M: f64 = 20_037_726.37;

/// A point on the globe.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Point {
    /// Longitude in degrees.
    pub longitude: f64,
    /// Latitude in degrees.
    pub latitude: f64,
}

/// The extent of a search around a point.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Extent {
    /// All points within this distance.
    Circle {
        /// Radius in meters.
        radius_m: f64,
    },
    /// All points within a rectangle with these sides.
    Box {
        /// Extent from west to east, in meters.
        width_m: f64,
        /// Extent from south to north, in meters.
        height_m: f64,
    },
}

/// A search area.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Shape {
    /// The center of the shape.
    pub center: Point,
    /// Extent of the shape.
    pub extent: Extent,
}

/// The bounds of an area, in degrees.
#[derive(Clone, Copy, Debug)]
struct GeoBounds {
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

/// Inserts a zero bit before each bit of a number.
fn spread(bits: u32) -> u64 {
    let mut wide = u64::from(bits);
    wide = (wide | wide << 16) & 0x0000_ffff_0000_ffff;
    wide = (wide | wide << 8) & 0x00ff_00ff_00ff_00ff;
    wide = (wide | wide << 4) & 0x0f0f_0f0f_0f0f_0f0f;
    wide = (wide | wide << 2) & 0x3333_3333_3333_3333;
    (wide | wide << 1) & 0x5555_5555_5555_5555
}

/// Returns every other bit of a number, including the lowest.
fn gather(wide: u64) -> u32 {
    let mut bits = wide & 0x5555_5555_5555_5555;
    bits = (bits | bits >> 1) & 0x3333_3333_3333_3333;
    bits = (bits | bits >> 2) & 0x0f0f_0f0f_0f0f_0f0f;
    bits = (bits | bits >> 4) & 0x00ff_00ff_00ff_00ff;
    bits = (bits | bits >> 8) & 0x0000_ffff_0000_ffff;
    (bits | bits >> 16) as u32
}

impl Cell {
    /// Returns the cell around a point, on a map with latitudes up to `latitude_max`.
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

    fn bounds(self) -> GeoBounds {
        let cells = f64::from(1_u32 << self.steps);
        let at = |index: f64, max: f64| -max + (index / cells) * (max + max);
        let (column, row) = (f64::from(self.column), f64::from(self.row));
        GeoBounds {
            west: at(column, LONGITUDE_MAX),
            east: at(column + 1.0, LONGITUDE_MAX),
            south: at(row, LATITUDE_MAX),
            north: at(row + 1.0, LATITUDE_MAX),
        }
    }

    /// Returns the cell that is `columns` further east and `rows` further north; the map wraps around.
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

    /// Returns the range of numbers (in the finest division) of the points in the cell: from the first up to but not
    /// including the second.
    fn numbers(self) -> (u64, u64) {
        let shift = 2 * (STEPS_MAX - self.steps);
        let number = self.number();
        (number << shift, (number + 1) << shift)
    }
}

impl Point {
    /// Creates a point, if it is on the map.
    #[must_use]
    pub fn new(longitude: f64, latitude: f64) -> Option<Point> {
        let is_on_map = longitude.abs() <= LONGITUDE_MAX && latitude.abs() <= LATITUDE_MAX;
        is_on_map.then_some(Point {
            longitude,
            latitude,
        })
    }

    /// Returns the number of the finest cell around the point.
    #[must_use]
    pub fn number(self) -> u64 {
        Cell::around(self, STEPS_MAX, LATITUDE_MAX).number()
    }

    /// Returns the center of the finest cell with a number.
    #[must_use]
    pub fn of_number(number: u64) -> Point {
        let bounds = Cell::of_number(number, STEPS_MAX).bounds();
        let middle = |one: f64, two: f64, max: f64| ((one + two) / 2.0).clamp(-max, max);
        Point {
            longitude: middle(bounds.west, bounds.east, LONGITUDE_MAX),
            latitude: middle(bounds.south, bounds.north, LATITUDE_MAX),
        }
    }

    /// Returns the standard geohash of eleven letters, of which the last carries no information.
    #[must_use]
    pub fn text(self) -> [u8; 11] {
        const LETTERS: &[u8; 32] = b"0123456789bcdefghjkmnpqrstuvwxyz";
        /// The standard map extends to the poles.
        const POLE: f64 = 90.0;
        let number = Cell::around(self, STEPS_MAX, POLE).number();
        std::array::from_fn(|at| match at {
            10 => LETTERS[0],
            at => LETTERS[(number >> (47 - 5 * at)) as usize & 31],
        })
    }

    /// Returns the distance to another point along the surface, in meters.
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
    /// Returns the distance of a point from the center in meters, if the point is within.
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

    /// Returns the bounds of the shape in degrees. Parallels are shorter towards the poles, so the side that is
    /// nearer to a pole determines the width in degrees.
    fn bounds(&self) -> GeoBounds {
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
        GeoBounds {
            west: longitude - across,
            east: longitude + across,
            south: latitude - up,
            north: latitude + up,
        }
    }

    /// Estimates how fine the cells may be so that nine of them cover the shape.
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
        // The shape is seldom in the center of its cell, so use larger cells.
        steps -= 2;
        let latitude = self.center.latitude.abs();
        steps -= i32::from(latitude > 66.0) + i32::from(latitude > 80.0);
        steps.clamp(1, STEPS_MAX as i32) as u32
    }

    /// Returns ranges of numbers that include all points of the shape, and further ones: each range from its first up
    /// to but not including its second, without overlap.
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
        // Neighbors on a side where the shape ends within the cell contain nothing of it.
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
            // On a coarse division the same cell may be a neighbor on both sides.
            if !skips(columns, rows) && !cells.contains(&neighbour) {
                cells.push(neighbour);
            }
        }
        cells.into_iter().map(Cell::numbers).collect()
    }
}

/// An area whose sides are straight lines on the map of longitudes and latitudes; if sides cross each other, the area
/// consists of the points that an odd number of sides surrounds.
#[derive(Clone, Debug, PartialEq)]
pub struct Polygon {
    vertices: Vec<Point>,
}

impl Polygon {
    /// Creates a polygon with at least three corners, the last of which is joined to the first.
    #[must_use]
    pub fn new(vertices: Vec<Point>) -> Option<Polygon> {
        (vertices.len() >= 3).then_some(Polygon { vertices })
    }

    /// Returns the number of corners.
    #[must_use]
    pub fn corners(&self) -> usize {
        self.vertices.len()
    }

    /// Returns the point of the globe in the direction of the mean of the corners, taken as points in space.
    #[must_use]
    pub fn center(&self) -> Point {
        let (mut x, mut y, mut z) = (0.0, 0.0, 0.0);
        for vertex in &self.vertices {
            let (longitude, latitude) = (radians(vertex.longitude), radians(vertex.latitude));
            x += latitude.cos() * longitude.cos();
            y += latitude.cos() * longitude.sin();
            z += latitude.sin();
        }
        Point {
            longitude: degrees(y.atan2(x)),
            latitude: degrees(z.atan2(x.hypot(y))),
        }
    }

    /// True if a point is within the polygon.
    #[must_use]
    pub fn holds(&self, point: Point) -> bool {
        let behind = self.vertices.iter().cycle().skip(self.vertices.len() - 1);
        let mut is_within = false;
        for (one, two) in self.vertices.iter().zip(behind) {
            if (one.latitude > point.latitude) == (two.latitude > point.latitude) {
                continue;
            }
            // The intersection of the side with the parallel of the point.
            let share = (point.latitude - one.latitude) / (two.latitude - one.latitude);
            let crossing = one.longitude + share * (two.longitude - one.longitude);
            is_within ^= point.longitude < crossing;
        }
        is_within
    }

    /// Returns ranges of numbers that include all points of the polygon, and further ones: each range from its first
    /// up to but not including its second, without overlap.
    #[must_use]
    pub fn ranges(&self) -> Vec<(u64, u64)> {
        let mut bounds = GeoBounds {
            west: f64::INFINITY,
            east: f64::NEG_INFINITY,
            south: f64::INFINITY,
            north: f64::NEG_INFINITY,
        };
        for vertex in &self.vertices {
            bounds.west = bounds.west.min(vertex.longitude);
            bounds.east = bounds.east.max(vertex.longitude);
            bounds.south = bounds.south.min(vertex.latitude);
            bounds.north = bounds.north.max(vertex.latitude);
        }
        // With cells as wide and as high as the polygon, at most four contain it: those around the corners of its
        // bounds.
        let fits = |steps: u32| {
            let cells = f64::from(1_u32 << steps);
            bounds.east - bounds.west <= 2.0 * LONGITUDE_MAX / cells
                && bounds.north - bounds.south <= 2.0 * LATITUDE_MAX / cells
        };
        let steps = (1..=STEPS_MAX).take_while(|steps| fits(*steps)).last();
        let Some(steps) = steps else {
            return vec![(0, 1 << (2 * STEPS_MAX))];
        };
        let mut cells: Vec<Cell> = Vec::with_capacity(4);
        for longitude in [bounds.west, bounds.east] {
            for latitude in [bounds.south, bounds.north] {
                let corner = Point {
                    longitude,
                    latitude,
                };
                let mut cell = Cell::around(corner, steps, LATITUDE_MAX);
                // The eastern and the northern edge of the map belong to its last cells.
                let last = (1 << steps) - 1;
                (cell.column, cell.row) = (cell.column.min(last), cell.row.min(last));
                if !cells.contains(&cell) {
                    cells.push(cell);
                }
            }
        }
        cells.into_iter().map(Cell::numbers).collect()
    }
}

/// Column and row offsets of the nine cells, in the order in which they are searched.
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
mod tests;
