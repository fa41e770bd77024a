//! Tests of TDIGEST.*.

use super::{double, doubles, fact, integers};
use crate::command::testing::{Terminal, on_every_setup};

#[test]
fn a_t_digest_knows_ranks_and_quantiles() {
    on_every_setup(|cli| {
        cli.check("TDIGEST.CREATE t COMPRESSION 1000", "OK");
        cli.check("TDIGEST.ADD t 1 2 2 3 3 3 4 4 4 4 5 5 5 5 5", "OK");
        cli.check(
            "TDIGEST.RANK t 0 1 2 3 4 5 6",
            &integers(&[-1, 0, 2, 4, 8, 12, 15]),
        );
        cli.check(
            "TDIGEST.REVRANK t 0 1 2 3 4 5 6",
            &integers(&[15, 14, 13, 10, 7, 2, -1]),
        );
        cli.check(
            "TDIGEST.BYRANK t 15 14 13 12 11 10 9 8 7 6 5 4 3 2 1 0",
            &doubles(
                cli,
                &[
                    "inf", "5", "5", "5", "5", "5", "4", "4", "4", "4", "3", "3", "3", "2", "2",
                    "1",
                ],
            ),
        );
        cli.check(
            "TDIGEST.BYREVRANK t 0 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15",
            &doubles(
                cli,
                &[
                    "5", "5", "5", "5", "5", "4", "4", "4", "4", "3", "3", "3", "2", "2", "1",
                    "-inf",
                ],
            ),
        );
        cli.check("TDIGEST.MIN t", &double(cli, "1"));
        cli.check("TDIGEST.MAX t", &double(cli, "5"));
        cli.check(
            "TDIGEST.QUANTILE t 0 0.5 1",
            &doubles(cli, &["1", "4", "5"]),
        );
        cli.check(
            "TDIGEST.CDF t 0 5 9",
            &doubles(cli, &["0", "0.8333333333333334", "1"]),
        );
        cli.check("TYPE t", "TDIS-TYPE");
        cli.check("OBJECT ENCODING t", "\"raw\"");

        cli.check("TDIGEST.CREATE s", "OK");
        cli.check("TDIGEST.ADD s 10 20 30 40 50 60", "OK");
        cli.check(
            "TDIGEST.RANK s 0 10 20 30 40 50 60 70",
            &integers(&[-1, 0, 1, 2, 3, 4, 5, 6]),
        );
        cli.check("TDIGEST.TRIMMED_MEAN s 0 1", &double(cli, "35"));
        cli.check("TDIGEST.RESET s", "OK");
        cli.check("TDIGEST.RANK s 1", "1) (integer) -2");
        cli.check("TDIGEST.REVRANK s 1", "1) (integer) -2");
        cli.check("TDIGEST.BYRANK s 1", &doubles(cli, &["nan"]));
        cli.check("TDIGEST.MIN s", &double(cli, "nan"));
        cli.check("TDIGEST.MAX s", &double(cli, "nan"));
        cli.check("TDIGEST.QUANTILE s 0.5", &doubles(cli, &["nan"]));
        cli.check("TDIGEST.CDF s 0.5", &doubles(cli, &["nan"]));
        cli.check("TDIGEST.TRIMMED_MEAN s 0.1 0.9", &double(cli, "nan"));
    });
}

#[test]
fn reading_a_t_digest_is_no_change() {
    on_every_setup(|cli| {
        cli.check("TDIGEST.CREATE t", "OK");
        for number in 0..50 {
            cli.run(&format!("TDIGEST.ADD t {number}"));
        }
        cli.events();
        assert_eq!(
            fact(cli, "TDIGEST.INFO t", "Unmerged nodes"),
            "(integer) 50"
        );
        cli.run("TDIGEST.QUANTILE t 0.5");
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Unmerged nodes"), "(integer) 0");
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Observations"), "(integer) 50");
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Compression"), "(integer) 100");
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Capacity"), "(integer) 610");
        assert_eq!(cli.events(), "");
    });
}

