//! Tests of the values passed into and out of Lua.

use std::cell::RefCell;

use super::*;

thread_local! {
    static SEEN: RefCell<Vec<String>> = RefCell::default();
}

struct Seen;

impl Take for Seen {
    fn take(argument: LuaArgument<'_>) {
        let text = match argument {
            LuaArgument::Text(text) => format!("{:?}", String::from_utf8_lossy(text)),
            LuaArgument::Number(number) => number.to_string(),
            LuaArgument::Other => "other".to_owned(),
        };
        SEEN.with_borrow_mut(|seen| seen.push(text));
    }
}

#[test]
fn lists_arrive_as_tables_and_leave_the_stack_as_it_was() {
    let lua = Lua::new();
    lua.set_memory_limit(1 << 26).expect("bounded");
    let names = [lua.create_string("A"), lua.create_string("B")].map(|name| name.expect("room"));
    let long = vec![b'x'; FREE_BYTES_MAX];
    let many = vec![&b"y"[..]; TEXTS_MAX + 1];
    for _ in 0..1000 {
        let texts: [&[u8]; 3] = [b"one", b"", b"a\0b"];
        let lists = [(&names[0], &texts[..]), (&names[1], &[][..])];
        set_lists(&lua, &lua.globals(), lists).expect("room");
    }
    let check = "return #A, A[1], A[2], A[3] == 'a\\0b', #B";
    let got: (usize, String, String, bool, usize) = lua.load(check).eval().expect("fine");
    assert_eq!(got, (3, "one".to_owned(), String::new(), true, 0));
    let texts = [&long[..], b"z"];
    let lists = [(&names[0], &texts[..]), (&names[1], &many[..])];
    set_lists(&lua, &lua.globals(), lists).expect("room");
    let got: (usize, usize, String, usize) =
        lua.load("return #A, #A[1], A[2], #B").eval().expect("fine");
    assert_eq!(got, (2, FREE_BYTES_MAX, "z".to_owned(), TEXTS_MAX + 1));
    assert_eq!(list(&lua, &texts[1..]).expect("room").raw_len(), 1);
    assert_eq!(lua.set_memory_limit(0).expect("bounded"), 1 << 26);
}

#[test]
fn arguments_are_shown_in_order_and_a_text_comes_back() {
    let lua = Lua::new();
    let function = lua
        .create_function(|lua, _: LuaCallArguments<Seen>| {
            let seen = SEEN.with_borrow_mut(std::mem::take);
            match seen.len() {
                0 => Ok(Value::Nil.into()),
                _ => answer(lua, seen.join(" ").as_bytes()),
            }
        })
        .expect("room");
    lua.globals().raw_set("f", function).expect("room");
    for (call, expected) in [
        (
            "f('a', 1, 2.5, {}, nil, 'b')",
            "\"a\" 1 2.5 other other \"b\"",
        ),
        ("tostring(f())", "nil"),
        ("f('x') .. f('y')", "\"x\"\"y\""),
        ("coroutine.wrap(function() return f('in') end)()", "\"in\""),
        ("#f(('x'):rep(100000))", "100002"),
        ("select('#', f(1, 2, 3))", "1"),
    ] {
        let got: String = lua
            .load(format!("return tostring({call})"))
            .eval()
            .expect(call);
        assert_eq!(got, expected, "{call}");
    }
}

#[test]
fn a_kept_table_holds_what_it_was_filled_with_last() {
    let lua = Lua::new();
    let kept = ReusableTextTable::new(&lua).expect("room");
    lua.globals().raw_set("A", kept.table()).expect("room");
    let nothing = lua.load("").into_function().expect("compiles");
    let handler = Pinned::new(&lua, &nothing).expect("room");
    let nothing = Pinned::new(&lua, &nothing).expect("room");
    let fill = |texts: &[&[u8]]| {
        let called = call_below(&lua, &handler, &nothing, &[(&kept, texts)], &[], |_| ());
        assert!(matches!(called, Ok(Called::Value(Value::Nil))));
    };
    let texts: [&[u8]; KEPT_TEXTS_MAX] = std::array::from_fn(|at| &b"abcdefghijklmnop"[at..]);
    for count in (0..=KEPT_TEXTS_MAX).chain([3, 16, 0, 1]) {
        assert!(kept.fits(&texts[..count]));
        fill(&texts[..count]);
        let got: (usize, usize, Option<String>) = lua
            .load("local n = 0 for _ in pairs(A) do n = n + 1 end return #A, n, A[#A]")
            .eval()
            .expect("fine");
        let last = texts[..count]
            .last()
            .map(|text| String::from_utf8_lossy(text).into());
        assert_eq!(got, (count, count, last));
    }
    assert!(!kept.fits(&[&b"x"[..]; KEPT_TEXTS_MAX + 1]));
    assert!(!kept.fits(&[&[b'x'; KEPT_TEXT_BYTES_MAX + 1]]));
}

#[test]
fn many_lists_and_texts_are_garbage_that_is_collected() {
    let lua = Lua::new();
    let name = lua.create_string("A").expect("room");
    let other = lua.create_string("B").expect("room");
    for number in 0..20_000 {
        let text = number.to_string();
        let texts = [text.as_bytes()];
        let lists = [(&name, &texts[..]), (&other, &texts[..])];
        set_lists(&lua, &lua.globals(), lists).expect("room");
    }
    assert!(lua.used_memory() < 4 << 20, "{}", lua.used_memory());
}

