//! What the API says of topics, their publishers and their subscribers.

use crate::common::{APP, Controller, NODES, free_port};
use e3_model::api::*;

fn subscription(topic: &str, service: &str, exists: bool) -> SubscriptionView {
    SubscriptionView {
        topic: topic.into(),
        service: service.into(),
        exists,
    }
}

#[test]
fn an_application_lists_its_topics_and_subscriptions() {
    let tmp = tempfile::tempdir().unwrap();
    let controller = Controller::start(tmp.path(), free_port());
    for node in NODES {
        controller.join(node, 1);
    }
    let reader = APP.replacen("name: two-services", "name: reader", 1).replacen(
        "spec:\n",
        "spec:\n  subscriptions:\n    - {topic: two-services/orders, service: back}\n    - {topic: two-services/lost, service: back}\n",
        1,
    );
    let (status, body) = controller.deploy(&reader);
    assert_eq!(status, 200, "{body}");
    let view: AppView = controller.view("/v1/apps/reader");
    let lost = subscription("two-services/lost", "back", false);
    let early = subscription("two-services/orders", "back", false);
    assert_eq!(view.subscriptions, [early, lost.clone()]);
    let publisher = APP.replacen(
        "spec:\n",
        "spec:\n  topics: [orders, quiet]\n  subscriptions:\n    - {topic: orders, service: back}\n",
        1,
    );
    let publishes = "module: front.wasm\n      publishes: [orders]\n";
    let publisher = publisher.replacen("module: front.wasm\n", publishes, 1);
    let (status, body) = controller.deploy(&publisher);
    assert_eq!(status, 200, "{body}");
    let view: AppView = controller.view("/v1/apps/two-services");
    let topic = |name: &str, publishers: &[&str], subscribers: &[&str]| TopicView {
        name: name.into(),
        publishers: publishers.iter().map(ToString::to_string).collect(),
        subscribers: subscribers.iter().map(ToString::to_string).collect(),
    };
    let orders = topic("orders", &["front"], &["reader/back", "two-services/back"]);
    assert_eq!(view.topics, [orders, topic("quiet", &[], &[])]);
    let own = subscription("two-services/orders", "back", true);
    assert_eq!(view.subscriptions, [own]);
    let view: AppView = controller.view("/v1/apps/reader");
    let found = subscription("two-services/orders", "back", true);
    assert_eq!(view.subscriptions, [found, lost]);
    let all: Vec<AppView> = controller.view("/v1/apps");
    assert!(
        all.iter()
            .all(|app| app.topics.is_empty() && app.subscriptions.is_empty())
    );
}
