//! Cases that the transcripts cannot show: events, large sets, a search compared with checking every point.

use crate::command::testing::{Terminal, check_transcript, on_every_setup};
use basalt_core::base::random::Random;
use basalt_core::structures::geohash::Point;

#[test]
fn the_transcripts_of_redis_hold() {
    for text in [
        include_str!("../../../../tests/transcripts/families/geo.txt"),
        include_str!("../../../../tests/transcripts/families/geo_resp3.txt"),
    ] {
        check_transcript(text, |_| {});
    }
}

#[test]
fn the_transcript_holds_with_large_sets() {
    let text = include_str!("../../../../tests/transcripts/families/geo.txt");
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

/// Requests and replies of Valkey 9.1.2, whose order of unsorted results differs.
#[test]
fn polygons_hold_what_valkey_9_says() {
    const BOX: &str = "BYPOLYGON 4 12 37 16 37 16 39 12 39";
    const FEW: &str = "(error) ERR GEOSEARCH BYPOLYGON must have at least 3 vertices";
    const NUMBER: &str = "(error) ERR invalid number of vertices";
    const SYNTAX: &str = "(error) ERR syntax error";
    let mut cli = Terminal::new();
    cli.run(
        "GEOADD g 13.361389 38.115556 Palermo 15.087269 37.502669 Catania 12.758489 38.788135 edge1 \
         17.241510 38.788135 edge2 0 0 zero 179.9 10 east",
    );
    for (rest, expected) in [
        ("BOX ASC", "1) \"Palermo\"\n2) \"Catania\"\n3) \"edge1\""),
        ("BOX DESC", "1) \"edge1\"\n2) \"Catania\"\n3) \"Palermo\""),
        ("BOX COUNT 1", "1) \"Palermo\""),
        ("BOX COUNT 2 COUNT 1", "1) \"Palermo\""),
        (
            "BOX ASC COUNT 1 WITHDIST WITHHASH WITHCOORD",
            "1) 1) \"Palermo\"\n   2) \"56987.4933\"\n   3) (integer) 3479099956230698\n   \
             4) 1) \"13.36138933897018433\"\n      2) \"38.11555639549629859\"",
        ),
        (
            "BYPOLYGON 5 12 37 16 37 16 39 12 39 12 37 COUNT 1",
            "1) \"Palermo\"",
        ),
        (
            "BYPOLYGON 4 12 37 16 39 16 37 12 39 ASC",
            "1) \"Palermo\"\n2) \"Catania\"",
        ),
        ("BYPOLYGON 4 170 0 180 0 180 20 170 20", "1) \"east\""),
        (
            "BYPOLYGON 3 -180 -85 180 -85 0 85 ASC",
            "1) \"zero\"\n2) \"Catania\"\n3) \"Palermo\"\n4) \"edge2\"\n5) \"edge1\"",
        ),
        ("BYPOLYGON 3 12 37 14 38 16 39", "(empty array)"),
        ("BOX BYPOLYGON 3 12 37 16 37 16 39", "1) \"Catania\""),
        ("FROMMEMBER Palermo BOX", SYNTAX),
        ("FROMLONLAT 15 37 BOX", SYNTAX),
        ("BOX FROMMEMBER Palermo", SYNTAX),
        ("BOX BYRADIUS 1 km", SYNTAX),
        ("BYRADIUS 1 km BOX", SYNTAX),
        ("FROMMEMBER Palermo BYBOX 400 400 km BOX", SYNTAX),
        ("BOX junk", SYNTAX),
        ("BYPOLYGON 2 12 37 16 37", FEW),
        ("BYPOLYGON 3 12 37 16 37", FEW),
        ("BYPOLYGON 0 1 1 ASC", FEW),
        ("ASC BYPOLYGON 3 12 37 16 37 16", FEW),
        ("BYPOLYGON x 12 37 16 37", NUMBER),
        ("BYPOLYGON 3.5 12 37 16 37 16 39", NUMBER),
        ("BYPOLYGON 9223372036854775807 1 1 1 1 1 1", NUMBER),
        (
            "BYPOLYGON 3 12 37 16 37 16 x",
            "(error) ERR value is not a valid float",
        ),
        (
            "BYPOLYGON 3 12 37 16 37 200 39",
            "(error) ERR invalid longitude,latitude pair 200.000000,39.000000",
        ),
        (
            "BYPOLYGON 3 inf 37 16 37 16 39",
            "(error) ERR invalid longitude,latitude pair inf,37.000000",
        ),
        (
            "BOX ANY",
            "(error) ERR the ANY argument requires COUNT argument",
        ),
    ] {
        let line = format!("GEOSEARCH g {}", rest.replace("BOX ", &format!("{BOX} ")));
        let line = match line.strip_suffix("BOX") {
            Some(front) => format!("{front}{BOX}"),
            None => line.replace(&format!("BY{BOX} "), "BYBOX "),
        };
        cli.check(&line, expected);
    }
    cli.check(&format!("GEOSEARCH none {BOX}"), "(empty array)");
    cli.check(&format!("GEOSEARCHSTORE d g {BOX}"), "(integer) 3");
    cli.check(
        &format!("GEOSEARCHSTORE d g {BOX} STOREDIST"),
        "(integer) 3",
    );
    cli.check(
        "ZRANGE d 0 0 WITHSCORES",
        "1) \"Palermo\"\n2) \"5.698749327453747e+4\"",
    );
    cli.check(
        &format!("GEOSEARCHSTORE d g {BOX} WITHDIST"),
        "(error) ERR GEOSEARCHSTORE is not compatible with WITHDIST, WITHHASH and WITHCOORD options",
    );
}
