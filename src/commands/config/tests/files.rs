//! Configuration files: includes, encodings, TOML, and the shipped examples.

use super::*;

fn write(directory: &Path, name: &str, text: &str) -> PathBuf {
    let path = directory.join(name);
    fs::create_dir_all(path.parent().expect("a parent")).expect("made");
    fs::write(&path, text).expect("written");
    path
}

fn load_file(path: &Path) -> Result<Startup, ConfigError> {
    load_arguments(&[path.to_str().expect("text")])
}

#[test]
fn the_error_names_the_file_the_line_and_the_directive() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = write(directory.path(), "a.conf", "port 1\n# c\nfoo bar\n");
    let expected = format!(
        "Reading the configuration file, at line 3 of {}\n>>> 'foo bar'\nBad directive or wrong number of arguments",
        path.display()
    );
    assert_eq!(complaint(load_file(&path)), expected);
}

#[test]
fn a_missing_file_is_named_with_the_systems_words() {
    let error = load_arguments(&["/nosuch/a.conf"])
        .expect_err("missing")
        .to_string();
    assert_eq!(
        error,
        "Fatal error, can't open config file '/nosuch/a.conf': No such file or directory"
    );
}

#[test]
fn the_file_is_absolute_and_standard_input_and_arguments_come_after_it() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = write(directory.path(), "a.conf", "timeout 1\nhz 1\ndatabases 1");
    let words = [path.to_str().expect("text"), "--databases", "3", "-"];
    let startup = load_all(&words, &[], "hz 2\ndatabases 2").expect("good");
    assert_eq!(startup.file, Some(path));
    let config = startup.config;
    assert_eq!((config.timeout, config.hz, config.databases), (1, 2, 3));
}

#[test]
fn includes_stand_where_they_are_written_and_patterns_are_sorted() {
    let directory = tempfile::tempdir().expect("a directory");
    let root = directory.path().display();
    write(
        directory.path(),
        "conf.d/20.conf",
        "maxclients 20\ntimeout 20\n",
    );
    write(directory.path(), "conf.d/10.conf", "maxclients 10\nhz 10\n");
    write(directory.path(), "conf.d/.hidden.conf", "nonsense\n");
    write(
        directory.path(),
        "more.toml",
        "databases = 9\nbind = [\"::1\"]\n",
    );
    let text = format!(
        "timeout 1\ninclude {root}/conf.d/*.conf\nhz 33\ninclude {root}/none/*.conf\ninclude {root}/more.toml\n"
    );
    let path = write(directory.path(), "main.conf", &text);
    let config = load_file(&path).expect("good").config;
    assert_eq!((config.maxclients, config.timeout, config.hz), (20, 20, 33));
    assert_eq!((config.databases, config.bind), (9, vec!["::1".to_owned()]));
    let included = format!("{root}/conf.d/1?.conf");
    let config = load_arguments(&["--include", &included, "--hz", "50"])
        .expect("good")
        .config;
    assert_eq!((config.maxclients, config.hz), (10, 50));
}

#[test]
fn an_error_in_an_included_file_names_that_file() {
    let directory = tempfile::tempdir().expect("a directory");
    let inner = write(directory.path(), "inner.conf", "\n\nmaxclients 0\n");
    let outer = write(
        directory.path(),
        "outer.conf",
        &format!("include {}\n", inner.display()),
    );
    let expected = format!(
        "Reading the configuration file, at line 3 of {}\n>>> 'maxclients 0'\n\
         argument must be between 1 and 4294967295 inclusive",
        inner.display()
    );
    assert_eq!(complaint(load_file(&outer)), expected);
    let missing = write(directory.path(), "missing.conf", "include /nosuch/b.conf\n");
    assert!(
        load_file(&missing)
            .expect_err("missing")
            .to_string()
            .contains("'/nosuch/b.conf'")
    );
}

#[test]
fn files_that_include_each_other_end_in_an_error() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("loop.conf");
    write(
        directory.path(),
        "loop.conf",
        &format!("include {}\n", path.display()),
    );
    assert!(complaint(load_file(&path)).ends_with("files include each other more than 16 deep"));
}

