//! Manifests that are refused, and with which words.

use super::*;
use crate::topic::Topic;

/// An application of stateless one-shard services joined by `(from, to, outputs)`.
pub(crate) fn application(channels: &[(&str, &str, u32)]) -> Application {
    let mut names: Vec<&str> = Vec::new();
    for (from, to, _) in channels {
        for name in [from, to] {
            if !names.contains(name) {
                names.push(name);
            }
        }
    }
    let services: String = names
        .iter()
        .map(|n| {
            format!("  - {{name: {n}, module: {n}.wasm, resources: {{cpu: 1, memory: 1Mi}}}}\n")
        })
        .collect();
    let list: String = channels
        .iter()
        .map(|(from, to, outputs)| format!("  - {{from: {from}, to: {to}, outputs: {outputs}}}\n"))
        .collect();
    let text = format!(
        "objective: {{latency: 5ms}}\ningress: {}\nservices:\n{services}channels:\n{list}",
        names[0]
    );
    Application {
        name: "test".into(),
        spec: serde_norway::from_str(&text).unwrap(),
    }
}

const GOOD: &str = include_str!("../../tests/two-services.yaml");

fn error(from: &str, to: &str) -> String {
    assert!(GOOD.contains(from), "{from:?} is not in the sample");
    parse_application("a.yaml", &GOOD.replacen(from, to, 1))
        .unwrap_err()
        .to_string()
}

#[test]
fn the_sample_is_good() {
    let app = parse_application("a.yaml", GOOD).unwrap();
    assert_eq!(app.instances(), 2 + 4);
    assert_eq!(app.channels_from(ServiceId(0)).count(), 1);
}

#[test]
fn topics_and_subscriptions_are_checked() {
    let with = |publishes: &str, end: &str| {
        let from = "    - name: back";
        let text = GOOD.replacen(from, &format!("      {publishes}\n{from}"), 1);
        parse_application("a.yaml", &format!("{text}\n  {end}\n"))
    };
    let error = |publishes, end| with(publishes, end).unwrap_err().to_string();
    let both = "topics: [orders]\n  subscriptions: [{topic: orders, service: back}, {topic: \
                    shop/orders, service: back}]";
    let app = with("publishes: [orders]", both).unwrap();
    let topic = |application: &str| Topic {
        application: application.into(),
        name: "orders".into(),
    };
    for application in [app.name.as_str(), "shop"] {
        let topic = topic(application);
        assert!(app.subscribers(&topic).eq([ServiceId(1)]), "{topic}");
    }
    assert_eq!(app.subscribers(&topic("other")).count(), 0);
    for (publishes, end, says) in [
        (
            "publishes: [orders]",
            "topics: [sales]",
            "service \"front\": there is no topic \"orders\" in spec.topics",
        ),
        (
            "publishes: [orders, orders]",
            "topics: [orders]",
            "names topic \"orders\" twice",
        ),
        ("asks: []", "topics: [a, a]", "names topic \"a\" twice"),
        (
            "asks: []",
            "subscriptions: [{topic: sales, service: back}]",
            "there is no topic \"sales\"; add it to spec.topics, or name one of another \
                 application as APPLICATION/TOPIC",
        ),
        (
            "asks: []",
            "subscriptions: [{topic: shop/sales, service: books}]",
            "there is no service \"books\"",
        ),
        (
            "asks: []",
            "subscriptions: [{topic: a/b, service: back}, {topic: a/b, service: back}]",
            "service \"back\" is subscribed to topic \"a/b\" twice",
        ),
    ] {
        let error = error(publishes, end);
        assert!(error.ends_with(says), "{error}");
    }
    assert!(error("asks: []", "subscriptions: [{topic: a/b/c, service: back}]").contains("b/c"));
}

#[test]
fn whom_a_service_asks_is_checked() {
    let with = |text: &str| {
        let text = format!("    {text}\n    - name: back");
        let from = "    - name: back".to_string();
        parse_application("a.yaml", &GOOD.replacen(&from, &text, 1))
    };
    let error = |text: &str| with(text).unwrap_err().to_string();
    let app = with("  asks: [back, front]\n      http: {hosts: [api.example.com]}").unwrap();
    assert_eq!(app.spec.services[0].asks, ["back", "front"]);
    assert!(error("  asks: [stock]").ends_with("service \"front\": there is no service \"stock\""));
    assert!(error("  asks: [back, back]").ends_with("names \"back\" twice"));
    assert!(error("  http: {hosts: []}").ends_with("0 hosts, must be 1..=64"));
    let url = error("  http: {hosts: [\"http://a.com\"]}");
    assert!(
        url.ends_with("host \"http://a.com\" must be a host without scheme and path"),
        "{url}"
    );
    let stateless = GOOD.replacen("stateful: true\n      replicas: 2", "stateful: false", 1);
    let stateless = stateless.replacen(
        "      collections:\n        - {name: seen, kind: counter}",
        "      asks: [back]",
        1,
    );
    let error = parse_application("a.yaml", &stateless)
        .unwrap_err()
        .to_string();
    assert!(
        error.ends_with("a stateless service makes no outbound requests; set stateful: true"),
        "{error}"
    );
}

