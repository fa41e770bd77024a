//! Tests of `library`.

use super::*;

fn script(text: &str) -> Arc<Script> {
    Arc::new(Library::parse(text.as_bytes()).expect("no head"))
}

fn keep(library: &Library, script: &Arc<Script>, text: &[u8]) {
    let kept = library.keep_loaded(script, text, TextBound::Holds);
    assert!(kept.is_ok(), "there is room");
}

/// Returns a script padded with at least this many bytes.
fn long(number: usize, bytes: usize) -> String {
    format!("return {number} -- {}", "x".repeat(bytes))
}

#[test]
fn texts_beyond_the_bound_go_by_age_and_loads_are_refused() {
    let library = Library::default();
    library.limit_texts(32 << 20);
    for number in 0..20 {
        let text = long(number, 200_000);
        library.note_evaluated(&script(&text), text.as_bytes());
    }
    assert!(library.bytes() < 2 << 20, "{}", library.bytes());
    assert!(library.find(&script(&long(19, 200_000)).hex).is_some());
    assert!(library.find(&script(&long(0, 200_000)).hex).is_none());
    let mut loaded = 0;
    let refused = loop {
        let text = long(100 + loaded, 300_000);
        match library.keep_loaded(&script(&text), text.as_bytes(), TextBound::Holds) {
            Ok(()) => loaded += 1,
            Err(error) => break error,
        }
    };
    assert_eq!(refused, CommandError::OutOfMemory);
    assert!((4..=6).contains(&loaded), "{loaded}");
    assert!(library.bytes() < 3 << 20, "{}", library.bytes());
    assert!(library.find(&script(&long(100, 300_000)).hex).is_some());
    let text = long(1000, 300_000);
    let lifted = library.keep_loaded(&script(&text), text.as_bytes(), TextBound::Lifted);
    assert!(lifted.is_ok(), "a primary has it");
    library.flush();
    assert_eq!((library.bytes(), library.texts.room()), (0, 2 << 20));
    assert!(!library.texts.must_forget_evaluated());
}

#[test]
fn a_script_is_found_by_its_sha_in_either_case() {
    let library = Library::default();
    let one = script("return 1");
    keep(&library, &one, b"return 1");
    let digits = one.hex;
    assert_eq!(&digits, b"e0e1f9fabfc9d4800c877a703b823ac0578ff8db");
    assert!(library.find(&digits).is_some());
    assert!(library.find(&digits.to_ascii_uppercase()).is_some());
    assert!(library.find(b"e0e1").is_none());
    assert!(library.find(&[b'x'; 40]).is_none());
    assert!(library.bytes() > 0);
    library.flush();
    assert!(library.find(&digits).is_none());
    assert_eq!((library.len(), library.bytes()), (0, 0));
}

#[test]
fn of_two_scripts_with_one_text_the_first_is_known() {
    let library = Library::default();
    let (first, second) = (script("return 1"), script("return 1"));
    assert!(library.note_evaluated(&first, b"return 1").is_none());
    for _ in 0..2 {
        let known = library
            .note_evaluated(&second, b"return 1")
            .expect("the first one");
        assert!(Arc::ptr_eq(&known, &first));
        assert!(library.note_evaluated(&first, b"return 1").is_none());
    }
    keep(&library, &second, b"return 1");
    assert!(first.is_known() && !second.is_known());
    library.flush();
    assert!(!first.is_known() && library.bytes() == 0);
    assert!(library.note_evaluated(&second, b"return 1").is_none());
    let known = library
        .note_evaluated(&first, b"return 1")
        .expect("the second one");
    assert!(Arc::ptr_eq(&known, &second));
}

#[test]
fn scripts_of_eval_give_way_to_newer_ones_and_loaded_ones_stay() {
    let library = Library::default();
    let (loaded, often) = (script("return 'loaded'"), script("return 'often'"));
    keep(&library, &loaded, b"return 'loaded'");
    library.note_evaluated(&often, b"return 'often'");
    for number in 0..3 * EVALUATED_MAX {
        let text = format!("return {number}");
        library.note_evaluated(&script(&text), text.as_bytes());
        library.note_evaluated(&often, b"return 'often'");
    }
    assert_eq!(library.len(), EVALUATED_MAX + 1);
    assert!(library.find(&loaded.hex).is_some());
    assert!(library.find(&often.hex).is_some());
    assert!(library.find(&script("return 0").hex).is_none());
    assert_eq!(library.evicted() as usize, 2 * EVALUATED_MAX + 1);
    library.flush();
    assert_eq!(library.bytes(), 0);
}

#[test]
fn what_moves_is_found_as_before_and_looked_at_meanwhile() {
    let library = Library::default();
    for number in 0..100 {
        let text = format!("return {number}");
        keep(&library, &script(&text), text.as_bytes());
    }
    let bytes = library.bytes();
    let used = library
        .find(&script("return 7").hex)
        .expect("it was loaded");
    let body = used.body().expect("it is known");
    let mut mover = Mover::of_everything();
    library.relocate(&library.names(), &mut mover);
    assert_eq!(**body, *b"return 7", "who looks at it still has it");
    assert_eq!(mover.moved, 100);
    let moved = used.body().expect("it is known");
    assert_ne!(moved.as_ptr(), body.as_ptr());
    assert_eq!(library.bytes(), bytes);
    for number in 0..100 {
        let text = format!("return {number}");
        let found = library.find(&script(&text).hex).expect("it was loaded");
        assert!(found.is_text(text.as_bytes()));
    }
}

#[test]
fn a_script_that_is_forgotten_gives_its_text_back_and_may_come_again() {
    let library = Library::default();
    let (evaluated, loaded) = (script("return 1"), script("return 2"));
    library.note_evaluated(&evaluated, b"return 1");
    keep(&library, &loaded, b"return 2");
    library.flush();
    for forgotten in [&evaluated, &loaded] {
        assert!(forgotten.body().is_none());
        assert!(!forgotten.is_text(b"return 1") && !forgotten.is_text(b""));
    }
    assert_eq!(library.bytes(), 0);
    // An interpreter had looked it up before.
    assert!(library.note_evaluated(&evaluated, b"return 1").is_none());
    assert!(evaluated.is_known() && evaluated.is_text(b"return 1"));
}
