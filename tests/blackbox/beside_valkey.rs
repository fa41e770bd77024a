//! Commands that both Valkey 9 and this server have beyond Redis 7.0, sent to both: the replies are equal,
//! except for the texts of errors that Redis 8 has too and words differently.

use crate::support::{Options, Oracle, Server};

/// Requests with equal replies, in this order.
const ALIKE: &[&str] = &[
    "SET k v IFEQ v",
    "SET k v",
    "SET k w IFEQ v",
    "SET k x IFEQ v",
    "SET k x IFEQ v GET",
    "SET k x IFEQ w GET",
    "SET k x IFEQ",
    "SET k x IFEQ w NX",
    "SET k x IFEQ w XX",
    "SET k x NX IFEQ w",
    "SET k y IFEQ x EX 100",
    "TTL k",
    "SET k z IFEQ y KEEPTTL",
    "TTL k",
    "SET k z IFEQ y EX 0",
    "SET k z IFEQ z EX -1",
    "RPUSH l a",
    "SET l z IFEQ y",
    "SET l z IFEQ y GET",
    "DELIFEQ k x",
    "DELIFEQ k z",
    "DELIFEQ k z",
    "DELIFEQ l z",
    "DELIFEQ k",
    "DELIFEQ k a b",
    "MSETEX 2 a 1 b 2",
    "MSETEX 2 a 1 b 2 EX 100",
    "TTL a",
    "MSETEX 2 a 1 b 2 NX",
    "MSETEX 2 a 1 c 2 XX",
    "MSETEX 2 a 1 b 3 XX KEEPTTL",
    "TTL b",
    "MSETEX 1 a 1 EX 0",
    "MSETEX 1 a 1 EX x",
    "MSETEX 1 a 1 EX 9223372036854775807",
    "MSETEX 1 a 1 NX XX",
    "MSETEX 1 a 1 EX 10 PX 10",
    "MGET a b c",
    "HSETEX h FIELDS 1 f v",
    "HSETEX h EX 100 FIELDS 2 f v g w",
    "HTTL h FIELDS 3 f g x",
    "HSETEX h FNX FIELDS 1 f z",
    "HSETEX h FXX FIELDS 1 f z",
    "HSETEX h FXX FIELDS 1 q z",
    "HSETEX h NX FIELDS 1 q z",
    "HSETEX none XX FIELDS 1 q z",
    "HSETEX h XX FIELDS 1 q z",
    "HSETEX h KEEPTTL FIELDS 1 g ww",
    "HTTL h FIELDS 1 g",
    "HSETEX h EX 0 FIELDS 1 g ww",
    "HSETEX h EX x FIELDS 1 g ww",
    "HSETEX h EX 9223372036854775807 FIELDS 1 g ww",
    "HSETEX h PXAT 1 FIELDS 1 g ww",
    "HEXISTS h g",
    "HSETEX l FIELDS 1 g ww",
    "HGETEX h FIELDS 2 f zz",
    "HGETEX h EX 100 FIELDS 1 f",
    "HTTL h FIELDS 1 f",
    "HGETEX h PERSIST FIELDS 1 f",
    "HTTL h FIELDS 1 f",
    "HGETEX h EX 0 FIELDS 1 f",
    "HGETEX h EX x FIELDS 1 f",
    "HGETEX none FIELDS 1 f",
    "HGETEX l FIELDS 1 f",
    "HSET h2 a 1 b 2 c 3",
    "HEXPIRE h2 100 FIELDS 2 a x",
    "HEXPIRE h2 100 NX FIELDS 2 a b",
    "HEXPIRE h2 200 GT FIELDS 3 a b c",
    "HEXPIRE h2 50 LT FIELDS 3 a b c",
    "HTTL h2 FIELDS 4 a b c x",
    "HPEXPIRE h2 100000 XX FIELDS 1 a",
    "HEXPIREAT h2 4000000000 FIELDS 1 b",
    "HEXPIRETIME h2 FIELDS 2 b x",
    "HPEXPIRETIME h2 FIELDS 1 b",
    "HPERSIST h2 FIELDS 3 b c x",
    "HPERSIST none FIELDS 1 b",
    "HTTL none FIELDS 1 b",
    "HEXPIRE h2 0 FIELDS 1 c",
    "HEXISTS h2 c",
    "HEXPIRE h2 x FIELDS 1 b",
    "HEXPIRE h2 9223372036854775807 FIELDS 1 b",
    "HEXPIRE l 10 FIELDS 1 b",
    "HTTL l FIELDS 1 b",
    "HGETDEL h2 FIELDS 2 a x",
    "HGETDEL l FIELDS 1 x",
    "GEOADD geo 13.361389 38.115556 p 15.087269 37.502669 c 12.758489 38.788135 e",
    "GEOSEARCH geo BYPOLYGON 4 12 37 16 37 16 39 12 39 ASC",
    "GEOSEARCH geo BYPOLYGON 4 12 37 16 37 16 39 12 39 ASC WITHCOORD WITHDIST WITHHASH",
    "GEOSEARCH geo BYPOLYGON 4 12 37 16 37 16 39 12 39 DESC COUNT 2",
    "GEOSEARCH geo BYPOLYGON 4 12 37 16 37 16 39 12 39 COUNT 0",
    "GEOSEARCH geo BYPOLYGON 2 12 37 16 37",
    "GEOSEARCH geo BYPOLYGON 3 12 37 16 37",
    "GEOSEARCH geo BYPOLYGON x 12 37 16 37 16 39",
    "GEOSEARCH geo BYPOLYGON 3 12 37 16 37 16 x",
    "GEOSEARCH geo BYPOLYGON 3 12 37 16 37 16 99",
    "GEOSEARCH geo BYPOLYGON 3 12 37 16 37 16 39 BYRADIUS 10 km",
    "GEOSEARCH geo FROMMEMBER p BYPOLYGON 3 12 37 16 37 16 39",
    "GEOSEARCH none BYPOLYGON 3 12 37 16 37 16 39",
    "GEOSEARCH l BYPOLYGON 3 12 37 16 37 16 39",
    "GEOSEARCHSTORE to geo BYPOLYGON 4 12 37 16 37 16 39 12 39",
    "ZRANGE to 0 -1 WITHSCORES",
    "GEOSEARCHSTORE to geo BYPOLYGON 4 12 37 16 37 16 39 12 39 STOREDIST",
    "ZRANGE to 0 -1 WITHSCORES",
    "COMMANDLOG LEN slow",
    "COMMANDLOG LEN large-request",
    "COMMANDLOG LEN large-reply",
    "COMMANDLOG LEN x",
    "COMMANDLOG GET 10",
    "COMMANDLOG GET x slow",
    "COMMANDLOG GET -2 slow",
    "COMMANDLOG GET 0 large-reply",
    "COMMANDLOG RESET slow",
    "COMMANDLOG RESET x",
    "COMMANDLOG RESET",
    "COMMANDLOG",
    "CLIENT CAPA redirect",
    "CLIENT CAPA x",
    "CLIENT CAPA",
    "CLIENT LIST TYPE x",
    "CLIENT LIST MAXAGE x",
    "CLIENT KILL TYPE x",
    "CLIENT KILL MAXAGE x",
    "CLIENT KILL NOT-ID x",
    "CLIENT KILL USER nosuch",
    "CLIENT LIST IDLE x",
    "CLIENT LIST FLAGS x",
    "CLIENT LIST DB 99",
    "CLIENT LIST NOT-DB x",
    "CLIENT LIST IP 1.2.3.4",
    "CLIENT LIST NAME none",
    "CLIENT LIST LIB-NAME none",
    "CLIENT LIST CAPA x",
    "CLUSTERSCAN 0",
    "SCRIPT SHOW x",
    "XREAD COUNT 1 STREAMS none 0",
    "OBJECT FREQ none",
];

