//! The examples for Kubernetes and compose: what their parts promise each other, and the server's own view of them.

use yaml_rust2::{Yaml, YamlLoader};

use crate::{check_config, read, root};

fn load(path: &str) -> Vec<Yaml> {
    YamlLoader::load_from_str(&read(path)).unwrap_or_else(|error| panic!("{path}: {error}"))
}

/// The object of a kind and name among those of the example for Kubernetes.
fn object(kind: &str, name: &str) -> Yaml {
    let all = load("packaging/kubernetes/basalt.yaml");
    let found = all.into_iter().find(|one| {
        one["kind"].as_str() == Some(kind) && one["metadata"]["name"].as_str() == Some(name)
    });
    found.unwrap_or_else(|| panic!("no {kind} {name}"))
}

fn text<'a>(yaml: &'a Yaml, what: &str) -> &'a str {
    yaml.as_str()
        .unwrap_or_else(|| panic!("{what} is a text, not {yaml:?}"))
}

fn number(yaml: &Yaml, what: &str) -> i64 {
    yaml.as_i64()
        .unwrap_or_else(|| panic!("{what} is a number, not {yaml:?}"))
}

#[test]
fn the_pods_configuration_is_one_that_the_server_takes() {
    let map = object("ConfigMap", "basalt");
    let conf = text(&map["data"]["basalt.conf"], "the configuration");
    // The folder is the volume's.
    let conf = conf.replace("dir /data", "dir /tmp");
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("basalt.conf");
    std::fs::write(&path, &conf).expect("a file");
    let replica = ["--replicaof", "basalt-0.basalt", "6379"];
    let path = path.to_string_lossy().into_owned();
    assert_eq!(check_config(&[&path]), Ok(()));
    assert_eq!(
        check_config(&[&[path.as_str()][..], &replica].concat()),
        Ok(())
    );

    // The limit of the container, of which a part stays free.
    let share = conf
        .lines()
        .find_map(|line| line.strip_prefix("maxmemory "))
        .expect("a limit");
    let share: u32 = share
        .trim_end_matches('%')
        .parse()
        .expect("a share of the container's memory");
    assert!((50..=75).contains(&share), "{share} %");
    let set = object("StatefulSet", "basalt");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let resources = &container["resources"];
    let limit = text(&resources["limits"]["memory"], "the limit");
    assert_eq!(
        text(&resources["requests"]["memory"], "what is asked for"),
        limit
    );

    // A stop has time for preStop, replicas and a snapshot.
    let seconds = conf
        .lines()
        .find_map(|line| line.strip_prefix("shutdown-timeout "))
        .expect("seconds");
    let before = text(
        &container["lifecycle"]["preStop"]["exec"]["command"][1],
        "seconds of preStop",
    );
    let least: i64 =
        seconds.parse::<i64>().expect("a number") + before.parse::<i64>().expect("a number");
    let grace = number(
        &set["spec"]["template"]["spec"]["terminationGracePeriodSeconds"],
        "the grace period",
    );
    assert!(
        grace >= least + 30,
        "{grace} s for {least} s and a snapshot"
    );
}

/// The manifest of a cluster agrees with itself: as many pods as its nodes wait for, and ports that are there.
#[test]
fn a_cluster_has_as_many_pods_as_its_nodes_wait_for() {
    let all = load("packaging/kubernetes/cluster.yaml");
    let of_kind = |kind: &str| {
        let found = all.iter().filter(|one| one["kind"].as_str() == Some(kind));
        found.collect::<Vec<_>>()
    };
    let conf = text(
        &of_kind("ConfigMap")[0]["data"]["basalt.conf"],
        "the configuration",
    );
    let value = |name: &str| {
        let line = conf
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.unwrap_or_else(|| panic!("no {name}"))
    };
    let count = |name: &str| value(name).parse::<i64>().expect("a number");
    let set = of_kind("StatefulSet")[0];
    assert_eq!(
        number(&set["spec"]["replicas"], "pods"),
        count("cluster-size") * (1 + count("cluster-replicas"))
    );
    assert_eq!(
        text(&set["spec"]["podManagementPolicy"], "the order"),
        "Parallel"
    );
    let seeds = format!("{}:6379", text(&set["spec"]["serviceName"], "the names"));
    assert_eq!(value("cluster-seeds"), seeds);
    let ports = set["spec"]["template"]["spec"]["containers"][0]["ports"].as_vec();
    for service in of_kind("Service") {
        for served in service["spec"]["ports"].as_vec().expect("ports") {
            let target = &served["targetPort"];
            let mut named = ports.expect("ports").iter();
            let port = named
                .find(|port| &port["name"] == target)
                .expect("it is there");
            assert_eq!(served["port"], port["containerPort"]);
        }
    }
    // Its probes and rights are those of the other example.
    let other = object("StatefulSet", "basalt");
    let container = |set: &Yaml| set["spec"]["template"]["spec"]["containers"][0].clone();
    for part in ["livenessProbe", "readinessProbe", "securityContext"] {
        assert_eq!(container(set)[part], container(&other)[part], "{part}");
    }
}

