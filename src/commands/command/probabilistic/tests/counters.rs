//! Tests of CMS.* and TOPK.*.

use super::{double, fact, integers, truths};
use crate::command::testing::on_every_setup;

#[test]
fn a_count_min_sketch_counts() {
    on_every_setup(|cli| {
        cli.check("CMS.INITBYPROB s 0.001 0.01", "OK");
        cli.check("CMS.INCRBY s a 5", "1) (integer) 5");
        cli.check("CMS.INCRBY s a 2 b 3", &integers(&[7, 3]));
        cli.check("CMS.QUERY s a b c", &integers(&[7, 3, 0]));
        assert_eq!(fact(cli, "CMS.INFO s", "width"), "(integer) 2000");
        assert_eq!(fact(cli, "CMS.INFO s", "depth"), "(integer) 7");
        assert_eq!(fact(cli, "CMS.INFO s", "count"), "(integer) 10");
        cli.check("TYPE s", "CMSk-TYPE");
        cli.check("OBJECT ENCODING s", "\"raw\"");
        cli.check("CMS.INITBYDIM d 10 2", "OK");
        cli.check("CMS.INCRBY d a 4294967294", "1) (integer) 4294967294");
        cli.check(
            "CMS.INCRBY d a 2 b 1",
            "1) (error) CMS: INCRBY overflow\n2) (integer) 1",
        );
        cli.check("COPY d e", "(integer) 1");
        cli.check("CMS.QUERY e b", "1) (integer) 1");
    });
}