#[test]
fn comments_and_values_may_be_any_bytes_and_are_written_back_as_they_were() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("a.conf");
    let text = b"# caf\xe9\nport 7\nrequirepass caf\xe9\xff\nmasteruser \"\\xf4\\x8f\\xbf\\xbf\"\n";
    fs::write(&path, text).expect("written");
    let mut config = load_file(&path).expect("good").config;
    assert_eq!(config.port, 7);
    assert_eq!(*lossless::bytes_of(&config.requirepass), *b"caf\xe9\xff");
    assert_eq!(
        *lossless::bytes_of(&config.masteruser),
        *b"\xf4\x8f\xbf\xbf"
    );
    let pairs = [("masterauth", b"\xc9\0\xf4".as_slice())];
    live::set(&mut config, &pairs, ClientLocality::Local).expect("any bytes");
    rewrite::rewrite_file(&config, Some(&path), AddedParameters::Differing).expect("written");
    let written = fs::read(&path).expect("there");
    assert!(written.starts_with(b"# caf\xe9\nport 7\nrequirepass \"caf\\xe9\\xff\"\n"));
    let again = load_file(&path).expect("good").config;
    assert_eq!(
        (&again.requirepass, &again.masteruser, &again.masterauth),
        (&config.requirepass, &config.masteruser, &config.masterauth)
    );
    assert_eq!(*lossless::bytes_of(&again.masterauth), *b"\xc9\0\xf4");
}

#[test]
fn toml_says_the_same_as_redis_conf() {
    let text = "port = 7\nprotected-mode = false\nmaxmemory = \"1gb\"\nrequirepass = \"a b\"\nbind = [\"127.0.0.1\", \"::1\"]\n\
        save = [\"60 1\", \"30 2\"]\nlatency-tracking-info-percentiles = [50, 99.9]\nclient-output-buffer-limit = [\n  \"normal 1 2 3\",\n  \"pubsub 4 5 6\",\n]\n\
        rename-command = [\"FLUSHALL ''\", \"KEYS hidden\"]\nloglevel = \"verbose\"\n";
    let conf = "port 7\nprotected-mode no\nmaxmemory 1gb\nrequirepass \"a b\"\nbind 127.0.0.1 ::1\nsave 60 1\nsave 30 2\n\
        latency-tracking-info-percentiles 50 99.9\nclient-output-buffer-limit normal 1 2 3\nclient-output-buffer-limit pubsub 4 5 6\n\
        rename-command FLUSHALL ''\nrename-command KEYS hidden\nloglevel verbose\n";
    let toml = load_text(text).expect("good");
    assert_eq!(toml.config, load_text(conf).expect("good").config);
    assert_eq!(toml.config.loglevel, LogLevel::Verbose);
    assert_eq!(
        load_text("save = []\nbind = \"\"")
            .expect("good")
            .config
            .save,
        []
    );
}

#[test]
fn errors_in_toml_name_the_line() {
    let complaint_of = |text: &str| complaint(load_text(text));
    assert_eq!(
        complaint_of("# c\nport = 7\nmaxclients = 0\n"),
        "Reading the configuration file, at line 3 of -\n>>> 'maxclients = 0'\n\
         argument must be between 1 and 4294967295 inclusive"
    );
    assert!(
        complaint_of("port = 7\nfoo = 1\n")
            .ends_with("at line 2 of -\n>>> 'foo = 1'\nBad directive or wrong number of arguments")
    );
    assert!(complaint_of("port = 7\n\nhz = = 3\n").contains("at line 3 of -\n>>> 'hz = = 3'\n"));
    assert!(complaint_of("[network]\nport = 7\n").ends_with("put directives at the top level"));
    assert!(complaint_of("port = [1, 2]").ends_with("wrong number of arguments"));
    assert!(complaint_of("port = [[1]]").ends_with("a list may contain only strings and numbers"));
}

#[test]
fn the_shipped_examples_load_and_say_the_same() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    let toml = load_file(&root.join("basalt.toml")).expect("good");
    let conf = load_file(&root.join("basalt.conf")).expect("good");
    assert_eq!(toml.config, conf.config);
    assert!(toml.warnings.is_empty() && conf.warnings.is_empty());
}

#[test]
fn what_the_shipped_examples_have_in_comments_is_valid_too() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../config");
    for name in ["basalt.toml", "basalt.conf"] {
        let text = fs::read_to_string(root.join(name)).expect("shipped");
        let mut count = 0;
        // In the shipped example, prose has a blank after its hash sign, an example line has none.
        for line in text.lines() {
            let Some(example) = line
                .strip_prefix('#')
                .filter(|rest| rest.starts_with(|letter: char| letter.is_ascii_lowercase()))
            else {
                continue;
            };
            count += 1;
            load_all(&["-", "--check-config"], &[], example)
                .unwrap_or_else(|error| panic!("{name}: {error}"));
        }
        assert!(count > 10, "{name} has {count} examples");
    }
}