#[test]
fn errors_name_file_line_field_value_and_bound() {
    assert_eq!(
        error("shards: 2", "shards: 0"),
        "a.yaml:19: spec.services[1].shards: service \"back\": shards is 0, must be 1..=4096"
    );
    let unknown = error("ingress: front", "ingres: front");
    assert!(unknown.starts_with("a.yaml:"), "{unknown}");
    assert!(unknown.contains("unknown field `ingres`"), "{unknown}");
    let twice = error("name: back", "name: front");
    assert!(
        twice.contains("two services are named \"front\""),
        "{twice}"
    );
    let nowhere = error("to: back", "to: nowhere");
    assert!(
        nowhere.contains("a.yaml:26: spec.channels[0].to"),
        "{nowhere}"
    );
    let cycle = error("channels:", "channels:\n    - {from: back, to: front}");
    assert!(cycle.contains("cycle"), "{cycle}");
    let quantity = error("latency: 5ms", "latency: 5");
    assert!(
        quantity.starts_with("a.yaml:6: spec.objective"),
        "{quantity}"
    );
    for (state, shown) in [("0Mi", "0"), ("65Mi", "65Mi")] {
        let quota = error("memory: 64Mi}", &format!("memory: 64Mi, state: {state}}}"));
        let expected = format!(
            "a.yaml:13: spec.services[0].resources.state: service \"front\": state is {shown}, must be more than 0 and at most memory, 64Mi"
        );
        assert_eq!(quota, expected);
    }
    let ttl = error("kind: counter}", "kind: counter, ttl: 0s}");
    assert_eq!(
        ttl,
        "a.yaml:15: spec.services[0].collections[0].ttl: service \"front\": ttl of collection \"seen\" is 0, must be more than 0"
    );
    for (calls, expected) in [
        (
            "gone",
            "a.yaml:12: spec.services[0].calls[0]: service \"front\": calls \"gone\": there is no service \"gone\"",
        ),
        (
            "front",
            "a.yaml:12: spec.services[0].calls[0]: service \"front\": calls itself, must name another service",
        ),
    ] {
        let calls = format!("stateful: true\n      calls: [{calls}]");
        let said = error("stateful: true", &calls);
        assert_eq!(said, expected);
    }
    let cycle = error(
        "stateful: true\n      shards",
        "stateful: true\n      calls: [front]\n      shards",
    );
    assert!(
        cycle.contains("spec.services[1].calls: calls and channels form a cycle"),
        "{cycle}"
    );
    let kind = error("kind: Application", "kind: Pod");
    assert_eq!(
        kind,
        "a.yaml:2: kind: this is a Pod, expected an Application"
    );
}

