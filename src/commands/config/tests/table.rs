//! Consistency of the table, and comparison with the recorded parameters of redis-server 7.0.15.

use super::*;

#[test]
fn names_and_aliases_are_lower_case_and_unique() {
    let mut seen = HashSet::new();
    for parameter in PARAMETERS {
        for name in [Some(parameter.name), parameter.traits.alias]
            .into_iter()
            .flatten()
        {
            assert_eq!(name, name.to_ascii_lowercase());
            assert!(seen.insert(name), "{name} is there twice");
        }
    }
}

#[test]
fn environment_names_are_unique() {
    let names: HashSet<String> = PARAMETERS.iter().map(layers::environment_name).collect();
    assert_eq!(names.len(), PARAMETERS.len());
}

#[test]
fn each_row_writes_its_own_field() {
    // Two rows with the same field would both change when one is set.
    let default = Config::default();
    for parameter in PARAMETERS {
        let Some(other) = another_value(parameter) else {
            continue;
        };
        let mut config = default.clone();
        parameter
            .set(&mut config, &other, Mode::Replace)
            .expect(parameter.name);
        for row in PARAMETERS {
            let differs = !row.is_default(&config, &default);
            assert_eq!(
                differs,
                row.name == parameter.name,
                "{} moved {}",
                parameter.name,
                row.name
            );
        }
        parameter.reset(&mut config);
        assert_eq!(config, default, "{}", parameter.name);
    }
}

/// Returns words that set a parameter to another value than its default.
fn another_value(parameter: &Parameter) -> Option<Vec<String>> {
    let words = |text: &str| Some(text.split(' ').map(str::to_owned).collect());
    match &parameter.kind {
        ParameterKind::Flag { default, .. } => words(parameter::yes_or_no(!default)),
        ParameterKind::Number {
            default,
            lower,
            upper,
            ..
        } => {
            let other = if default == upper { lower } else { upper };
            words(&if parameter.show(&Config::default()).starts_with('0')
                && parameter.name == "unixsocketperm"
            {
                format!("{other:o}")
            } else {
                other.to_string()
            })
        }
        ParameterKind::Text { .. } if parameter.name == "proc-title-template" => words("{port}"),
        ParameterKind::Text { .. } if parameter.name == "metrics-auth" => words("user:password"),
        ParameterKind::Text { .. } if parameter.name == "version-override" => words("8.4.0"),
        ParameterKind::Text { .. } => words("another"),
        ParameterKind::Choice { names, default, .. } => {
            let (name, _) = names.iter().find(|(_, code)| code != default)?;
            words(name)
        }
        ParameterKind::Special(_) => match parameter.name {
            "bf-error-rate" => words("0.05"),
            "bind" | "metrics-bind" => words("127.0.0.1 ::1"),
            "dir" => words("/"),
            "save" => words("5 6"),
            "client-output-buffer-limit" => words("pubsub 1 2 3"),
            "oom-score-adj-values" => words("1 2 3"),
            "notify-keyspace-events" => words("KEA"),
            "replicaof" => words("localhost 6380"),
            "maxmemory-db" => words("1 2gb 2 10%"),
            "cluster-seeds" => words("localhost:7000 10.0.0.1:7001@9"),
            "latency-tracking-info-percentiles" => words("10 20"),
            other => panic!("a special parameter without a test value: {other}"),
        },
    }
}

#[test]
fn numbers_fit_their_fields_and_defaults_their_bounds() {
    for parameter in PARAMETERS {
        let ParameterKind::Number {
            default,
            lower,
            upper,
            read,
            write,
            ..
        } = &parameter.kind
        else {
            continue;
        };
        assert!(
            lower < upper && (lower..=upper).contains(&default),
            "{}",
            parameter.name
        );
        let mut config = Config::default();
        for number in [lower, upper, default] {
            write(&mut config, *number);
            assert_eq!(
                read(&config),
                *number,
                "{} cannot hold {number}",
                parameter.name
            );
        }
    }
}

#[test]
fn default_choices_are_listed_and_default_texts_pass_their_check() {
    for parameter in PARAMETERS {
        match &parameter.kind {
            ParameterKind::Choice { names, default, .. } => {
                assert!(
                    names.iter().any(|(_, code)| code == default),
                    "{}",
                    parameter.name
                );
            }
            ParameterKind::Text { default, check, .. } => check(default).expect(parameter.name),
            _ => {}
        }
    }
}

#[test]
fn every_default_survives_being_written_and_read() {
    let default = Config::default();
    for parameter in PARAMETERS {
        let lines = parameter.lines(&default).join("\n");
        let startup = load_text(&lines).expect(&lines);
        assert!(parameter.is_default(&startup.config, &bare()), "{lines}");
    }
}