#[test]
fn probes_and_services_lead_to_ports_and_pods_that_are_there() {
    let set = object("StatefulSet", "basalt");
    let template = &set["spec"]["template"];
    let container = &template["spec"]["containers"][0];
    let port = |name: &str| {
        let all = container["ports"].as_vec().expect("ports");
        let found = all.iter().find(|port| port["name"].as_str() == Some(name));
        number(
            &found.unwrap_or_else(|| panic!("no port {name}"))["containerPort"],
            name,
        )
    };
    assert_eq!((port("redis"), port("metrics")), (6379, 9121));
    for (probe, path) in [("livenessProbe", "/health"), ("readinessProbe", "/ready")] {
        let asked = &container[probe]["httpGet"];
        assert_eq!(
            (text(&asked["path"], probe), text(&asked["port"], probe)),
            (path, "metrics")
        );
    }
    let label = text(&template["metadata"]["labels"]["app"], "the label");
    let mut services = 0;
    for one in load("packaging/kubernetes/basalt.yaml") {
        let selector = match one["kind"].as_str() {
            Some("Service") => &one["spec"]["selector"],
            Some("PodDisruptionBudget" | "StatefulSet") => {
                assert_eq!(
                    text(&one["spec"]["selector"]["matchLabels"]["app"], "a selector"),
                    label
                );
                continue;
            }
            _ => continue,
        };
        services += 1;
        assert_eq!(text(&selector["app"], "a selector"), label);
        for served in one["spec"]["ports"].as_vec().expect("ports") {
            let target = text(&served["targetPort"], "a target");
            assert_eq!(number(&served["port"], target), port(target));
        }
    }
    assert_eq!(services, 3);
    // The name by which replicas look for their primary is that of the headless service and the first pod.
    let headless = object(
        "Service",
        text(&set["spec"]["serviceName"], "the service of the pods"),
    );
    assert_eq!(
        text(&headless["spec"]["clusterIP"], "no address of its own"),
        "None"
    );
    let script = text(&container["args"][0], "the script");
    assert!(
        script.contains("--replicaof basalt-0.basalt 6379")
            && script.contains("/usr/local/lib/basalt/entrypoint")
    );
    let mounted = container["volumeMounts"].as_vec().expect("mounts");
    for mount in ["/data", "/etc/basalt"] {
        assert!(
            mounted
                .iter()
                .any(|one| one["mountPath"].as_str() == Some(mount)),
            "{mount}"
        );
    }
}

/// What the pods' script hands to the image's entrypoint, in a pod of this name.
fn arguments_in(pod: &str) -> String {
    let set = object("StatefulSet", "basalt");
    let container = &set["spec"]["template"]["spec"]["containers"][0];
    let shell = container["command"].as_vec().expect("a command");
    assert_eq!(
        [text(&shell[0], "the shell"), text(&shell[1], "its option")],
        ["/bin/sh", "-c"]
    );
    let script = text(&container["args"][0], "the script").replace("exec ", "echo ");
    let done = std::process::Command::new("/bin/sh")
        .args(["-c", &script])
        .env("HOSTNAME", pod)
        .output();
    let done = done.expect("a shell");
    assert!(done.status.success(), "{done:?}");
    String::from_utf8(done.stdout)
        .expect("text")
        .trim_end()
        .to_owned()
}

#[test]
fn all_pods_but_the_first_follow_it() {
    let entrypoint = "/usr/local/lib/basalt/entrypoint /etc/basalt/basalt.conf";
    assert_eq!(arguments_in("basalt-0"), entrypoint);
    for pod in ["basalt-1", "basalt-10"] {
        assert_eq!(
            arguments_in(pod),
            format!("{entrypoint} --replicaof basalt-0.basalt 6379")
        );
    }
}

#[test]
fn compose_mounts_what_is_there_and_names_versions() {
    let folder = root().join("packaging/compose");
    let compose = &load("packaging/compose/compose.yaml")[0];
    let services = compose["services"].as_hash().expect("services");
    let names: Vec<&str> = services.keys().filter_map(Yaml::as_str).collect();
    assert_eq!(names, ["basalt", "prometheus", "grafana"]);
    for (name, service) in services {
        let image = text(&service["image"], "an image");
        let (_, tag) = image
            .rsplit_once(':')
            .unwrap_or_else(|| panic!("{image} without a version"));
        assert!(tag.contains('.'), "{image}");
        for volume in service["volumes"].as_vec().expect("volumes") {
            let source = text(volume, "a volume")
                .split(':')
                .next()
                .expect("a source");
            let is_named = !compose["volumes"][source].is_badvalue();
            assert!(
                is_named || folder.join(source).exists(),
                "{name:?}: {source}"
            );
        }
        // Nothing is open to other machines unless somebody wants it so.
        for port in service["ports"].as_vec().expect("ports") {
            assert!(text(port, "a port").starts_with("127.0.0.1:"), "{port:?}");
        }
    }
    assert!(
        folder
            .join(text(
                &compose["services"]["basalt"]["build"],
                "where it is built"
            ))
            .join("Dockerfile")
            .exists()
    );
    let words: Vec<&str> = compose["services"]["basalt"]["command"]
        .as_vec()
        .expect("arguments")
        .iter()
        .filter_map(Yaml::as_str)
        .collect();
    assert_eq!(check_config(&words), Ok(()));

    // Prometheus finds the server by the name of its service, and Grafana finds Prometheus.
    let scraped = &load("packaging/compose/prometheus.yml")[0]["scrape_configs"][0];
    assert_eq!(
        text(&scraped["static_configs"][0]["targets"][0], "a target"),
        "basalt:9121"
    );
    let address = &compose["services"]["grafana"]["environment"]["PROMETHEUS_URL"];
    assert_eq!(text(address, "an address"), "http://prometheus:9090");
}
