//! Function libraries.

use super::Bench;
use basalt_commands::command::declaration::ScriptVerb;
use basalt_commands::command::host::scripts::{Restore, TextBound};

const HELLO: &str = "#!lua name=hello\nredis.register_function('hello', function(keys, args) return {keys[1], args[1]} end)";

fn load(bench: &Bench, code: &str) -> String {
    match bench
        .library
        .functions
        .load(code.as_bytes(), false, TextBound::Holds, &mut || None)
    {
        Ok(name) => name,
        Err(error) => error.text().into_owned(),
    }
}

fn call(bench: &mut Bench, name: &str) -> String {
    let arguments: [&[u8]; 4] = [name.as_bytes(), b"1", b"k", b"a"];
    bench.request(ScriptVerb::Fcall, &arguments)
}

#[test]
fn functions_are_called_with_keys_and_arguments() {
    let mut bench = Bench::new();
    assert_eq!(load(&bench, HELLO), "hello");
    assert_eq!(call(&mut bench, "hello"), "1) \"k\"\n2) \"a\"");
    assert_eq!(call(&mut bench, "HELLO"), "1) \"k\"\n2) \"a\"");
    assert_eq!(load(&bench, HELLO), "ERR Library 'hello' already exists");
    assert_eq!(
        load(&bench, &HELLO.replace("name=hello", "name=other")),
        "ERR Function hello already exists"
    );
    assert_eq!(bench.library.functions.counts(), (1, 1));
    let payload = bench.library.functions.dump();
    bench.library.functions.flush(&mut || None);
    assert_eq!(call(&mut bench, "hello"), "(error) ERR Function not found");
    assert!(
        bench
            .library
            .functions
            .restore(&payload, Restore::Append, TextBound::Holds, &mut || None)
            .is_ok()
    );
    assert_eq!(call(&mut bench, "hello"), "1) \"k\"\n2) \"a\"");
    let again =
        bench
            .library
            .functions
            .restore(&payload, Restore::Append, TextBound::Holds, &mut || None);
    assert_eq!(
        again.expect_err("twice").text(),
        "ERR Library hello already exists"
    );
    assert!(
        bench
            .library
            .functions
            .restore(&payload, Restore::Replace, TextBound::Holds, &mut || None)
            .is_ok()
    );
    assert!(
        bench
            .library
            .functions
            .restore(&payload, Restore::Flush, TextBound::Holds, &mut || None)
            .is_ok()
    );
    assert!(
        bench
            .library
            .functions
            .delete(b"hello", &mut || None)
            .is_ok()
    );
    assert!(
        bench
            .library
            .functions
            .delete(b"hello", &mut || None)
            .is_err()
    );
}

#[test]
fn another_thread_loads_a_library_when_it_needs_it() {
    let bench = Bench::new();
    assert_eq!(load(&bench, HELLO), "hello");
    let library = bench.library;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let mut other = Bench::new();
            other.library = library;
            assert_eq!(call(&mut other, "hello"), "1) \"k\"\n2) \"a\"");
        });
    });
}

#[test]
fn what_is_wrong_with_a_library_is_said() {
    let bench = Bench::new();
    let name = "Library names can only contain letters, numbers, or underscores(_) and must be at least one character long";
    for (code, expected) in [
        ("return 1".to_owned(), "ERR Missing library metadata".to_owned()),
        ("#!lua name=a".into(), "ERR Invalid library metadata".into()),
        ("#!lua\nx".into(), "ERR Library name was not given".into()),
        ("#!lua name=a name=b\nx".into(), "ERR Invalid metadata value, name argument was given multiple times".into()),
        ("#!lua foo=a\nx".into(), "ERR Invalid metadata value given: foo=a".into()),
        ("#!lua name=a-b\nx".into(), format!("ERR {name}")),
        ("#!bad name=a\nx".into(), "ERR Engine 'bad' not found".into()),
        ("#!lua name=a\nreturn 1".into(), "ERR No functions registered".into()),
        ("#!lua name=a\nreturn +".into(), "ERR Error compiling function: user_function:2: unexpected symbol near '+'".into()),
        ("#!lua name=a\nredis.call('get', 'x')".into(),
         "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'call'".into()),
        ("#!lua name=a\nmath.random()".into(),
         "ERR Error registering functions: ERR user_function:2: Script attempted to access nonexistent global variable 'math'".into()),
        ("#!lua name=a\na = 1".into(),
         "ERR Error registering functions: ERR user_function:2: Attempt to modify a readonly table".into()),
        ("#!lua name=a\nredis.register_function('f')".into(),
         "ERR Error registering functions: ERR calling redis.register_function with a single argument is only applicable to Lua table (representing named arguments).".into()),
        ("#!lua name=a\nredis.register_function('f', 1)".into(),
         "ERR Error registering functions: ERR second argument to redis.register_function must be a function".into()),
        ("#!lua name=a\nredis.register_function{function_name='f', callback=function() end, flags={'bad'}}".into(),
         "ERR Error registering functions: ERR unknown flag given".into()),
        ("#!lua name=a\nredis.register_function('f-g', function() end)".into(),
         format!("ERR Error registering functions: ERR {name}")),
        ("#!lua name=a\nwhile true do end".into(),
         "ERR Error registering functions: ERR FUNCTION LOAD timeout".into()),
    ] {
        assert_eq!(load(&bench, &code), expected, "{code}");
    }
}