#[test]
fn sentences_end_and_secrets_are_marked() {
    for parameter in PARAMETERS {
        assert!(parameter.summary.ends_with('.'), "{}", parameter.name);
        let is_secret = parameter.name.ends_with("pass") || parameter.name.ends_with("auth");
        assert!(
            !is_secret || parameter.traits.sensitive,
            "{}",
            parameter.name
        );
        assert!(
            [
                "7.0", "7.2", "7.4", "8.0", "8.1", "8.6", "9.0", "9.2", "basalt"
            ]
            .contains(&parameter.traits.since)
        );
    }
}

#[test]
fn defaults_print_as_redis_server_prints_them() {
    // Not compared: the recorded server had its own port and directory; huge pages are disabled there because they
    // make a fork expensive, and nothing forks here.
    const EXCEPT: &[&str] = &["port", "dir", "disable-thp", "maxmemory-clients"];
    let config = Config::default();
    for row in recorded().filter(|row| !EXCEPT.contains(&row[0])) {
        assert_eq!(get_one(&config, row[0]), row[1], "{}", row[0]);
    }
}

#[test]
fn every_name_of_redis_server_is_known_and_nothing_else_claims_to_be_old() {
    let theirs: HashSet<&str> = recorded().map(|row| row[0]).collect();
    assert!(theirs.len() > 180);
    assert!(theirs.iter().all(|name| find(name).is_some()));
    // Hidden parameters are not listed; the parameters for core lists have aliases since 7.4; Valkey renamed others.
    const NEWER_ALIASES: &[&str] = &[
        "server-cpulist",
        "bio-cpulist",
        "aof-rewrite-cpulist",
        "bgsave-cpulist",
        "primaryuser",
        "primaryauth",
        "commandlog-execution-slower-than",
        "commandlog-slow-execution-max-len",
    ];
    for parameter in PARAMETERS {
        let is_old = parameter.traits.since == "7.0" && !parameter.traits.hidden;
        for name in [Some(parameter.name), parameter.traits.alias]
            .into_iter()
            .flatten()
        {
            if is_old && !NEWER_ALIASES.contains(&name) {
                assert!(theirs.contains(name), "{name}");
            }
            assert!(
                is_old || parameter.traits.hidden || !theirs.contains(name),
                "{name}"
            );
        }
    }
}

#[test]
fn bad_values_get_the_error_that_redis_server_gives() {
    // Later versions list more values; addresses are only checked when they are applied, which does not happen here.
    const EXCEPT: &[&str] = &[
        "loglevel",
        "repl-diskless-load",
        "rdbcompression",
        "bind",
        "maxmemory-policy",
        "shutdown-on-sigint",
        "shutdown-on-sigterm",
    ];
    for row in recorded() {
        let parameter = find(row[0]).expect("known");
        for (probe, theirs) in PROBES.iter().zip(&row[2..]) {
            let is_refused = parameter.traits.support.refusal(false).is_some() && *theirs == "OK";
            if EXCEPT.contains(&row[0]) || is_refused {
                continue;
            }
            let ours = match set_one(&mut Config::default(), row[0], probe) {
                Ok(_) => "OK".to_owned(),
                Err(text) => text,
            };
            let prefix = format!(
                "CONFIG SET failed (possibly related to argument '{}') - ",
                row[0]
            );
            assert_eq!(
                ours.strip_prefix(&prefix).unwrap_or(&ours),
                *theirs,
                "{} {probe}",
                row[0]
            );
        }
    }
}

#[test]
fn what_is_to_be_one_of_several_lists_what_redis_7_2_and_valkey_list() {
    for (name, listed) in [
        ("loglevel", "debug, verbose, notice, warning, nothing"),
        ("rdbcompression", "no, yes, lzf, lz4, zstd"),
        ("repl-compression", "no, yes, lz4, zstd"),
        (
            "repl-diskless-load",
            "disabled, on-empty-db, swapdb, flush-before-load",
        ),
    ] {
        let error = set_one(&mut Config::default(), name, "?!").expect_err("none of them");
        let expected = format!("argument(s) must be one of the following: {listed}");
        assert!(error.ends_with(&expected), "{error}");
    }
}

#[test]
fn help_names_every_parameter_that_is_not_hidden() {
    let help = help::help();
    for parameter in PARAMETERS {
        let line = format!("\n  --{}", parameter.name);
        assert_eq!(
            help.contains(&line),
            !parameter.traits.hidden,
            "{}",
            parameter.name
        );
    }
    assert!(help.contains("--check-config"));
}
