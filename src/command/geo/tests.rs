//! What the transcripts can not show: events, large sets, a search against looking at every place.

use crate::base::random::Random;
use crate::command::testing::{Terminal, check_rows, check_transcript, on_every_setup};
use crate::structures::geohash::Point;

#[test]
fn rows_are_those_of_redis() {
    check_rows(include_str!("rows.txt"));
}

#[test]
fn the_transcripts_of_redis_hold() {
    for text in [
        include_str!("../../../tests/transcripts/families/geo.txt"),
        include_str!("../../../tests/transcripts/families/geo_resp3.txt"),
    ] {
        check_transcript(text, |_| {});
    }
}

#[test]
fn the_transcript_holds_with_large_sets() {
    let text = include_str!("../../../tests/transcripts/families/geo.txt");
    check_transcript(text, |cli| {
        cli.configure(|config| config.zset_max_listpack_entries = 0);
    });
}

#[test]
fn changes_are_recorded_under_the_names_that_redis_gives_them() {
    on_every_setup(|cli| {
        for (line, events) in [
            ("GEOADD g 1 1 a 2 2 b", "z:zadd g"),
            ("GEOADD g 1 1 a", ""),
            ("GEOADD g CH 3 3 a", "z:zadd g"),
            ("GEOADD g 1 1 x 200 1 y", ""),
            (
                "GEOSEARCHSTORE d g FROMMEMBER a BYRADIUS 5000 km",
                "z:geosearchstore d",
            ),
            ("GEORADIUS g 1 1 5000 km STORE d", "z:georadiusstore d"),
            (
                "GEORADIUSBYMEMBER g a 1 m STOREDIST d",
                "z:georadiusstore d",
            ),
            ("GEORADIUS g 50 50 1 m STORE d", "g:del d"),
            ("GEORADIUS g 50 50 1 m STORE d", ""),
            ("GEORADIUS g 50 50 1 m", ""),
        ] {
            cli.run(line);
            assert_eq!(cli.events(), events, "{line}");
        }
    });
}

#[test]
fn the_last_target_counts_and_must_be_a_declared_key() {
    on_every_setup(|cli| {
        cli.run("GEOADD g 1 1 a");
        cli.check("GEORADIUS g 1 1 5 km STORE d STOREDIST e", "(integer) 1");
        cli.check("EXISTS d", "(integer) 0");
        cli.check("EXISTS e", "(integer) 1");
        cli.check(
            "GEORADIUS g 1 1 5 km STORE d STORE f",
            "(error) ERR syntax error",
        );
    });
}

#[test]
fn a_search_finds_what_a_look_at_every_place_finds() {
    let mut cli = Terminal::new();
    let mut random = Random::new(7);
    let mut points = Vec::new();
    for number in 0..2000 {
        let longitude = random.unit() * 40.0 - 20.0;
        let latitude = random.unit() * 40.0 + 20.0;
        cli.run(&format!("GEOADD g {longitude} {latitude} m{number}"));
        let point = Point::new(longitude, latitude).expect("on the map");
        points.push((format!("m{number}"), Point::of_number(point.number())));
    }
    for _ in 0..50 {
        let longitude = random.unit() * 40.0 - 20.0;
        let latitude = random.unit() * 40.0 + 20.0;
        let radius_m = random.unit() * 1_000_000.0;
        let center = Point::new(longitude, latitude).expect("on the map");
        let mut expected: Vec<&String> = points
            .iter()
            .filter(|(_, point)| center.distance_m(*point) <= radius_m)
            .map(|(member, _)| member)
            .collect();
        expected.sort();
        let reply = cli.run(&format!(
            "GEOSEARCH g FROMLONLAT {longitude} {latitude} BYRADIUS {radius_m} m"
        ));
        let mut found: Vec<String> = reply
            .lines()
            .filter_map(|line| Some(line.split_once(") ")?.1.trim_matches('"').to_owned()))
            .collect();
        found.sort();
        assert!(
            found.iter().eq(expected),
            "{longitude} {latitude} {radius_m}"
        );
    }
}
