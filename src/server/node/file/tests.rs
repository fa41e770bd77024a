//! Tests of `file`.

use super::*;

fn config(dir: &Path) -> Config {
    Config {
        dir: dir.to_owned(),
        ..Config::default()
    }
}

fn sample() -> Saved {
    let text = "28e8ff7a77886969e9cebc113fb698fa4132a5bf 10.0.0.1:1@2 myself,master - 0 0 3 connected 1-5\n";
    read::read(text, false).expect("it is good")
}

#[test]
fn what_is_saved_is_read_at_the_next_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = config(dir.path());
    let (mut file, saved) = NodesFile::open(&config).expect("it can be made");
    assert_eq!(saved, None);
    for _ in 0..2 {
        file.save(&sample(), false).expect("there is room");
    }
    drop(file);
    let (_file, saved) = NodesFile::open(&config).expect("it is good");
    assert_eq!(saved, Some(sample()));
    let names = fs::read_dir(dir.path()).expect("it is there");
    assert_eq!(names.count(), 1, "nothing is left beside it");
}

#[test]
fn what_the_file_says_already_is_not_written_again() {
    let dir = tempfile::tempdir().expect("a folder");
    let (mut file, _) = NodesFile::open(&config(dir.path())).expect("it can be made");
    let mut saved = sample();
    let mut puts = |saved: &Saved, is_forced| {
        file.save(saved, is_forced).expect("there is room");
        file.puts
    };
    assert_eq!(puts(&saved, false), 1);
    saved.nodes[0].pong_received = 1_700_000_000_000;
    assert_eq!(puts(&saved, false), 1, "a pong has come since");
    assert_eq!(puts(&saved, true), 2, "it is to be shown that it can be");
    saved.last_vote_epoch = 4;
    assert_eq!(puts(&saved, false), 3);
    saved.nodes[0].slots.insert(6);
    assert_eq!(puts(&saved, false), 4);
    assert_eq!(puts(&saved, false), 4);
}

#[test]
fn what_is_kept_beside_it_is_read_at_the_next_start() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = config(dir.path());
    let (mut file, _) = NodesFile::open(&config).expect("it can be made");
    let mut saved = sample();
    file.save(&saved, false).expect("there is room");
    let open = || NodesFile::open(&config).expect("it is good").1;
    let mut change = |file: &mut NodesFile, slot| {
        saved.nodes[0].slots.insert(slot);
        file.keep(&saved).expect("there is room");
        saved.clone()
    };
    let kept = change(&mut file, 6);
    assert_eq!(file.puts, 1, "nothing is put in place yet");
    drop(file);
    assert_eq!(open(), Some(kept));
    // Truncate the file, as a power cut may leave it.
    let beside = dir.path().join("nodes.conf.unsynced");
    let text = fs::read_to_string(&beside).expect("it is there");
    fs::write(&beside, &text[..text.len() - 3]).expect("there is room");
    assert_eq!(open(), Some(sample()), "the file itself is whole");
    let (mut file, _) = NodesFile::open(&config).expect("it is good");
    let kept = change(&mut file, 7);
    file.save(&kept, false).expect("there is room");
    assert!(!beside.exists(), "it has become the file");
    drop(file);
    assert_eq!(open(), Some(kept));
}

#[test]
fn one_process_has_it_before_and_after_it_is_saved() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = config(dir.path());
    let (mut file, _) = NodesFile::open(&config).expect("it can be made");
    let refused = || {
        let text = NodesFile::open(&config).expect_err("another one has it");
        assert!(
            text.starts_with("Sorry, the cluster configuration file /"),
            "{text}"
        );
    };
    refused();
    file.save(&sample(), false).expect("there is room");
    refused();
    drop(file);
    NodesFile::open(&config).expect("it is free");
}

#[test]
fn a_broken_file_says_what_is_wrong_and_where() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = config(dir.path());
    let path = dir.path().join("nodes.conf");
    fs::write(&path, b"\nnonsense \xFF\n").expect("there is room");
    let text = NodesFile::open(&config).expect_err("it is broken");
    let shown = path.display();
    let expected = format!(
        "Unrecoverable error: corrupted cluster config file \"nonsense \u{FFFD}\". {shown}, \
             line 2: 2 fields, but 8 are required"
    );
    assert_eq!(text, expected);
}

#[test]
fn what_can_not_be_saved_leaves_what_was() {
    let dir = tempfile::tempdir().expect("a folder");
    let config = config(dir.path());
    let (mut file, _) = NodesFile::open(&config).expect("it can be made");
    file.save(&sample(), false).expect("there is room");
    let aside = dir.path().join("nodes.conf.tmp");
    fs::create_dir(&aside).expect("there is room");
    file.save(&Saved::default(), false)
        .expect_err("a folder is in the way");
    fs::remove_dir(&aside).expect("it is there");
    drop(file);
    let (_file, saved) = NodesFile::open(&config).expect("it is good");
    assert_eq!(saved, Some(sample()));
}