#[test]
fn a_pin_is_a_kind_or_a_node() {
    let pinned = |pin: &str| {
        let text = GOOD.replacen(
            "stateful: true",
            &format!("stateful: true\n      pin: {pin}"),
            1,
        );
        parse_application("a.yaml", &text)
    };
    let app = pinned("{kind: smartnic}").unwrap();
    let pin = app.spec.services[0].pin.clone();
    assert_eq!(pin, Some(Pin::Kind(NodeKind::SmartNic)));
    let json = serde_json::to_string(&app).unwrap();
    assert!(json.contains(r#""pin":{"kind":"smartnic"}"#), "{json}");
    assert_eq!(serde_json::from_str::<Application>(&json).unwrap(), app);
    let error = pinned("{kind: host, node: n}").unwrap_err().to_string();
    assert!(error.contains("either kind or node"), "{error}");
    let schema = serde_json::to_string(&json_schema(Kind::Application)).unwrap();
    assert!(
        schema.contains("On this node (one shard, one replica)"),
        "{schema}"
    );
}

#[test]
fn figures_are_finite_numbers() {
    let profile = |figures: &str| {
        let text = format!(
            "apiVersion: e3.dev/v1alpha1\nkind: Profile\nmetadata: {{name: p}}\nspec:\n  provenance: \
             modelled\n  source: a test\n  nodes:\n    host: {{serviceTime: [{{bytes: 1, time: 1us}}], \
             {figures}\n"
        );
        parse_profile("p.yaml", &text)
    };
    let of = |outputs: &str| {
        profile(&format!(
            "activePowerW: 1, activeCores: 1}}\n  outputs: {{back: {outputs}}}"
        ))
    };
    assert_eq!(of("0.5").unwrap().spec.outputs["back"], 0.5);
    for wrong in [".nan", ".inf", "-.inf", "-1.0"] {
        let error = of(wrong).unwrap_err().to_string();
        assert!(
            error.contains("spec.outputs.back: outputs of channel \"back\" is"),
            "{error}"
        );
        for figures in [
            format!("activePowerW: {wrong}, activeCores: 1}}"),
            format!("activePowerW: 1, activeCores: {wrong}}}"),
            format!("activePowerW: 1, activeCores: 1, variation: {wrong}}}"),
        ] {
            let error = profile(&figures).unwrap_err().to_string();
            assert!(error.contains("must be 0 or more"), "{error}");
        }
    }
}

#[test]
fn what_a_topology_bounds_is_a_finite_number() {
    let parse = |rack: &str, server: &str, node: &str| {
        let text = format!(
            "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {{name: t}}\nspec:\n  racks:\n  - name: \
             r\n{rack}    servers:\n    - name: s\n      system: Type1\n{server}      nodes:\n      - {{name: n, \
             kind: host, cores: 1, memory: 1Gi, emulated: true{node}}}\n"
        );
        parse_topology("t.yaml", &text)
    };
    parse("    powerBudgetW: 500\n", "", "").unwrap();
    for wrong in [".nan", ".inf", "-.inf"] {
        for (rack, server, node, field) in [
            (
                format!("    powerBudgetW: {wrong}\n"),
                "".into(),
                "".into(),
                "powerBudgetW",
            ),
            (
                "".into(),
                format!("      powerBudgetW: {wrong}\n"),
                "".into(),
                "powerBudgetW",
            ),
            (
                "".into(),
                "".into(),
                format!(", bandwidthGbps: {wrong}"),
                "bandwidthGbps",
            ),
            (
                "".into(),
                "".into(),
                format!(", emulation: {{speed: {wrong}}}"),
                "emulation.speed",
            ),
        ] {
            let error = parse(&rack, &server, &node).unwrap_err().to_string();
            assert!(error.contains(&format!("{field} is")), "{error}");
        }
    }
}

#[test]
fn garbage_is_an_error_not_a_panic() {
    let laughs = format!(
        "{}*a9",
        (1..10).fold("a0: &a0 [1, 1]\n".to_string(), |text, i| {
            let items = vec![format!("*a{}", i - 1); 9].join(", ");
            text + &format!("a{i}: &a{i} [{items}]\n")
        })
    );
    let deep = "[".repeat(100_000);
    for text in [
        &laughs,
        &deep,
        "",
        "\u{0}",
        "a: [",
        "- 1",
        "&a [*a]",
        "{}",
        "apiVersion: 1",
    ] {
        assert!(parse_application("a.yaml", text).is_err(), "{text:?}");
        assert!(parse_topology("a.yaml", text).is_err(), "{text:?}");
    }
}

use crate::application::Pin;
use crate::ids::ServiceId;
use crate::limits::NODES_MAX;
use crate::topology::NodeKind;

/// Servers with a host and four SmartNICs each, forty to a rack.
fn large(servers: usize) -> String {
    let mut text =
        "apiVersion: e3.dev/v1alpha1\nkind: Topology\nmetadata: {name: large}\nspec:\n  racks:\n"
            .to_string();
    for s in 0..servers {
        if s % 40 == 0 {
            text += &format!("    - name: r{}\n      servers:\n", s / 40);
        }
        text +=
            &format!("        - name: s{s}\n          system: Type2-SmartNIC\n          nodes:\n");
        let node = |name: &str, kind: &str, memory: &str| {
            format!(
                "            - {{name: s{s}-{name}, kind: {kind}, cores: 12, memory: {memory}, bandwidthGbps: 10}}\n"
            )
        };
        text += &node("host", "host", "64Gi");
        for n in 0..4 {
            text += &node(&format!("nic{n}"), "smartnic", "4Gi");
        }
    }
    text
}

#[test]
fn a_topology_may_have_as_many_nodes_as_a_cluster_and_no_more() {
    let largest = parse_topology("t.yaml", &large(50_000)).unwrap();
    assert_eq!(largest.nodes_count(), NODES_MAX);
    let error = parse_topology("t.yaml", &large(50_001)).unwrap_err();
    assert_eq!(
        error.to_string(),
        "t.yaml:5: spec.racks: 250005 nodes, must be 1..=250000"
    );
}