#[test]
fn counts_are_subtracted_and_cells_have_the_size_that_was_chosen() {
    on_every_setup(|cli| {
        cli.check("CMS.INITBYDIM s 100 2 CELL_SIZE 1", "OK");
        cli.check("CMS.INITBYPROB p 0.01 0.1 cell_size 8", "OK");
        cli.check("CMS.INITBYDIM four 100 2", "OK");
        for (key, size) in [("s", 1), ("p", 8), ("four", 4)] {
            let expected = format!("(integer) {size}");
            assert_eq!(fact(cli, &format!("CMS.INFO {key}"), "cell_size"), expected);
        }
        cli.check(
            "CMS.INCRBY s a 250 a -200 a 205",
            &integers(&[250, 50, 255]),
        );
        cli.check(
            "CMS.INCRBY s a 1 a -256 a -1",
            "1) (error) CMS: INCRBY overflow\n2) (error) CMS: INCRBY underflow\n3) (integer) 254",
        );
        assert_eq!(fact(cli, "CMS.INFO s", "count"), "(integer) 254");
        cli.check(
            "CMS.INCRBY p a 9223372036854775807",
            "1) (integer) 9223372036854775807",
        );
        cli.check("CMS.INCRBY p a 1", "1) (error) CMS: INCRBY overflow");
        cli.check(
            "CMS.INCRBY p a -9223372036854775808",
            "1) (error) CMS: INCRBY underflow",
        );
        cli.check("CMS.INCRBY p a -9223372036854775807", "1) (integer) 0");
        cli.check("CMS.MERGE four 1 s", "(error) CMS: cell size is not equal");
        cli.check("CMS.MERGE s 1 s WEIGHTS 2", "(error) CMS: MERGE overflow");
        cli.check("COPY s t", "(integer) 1");
        cli.check("CMS.MERGE s 1 t", "OK");
        cli.check("CMS.QUERY s a", "1) (integer) 254");
        for (line, error) in [
            ("CMS.INITBYDIM n 10 2 CELL_SIZE 3", "CMS: invalid cell size"),
            (
                "CMS.INITBYDIM n 10 2 CELL_SIZE -1",
                "CMS: invalid cell size",
            ),
            (
                "CMS.INITBYPROB n 0.1 0.1 CELL_SIZE x",
                "CMS: invalid cell size",
            ),
            ("CMS.INITBYPROB n 0.1 0.1 SIZE 4", "ERR syntax error"),
            (
                "CMS.INITBYDIM n 10 2 CELL_SIZE",
                "ERR wrong number of arguments for 'cms.initbydim' command",
            ),
            (
                "CMS.INITBYPROB n 0.1 0.1 CELL_SIZE 4 4",
                "ERR wrong number of arguments for 'cms.initbyprob' command",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("EXISTS n", "(integer) 0");
        }
    });
}

#[test]
fn count_min_sketches_on_any_shards_are_merged() {
    on_every_setup(|cli| {
        for key in ["a", "b", "c", "sum"] {
            cli.check(&format!("CMS.INITBYDIM {key} 1000 5"), "OK");
        }
        cli.check("CMS.INITBYDIM small 10 5", "OK");
        cli.check("CMS.INCRBY a x 1 y 10", &integers(&[1, 10]));
        cli.check("CMS.INCRBY b x 2 z 20", &integers(&[2, 20]));
        cli.check("CMS.INCRBY c x 4", "1) (integer) 4");
        cli.check("CMS.INCRBY sum x 100", "1) (integer) 100");
        cli.check("CMS.MERGE sum 3 a b c", "OK");
        cli.check("CMS.QUERY sum x y z", &integers(&[7, 10, 20]));
        cli.check("CMS.MERGE sum 3 a b c WEIGHTS 1 2 3", "OK");
        cli.check("CMS.QUERY sum x y z", &integers(&[17, 10, 40]));
        assert_eq!(fact(cli, "CMS.INFO sum", "count"), "(integer) 67");
        cli.check("CMS.MERGE sum 2 sum a WEIGHTS 2 -1", "OK");
        cli.check("CMS.QUERY sum x y z", &integers(&[33, 10, 80]));
        cli.events();
        for (line, error) in [
            ("CMS.MERGE sum x a", "CMS: invalid numkeys"),
            ("CMS.MERGE sum 0 a", "CMS: Number of keys must be positive"),
            ("CMS.MERGE sum -1 a", "CMS: Number of keys must be positive"),
            ("CMS.MERGE sum 2 a", "CMS: wrong number of keys"),
            ("CMS.MERGE sum 1 a b", "CMS: wrong number of keys"),
            (
                "CMS.MERGE sum 9223372036854775807 a b",
                "CMS: wrong number of keys",
            ),
            (
                "CMS.MERGE sum 2 a b WEIGHTS 1",
                "CMS: wrong number of keys/weights",
            ),
            (
                "CMS.MERGE sum 2 a b WEIGHTS 1 2 3",
                "CMS: wrong number of keys/weights",
            ),
            (
                "CMS.MERGE sum 2 a b WEIGHTS 1 x",
                "CMS: invalid weight value",
            ),
            ("CMS.MERGE sum 2 a none", "CMS: key does not exist"),
            ("CMS.MERGE none 1 a", "CMS: key does not exist"),
            ("CMS.MERGE sum 2 a small", "CMS: width/depth is not equal"),
            ("CMS.MERGE sum 1 a WEIGHTS -1", "CMS: MERGE overflow"),
            (
                "CMS.MERGE sum 1 a WEIGHTS 9223372036854775807",
                "CMS: MERGE overflow",
            ),
            (
                "CMS.MERGE sum 1 a WEIGHTS 4294967295",
                "CMS: MERGE overflow",
            ),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("CMS.QUERY sum x y z", &integers(&[33, 10, 80]));
        }
        assert_eq!(cli.events(), "");
    });
}

#[test]
fn arguments_of_count_min_commands_are_checked_and_change_nothing() {
    on_every_setup(|cli| {
        for (line, error) in [
            ("CMS.INITBYDIM s x 5", "CMS: invalid width"),
            ("CMS.INITBYDIM s 0 5", "CMS: invalid width"),
            ("CMS.INITBYDIM s 5 -1", "CMS: invalid depth"),
            ("CMS.INITBYDIM s 5 x", "CMS: invalid depth"),
            (
                "CMS.INITBYDIM s 9223372036854775807 2",
                "CMS: invalid init arguments",
            ),
            (
                "CMS.INITBYDIM s 4294967296 4294967295",
                "CMS: invalid init arguments",
            ),
            (
                "CMS.INITBYDIM s 4294967296 1000",
                "CMS: Insufficient memory to create the key",
            ),
            (
                "CMS.INITBYPROB s x 0.1",
                "CMS: invalid overestimation value",
            ),
            (
                "CMS.INITBYPROB s 1 0.1",
                "CMS: invalid overestimation value",
            ),
            ("CMS.INITBYPROB s 0.1 0", "CMS: invalid prob value"),
            ("CMS.INITBYPROB s 0.1 1e-300", "CMS: invalid init arguments"),
            ("CMS.INITBYPROB s 1e-300 0.1", "CMS: invalid init arguments"),
            ("CMS.INCRBY s a 1", "CMS: key does not exist"),
            (
                "CMS.INCRBY s a 1 b",
                "ERR wrong number of arguments for 'cms.incrby' command",
            ),
            ("CMS.QUERY s a", "CMS: key does not exist"),
            ("CMS.INFO s", "CMS: key does not exist"),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("EXISTS s", "(integer) 0");
        }
        cli.check("CMS.INITBYDIM s 10 2", "OK");
        cli.check("CMS.INITBYDIM s 10 2", "(error) CMS: key already exists");
        cli.check("CMS.INCRBY s a 1 b x", "(error) CMS: Cannot parse number");
        cli.check(
            "CMS.INCRBY s a 1 b -1",
            "1) (integer) 1\n2) (error) CMS: INCRBY underflow",
        );
        cli.check("CMS.QUERY s a", "1) (integer) 1");
        cli.check("CMS.INCRBY s b -1", "1) (error) CMS: INCRBY underflow");
        assert_eq!(cli.events(), "d:cms.init s, d:cms.incrby s");
    });
}

#[test]
fn the_most_frequent_elements_are_listed() {
    on_every_setup(|cli| {
        cli.check("TOPK.RESERVE t 2 50 5 0.9", "OK");
        cli.check("TOPK.INCRBY t foo 30 bar 5", "1) (nil)\n2) (nil)");
        cli.check("TOPK.ADD t foo baz", "1) (nil)\n2) (nil)");
        cli.check("TOPK.INCRBY t 42 9", "1) \"bar\"");
        cli.check(
            "TOPK.QUERY t foo bar 42",
            &truths(cli, &[true, false, true]),
        );
        cli.check("TOPK.COUNT t foo 42 none", &integers(&[31, 9, 0]));
        cli.check("TOPK.LIST t", "1) \"foo\"\n2) \"42\"");
        cli.check(
            "TOPK.LIST t withcount",
            "1) \"foo\"\n2) (integer) 31\n3) \"42\"\n4) (integer) 9",
        );
        assert_eq!(fact(cli, "TOPK.INFO t", "k"), "(integer) 2");
        assert_eq!(fact(cli, "TOPK.INFO t", "width"), "(integer) 50");
        assert_eq!(fact(cli, "TOPK.INFO t", "depth"), "(integer) 5");
        assert_eq!(fact(cli, "TOPK.INFO t", "decay"), double(cli, "0.9"));
        cli.check("TOPK.RESERVE d 10", "OK");
        assert_eq!(fact(cli, "TOPK.INFO d", "width"), "(integer) 8");
        cli.check("TOPK.LIST d", "(empty array)");
        cli.check("TOPK.RESERVE deep 3 50 2000 0.9", "OK");
        assert_eq!(fact(cli, "TOPK.INFO deep", "depth"), "(integer) 2000");
        cli.check("TYPE t", "TopK-TYPE");
        cli.check("OBJECT ENCODING t", "\"raw\"");
        cli.check("COPY t copy", "(integer) 1");
        cli.check("TOPK.LIST copy", "1) \"foo\"\n2) \"42\"");
    });
}

#[test]
fn arguments_of_top_k_commands_are_checked_and_change_nothing() {
    on_every_setup(|cli| {
        let decay = "TopK: invalid decay value. must be '<= 1' & '> 0'";
        let increment = "TopK: increment must be an integer greater or equal to 0 and smaller or equal to 100,000";
        for (line, error) in [
            ("TOPK.RESERVE t x", "TopK: invalid k"),
            ("TOPK.RESERVE t 0", "TopK: invalid k"),
            ("TOPK.RESERVE t 4294967296", "TopK: invalid k"),
            (
                "TOPK.RESERVE t 4294967295",
                "ERR Insufficient memory to create topk data structure",
            ),
            ("TOPK.RESERVE t 5 x 5 0.9", "TopK: invalid width"),
            ("TOPK.RESERVE t 5 5 0 0.9", "TopK: invalid depth"),
            ("TOPK.RESERVE t 5 5 5 0", decay),
            ("TOPK.RESERVE t 5 5 5 1.1", decay),
            ("TOPK.RESERVE t 5 5 5 x", decay),
            (
                "TOPK.RESERVE t 5 4294967295 5 0.9",
                "ERR Insufficient memory to create topk data structure",
            ),
            (
                "TOPK.RESERVE t 5 1000000 100 0.9",
                "ERR Insufficient memory to create topk data structure",
            ),
            (
                "TOPK.RESERVE t 5 5",
                "ERR wrong number of arguments for 'topk.reserve' command",
            ),
            ("TOPK.ADD t a", "TopK: key does not exist"),
            ("TOPK.INCRBY t a x", "TopK: key does not exist"),
            (
                "TOPK.INCRBY t a 1 b",
                "ERR wrong number of arguments for 'topk.incrby' command",
            ),
            ("TOPK.QUERY t a", "TopK: key does not exist"),
            ("TOPK.COUNT t a", "TopK: key does not exist"),
            ("TOPK.LIST t", "TopK: key does not exist"),
            ("TOPK.LIST t NOSUCH", "WITHCOUNT keyword expected"),
            ("TOPK.INFO t", "TopK: key does not exist"),
        ] {
            cli.check(line, &format!("(error) {error}"));
            cli.check("EXISTS t", "(integer) 0");
        }
        cli.check("TOPK.RESERVE deep 3 2 5000 0.9", "OK");
        cli.check("TOPK.ADD deep a a", "1) (nil)\n2) (nil)");
        cli.check("TOPK.COUNT deep a", "1) (integer) 2");
        cli.events();
        cli.check("TOPK.RESERVE t 3", "OK");
        cli.check("TOPK.RESERVE t 3", "(error) TopK: key already exists");
        for wrong in ["x", "-1", "100001"] {
            cli.check(
                &format!("TOPK.INCRBY t a 1 b {wrong}"),
                &format!("(error) {increment}"),
            );
        }
        cli.check("TOPK.LIST t", "(empty array)");
        assert_eq!(cli.events(), "d:topk.reserve t");
    });
}