/// Requests that both refuse: here with the errors of Redis 8, which has the command too.
const REFUSED: &[&str] = &[
    "MSETEX 0 a 1",
    "MSETEX x a 1",
    "MSETEX 2 a 1",
    "HSETEX h EX -1 FIELDS 1 g ww",
    "HSETEX h FIELDS 0 g ww",
    "HSETEX h FIELDS 2 g ww",
    "HSETEX h FIELDS x g ww",
    "HSETEX h EX 100 PX 100 FIELDS 1 a b",
    "HSETEX h FNX FXX FIELDS 1 a b",
    "HGETEX h FIELDS 0 f",
    "HGETEX h FIELDS 2 f",
    "HGETEX h EX 10 PERSIST FIELDS 1 f",
    "HEXPIRE h2 -1 FIELDS 1 b",
    "HEXPIRE h2 10 FIELDS 0 b",
    "HEXPIRE h2 10 FIELDS 2 b",
    "HEXPIRE h2 10 FIELDS x b",
    "HEXPIRE h2 10 NX XX FIELDS 1 b",
    "HGETDEL h2 FIELDS 0 x",
    "CLIENT LIST ID x",
];

#[test]
fn what_valkey_9_has_too_is_answered_as_there() {
    let dir = tempfile::tempdir().expect("a temporary folder");
    let Some(Oracle(valkey)) = Oracle::start_valkey(dir.path()) else {
        return;
    };
    for shards in [1, 16] {
        let server = Server::start(&Options::shards(shards).with("slowlog-log-slower-than", "-1"));
        for is_resp3 in [false, true] {
            let connect = |server: &Server| match is_resp3 {
                true => server.raw3(),
                false => server.raw(),
            };
            let (mut theirs, mut ours) = (connect(&valkey), connect(&server));
            theirs.call("FLUSHALL");
            ours.call("FLUSHALL");
            for line in ALIKE {
                let (there, here) = (theirs.call(line).show(), ours.call(line).show());
                assert_eq!(here, there, "{line}");
            }
            for line in REFUSED {
                let (there, here) = (theirs.call(line), ours.call(line));
                assert!(
                    there.is_error() && here.is_error(),
                    "{line}: {here:?}, {there:?}"
                );
            }
        }
    }
}
