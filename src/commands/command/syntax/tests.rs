//! Tests of `syntax`.

use super::*;

/// Returns the tree as one line; `?` marks an optional argument, `*` a repeated one, `**` one that is repeated
/// with its token.
fn show(arguments: &[Argument]) -> String {
    let one = |argument: &Argument| {
        let mut text = match argument.kind {
            ArgumentType::PureToken => argument.token.expect("pure").to_owned(),
            ArgumentType::OneOf | ArgumentType::Block => {
                let brackets = if argument.kind == ArgumentType::OneOf {
                    "<>"
                } else {
                    "{}"
                };
                let (open, close) = brackets.split_at(1);
                let token = argument.token.unwrap_or("");
                format!("{token}{open}{}{close}", show(&argument.parts))
            }
            kind => {
                let token = argument.token.map(|token| format!("{token}="));
                let name = &argument.name;
                format!("{}{name}:{}", token.unwrap_or_default(), kind.name())
            }
        };
        if argument.multiple {
            text += if argument.multiple_token { "**" } else { "*" };
        }
        if argument.optional {
            text += "?";
        }
        text
    };
    arguments.iter().map(one).collect::<Vec<_>>().join(" ")
}

#[track_caller]
fn check(syntax: &'static str, expected: &str) {
    assert_eq!(show(&parse(syntax).expect(syntax)), expected, "{syntax}");
}

#[test]
fn placeholders_have_the_type_of_their_name_or_the_one_they_state() {
    check("", "");
    check("key seconds", "key:string seconds:integer");
    check(
        "key offset value:integer",
        "key:string offset:integer value:integer",
    );
    check("ip:port pattern", "ip:port:string pattern:pattern");
}

#[test]
fn choices_and_options_nest() {
    check(
        "key value [NX | XX] [GET] [EX seconds | KEEPTTL]",
        "key:string value:string <NX XX>? GET? <EX=seconds:integer KEEPTTL>?",
    );
    check(
        "key [start [end [BYTE | BIT]]]",
        "key:string {start:integer {end:integer <BYTE BIT>?}?}?",
    );
    check(
        "<FROMMEMBER member | FROMLONLAT longitude latitude> <BYRADIUS radius <M | KM> | BYBOX width height <M | KM>>",
        "<FROMMEMBER=member:string FROMLONLAT{longitude:double latitude:double}> \
             <{BYRADIUS=radius:double <M KM>} {BYBOX=width:double height:double <M KM>}>",
    );
    check("[COUNT count [ANY]]", "{COUNT=count:integer ANY?}?");
    check(
        "<host port | NO ONE>",
        "<{host:string port:integer} {NO ONE}>",
    );
    check("[SAVE <YES | NO>]", "SAVE<YES NO>?");
    check(
        "[TO <host port [FORCE]>]",
        "TO{host:string port:integer FORCE?}?",
    );
    check(
        "key <<MAXLEN | MINID> [= | ~] threshold [LIMIT count]>",
        "key:string {<MAXLEN MINID> <= ~>? threshold:string LIMIT=count:integer?}",
    );
}

#[test]
fn repetitions_mark_what_they_repeat() {
    check("key [key ...]", "key:string*");
    check("[section [section ...]]", "section:string*?");
    check("key value [key value ...]", "{key:string value:string}*");
    check(
        "<parameter value> [parameter value ...]",
        "{parameter:string value:string}*",
    );
    check("[ID client-id [client-id ...]]", "ID=client-id:integer*?");
    check("[GET pattern [GET pattern ...]]", "GET=pattern:pattern**?");
    check(
        "[GET encoding offset [GET encoding offset ...]]",
        "GET{encoding:string offset:integer}**?",
    );
    check(
        "key [GET a | [OVERFLOW <WRAP | SAT>] <SET b | INCRBY c> [GET a | [OVERFLOW <WRAP | SAT>] <SET b | INCRBY c> ...]]",
        "key:string <GET=a:string {OVERFLOW<WRAP SAT>? <SET=b:string INCRBY=c:string>}>*?",
    );
    check(
        "[COUNT count] STREAMS key [key ...] id [id ...]",
        "COUNT=count:integer? STREAMS{key:string* id:string*}",
    );
}

#[test]
fn a_line_that_makes_no_sense_is_refused() {
    for syntax in ["[key", "key]", "<a]", "a | b", "key [value ...]", "..."] {
        assert!(parse(syntax).is_err(), "{syntax}");
    }
}

#[test]
fn widths_count_words() {
    let of = |syntax| arity_range(&parse(syntax).expect(syntax));
    assert_eq!(of("key seconds [NX | XX]"), (2, Some(3)));
    assert_eq!(of("key [key ...]"), (1, None));
    assert_eq!(of("[LIMIT offset count]"), (0, Some(3)));
    assert_eq!(of("<ID client-id | ALL>"), (1, Some(2)));
}