#[test]
fn functions_are_bound_by_their_flags_and_globals() {
    let mut bench = Bench::new();
    load(&bench, "#!lua name=a
        local count = 0
        local function more() count = count + 1 return count end
        redis.register_function{function_name='ro', callback=function() return redis.pcall('set', 'a', 1).err end, flags={'no-writes'}, description='reads'}
        redis.register_function('counts', function() return more() end)
        redis.register_function('leaks', function() x = 1 end)
        redis.register_function('late', function() redis.register_function('z', function() end) end)");
    assert_eq!(
        call(&mut bench, "ro"),
        "\"ERR Write commands are not allowed from read-only scripts.\""
    );
    assert_eq!(call(&mut bench, "counts"), "(integer) 1");
    assert_eq!(call(&mut bench, "counts"), "(integer) 2");
    assert!(
        call(&mut bench, "leaks")
            .contains("Attempt to modify a readonly table script: leaks, on @user_function:")
    );
    assert!(call(&mut bench, "late").starts_with("(error) ERR user_function:"));
    let views = bench.library.functions.views(Some(b"A"));
    assert_eq!(views[0].functions[0].flags, ["no-writes"]);
    assert_eq!(
        views[0].functions[0].description.as_deref(),
        Some(&b"reads"[..])
    );
    let arguments: [&[u8]; 2] = [b"counts", b"0"];
    assert_eq!(
        bench.request(ScriptVerb::FcallRo, &arguments),
        "(error) ERR Can not execute a script with write flag using *_ro command."
    );
    assert_eq!(
        bench.request(ScriptVerb::Fcall, &[b"counts", b"x"]),
        "(error) ERR Bad number of keys provided"
    );
}

#[test]
fn many_libraries_are_called_and_flushed_and_leave_nothing() {
    const LIBRARIES: usize = 9_000;
    let mut bench = Bench::new();
    assert_eq!(bench.eval("return 1"), "(integer) 1");
    let before = crate::script::memory_figures().functions;
    for number in 0..LIBRARIES {
        let code = format!(
            "#!lua name=l{number}\nredis.register_function('f{number}', function() return {number} end)"
        );
        assert_eq!(load(&bench, &code), format!("l{number}"));
    }
    let counted = crate::script::memory_figures().functions - before;
    let live = || {
        crate::script::vm::with(|vm| {
            vm.lua.gc_collect().expect("room");
            vm.lua.used_memory()
        })
    };
    let full = live();
    assert_eq!(bench.eval("return 1"), "(integer) 1");
    for number in [0, LIBRARIES / 2, LIBRARIES - 1] {
        assert_eq!(
            call(&mut bench, &format!("F{number}")),
            format!("(integer) {number}")
        );
    }
    let payload = bench.library.functions.dump();
    assert!(bench.library.functions.delete(b"l7", &mut || None).is_ok());
    assert_eq!(call(&mut bench, "f7"), "(error) ERR Function not found");
    assert_eq!(call(&mut bench, "f8"), "(integer) 8");
    bench.library.functions.flush(&mut || None);
    assert_eq!(call(&mut bench, "f8"), "(error) ERR Function not found");
    assert!(crate::script::memory_figures().functions <= before + counted / 2);
    let taken = full - live();
    assert!(
        counted > taken / 2 && counted < taken * 2,
        "{counted} of {taken}"
    );
    let restored =
        bench
            .library
            .functions
            .restore(&payload, Restore::Append, TextBound::Holds, &mut || None);
    assert!(restored.is_ok());
    assert_eq!(call(&mut bench, "f7"), "(integer) 7");
    assert_eq!(bench.library.functions.counts(), (LIBRARIES, LIBRARIES));
}

#[test]
fn one_library_may_have_many_functions() {
    let mut bench = Bench::new();
    let code = "#!lua name=l\nfor i = 1, 9000 do redis.register_function('f' .. i, function() return i end) end";
    // Loading a library is limited to half a second, which may not suffice on a busy machine.
    let loaded = (0..50)
        .map(|_| load(&bench, code))
        .find(|said| !said.contains("timeout"));
    assert_eq!(loaded.as_deref(), Some("l"));
    assert_eq!(call(&mut bench, "f1"), "(integer) 1");
    assert_eq!(call(&mut bench, "f9000"), "(integer) 9000");
    assert_eq!(bench.eval("return 1"), "(integer) 1");
}
