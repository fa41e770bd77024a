//! Tests of `geohash`.

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

#[test]
fn a_polygon_holds_what_an_odd_number_of_sides_lies_around() {
    let of = |corners: &[(f64, f64)]| {
        let points = corners.iter().filter_map(|(x, y)| Point::new(*x, *y));
        Polygon::new(points.collect()).expect("three at least")
    };
    let holds = |polygon: &Polygon, x: f64, y: f64| polygon.holds(Point::new(x, y).expect("on it"));
    let square = of(&[(12.0, 37.0), (16.0, 37.0), (16.0, 39.0), (12.0, 39.0)]);
    assert!(holds(&square, 14.0, 38.0) && !holds(&square, 11.9, 38.0));
    assert!(!holds(&square, 14.0, 39.1) && !holds(&square, 16.1, 38.0));
    let bow = of(&[(0.0, 0.0), (4.0, 4.0), (4.0, 0.0), (0.0, 4.0)]);
    assert!(holds(&bow, 1.0, 2.0) && holds(&bow, 3.0, 2.0));
    assert!(!holds(&bow, 2.0, 1.0) && !holds(&bow, 2.0, 3.0));
    let hollow = of(&[
        (0.0, 0.0),
        (10.0, 0.0),
        (10.0, 10.0),
        (5.0, 1.0),
        (0.0, 10.0),
    ]);
    assert!(holds(&hollow, 1.0, 2.0) && !holds(&hollow, 5.0, 5.0));
    let all = of(&[
        (-180.0, -85.0),
        (180.0, -85.0),
        (180.0, 85.0),
        (-180.0, 85.0),
    ]);
    assert!(holds(&all, 179.9, 84.9));
    let number = Point::new(179.9, 84.9).expect("on it").number();
    assert!(
        all.ranges()
            .iter()
            .any(|range| (range.0..range.1).contains(&number))
    );
    assert!(Polygon::new(vec![Point::of_number(0); 2]).is_none());
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
        // Near the edges of the map, nine cells no longer suffice, as in Redis.
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
    fn ranges_hold_all_that_is_within_a_polygon(
        vertices in prop::collection::vec(points(), 3..9),
        near in prop_oneof![Just(1.0), Just(0.01), Just(0.000_1)],
        shares in prop::collection::vec(0.0..1.0f64, 9),
    ) {
        // A polygon of any size, and a point between its corners.
        let first = vertices[0];
        let towards = |vertex: &Point| Point {
            longitude: first.longitude + (vertex.longitude - first.longitude) * near,
            latitude: first.latitude + (vertex.latitude - first.latitude) * near,
        };
        let vertices: Vec<Point> = vertices.iter().map(towards).collect();
        let sum: f64 = vertices.iter().zip(&shares).map(|(_, share)| share + 1e-9).sum();
        let mix = |of: fn(&Point) -> f64| {
            let parts = vertices.iter().zip(&shares);
            parts.map(|(vertex, share)| of(vertex) * (share + 1e-9) / sum).sum::<f64>()
        };
        let point = Point {
            longitude: mix(|vertex| vertex.longitude),
            latitude: mix(|vertex| vertex.latitude),
        };
        let is_triangle = vertices.len() == 3;
        let polygon = Polygon::new(vertices).expect("three at least");
        if is_triangle && shares[..3].iter().all(|share| *share > 0.01) {
            prop_assert!(polygon.holds(point), "what is mixed of three corners lies between them");
        }
        if polygon.holds(point) {
            let number = point.number();
            let is_in = |range: &(u64, u64)| (range.0..range.1).contains(&number);
            prop_assert_eq!(polygon.ranges().iter().filter(|range| is_in(range)).count(), 1);
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