/// A function that returns the kind of result that its first argument requests.
struct Obliging;

impl Direct for Obliging {
    fn call(given: &Given<'_>) -> Return {
        let mut arguments = given.iter();
        match (arguments.next(), arguments.next()) {
            (Some(LuaArgument::Text(text)), None) => {
                Return::text(text).unwrap_or(Return::otherwise())
            }
            (Some(LuaArgument::Number(number)), None) => Return::number(number + 1.0),
            (Some(LuaArgument::Text(_)), Some(LuaArgument::Text(text))) => {
                Return::field("name", text).unwrap_or(Return::otherwise())
            }
            (None, None) => Return::boolean(true),
            _ => Return::otherwise(),
        }
    }
}

fn with_obliging() -> Lua {
    let lua = Lua::new();
    lua.set_memory_limit(1 << 24).expect("bounded");
    let other = lua.create_function(|_, ()| Err::<(), _>(mlua::Error::runtime("other")));
    let function = direct::<Obliging>(&lua, &other.expect("room")).expect("room");
    lua.globals().raw_set("f", function).expect("room");
    lua
}

#[test]
fn a_direct_function_answers_itself_or_has_another_one_answer() {
    let lua = with_obliging();
    for (call, expected) in [
        ("f('a\\0b') == 'a\\0b'", "true"),
        ("f(1.5)", "2.5"),
        ("f()", "true"),
        ("#f(('x'):rep(1024))", "1024"),
        ("coroutine.wrap(function() return f('in') end)()", "in"),
        ("select('#', f('x'))", "1"),
        ("f('a', 'b\\0c').name == 'b\\0c'", "true"),
        ("next(f('a', 'b'), 'name')", "nil"),
        ("f('a', 'b') == f('a', 'b')", "false"),
        ("#f('a', ('x'):rep(1024)).name", "1024"),
        ("pcall(f, 'a', ('x'):rep(1025))", "false"),
        ("pcall(f, {})", "false"),
        ("pcall(f, 1, 2)", "false"),
        ("pcall(f, ('x'):rep(1025))", "false"),
        ("pcall(f, unpack({}, 1, 200))", "false"),
    ] {
        let run = lua.load(format!("return tostring(({call}))")).eval();
        let got: String = run.expect(call);
        assert_eq!(got, expected, "{call}");
    }
}

#[test]
fn a_call_below_a_handler_ends_with_a_text_a_value_or_what_the_handler_made() {
    let lua = with_obliging();
    let handler = lua.create_function(|_, value: Value| Ok((value.is_error(), true)));
    let handler = Pinned::new(&lua, handler.expect("room")).expect("room");
    let describe = |code: &str, arguments: &[Table]| {
        let function = lua.load(code).into_function().expect("compiles");
        let function = Pinned::new(&lua, function).expect("room");
        let called = call_below(&lua, &handler, &function, &[], arguments, <[u8]>::to_vec);
        match called.expect("room") {
            Called::Text(text) => format!("text {}", String::from_utf8_lossy(&text)),
            Called::Value(value) => format!("value {value:?}"),
            Called::Failed(Value::String(text)) => format!("failed {}", text.display()),
            Called::Failed(value) => format!("failed {value:?}"),
        }
    };
    let list = lua.create_sequence_from([1, 2, 3]).expect("room");
    for _ in 0..100 {
        for (code, expected) in [
            ("return 'yes'", "text yes"),
            ("return 7, 8", "value Integer(7)"),
            ("", "value Nil"),
            ("return #(...)", "value Integer(3)"),
            ("error('no')", "failed Boolean(false)"),
            ("return f({})", "failed Boolean(true)"),
        ] {
            assert_eq!(describe(code, std::slice::from_ref(&list)), expected);
        }
    }
    assert_eq!(
        describe("return ('x'):rep(1e8)", &[]),
        "failed not enough memory"
    );
    let endless = "local all = {} while true do all[#all + 1] = f(tostring(#all)) end";
    assert_eq!(describe(endless, &[]), "failed not enough memory");
    lua.gc_collect().expect("room");
    assert_eq!(describe("return f(41)", &[]), "value Integer(42)");
    let too_many = vec![list; CALL_ARGUMENTS_MAX + 1];
    let function = lua.load("return 1").into_function().expect("compiles");
    let function = Pinned::new(&lua, function).expect("room");
    assert!(call_below(&lua, &handler, &function, &[], &too_many, |_| ()).is_err());
}

#[test]
fn a_pinned_value_is_of_one_interpreter_also_when_that_one_is_gone() {
    let (lua, other) = (Lua::new(), Lua::new());
    let pinned = Pinned::new(&lua, 7).expect("room");
    assert!(pinned.is_of(&lua) && !pinned.is_of(&other));
    drop(lua);
    let others: Vec<Lua> = (0..10).map(|_| Lua::new()).collect();
    assert!(!others.iter().any(|lua| pinned.is_of(lua)));
}