#[test]
fn t_digests_on_any_shards_are_merged() {
    on_every_setup(|cli| {
        cli.check("TDIGEST.CREATE a COMPRESSION 100", "OK");
        cli.check("TDIGEST.CREATE b COMPRESSION 200", "OK");
        cli.check("TDIGEST.ADD a 1 2 3", "OK");
        cli.check("TDIGEST.ADD b 10 20", "OK");
        let observations = |cli: &mut Terminal, key: &str| {
            fact(cli, &format!("TDIGEST.INFO {key}"), "Observations")
        };
        let compression = |cli: &mut Terminal, key: &str| {
            fact(cli, &format!("TDIGEST.INFO {key}"), "Compression")
        };
        cli.check("TDIGEST.MERGE sum 2 a b", "OK");
        assert_eq!(observations(cli, "sum"), "(integer) 5");
        assert_eq!(compression(cli, "sum"), "(integer) 200");
        cli.check("TDIGEST.MAX sum", &double(cli, "20"));
        cli.check("TDIGEST.MERGE sum 1 a", "OK");
        assert_eq!(observations(cli, "sum"), "(integer) 8");
        cli.check("TDIGEST.MERGE sum 2 sum sum COMPRESSION 50", "OK");
        assert_eq!(observations(cli, "sum"), "(integer) 24");
        assert_eq!(compression(cli, "sum"), "(integer) 50");
        cli.check("TDIGEST.MERGE sum 1 b OVERRIDE", "OK");
        assert_eq!(observations(cli, "sum"), "(integer) 2");
        assert_eq!(compression(cli, "sum"), "(integer) 200");
        cli.check("TDIGEST.MERGE sum 1 a COMPRESSION 300 OVERRIDE", "OK");
        assert_eq!(compression(cli, "sum"), "(integer) 300");
        assert_eq!(observations(cli, "sum"), "(integer) 3");
        cli.events();
        for (line, error) in [
            (
                "TDIGEST.MERGE sum x a",
                "ERR T-Digest: error parsing numkeys",
            ),
            (
                "TDIGEST.MERGE sum 0 a",
                "ERR T-Digest: numkeys needs to be a positive integer",
            ),
            (
                "TDIGEST.MERGE sum -1 a",
                "ERR T-Digest: numkeys needs to be a positive integer",
            ),
            (
                "TDIGEST.MERGE sum 2 a",
                "ERR wrong number of arguments for 'tdigest.merge' command",
            ),
            (
                "TDIGEST.MERGE sum 9223372036854775807 a",
                "ERR wrong number of arguments for 'tdigest.merge' command",
            ),
            (
                "TDIGEST.MERGE sum 1 a COMPRESSION",
                "ERR wrong number of arguments for 'tdigest.merge' command",
            ),
            (
                "TDIGEST.MERGE sum 1 a COMPRESSION x",
                "ERR T-Digest: error parsing compression parameter",
            ),
            (
                "TDIGEST.MERGE sum 1 a COMPRESSION 0",
                "ERR T-Digest: compression parameter needs to be a positive integer",
            ),
            (
                "TDIGEST.MERGE sum 1 a nosuch",
                "ERR T-Digest: wrong keyword",
            ),
            (
                "TDIGEST.MERGE sum 2 a none",
                "ERR T-Digest: key does not exist",
            ),
            (
                "TDIGEST.MERGE none 1 none",
                "ERR T-Digest: key does not exist",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
        }
        assert_eq!(observations(cli, "sum"), "(integer) 3");
        assert_eq!(cli.events(), "");
    });
}

#[test]
fn arguments_of_t_digest_commands_are_checked_and_change_nothing() {
    on_every_setup(|cli| {
        for (line, error) in [
            (
                "TDIGEST.CREATE t COMPRESSION x",
                "ERR T-Digest: error parsing compression parameter",
            ),
            (
                "TDIGEST.CREATE t COMPRESSION 0",
                "ERR T-Digest: compression parameter needs to be a positive integer",
            ),
            (
                "TDIGEST.CREATE t COMPRESSION 9223372036854775807",
                "ERR T-Digest: allocation failed",
            ),
            ("TDIGEST.CREATE t nosuch 100", "ERR T-Digest: wrong keyword"),
            (
                "TDIGEST.CREATE t COMPRESSION",
                "ERR wrong number of arguments for 'tdigest.create' command",
            ),
            ("TDIGEST.ADD t 1", "ERR T-Digest: key does not exist"),
            ("TDIGEST.RESET t", "ERR T-Digest: key does not exist"),
            ("TDIGEST.MIN t", "ERR T-Digest: key does not exist"),
            ("TDIGEST.MAX t", "ERR T-Digest: key does not exist"),
            ("TDIGEST.QUANTILE t x", "ERR T-Digest: key does not exist"),
            ("TDIGEST.INFO t", "ERR T-Digest: key does not exist"),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("EXISTS t", "(integer) 0");
        }
        cli.check("TDIGEST.CREATE t", "OK");
        cli.check(
            "TDIGEST.CREATE t",
            "(error) ERR T-Digest: key already exists",
        );
        for (line, error) in [
            (
                "TDIGEST.ADD t 1 x",
                "ERR T-Digest: error parsing val parameter",
            ),
            (
                "TDIGEST.ADD t 1 nan",
                "ERR T-Digest: error parsing val parameter",
            ),
            (
                "TDIGEST.ADD t 1 inf",
                "ERR T-Digest: val parameter needs to be a finite number",
            ),
            (
                "TDIGEST.ADD t 1 -inf",
                "ERR T-Digest: val parameter needs to be a finite number",
            ),
            (
                "TDIGEST.QUANTILE t x",
                "ERR T-Digest: error parsing quantile",
            ),
            (
                "TDIGEST.QUANTILE t 0.5 1.1",
                "ERR T-Digest: quantile should be in [0,1]",
            ),
            ("TDIGEST.CDF t x", "ERR T-Digest: error parsing cdf"),
            ("TDIGEST.RANK t 1 x", "ERR T-Digest: error parsing value"),
            ("TDIGEST.REVRANK t nan", "ERR T-Digest: error parsing value"),
            ("TDIGEST.BYRANK t 0.5", "ERR T-Digest: error parsing rank"),
            (
                "TDIGEST.BYREVRANK t -1",
                "ERR T-Digest: rank needs to be non negative",
            ),
            (
                "TDIGEST.TRIMMED_MEAN t x 1",
                "ERR T-Digest: error parsing low_cut_percentile",
            ),
            (
                "TDIGEST.TRIMMED_MEAN t 0 x",
                "ERR T-Digest: error parsing high_cut_percentile",
            ),
            (
                "TDIGEST.TRIMMED_MEAN t 0 2",
                "ERR T-Digest: low_cut_percentile and high_cut_percentile should be in [0,1]",
            ),
            (
                "TDIGEST.TRIMMED_MEAN t 0.5 0.5",
                "ERR T-Digest: low_cut_percentile should be lower than high_cut_percentile",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
        }
        assert_eq!(fact(cli, "TDIGEST.INFO t", "Observations"), "(integer) 0");
        assert_eq!(cli.events(), "d:tdigest.create t");
    });
}
